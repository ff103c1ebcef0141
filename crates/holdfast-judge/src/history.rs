//! The history of a judgement (`--history`): every request and answer as a line of JSON, in the
//! manner of Jepsen. docs/JUDGE.md describes it; `check` computes the verdict from it alone.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::events::{Recording, Stall};
use super::ledger::RowWrite;
use super::plan::JudgePlan;
use super::protocol::{ReleaseAnswer, Turn, TurnOutcome};
use super::report::{Actor, Adapter, ClientId};
use super::saved_events;

/// Version of the format: that of the first line.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HistoryLine {
    pub(super) process: HistoryProcess,
    #[serde(rename = "type")]
    pub(super) kind: LineType,
    pub(super) f: String,
    #[serde(default)]
    pub(super) value: Value,
    /// Nanoseconds of the machine's monotonic clock since the judgement began.
    pub(super) time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineType {
    Invoke,
    Ok,
    Fail,
    /// Of a client: whether it took effect is not known. Of the judge: what it did.
    Info,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum HistoryProcess {
    /// A client; one that took the place of a killed one has another number.
    Client(u32),
    Judge(JudgeProcess),
}

/// The judge, by the name that Jepsen has for what injects the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JudgeProcess {
    Nemesis,
}

/// Value of the first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    /// [`VERSION`].
    pub(super) history: u32,
    pub(super) adapter: Adapter,
    pub(super) ttl_ms: u64,
    pub(super) workers: u32,
    pub(super) clients: u32,
    pub(super) started_at: String,
    pub(super) seed: u64,
}

/// Value of the line that begins the run of a fault.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RunStart {
    pub(super) fault: String,
    pub(super) seed: u64,
    pub(super) stock: i64,
}

/// Value of the line that ends it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunEnd {
    /// The stock of the rows at the end; the second one is absent without fences.
    pub(super) stock: i64,
    #[serde(default)]
    pub(super) fenced_stock: Option<i64>,
    /// Time in which the messages of a worker were late, so that the order of its grants is open.
    #[serde(default)]
    pub(super) late: Option<LatePeriod>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LatePeriod {
    pub(super) worker: u32,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// Value of the answer to an update.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Update {
    #[serde(flatten)]
    pub(super) change: Change,
    /// The same for the row whose writes demand the fence; absent if that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fenced: Option<Change>,
}

/// A change of a row.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) read: i64,
    pub(super) wrote: i64,
    /// Number of this write among all of the row: the order in which Postgres made them.
    pub(super) version: i64,
}

/// The file.
#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Start of the judgement.
    began_us: u64,
    runs: u32,
}

impl HistoryFile {
    /// Creates the file: a wrong path fails before the work.
    pub(super) fn create(path: &Path, began_us: u64) -> anyhow::Result<Self> {
        let file = File::create(path);
        let file = file.with_context(|| format!("can't write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), began_us, runs: 0 })
    }

    fn write(&mut self, line: &HistoryLine) -> anyhow::Result<()> {
        let text = serde_json::to_string(line)?;
        let written = writeln!(self.file, "{text}");
        written.with_context(|| format!("can't write {}", self.path.display()))
    }

    fn note(&mut self, f: &str, value: Value, time: u64) -> anyhow::Result<()> {
        let process = HistoryProcess::Judge(JudgeProcess::Nemesis);
        self.write(&HistoryLine { process, kind: LineType::Info, f: f.to_owned(), value, time })
    }

    /// Nanoseconds since the start of the judgement.
    fn time(&self, us: u64) -> u64 {
        us.saturating_sub(self.began_us) * 1_000
    }

    /// Writes the first line, whose adapter is known after the first run.
    pub(super) fn begin(&mut self, header: &Header) -> anyhow::Result<()> {
        self.note("judgement", serde_json::to_value(header)?, 0)
    }

    /// Writes the requests and answers of a run, by time, with all writes to both rows.
    pub(super) fn run(
        &mut self,
        plan: &JudgePlan,
        recording: &Recording,
        start: &RunStart,
        ledger: Vec<RowWrite>,
        end: RunEnd,
    ) -> anyhow::Result<()> {
        self.note("begin", serde_json::to_value(start)?, self.time(recording.began_us))?;

        let mut lines = self.lines_of_clients(plan, recording, ledger)?;
        for mark in &recording.marks {
            let Actor { server, id } = mark.lane;
            let value = match server {
                Some(server) => json!({ "server": server, "holder": id.to_string() }),
                None => json!({ "worker": id.worker, "holder": id.to_string() }),
            };
            let (process, kind) = (HistoryProcess::Judge(JudgeProcess::Nemesis), LineType::Info);
            let f = saved_events::name(&mark.kind, server).to_owned();
            let time = self.time(mark.at_us);
            lines.push(HistoryLine { process, kind, f, value, time });
        }
        // At one time, requests before answers: nothing is known of their order.
        lines.sort_by_key(|line| (line.time, line.kind != LineType::Invoke));
        for line in &lines {
            self.write(line)?;
        }

        let late = recording.stall.as_ref().map(|stall| self.late(stall));
        let end = RunEnd { late, ..end };
        let last = lines.last().map_or(0, |line| line.time);
        self.note("end", serde_json::to_value(end)?, last.max(self.time(recording.ended_us)))?;
        self.runs += 1;
        self.file.flush().with_context(|| format!("can't write {}", self.path.display()))
    }

    fn late(&self, stall: &Stall) -> LatePeriod {
        let (from, until) = (self.time(stall.from_us), self.time(stall.until_us));
        LatePeriod { worker: stall.worker, from, until }
    }

    fn lines_of_clients(
        &self,
        plan: &JudgePlan,
        recording: &Recording,
        ledger: Vec<RowWrite>,
    ) -> anyhow::Result<Vec<HistoryLine>> {
        let mut writes: HashMap<(ClientId, u64, bool), RowWrite> =
            ledger.into_iter().map(|row| ((row.id, row.granted_us, row.fenced), row)).collect();
        let mut numbers = Numbers { plan, killed: HashMap::new(), latest: HashMap::new() };
        let mut lines = Vec::new();

        let mut turns: Vec<&Turn> = recording.turns.iter().collect();
        turns.sort_by_key(|turn| turn.asked_us);
        for turn in turns {
            let mut write = |fenced| writes.remove(&(turn.id, turn.answered_us, fenced));
            let change = write(false).map(Change::from);
            let fenced = write(true).map(Change::from);
            let update = change.map(|change| Update { change, fenced });
            for (at_us, kind, f, value) in steps_of(turn, update)? {
                lines.push(numbers.line(turn.id, self.time(at_us), kind, f, value));
            }
            if is_killed(turn) {
                numbers.replace(turn.id);
            }
        }

        // Of clients that were killed before they reported it: the write is in the ledger.
        let mut lost: Vec<RowWrite> = writes.into_values().collect();
        lost.sort_by_key(|row| (row.granted_us, row.fenced));
        for row in lost.iter().filter(|row| !row.fenced) {
            let fenced = lost.iter().find(|other| other.fenced && other.is_of_turn(row));
            let fenced = fenced.map(|row| Change::from(*row));
            let value = serde_json::to_value(Update { change: Change::from(*row), fenced })?;
            numbers.replace(row.id);
            let began = self.time(row.granted_us);
            lines.push(numbers.line(row.id, began, LineType::Invoke, "update", Value::Null));
            let sent = self.time(row.sent_us);
            lines.push(numbers.line(row.id, sent, LineType::Info, "update", value));
            numbers.replace(row.id);
        }
        Ok(lines)
    }

    /// Writes that a fault did not run.
    pub(super) fn not_run(
        &mut self,
        fault: &str,
        why: &str,
        prevented: bool,
        now_us: u64,
    ) -> anyhow::Result<()> {
        let value = json!({ "fault": fault, "why": why, "prevented": prevented });
        self.note("not-run", value, self.time(now_us))
    }

    /// Writes the last line, without which the file is truncated.
    pub(super) fn finish(mut self, now_us: u64) -> anyhow::Result<()> {
        self.note("finish", json!({ "runs": self.runs }), self.time(now_us))?;
        self.file.flush().with_context(|| format!("can't write {}", self.path.display()))
    }
}

impl From<RowWrite> for Change {
    fn from(row: RowWrite) -> Self {
        Self { read: row.before, wrote: row.after, version: row.version }
    }
}

/// Numbers of the clients' processes.
struct Numbers<'a> {
    plan: &'a JudgePlan,
    /// Number of processes of a client that were killed.
    killed: HashMap<ClientId, u32>,
    /// Time of the latest line of a process.
    latest: HashMap<u32, u64>,
}

impl Numbers<'_> {
    fn number(&self, id: ClientId) -> u32 {
        let args = &self.plan.args;
        let killed = self.killed.get(&id).copied().unwrap_or_default();
        (killed * args.workers + id.worker) * args.clients + id.client
    }

    /// Gives the client the number of another process.
    fn replace(&mut self, id: ClientId) {
        *self.killed.entry(id).or_default() += 1;
    }

    /// Returns a line of a client's process, whose times grow: the clock has only microseconds.
    fn line(
        &mut self,
        id: ClientId,
        time: u64,
        kind: LineType,
        f: &str,
        value: Value,
    ) -> HistoryLine {
        let number = self.number(id);
        let latest = self.latest.entry(number).or_default();
        *latest = time.max(*latest + 1);
        HistoryLine {
            process: HistoryProcess::Client(number),
            kind,
            f: f.to_owned(),
            value,
            time: *latest,
        }
    }
}

fn is_killed(turn: &Turn) -> bool {
    turn.outcome == TurnOutcome::Granted && turn.released_us == 0
}

type TimedStep = (u64, LineType, &'static str, Value);

/// Returns time, type, function and value of each line of a turn.
fn steps_of(turn: &Turn, update: Option<Update>) -> anyhow::Result<Vec<TimedStep>> {
    use LineType::{Fail, Info, Invoke, Ok as Done};

    let mut steps = vec![(turn.asked_us, Invoke, "acquire", Value::Null)];
    if turn.outcome != TurnOutcome::Granted {
        steps.push((turn.answered_us, Fail, "acquire", serde_json::to_value(turn.outcome)?));
        return Ok(steps);
    }

    let fence = turn.fence.map_or(Value::Null, |fence| json!({ "fence": fence }));
    steps.push((turn.answered_us, Done, "acquire", fence));
    steps.push((turn.read_us, Invoke, "update", Value::Null));
    steps.push(match update {
        Some(update) => (turn.release_us, Done, "update", serde_json::to_value(update)?),
        None if turn.stopped => {
            (turn.release_us, Fail, "update", json!({ "stopped": true, "saved": turn.saved }))
        }
        // Its process was killed before it sent the write.
        None => (turn.release_us, Fail, "update", json!("killed")),
    });
    steps.push((turn.release_us, Invoke, "release", Value::Null));
    steps.push(match turn.release {
        ReleaseAnswer::Ok => (turn.released_us, Done, "release", Value::Null),
        ReleaseAnswer::Lost => (turn.released_us, Fail, "release", json!("lost")),
        ReleaseAnswer::None => (turn.release_us, Info, "release", json!("killed")),
        other => (turn.released_us, Info, "release", serde_json::to_value(other)?),
    });
    Ok(steps)
}

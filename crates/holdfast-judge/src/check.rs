//! `holdfast judge check`: the verdict from a history alone. What was lost follows from the order
//! of the writes, not from the rows at the end, which must agree.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::events::{Recording, Stall};
use super::fault::Fault;
use super::history::{
    Change, Header, HistoryLine, HistoryProcess, LineType, RunEnd, RunStart, Update, VERSION,
};
use super::holds;
use super::protocol::{ReleaseAnswer, Turn, TurnOutcome};
use super::repeat::Tally;
use super::report::{ClientId, FaultReport, Judgement, WithFence, is_safe};

const QUOTED_CHARS: usize = 120;

/// Reads a history, and returns the judgement that follows from it: verdict and violations of the
/// lock's safety, without waits and costs. Fails if the file is no complete history.
pub fn check(path: &Path) -> anyhow::Result<Judgement> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("can't read {name}"))?;
    let mut reading = Reading::default();
    let mut lines = BufReader::new(file).lines();

    let first = lines.next().transpose().with_context(|| format!("can't read {name}"))?;
    let first = first.with_context(|| format!("{name} is empty"))?;
    let header = read_header(&first).with_context(|| format!("{name} can't be checked"))?;

    for (number, line) in (2_u64..).zip(lines) {
        let line = line.with_context(|| format!("can't read {name}"))?;
        let parsed = serde_json::from_str::<HistoryLine>(&line);
        // A line that ends in its middle is the last one of a file that was cut off.
        if parsed.as_ref().is_err_and(serde_json::Error::is_eof) {
            bail!("{name} is truncated in line {number}");
        }
        let quoted: String = line.chars().take(QUOTED_CHARS).collect();
        let parsed = parsed
            .with_context(|| format!("{name}, line {number} is no line of a history: {quoted}"))?;
        reading.take(parsed, &header).with_context(|| format!("{name}, line {number}"))?;
    }

    ensure!(
        reading.finished,
        "{name} is truncated: it has no line `finish`. The judge was interrupted, or the file was \
         cut off"
    );
    let faults = reading.faults;
    let safe = is_safe(&faults);
    let Header { adapter, ttl_ms, seed, started_at, .. } = header;
    let options = String::new();
    Ok(Judgement { adapter, faults, safe, ttl_ms, seed, started_at, options })
}

/// Reads the first line.
fn read_header(line: &str) -> anyhow::Result<Header> {
    let foreign = "it is no history that `holdfast judge --history` has written";
    let line: HistoryLine = serde_json::from_str(line).context(foreign)?;
    ensure!(line.f == "judgement", foreign);
    // Before the rest, which another version may have changed.
    let version = line.value.get("history").and_then(Value::as_u64).context(foreign)?;
    ensure!(
        version == u64::from(VERSION),
        "it is a history of version {version}; this holdfast reads version {VERSION}"
    );
    let header: Header = serde_json::from_value(line.value).context(foreign)?;
    ensure!(header.workers > 0 && header.clients > 0, foreign);
    Ok(header)
}

/// The part of a history that was read so far.
#[derive(Debug, Default)]
struct Reading {
    run: Option<RunInProgress>,
    /// The report of each fault whose runs have ended.
    faults: Vec<FaultReport>,
    tally: Option<Tally>,
    runs: u64,
    finished: bool,
}

#[derive(Debug, Default)]
struct RunInProgress {
    start: RunStart,
    recording: Recording,
    /// The turn of each process, and its request without an answer.
    turns: HashMap<u32, (Turn, Option<String>)>,
    changes: Vec<Change>,
    fenced: Vec<Change>,
}

impl Reading {
    fn take(&mut self, line: HistoryLine, header: &Header) -> anyhow::Result<()> {
        ensure!(!self.finished, "it follows the line `finish`");
        match line.process {
            HistoryProcess::Client(process) => {
                let run = self.run.as_mut().context("a request outside of a run")?;
                run.take(process, line, header)
            }
            HistoryProcess::Judge(_) => self.take_note(line, header),
        }
    }

    fn take_note(&mut self, line: HistoryLine, header: &Header) -> anyhow::Result<()> {
        match line.f.as_str() {
            "begin" => {
                ensure!(self.run.is_none(), "the run before it has not ended");
                let start = value(line.value)?;
                self.run = Some(RunInProgress { start, ..RunInProgress::default() });
            }
            "end" => {
                let run = self.run.take().context("no run has begun")?;
                let seed = run.start.seed;
                let report = run.end(&value(line.value)?, header)?;
                self.runs += 1;
                self.add(report, seed);
            }
            "not-run" => {
                let text = |name: &str| Some(line.value.get(name)?.as_str()?.to_owned());
                let name = text("fault").context("it names no fault")?;
                // One run among others in which the fault could not be placed.
                if self.faults.last().is_none_or(|last| last.name != name) {
                    self.faults.push(FaultReport {
                        name,
                        why_not: text("why"),
                        prevented: line.value.get("prevented").is_some_and(|it| *it == true),
                        ..FaultReport::default()
                    });
                }
            }
            "finish" => {
                ensure!(self.run.is_none(), "the last run has not ended");
                let runs = line.value.get("runs").and_then(Value::as_u64);
                ensure!(runs == Some(self.runs), "the file has {} runs, not all", self.runs);
                self.finished = true;
            }
            // What the judge did to processes and servers.
            _ => {}
        }
        Ok(())
    }

    /// Adds a run to those of its fault.
    fn add(&mut self, report: FaultReport, seed: u64) {
        let is_same = self.faults.last().is_some_and(|last| last.name == report.name);
        match self.tally.take().filter(|_| is_same) {
            Some(mut tally) => {
                tally.add(report, seed);
                self.faults.pop();
                self.faults.push(tally.clone().into_report());
                self.tally = Some(tally);
            }
            None => {
                self.tally = report
                    .fault()
                    .is_some_and(Fault::is_repeated)
                    .then(|| Tally::new(report.clone(), seed));
                self.faults.push(report);
            }
        }
    }
}

fn value<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("its value is not as it should be")
}

impl RunInProgress {
    fn take(&mut self, process: u32, line: HistoryLine, header: &Header) -> anyhow::Result<()> {
        let us = line.time / 1_000;
        let (turn, open) = self.turns.entry(process).or_default();
        if line.kind == LineType::Invoke {
            ensure!(open.is_none(), "process {process} has a request without an answer");
            let number = process % (header.workers * header.clients);
            let (worker, client) = (number / header.clients, number % header.clients);
            turn.id = ClientId { worker, client };
            match line.f.as_str() {
                "acquire" => *turn = Turn { id: turn.id, asked_us: us, ..Turn::default() },
                "update" => turn.read_us = us,
                "release" => turn.release_us = us,
                other => bail!("there is no request `{other}`"),
            }
            *open = Some(line.f);
            return Ok(());
        }

        let request = open.take();
        ensure!(
            request.as_ref() == Some(&line.f),
            "process {process} has not requested `{}`",
            line.f
        );
        match (line.f.as_str(), line.kind) {
            ("acquire", LineType::Ok) => {
                turn.outcome = TurnOutcome::Granted;
                turn.answered_us = us;
                turn.fence = line.value.get("fence").and_then(Value::as_i64);
            }
            ("update", LineType::Ok | LineType::Info) => {
                let update: Update = value(line.value)?;
                turn.refused = turn.fence.is_some() && update.fenced.is_none();
                self.changes.push(update.change);
                self.fenced.extend(update.fenced);
            }
            ("update", LineType::Fail) => {
                turn.saved = line.value.get("saved").is_some_and(|saved| *saved == true);
            }
            ("release", kind) => {
                turn.released_us = us;
                turn.release = match kind {
                    LineType::Ok => ReleaseAnswer::Ok,
                    LineType::Fail => ReleaseAnswer::Lost,
                    _ => ReleaseAnswer::None,
                };
                self.recording.turns.push(*turn);
            }
            // Not granted, or not written.
            _ => {}
        }
        Ok(())
    }

    /// Judges the run. Fails if the rows at the end are not what the writes lead to.
    fn end(mut self, end: &RunEnd, header: &Header) -> anyhow::Result<FaultReport> {
        self.recording.stall = end.late.map(|late| Stall {
            worker: late.worker,
            from_us: late.from / 1_000,
            until_us: late.until / 1_000,
        });
        let holds = holds::holds(&self.recording);
        let stock = self.start.stock;
        let with_fence = match end.fenced_stock {
            Some(at_end) if header.adapter.fencing => Some(WithFence {
                lost_updates: lost(&mut self.fenced, stock, at_end).context("the fenced row")?,
                refused: holds.iter().filter(|turn| turn.refused).count() as u64,
            }),
            _ => None,
        };

        Ok(FaultReport {
            ran: true,
            lost_updates: lost(&mut self.changes, stock, end.stock)?,
            overlaps: holds::overlaps(&holds).len() as u64,
            release_ok_when_lost: holds::wrong_releases(&holds, &self.recording).len() as u64,
            fence_regressions: holds::fence_regressions(&holds, &self.recording).len() as u64,
            with_fence,
            turns: holds.len() as u64,
            saved_updates: holds.iter().filter(|turn| turn.saved).count() as u64,
            // A history has no commands of Redis, by which one sees which faults touch the lock.
            redis_commands: f64::INFINITY,
            name: self.start.fault,
            ..FaultReport::default()
        })
    }
}

/// Returns the units that the changes took and the row does not show: their number minus the change
/// of the stock, which is what the last one wrote.
fn lost(changes: &mut [Change], initial: i64, at_end: i64) -> anyhow::Result<u64> {
    changes.sort_by_key(|change| change.version);
    for (change, version) in changes.iter().zip(1..) {
        ensure!(change.version == version, "the write of version {version} is missing");
        ensure!(change.wrote == change.read - 1, "version {version} did not take one unit");
    }

    let last = changes.last().map_or(initial, |change| change.wrote);
    ensure!(last == at_end, "the row has {at_end} at the end, and the last write was {last}");
    let taken = i64::try_from(changes.len())?;
    u64::try_from(taken - (initial - last)).context("more units are gone than were taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change((read, version): (i64, i64)) -> Change {
        Change { read, wrote: read - 1, version }
    }

    #[test]
    fn lost_units_follow_from_the_order_of_writes() {
        let mut in_order = [(10, 1), (9, 2), (8, 3)].map(change);
        assert_eq!(lost(&mut in_order, 10, 7).ok(), Some(0));
        // The third one has not read the second one's change.
        let mut stale = [(9, 3), (10, 1), (9, 2)].map(change);
        assert_eq!(lost(&mut stale, 10, 8).ok(), Some(1));

        let error = lost(&mut stale, 10, 7).expect_err("the row disagrees");
        assert!(error.to_string().contains("the last write was 8"), "{error}");
        let error = lost(&mut [(10, 1), (9, 3)].map(change), 10, 8).expect_err("one is missing");
        assert!(error.to_string().contains("version 2 is missing"), "{error}");
    }
}

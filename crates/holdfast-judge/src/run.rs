//! A judgement from start to end: one pass per fault, and the report of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use holdfast_base::message;
use holdfast_lock::clock::monotonic_us;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use super::clocks::{Clocks, find_faketime};
use super::demands::Demands;
use super::events::Recording;
use super::failure::{FailureKind, JudgeFailure};
use super::fault::Fault;
use super::faults::{self, NotRun};
use super::history::{self, Header, HistoryFile, RunEnd, RunStart};
use super::holds;
use super::ledger::{INITIAL_STOCK, Ledger};
use super::plan::JudgePlan;
use super::processes::{adopt_orphans, end_orphans};
use super::protocol::{ReleaseAnswer, TurnOutcome};
use super::repeat::Tally;
use super::report::{Adapter, FaultReport, Judgement, is_safe};
use super::stage::Stage;
use super::stores;
use super::violations::{FaultEvidence, MAX_BLOCKED_TTLS};
use holdfast_services::{TempFolder, TempPostgres};

/// Time over which the commands of idle adapters are counted.
const IDLE_PERIOD: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The longest work without a fault, until there are enough turns.
const MAX_UNDISTURBED: Duration = Duration::from_mins(1);
/// Characters of an error that a report quotes.
const MAX_WHY: usize = 500;
/// Work after a fault, in TTLs: long enough to see that a lock is blocked.
const RECOVERY_TTLS: f64 = MAX_BLOCKED_TTLS as f64 + 0.5;

/// Runs all faults in servers below `folder`, and returns the judgement. `progress` is called with
/// the number of the fault among all, and its name. Fails before the work if the demands are of
/// another lock.
pub(super) async fn run(
    plan: &JudgePlan,
    demands: &Demands,
    folder: &TempFolder,
    history: Option<HistoryFile>,
    progress: impl FnMut(usize, &str),
) -> anyhow::Result<Judgement> {
    adopt_orphans();
    let postgres = TempPostgres::start(folder).await?;

    let judged = judge_all(plan, demands, folder, &postgres, history, progress).await;
    // Before an error is returned: every way ends what was started.
    end_orphans(postgres.pid()).await;
    postgres.stop().await;

    let (adapter, faults) = judged?;
    Ok(Judgement {
        adapter,
        safe: is_safe(&faults),
        faults,
        ttl_ms: plan.args.ttl_ms,
        seed: plan.seed,
        started_at: plan.started_at.clone(),
        options: String::new(),
    })
}

async fn judge_all(
    plan: &JudgePlan,
    demands: &Demands,
    folder: &TempFolder,
    postgres: &TempPostgres,
    history: Option<HistoryFile>,
    mut progress: impl FnMut(usize, &str),
) -> anyhow::Result<(Adapter, Vec<FaultReport>)> {
    let mut ledger = Ledger::connect(&postgres.url(), 0).await?;
    ledger.create().await?;
    let mut judge = LockJudge {
        plan,
        demands,
        postgres,
        ledger,
        adapter: None,
        idle_commands_per_s: 0.0,
        undisturbed_rate: 0.0,
        usual_keys: BTreeSet::new(),
        clock: folder.own_file("clock"),
        history,
        seed: plan.seed,
    };

    let excludes_elsewhere =
        plan.args.is_store_checked && stores::excludes_elsewhere(plan, postgres).await?;
    let mut reports = Vec::new();
    for (number, fault) in plan.faults.iter().enumerate() {
        let undisturbed: Option<&FaultReport> = reports.first();
        let is_elsewhere = undisturbed.is_some_and(|none| none.is_out_of_reach(*fault));
        let runs = if is_elsewhere { 1 } else { plan.runs_of(*fault) };
        let report = judge.run_repeatedly(*fault, runs, |run| match runs {
            1 => progress(number, fault.name()),
            _ => progress(number, &format!("{}, run {run} of at most {runs}", fault.name())),
        });
        let report = Box::pin(report).await;
        reports.push(report.with_context(|| format!("under the fault `{}`", fault.name()))?);
    }
    if let Some(undisturbed) = reports.first_mut() {
        undisturbed.excludes_elsewhere = excludes_elsewhere;
    }

    if let Some(history) = judge.history {
        history.finish(monotonic_us())?;
    }
    Ok((judge.adapter.context("no adapter has answered `init`")?, reports))
}

struct LockJudge<'a> {
    plan: &'a JudgePlan,
    demands: &'a Demands,
    postgres: &'a TempPostgres,
    ledger: Ledger,
    adapter: Option<Adapter>,
    idle_commands_per_s: f64,
    undisturbed_rate: f64,
    /// Keys that remain in Redis without a fault, as they would be in any pass: counters, and the
    /// like.
    usual_keys: BTreeSet<String>,
    /// The file from which libfaketime reads the offset of a clock, without the worker's number.
    clock: PathBuf,
    history: Option<HistoryFile>,
    /// Seed of this run; repeated ones have the following numbers.
    seed: u64,
}

/// The figures that are read from the servers of a pass before they end.
struct ServerFigures {
    commands: u64,
    leftover_keys: u64,
    unusual_keys: BTreeSet<String>,
}

impl LockJudge<'_> {
    /// Runs a fault until its verdict is clear, for at most `runs` times. A fault that can't be
    /// placed at first is not tried again.
    async fn run_repeatedly(
        &mut self,
        fault: Fault,
        runs: u32,
        mut progress: impl FnMut(u32),
    ) -> anyhow::Result<FaultReport> {
        self.seed = self.plan.seed;
        progress(1);
        let first = self.run_fault(fault).await?;
        if runs == 1 || !first.ran || first.untouched {
            return Ok(first);
        }

        let mut tally = Tally::new(first, self.seed);
        for run in 2..=runs {
            if tally.is_clear() {
                break;
            }
            progress(run);
            self.seed = self.plan.seed.wrapping_add(u64::from(run) - 1);
            let report = self.run_fault(fault).await;
            let seed = self.seed;
            tally.add(report.with_context(|| format!("with the seed {seed}"))?, seed);
        }
        Ok(tally.into_report())
    }

    async fn run_fault(&mut self, fault: Fault) -> anyhow::Result<FaultReport> {
        let NotRun { why, is_prevented } = match self.try_fault(fault).await {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(not_run)) => not_run,
            // Some programs don't work under libfaketime, which is no fault of the lock.
            Err(error) if fault == Fault::ClockJump => {
                let why = format!("{error:#}");
                let why = why.lines().next().unwrap_or_default().chars().take(MAX_WHY);
                message!("judge-why-fails", error = why.collect::<String>()).into()
            }
            Err(error) => return Err(error),
        };
        if let Some(history) = &mut self.history {
            history.not_run(fault.name(), &why.english(), is_prevented, monotonic_us())?;
        }
        Ok(FaultReport {
            name: fault.name().to_owned(),
            why_not: Some(why.english()),
            why_not_message: Some(why),
            prevented: is_prevented,
            ..FaultReport::default()
        })
    }

    /// Writes a run that was judged, after the first one also what was judged.
    async fn write_history(
        &mut self,
        report: &FaultReport,
        recording: &Recording,
    ) -> anyhow::Result<()> {
        let Some(history) = &mut self.history else { return Ok(()) };
        if report.fault() == Some(Fault::Undisturbed) {
            let adapter = self.adapter.clone().context("no adapter has answered `init`")?;
            history.begin(&Header {
                history: history::VERSION,
                adapter,
                ttl_ms: self.plan.args.ttl_ms,
                workers: self.plan.args.workers,
                clients: self.plan.args.clients,
                started_at: self.plan.started_at.clone(),
                seed: self.plan.seed,
            })?;
        }

        let fault = report.name.clone();
        let start = RunStart { fault, seed: self.seed, stock: INITIAL_STOCK };
        let fenced_stock = match report.with_fence {
            Some(_) => Some(self.ledger.stock(true).await?),
            None => None,
        };
        let end = RunEnd { stock: self.ledger.stock(false).await?, fenced_stock, late: None };
        let ledger = self.ledger.rows().await?;
        history.run(self.plan, recording, &start, ledger, end)
    }

    /// Runs a pass; `Err` of the inner result says why there was no fault.
    async fn try_fault(&mut self, fault: Fault) -> anyhow::Result<Result<FaultReport, NotRun>> {
        // The same for every fault, and again with the same seed.
        let workers = self.plan.args.workers;
        let worker = StdRng::seed_from_u64(self.seed).random_range(0..workers);
        let mut clocks = None;
        if fault == Fault::ClockJump {
            let Some(library) = find_faketime(Path::new("/")) else {
                return Ok(Err(message!("judge-why-no-faketime").into()));
            };
            clocks = Some(Clocks::start(&self.clock, library, workers, worker)?);
        }

        if fault == Fault::Cancel && self.adapter.as_ref().is_some_and(|it| !it.cancels) {
            return Ok(Err(message!("judge-why-no-cancel").into()));
        }

        let pass = self.ledger.begin_pass().await?;
        let numbers = (pass, self.seed);
        let mut stage = Stage::set_up(self.plan, fault, numbers, clocks, self.postgres).await?;
        let ran = self.run_pass(&mut stage, worker).await;
        let adapter = stage.adapter.clone();
        // Whether it ran or not: the next pass has the machine for itself.
        let recording = stage.take_down().await;
        end_orphans(self.postgres.pid()).await;

        let figures = match ran? {
            Ok(figures) => figures,
            Err(not_run) => return Ok(Err(not_run)),
        };
        self.adapter = self.adapter.take().or(adapter);
        let report = self.report(fault, &recording, &figures).await?;
        if fault == Fault::Undisturbed {
            self.undisturbed_rate = rate(&report, &recording);
        }
        if report.turns == 0 {
            // Under libfaketime, that may be why.
            let is_prevented = fault != Fault::ClockJump;
            return Ok(Err(NotRun { why: message!("judge-why-no-grant"), is_prevented }));
        }
        if fault == Fault::ClockJump
            && is_crippled(&report, rate(&report, &recording) / self.undisturbed_rate)
        {
            return Ok(Err(message!("judge-why-crippled", grants = report.turns).into()));
        }
        self.write_history(&report, &recording).await?;
        Ok(Ok(report))
    }

    /// Runs the work with the fault, which strikes `worker` if it strikes one; `Err` of the inner
    /// result says why there was no fault.
    async fn run_pass(
        &mut self,
        stage: &mut Stage<'_>,
        worker: u32,
    ) -> anyhow::Result<Result<ServerFigures, NotRun>> {
        if let Some(adapter) = &stage.adapter {
            self.demands.check_name(&adapter.name)?;
        }

        let undisturbed = stage.fault == Fault::Undisturbed;
        let before = stage.redis.commands().await?;
        let since = Instant::now();
        stage.begin().await?;
        if let Err(not_run) = faults::place(stage, worker).await? {
            return Ok(Err(not_run));
        }

        if !undisturbed {
            stage.work_for(self.plan.ttl(RECOVERY_TTLS)).await?;
        }
        stage.work_for(self.plan.work().saturating_sub(since.elapsed())).await?;
        if undisturbed {
            self.work_on(stage, since).await?;
        }
        stage.end().await?;

        let elapsed = since.elapsed();
        let after = stage.redis.commands().await?;
        if undisturbed {
            // Now, as adapters start some of what they do in the background with the first lock.
            stage.work_for(IDLE_PERIOD).await?;
            let idle = stage.redis.commands().await?.saturating_sub(after);
            self.idle_commands_per_s = idle as f64 / IDLE_PERIOD.as_secs_f64();
        }

        let used = after.saturating_sub(before);
        let idle = self.idle_commands_per_s * elapsed.as_secs_f64();
        let (leftover_keys, unusual_keys) = self.wait_for_expiry(stage).await?;
        let commands = used.saturating_sub(idle as u64);
        Ok(Ok(ServerFigures { commands, leftover_keys, unusual_keys }))
    }

    /// Lets the clients work on until there are enough turns to compare, or none gets the lock.
    async fn work_on(&self, stage: &mut Stage<'_>, since: Instant) -> anyhow::Result<()> {
        let enough = self.plan.args.turns as usize;
        // Few turns say little of a lock that grants it to two clients once in a while.
        let has_enough = |stage: &Stage<'_>| {
            let granted =
                stage.recording.turns.iter().filter(|turn| turn.outcome == TurnOutcome::Granted);
            granted.count() >= enough
        };

        let clients = (self.plan.args.workers * self.plan.args.clients) as usize;
        let limit = Duration::from_millis(2 * self.plan.args.wait_ms) + self.plan.ttl(2.0);
        // Not before each client was refused: an answer that is still to come may be a grant.
        let is_hopeless = |stage: &Stage<'_>| {
            let turns = &stage.recording.turns;
            let answered = || turns.iter().map(|turn| turn.id).collect::<BTreeSet<_>>().len();
            !stage.recording.has_grant() && since.elapsed() > limit && answered() == clients
        };
        while !has_enough(stage) && !is_hopeless(stage) && since.elapsed() < MAX_UNDISTURBED {
            stage.work_for(POLL_INTERVAL).await?;
        }
        Ok(())
    }

    /// Waits two TTLs, or until no key is left that is not left without a fault either. Returns the
    /// number of all keys, and the names of those.
    async fn wait_for_expiry(
        &mut self,
        stage: &Stage<'_>,
    ) -> anyhow::Result<(u64, BTreeSet<String>)> {
        let until = Instant::now() + self.plan.ttl(2.0);
        // Not the whole key, as some locks write it in another way.
        let unique = self.plan.unique_part(stage.pass);
        loop {
            let (count, names) = stage.redis.keys().await?;
            let (usual, unusual): (BTreeSet<String>, BTreeSet<String>) = names
                .into_iter()
                .partition(|name| self.usual_keys.contains(&name.replace(&unique, "0")));
            if !unusual.is_empty() && Instant::now() < until {
                sleep(POLL_INTERVAL).await;
                continue;
            }

            if stage.fault != Fault::Undisturbed {
                return Ok((count, unusual));
            }
            let all = usual.iter().chain(&unusual);
            self.usual_keys = all.map(|name| name.replace(&unique, "0")).collect();
            return Ok((count, BTreeSet::new()));
        }
    }

    async fn report(
        &mut self,
        fault: Fault,
        recording: &Recording,
        figures: &ServerFigures,
    ) -> anyhow::Result<FaultReport> {
        let holds = holds::holds(recording);
        if fault == Fault::Undisturbed && holds.is_empty() {
            let (kind, why) = match &recording.last_error {
                Some(error) => {
                    (FailureKind::Other, format!("the adapter's last error was: {error}"))
                }
                None => (
                    FailureKind::NoGrant,
                    "the adapter answered busy or timeout to each request".to_owned(),
                ),
            };
            // Without a grant there is nothing to judge.
            let why = format!("no client got the lock; {why}");
            return Err(JudgeFailure::new(kind, why).into());
        }

        let count =
            |outcome| recording.turns.iter().filter(|turn| turn.outcome == outcome).count() as u64;
        let failed_releases =
            recording.turns.iter().filter(|turn| turn.release == ReleaseAnswer::Error).count();
        let failed_calls = count(TurnOutcome::Error) + failed_releases as u64;
        let waits = recording.turns.iter().map(|it| it.answered_us.saturating_sub(it.asked_us));

        let report = FaultReport {
            name: fault.name().to_owned(),
            ran: true,
            errors: count(TurnOutcome::Error),
            cancelled: count(TurnOutcome::Cancelled),
            leftover_keys: figures.leftover_keys,
            untouched: recording.struck_connections == Some(0),
            bypassed: recording.bypassed,
            turns: holds.len() as u64,
            saved_updates: holds.iter().filter(|turn| turn.saved).count() as u64,
            redis_commands: figures.commands as f64 / holds.len().max(1) as f64,
            idle_commands: if fault == Fault::Undisturbed { self.idle_commands_per_s } else { 0.0 },
            stderr: recording.last_words.clone(),
            waited_s: waits.sum::<u64>() as f64 / 1e6,
            failed_calls: recording.last_error.clone().map(|error| (failed_calls, error)),
            ..FaultReport::default()
        };

        let has_fences = self.adapter.as_ref().is_some_and(|adapter| adapter.fencing);
        let mut evidence = FaultEvidence { plan: self.plan, recording, holds: &holds, report };
        evidence.lost_updates(&mut self.ledger).await?;
        if has_fences {
            evidence.lost_with_fence(&mut self.ledger).await?;
        }

        evidence.overlaps();
        evidence.wrong_releases();
        match fault {
            Fault::Undisturbed => evidence.early_losses(),
            Fault::LongWork => evidence.early_grants(),
            _ => {}
        }
        evidence.fence_regressions();
        evidence.misreported();
        evidence.held_times();
        evidence.grants();
        evidence.leftover_keys(&figures.unusual_keys);
        Ok(evidence.report)
    }
}

/// Returns the turns in a microsecond of work.
fn rate(report: &FaultReport, recording: &Recording) -> f64 {
    report.turns as f64 / recording.work_us().max(1) as f64
}

/// Returns whether libfaketime, not the jump, keeps the adapter from its work. `relative_rate`:
/// turns per second, relative to those without a fault.
fn is_crippled(clock_jump: &FaultReport, relative_rate: f64) -> bool {
    let with_fence = clock_jump.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
    let found = clock_jump.lost_updates + with_fence + clock_jump.fence_regressions;
    found == 0 && relative_rate < 0.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_that_loses_is_not_crippled() {
        let report = |lost_updates| FaultReport { lost_updates, ..FaultReport::default() };
        assert!(is_crippled(&report(0), 0.09));
        assert!(!is_crippled(&report(0), 0.1) && !is_crippled(&report(1), 0.09));
    }
}

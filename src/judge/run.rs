//! A judgement from start to end: one pass per fault, and the report of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use super::fault_table::{Fault, FaultKind};
use super::faults::{self, AWAY};
use super::holds;
use super::ledger::Ledger;
use super::measures;
use super::plan::JudgePlan;
use super::processes::{adopt_orphans, end_orphans};
use super::protocol::TurnOutcome;
use super::recording::Recording;
use super::report::{Adapter, FaultReport, Judgement, WithFence};
use super::stage::{Stage, StageOptions};
use super::violations::{Evidence, MAX_BLOCKED_TTLS, blocked_ms};
use crate::embedded::{TempFolder, TempPostgres};
use crate::stats;

/// Time over which the commands of idle adapters are counted.
const IDLE_PERIOD: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Characters of an error that a report quotes.
const MAX_WHY: usize = 500;
/// Work after a fault, in TTLs: long enough to see that a lock is blocked.
const RECOVERY_TTLS: f64 = MAX_BLOCKED_TTLS as f64 + 0.5;

/// Runs all faults in servers below `folder`, and returns the judgement. `progress` is called with
/// the number of the fault among all, and its name.
pub(super) async fn run(
    plan: &JudgePlan,
    folder: &TempFolder,
    progress: impl Fn(usize, &'static str),
) -> anyhow::Result<Judgement> {
    adopt_orphans();
    let started_at = OffsetDateTime::now_utc().format(&Rfc3339)?;
    let postgres = TempPostgres::start(folder).await?;
    let judged = judge_all(plan, &postgres, progress).await;
    end_orphans(&postgres.pid().into_iter().collect::<Vec<_>>()).await;
    postgres.stop().await;
    let (adapter, faults) = judged?;
    let lost = |fault: &FaultReport| fault.ran && fault.lost_updates > 0;
    let safe = !faults.iter().any(lost);
    Ok(Judgement { adapter, safe, ttl_ms: plan.ttl_ms, seed: plan.seed, started_at, faults })
}

async fn judge_all(
    plan: &JudgePlan,
    postgres: &TempPostgres,
    progress: impl Fn(usize, &'static str),
) -> anyhow::Result<(Adapter, Vec<FaultReport>)> {
    let mut ledger = Ledger::connect(&postgres.url(), 0).await?;
    ledger.create().await?;
    let mut judge = Judge {
        plan,
        postgres,
        ledger,
        adapter: None,
        idle_commands_per_s: 0.0,
        undisturbed_grants: 0,
        usual_keys: BTreeSet::new(),
        clock: ClockFile::create()?,
    };
    let mut reports = Vec::new();
    for (number, fault) in plan.faults.iter().enumerate() {
        progress(number, fault.name);
        let report = Box::pin(judge.run_fault(fault)).await;
        reports.push(report.with_context(|| format!("under the fault `{}`", fault.name))?);
    }
    Ok((judge.adapter.context("no adapter has answered `init`")?, reports))
}

struct Judge<'a> {
    plan: &'a JudgePlan,
    postgres: &'a TempPostgres,
    ledger: Ledger,
    adapter: Option<Adapter>,
    idle_commands_per_s: f64,
    undisturbed_grants: u64,
    /// Keys that remain in Redis without a fault, as they would be in any pass: counters, and the
    /// like.
    usual_keys: BTreeSet<String>,
    clock: ClockFile,
}

impl Judge<'_> {
    async fn run_fault(&mut self, fault: &Fault) -> anyhow::Result<FaultReport> {
        let mut env = BTreeMap::new();
        if fault.kind == FaultKind::ClockJump {
            let Some(library) = faults::find_faketime() else {
                return Ok(not_run(fault, "libfaketime is not installed".to_owned()));
            };
            env = self.clock.environment(&library)?;
        }
        let pass = self.ledger.begin_pass().await?;
        // Several waits end while Redis is away.
        let away = fault.kind == FaultKind::RedisAway;
        let longest = if away { AWAY.as_millis() as u64 / 4 } else { u64::MAX };
        let options = StageOptions {
            pass,
            with_replica: fault.kind == FaultKind::RedisFailover,
            direct: fault.kind == FaultKind::Undisturbed,
            env,
            wait_ms: self.plan.wait_ms.min(longest),
        };
        let stage = Stage::set_up(self.plan, options, self.postgres).await;
        let mut pass = match stage {
            Ok(stage) => Pass { fault, number: pass, stage, commands: 0, keys: Default::default() },
            Err(error) => return unless_clock_jump(fault, error),
        };
        let ran = self.run_pass(&mut pass).await;
        let Pass { stage, number, commands, keys, .. } = pass;
        let adapter = stage.adapter.clone();
        let recording = stage.take_down().await;
        end_orphans(&self.postgres.pid().into_iter().collect::<Vec<_>>()).await;
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(why_not)) => return Ok(not_run(fault, why_not)),
            Err(error) => return unless_clock_jump(fault, error),
        }
        let adapter = self.adapter.get_or_insert(adapter.context("the adapter has no name")?);
        let has_fences = adapter.fencing;
        let unusual = self.unusual(&keys.1, number);
        let report = self.report(fault, recording, commands, (keys.0, unusual), has_fences).await?;
        match fault.kind {
            FaultKind::Undisturbed => self.undisturbed_grants = report.acquired,
            FaultKind::ClockJump if is_crippled(&report, self.undisturbed_grants) => {
                let grants = report.acquired;
                let why_not =
                    format!("the adapter hardly works under libfaketime: {grants} grants");
                return Ok(not_run(fault, why_not));
            }
            _ => {}
        }
        Ok(report)
    }

    /// Runs the work with the fault; `Err` of the inner result says why there was no fault.
    async fn run_pass(&mut self, pass: &mut Pass<'_>) -> anyhow::Result<Result<(), String>> {
        let stage = &mut pass.stage;
        let undisturbed = pass.fault.kind == FaultKind::Undisturbed;
        if undisturbed {
            let before = stage.redis.commands().await?;
            stage.work_for(IDLE_PERIOD).await?;
            let idle = stage.redis.commands().await?.saturating_sub(before);
            self.idle_commands_per_s = idle as f64 / IDLE_PERIOD.as_secs_f64();
        }
        let before = stage.redis.commands().await?;
        let since = Instant::now();
        stage.begin().await?;
        let mut random = StdRng::seed_from_u64(self.plan.seed);
        let worker = random.random_range(0..self.plan.workers);
        let placed = faults::place(pass.fault.kind, stage, worker, &self.clock.path).await?;
        if !undisturbed && placed.is_ok() {
            stage.work_for(self.plan.ttl(RECOVERY_TTLS)).await?;
        }
        stage.work_for(self.plan.work.saturating_sub(since.elapsed())).await?;
        stage.end().await?;
        let idle = self.idle_commands_per_s * since.elapsed().as_secs_f64();
        let used = stage.redis.commands().await?.saturating_sub(before);
        pass.commands = used.saturating_sub(idle as u64);
        pass.keys = self.wait_for_expiry(stage, pass.number).await?;
        if undisturbed {
            let name = |name: &String| self.plan.name_in_any_pass(name, pass.number);
            self.usual_keys = pass.keys.1.iter().map(name).collect();
        }
        Ok(placed)
    }

    /// Waits two TTLs, or until no key is left that is not left without a fault either.
    async fn wait_for_expiry(
        &self,
        stage: &Stage<'_>,
        pass: i64,
    ) -> anyhow::Result<(u64, BTreeSet<String>)> {
        let until = Instant::now() + self.plan.ttl(2.0);
        loop {
            let (count, names) = stage.redis.keys().await?;
            if self.unusual(&names, pass).is_empty() || Instant::now() >= until {
                return Ok((count, names));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the keys that a pass without a fault does not leave.
    fn unusual(&self, names: &BTreeSet<String>, pass: i64) -> BTreeSet<String> {
        let is_usual =
            |name: &&String| self.usual_keys.contains(&self.plan.name_in_any_pass(name, pass));
        names.iter().filter(|name| !is_usual(name)).cloned().collect()
    }

    async fn report(
        &mut self,
        fault: &Fault,
        recording: Recording,
        commands: u64,
        (leftover_keys, unusual_keys): (u64, BTreeSet<String>),
        has_fences: bool,
    ) -> anyhow::Result<FaultReport> {
        let plan = self.plan;
        let holds = holds::holds(&recording);
        if fault.kind == FaultKind::Undisturbed && holds.is_empty() {
            let why = match &recording.last_error {
                Some(error) => format!("the adapter's last error was: {error}"),
                None => "the adapter answered busy or timeout to each request".to_owned(),
            };
            bail!("no client got the lock; {why}");
        }
        let lost_updates = self.ledger.lost_updates(false).await?;
        let with_fence = if has_fences {
            let refused = recording.turns.iter().filter(|turn| turn.turn.refused).count() as u64;
            Some(WithFence { lost_updates: self.ledger.lost_updates(true).await?, refused })
        } else {
            None
        };
        let overlaps = holds::overlaps(&holds);
        let wrong_releases = holds::wrong_releases(&holds);
        let regressions = holds::fence_regressions(&holds, &recording);
        let misreported = holds::misreported(&holds, &recording);
        let held_times = holds::held_times(&holds, &recording);
        let block = holds::longest_block(&held_times, &recording);
        let grants = measures::grants(plan, &holds);
        let waits = measures::waits(plan, &recording, &holds);
        let mut evidence = Evidence { plan, recording: &recording, violations: Vec::new() };
        evidence.lost_updates(lost_updates, &self.ledger.breaks(false).await?);
        evidence.lost_with_fence(&self.ledger.breaks(true).await?);
        evidence.overlaps(&overlaps);
        evidence.wrong_releases(&wrong_releases);
        evidence.fence_regressions(&regressions);
        evidence.misreported(&misreported);
        evidence.blocked(block);
        evidence.starved(&grants);
        evidence.leftover_keys(&unusual_keys);
        Ok(FaultReport {
            name: fault.name.to_owned(),
            ran: true,
            why_not: None,
            lost_updates,
            overlaps: overlaps.len() as u64,
            release_ok_when_lost: wrong_releases.len() as u64,
            fence_regressions: regressions.len() as u64,
            misreported_busy: misreported.len() as u64,
            errors: recording.count(TurnOutcome::Error),
            with_fence,
            blocked_ms_max: blocked_ms(block),
            waiters_starved: grants.values().filter(|grants| **grants == 0).count() as u64,
            leftover_keys,
            held_share: measures::held_share(&held_times, &recording),
            wait_p50_ms: waits.p50_ms,
            wait_p99_ms: waits.p99_ms,
            wait_ratio: waits.ratio,
            jain: stats::jain(grants.values().copied()).unwrap_or(0.0),
            acquired: holds.len() as u64,
            redis_commands: commands as f64 / holds.len().max(1) as f64,
            violations: evidence.violations,
        })
    }
}

/// A pass and what is read from its servers before they end.
struct Pass<'a> {
    fault: &'a Fault,
    number: i64,
    stage: Stage<'a>,
    commands: u64,
    keys: (u64, BTreeSet<String>),
}

/// Some programs don't work under libfaketime, which is no fault of the lock.
fn unless_clock_jump(fault: &Fault, error: anyhow::Error) -> anyhow::Result<FaultReport> {
    if fault.kind == FaultKind::ClockJump {
        let why = format!("{error:#}");
        let why: String = why.lines().next().unwrap_or_default().chars().take(MAX_WHY).collect();
        return Ok(not_run(fault, format!("the adapter fails under libfaketime: {why}")));
    }
    Err(error)
}

/// Returns whether libfaketime, not the jump, keeps the adapter from its work.
fn is_crippled(clock_jump: &FaultReport, undisturbed_grants: u64) -> bool {
    let with_fence = clock_jump.with_fence.as_ref().map_or(0, |fenced| fenced.lost_updates);
    clock_jump.lost_updates + with_fence == 0 && clock_jump.acquired < undisturbed_grants / 10
}

fn not_run(fault: &Fault, why_not: String) -> FaultReport {
    FaultReport { name: fault.name.to_owned(), why_not: Some(why_not), ..FaultReport::default() }
}

/// The file from which libfaketime reads the clock's offset.
#[derive(Debug)]
struct ClockFile {
    path: PathBuf,
}

impl ClockFile {
    fn create() -> anyhow::Result<Self> {
        let name = format!("holdfast-clock-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        std::fs::File::create_new(&path)
            .with_context(|| format!("can't make {}", path.display()))?;
        Ok(Self { path })
    }

    /// Sets the clock right, and returns the environment of a process that has this clock. Its
    /// monotonic clock jumps, too: libfaketime 0.9.10 can't spare that one without breaking the
    /// sleeps of Python 3.11.
    fn environment(&self, library: &Path) -> anyhow::Result<BTreeMap<String, String>> {
        std::fs::write(&self.path, "+0s")?;
        let settings = [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.path.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
        ];
        Ok(settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl Drop for ClockFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_that_loses_is_not_crippled() {
        let report = |acquired, lost_updates| FaultReport {
            acquired,
            lost_updates,
            ..FaultReport::default()
        };
        assert!(is_crippled(&report(9, 0), 100));
        assert!(!is_crippled(&report(10, 0), 100) && !is_crippled(&report(9, 1), 100));
    }
}

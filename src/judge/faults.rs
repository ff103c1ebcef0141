//! The faults: how each begins and ends while the clients work.
//!
//! Most hold a client between its read and its write, so that the fault strikes a holder every
//! time. A fault that finds no holder is reported as one that did not run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_lock::clock::monotonic_us;

use super::fault_table::FaultKind;
use super::recording::Stall;
use super::stage::{Holder, Stage};

/// Work before the fault.
const WARM_UP: Duration = Duration::from_millis(500);
/// Length of `redis-away`, and with it four waits for the lock.
pub(super) const AWAY: Duration = Duration::from_secs(5);
/// Delay of `redis-slow`, each way.
const SLOWNESS: Duration = Duration::from_millis(200);
/// The jump of `clock-jump`, as libfaketime reads it.
const CLOCK_JUMP: &str = "+3600s";

/// Returns the library that moves the clock of an adapter, if it is installed: that of this
/// machine's architecture before others.
pub(super) fn find_faketime() -> Option<PathBuf> {
    let below = |parent: &str| {
        let folders = std::fs::read_dir(parent).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join("faketime")).collect::<Vec<_>>()
    };
    let mut folders: Vec<PathBuf> =
        ["/usr/lib", "/usr/local/lib"].into_iter().flat_map(below).collect();
    let architecture = format!("/{}-", std::env::consts::ARCH);
    folders.sort_by_key(|folder| !folder.to_string_lossy().contains(&architecture));
    let others = ["/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime"];
    let libraries = folders.into_iter().chain(others.map(PathBuf::from));
    libraries.map(|folder| folder.join("libfaketimeMT.so.1")).find(|library| library.is_file())
}

/// Places the fault, and returns after its end; `Err` of the inner result says why it could not be
/// placed. `worker` is struck if the fault strikes one; `clock` is the file of [`CLOCK_JUMP`].
pub(super) async fn place(
    kind: FaultKind,
    stage: &mut Stage<'_>,
    worker: u32,
    clock: &Path,
) -> anyhow::Result<Result<(), String>> {
    stage.work_for(WARM_UP).await?;
    match kind {
        FaultKind::Undisturbed => {}
        FaultKind::RedisSlow => be_slow(stage).await?,
        FaultKind::RedisAway => be_away(stage).await?,
        _ => {
            if kind == FaultKind::ClockJump
                && let Some(why_not) = stage.find_fixed_clock().await
            {
                return Ok(Err(why_not));
            }
            if kind == FaultKind::RedisFailover {
                stage.redis.let_replica_lag();
                // The locks that the replica has expire, so that it is behind by every later grant.
                stage.work_for(stage.plan.ttl(1.2)).await?;
            }
            let Some(holder) = stage.hold(worker).await? else {
                return Ok(Err(format!(
                    "no client of worker {worker} got the lock, so there was no holder to strike"
                )));
            };
            strike(kind, stage, &holder, clock).await?;
        }
    }
    Ok(Ok(()))
}

/// Strikes a client that is held between its read and its write.
async fn strike(
    kind: FaultKind,
    stage: &mut Stage<'_>,
    holder: &Holder,
    clock: &Path,
) -> anyhow::Result<()> {
    let worker = holder.id.worker;
    let plan = stage.plan;
    // The time for others to acquire a lock whose holder's lease has not expired yet.
    let takeover = plan.ttl(0.5);
    let mut commit = Duration::ZERO;
    match kind {
        FaultKind::Pause => {
            let from_us = monotonic_us();
            stage.pause(holder).await?;
            stage.work_for(plan.ttl(2.5)).await?;
            // Read as soon as the worker runs again.
            stage.go(worker, Duration::ZERO).await?;
            stage.resume(holder);
            stall(stage, worker, from_us);
            return Ok(());
        }
        FaultKind::KillHolder => return stage.kill(holder).await,
        FaultKind::SlowCommit => commit = plan.ttl(2.5),
        FaultKind::RedisFlush => {
            stage.redis.flush().await?;
            stage.work_for(takeover).await?;
        }
        FaultKind::RedisRestart | FaultKind::RedisFailover => {
            let from_us = monotonic_us();
            let socket = if kind == FaultKind::RedisRestart {
                stage.redis.restart().await?
            } else {
                stage.redis.fail_over().await?
            };
            stage.repoint(&socket);
            stage.recording.outage = Some((from_us, monotonic_us()));
            stage.work_for(takeover).await?;
        }
        FaultKind::Partition => {
            let from_us = monotonic_us();
            stage.redis_link(worker).withhold();
            stage.work_for(plan.ttl(2.5)).await?;
            stage.go(worker, Duration::ZERO).await?;
            // It writes before its messages to Redis arrive again.
            stage.work_for(plan.ttl(0.2)).await?;
            stage.redis_link(worker).restore();
            stall(stage, worker, from_us);
            return Ok(());
        }
        FaultKind::ClockJump => {
            std::fs::write(clock, CLOCK_JUMP)?;
            stage.work_for(takeover).await?;
        }
        FaultKind::LongWork => stage.work_for(plan.ttl(2.5)).await?,
        FaultKind::Undisturbed | FaultKind::RedisSlow | FaultKind::RedisAway => {}
    }
    stage.go(worker, commit).await?;
    stage.work_for(commit).await
}

fn stall(stage: &mut Stage<'_>, worker: u32, from_us: u64) {
    stage.recording.stalls.push(Stall { worker, from_us, until_us: monotonic_us() });
}

async fn be_slow(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    for link in stage.redis_links() {
        link.delay(SLOWNESS);
    }
    stage.work_for(stage.plan.work).await?;
    for link in stage.redis_links() {
        link.delay(Duration::ZERO);
    }
    Ok(())
}

async fn be_away(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let from_us = monotonic_us();
    for link in stage.redis_links() {
        link.refuse();
    }
    stage.work_for(AWAY).await?;
    stage.recording.outage = Some((from_us, monotonic_us()));
    for link in stage.redis_links() {
        link.restore();
    }
    Ok(())
}

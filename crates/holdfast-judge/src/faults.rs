//! The faults: how each begins and ends while the clients work. Most hold a client between its read
//! and its write, so that they strike a holder every time; without a holder they did not run.

use std::time::Duration;

use holdfast_base::message;
use holdfast_base::messages::Message;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::Traffic;
use holdfast_story::EventKind;

use super::events::Stall;
use super::fault::Fault;
use super::plan::AWAY;
use super::protocol::{Turn, TurnOutcome};
use super::report::StruckServer;
use super::stage::Stage;

const WARM_UP: Duration = Duration::from_millis(500);
/// Blows of a fault that also strikes requests under way, before the one that strikes a holder.
const BLOWS: u32 = 20;
const BLOW_INTERVAL: Duration = Duration::from_millis(50);
/// Number of grants to withhold: their clients may all have asked before the release.
const MAX_WITHHELD: u32 = 5;
const SLOWNESS: Duration = Duration::from_millis(200);

/// Why a fault did not run.
#[derive(Debug)]
pub(super) struct NotRun {
    pub(super) why: Message,
    /// The lock is why: no client got it.
    pub(super) is_prevented: bool,
}

impl From<Message> for NotRun {
    /// Something else than the lock is why.
    fn from(why: Message) -> Self {
        Self { why, is_prevented: false }
    }
}

/// Places the fault, and returns after its end; `Err` of the inner result says why it could not be
/// placed. `worker` is struck if the fault strikes one.
pub(super) async fn place(
    stage: &mut Stage<'_>,
    worker: u32,
) -> anyhow::Result<Result<(), NotRun>> {
    stage.work_for(WARM_UP).await?;

    let plan = stage.plan;
    match stage.fault {
        Fault::Undisturbed => return Ok(Ok(())),
        // Its clients cancel by themselves.
        Fault::Cancel => {
            stage.work_for(plan.work()).await?;
            return Ok(Ok(()));
        }
        Fault::RedisSlow => {
            stage.links.iter().for_each(|links| links.redis.delay(SLOWNESS));
            stage.work_for(plan.work()).await?;
            stage.links.iter().for_each(|links| links.redis.delay(Duration::ZERO));
            return Ok(Ok(()));
        }
        Fault::RedisAway => {
            let from_us = monotonic_us();
            stage.links.iter().for_each(|links| links.redis.set(Traffic::Refused));
            stage.work_for(AWAY).await?;
            stage.recording.outage = Some((from_us, monotonic_us()));
            stage.links.iter().for_each(|links| links.redis.set(Traffic::Forwarded));
            return Ok(Ok(()));
        }
        Fault::ClientKill | Fault::ScriptFlush => {
            let from_us = monotonic_us();
            for _ in 0..BLOWS {
                stage.work_for(BLOW_INTERVAL).await?;
                match stage.fault {
                    Fault::ClientKill => stage.redis.close_connections().await?,
                    _ => stage.redis.flush_scripts().await?,
                }
            }
            stage.recording.struck = Some((from_us, monotonic_us()));
        }
        Fault::ClockJump => {
            if let Some(why_not) = stage.find_fixed_clock().await {
                return Ok(Err(why_not.into()));
            }
        }
        Fault::RedisFailover => {
            stage.redis.let_replica_lag();
            // The locks that the replica has expire, so that it is behind by every later grant.
            stage.work_for(plan.ttl(1.2)).await?;
        }
        _ => {}
    }

    let Some(holder) = stage.hold(worker).await? else {
        let why = message!("judge-why-no-holder", worker);
        // Libfaketime may be why, if no client gets the lock at all.
        let is_prevented = stage.fault != Fault::ClockJump || stage.recording.has_grant();
        return Ok(Err(NotRun { why, is_prevented }));
    };
    strike(stage, holder).await?;
    Ok(Ok(()))
}

/// Strikes a client that is held between its read and its write, and lets it write.
async fn strike(stage: &mut Stage<'_>, holder: Turn) -> anyhow::Result<()> {
    let worker = holder.id.worker;
    let plan = stage.plan;
    // The time for others to acquire a lock whose holder's lease has not expired yet.
    let takeover = plan.ttl(0.5);

    let from_us = monotonic_us();
    let mut commit = Duration::ZERO;
    let mut second = None;
    match stage.fault {
        Fault::KillHolder => return stage.kill(holder).await,
        Fault::LateGrant => return grant_late(stage, worker).await,
        Fault::Pause => {
            stage.pause(holder.id).await?;
            stage.work_for(plan.ttl(2.5)).await?;
        }
        Fault::SlowCommit => commit = plan.ttl(2.5),
        Fault::RedisFlush
        | Fault::ClientKill
        | Fault::ScriptFlush
        | Fault::Evict
        | Fault::RedisRestart
        | Fault::RedisFailover => {
            strike_server(stage, holder).await?;
            stage.work_for(takeover).await?;
        }
        Fault::SessionCut => {
            stage.cut_sessions(holder.id).await;
            stage.work_for(takeover).await?;
        }
        Fault::Partition => {
            stage.note_reach(worker);
            stage.links[worker as usize].set(Traffic::Withheld);
            stage.work_for(plan.ttl(2.5)).await?;
        }
        Fault::ClockJump => {
            if let Some(clocks) = &stage.clocks {
                clocks.jump(worker)?;
            }
            stage.work_for(takeover).await?;
        }
        Fault::LongWork => {
            stage.work_for(plan.ttl(2.5)).await?;
            if plan.args.second_holder {
                let other = (worker + 1) % plan.args.workers;
                // None, if the lock was renewed, so that no other client got it.
                second = stage.hold_within(other, plan.ttl(0.5)).await?;
                if second.is_some() {
                    // So long that the order of the two grants is certain.
                    stage.work_for(plan.ttl(0.2)).await?;
                }
            }
        }
        Fault::Undisturbed | Fault::RedisSlow | Fault::RedisAway | Fault::Cancel => {}
    }

    // A stopped worker reads this as soon as it runs again.
    stage.go(worker, commit).await?;
    if let Some(second) = second {
        stage.work_for(plan.ttl(0.2)).await?;
        stage.go(second.id.worker, Duration::ZERO).await?;
    }
    match stage.fault {
        Fault::Pause => stage.resume(holder.id),
        Fault::Partition => {
            // It writes before its messages to Redis arrive again.
            stage.work_for(plan.ttl(0.2)).await?;
            stage.links[worker as usize].set(Traffic::Forwarded);
        }
        _ => return stage.work_for(commit).await,
    }
    stage.recording.stall = Some(Stall { worker, from_us, until_us: monotonic_us() });
    Ok(())
}

/// Withholds from a worker the answer to a grant until its lease has ended and a client of another
/// worker has the lock, which writes after it.
async fn grant_late(stage: &mut Stage<'_>, worker: u32) -> anyhow::Result<()> {
    let plan = stage.plan;
    let from_us = monotonic_us();
    stage.note_reach(worker);

    for attempt in 1..=MAX_WITHHELD {
        if withhold_grant(stage, worker).await? || attempt == MAX_WITHHELD {
            break;
        }
        // Again, with another holder.
        stage.links[worker as usize].set(Traffic::Forwarded);
        if stage.hold(worker).await?.is_none() {
            break;
        }
    }
    stage.work_for(plan.ttl(1.2)).await?;

    // None, if the grant has no lease: it holds the lock still.
    let other = (worker + 1) % plan.args.workers;
    let second = stage.hold_within(other, plan.ttl(1.0)).await?;
    stage.links[worker as usize].set(Traffic::Forwarded);
    stage.work_for(plan.ttl(0.3)).await?;
    if second.is_some() {
        stage.go(other, Duration::ZERO).await?;
    }

    let until_us = monotonic_us();
    stage.recording.stall = Some(Stall { worker, from_us, until_us });
    // The lock is not free in this time, although no client knows that it has it.
    stage.recording.struck = Some((from_us, until_us));
    Ok(())
}

/// Lets the holder release the lock while its worker gets no answers and no other worker reaches
/// the servers, so that a client of its worker is granted it. Returns whether one was: then the
/// others have to wait for the lease.
async fn withhold_grant(stage: &mut Stage<'_>, worker: u32) -> anyhow::Result<bool> {
    let plan = stage.plan;
    let others = |stage: &Stage<'_>, traffic| {
        let others = (0..).zip(&stage.links).filter(|(other, _)| *other != worker);
        others.for_each(|(_, links)| links.set(traffic));
    };

    others(stage, Traffic::Withheld);
    stage.links[worker as usize].set(Traffic::AnswersWithheld);
    stage.go(worker, Duration::ZERO).await?;
    stage.work_for(plan.ttl(0.2)).await?;
    others(stage, Traffic::Forwarded);

    let since = stage.recording.turns.len();
    stage.work_for(plan.ttl(0.3)).await?;
    let is_of_others =
        |turn: &Turn| turn.id.worker != worker && turn.outcome == TurnOutcome::Granted;
    Ok(!stage.recording.turns[since..].iter().any(is_of_others))
}

/// Strikes Redis while the holder works.
async fn strike_server(stage: &mut Stage<'_>, holder: Turn) -> anyhow::Result<()> {
    match stage.fault {
        Fault::RedisFlush => {
            stage.redis.flush().await?;
            stage.mark(Some(StruckServer::Redis), EventKind::Flushed, holder.id);
        }
        Fault::ClientKill => {
            stage.redis.close_connections().await?;
            stage.mark(Some(StruckServer::Redis), EventKind::Closed, holder.id);
        }
        Fault::ScriptFlush => stage.redis.flush_scripts().await?,
        Fault::Evict => {
            stage.redis.evict().await?;
            stage.mark(Some(StruckServer::Redis), EventKind::Evicted, holder.id);
        }
        _ => replace_server(stage, holder).await?,
    }
    Ok(())
}

/// Kills the primary, and starts an empty server or promotes the replica.
async fn replace_server(stage: &mut Stage<'_>, holder: Turn) -> anyhow::Result<()> {
    let from_us = monotonic_us();
    stage.mark(Some(StruckServer::Redis), EventKind::Killed, holder.id);
    let outage_ms = stage.plan.args.outage_ms;
    if outage_ms > 0 {
        stage.links.iter().for_each(|links| links.redis.set(Traffic::Refused));
        stage.work_for(Duration::from_millis(outage_ms)).await?;
    }

    let socket = if stage.fault == Fault::RedisRestart {
        let socket = stage.redis.restart().await?;
        stage.mark(Some(StruckServer::Redis), EventKind::Restarted, holder.id);
        socket
    } else {
        let socket = stage.redis.fail_over().await?;
        stage.mark(Some(StruckServer::RedisReplica), EventKind::Promoted, holder.id);
        socket
    };
    stage.links.iter().for_each(|links| links.redis.repoint(&socket));
    stage.recording.outage = Some((from_us, monotonic_us()));
    Ok(())
}

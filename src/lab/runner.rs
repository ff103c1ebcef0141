//! Executes the runs, one after the other, in the process that owns the replicas, and restores
//! everything after each of them.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use tokio::time::{interval, sleep, timeout};
use uuid::Uuid;

use super::arm::{self, Spec};
use super::house::House;
use super::lessons::{self, Shown};
use super::run::{Arm, Outcome, State, Wanted};
use super::stage::Stage;
use super::store;
use crate::db::{self, Pool};
use crate::embedded::{ProcessControl, RunningUp};

/// Poll interval for queued runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Idle polls between two checks for abandoned runs.
const LOOKS_PER_LEFTOVER: u64 = 20;
/// Heartbeat interval.
const HERE_EVERY: Duration = Duration::from_secs(1);
/// Connections of the runner, in addition to the replicas' own.
const CONNECTIONS: u32 = 4;
/// Timeout of a restore; longer than it takes to find that a process does not respond.
const RESTORED_WITHIN: Duration = Duration::from_secs(90);
/// Timeout of a run.
const LONGEST: Duration = Duration::from_secs(300);

pub async fn serve(running: RunningUp, hands: ProcessControl) {
    let pool = match db::pool(&running.database_url, CONNECTIONS) {
        Ok(pool) => pool,
        Err(error) => {
            tracing::error!(%error, "the lab can't be opened: its runs will not be carried out");
            return;
        }
    };
    if let Err(error) = store::end_leftovers(&pool).await {
        tracing::warn!(%error, "runs that were left half-way stay so");
    }
    tokio::join!(be_there(&pool), carry_out(&pool, &running, hands));
}

/// Sends heartbeats from the start: a run requested before the cluster is opened can be queued.
async fn be_there(pool: &Pool) {
    let mut ticks = interval(HERE_EVERY);
    loop {
        ticks.tick().await;
        if let Err(error) = store::here(pool).await {
            tracing::debug!(%error, "the lab can't say that it is there");
        }
    }
}

async fn carry_out(pool: &Pool, running: &RunningUp, hands: ProcessControl) {
    let mut ticks = interval(LOOK_EVERY);
    let mut house = loop {
        ticks.tick().await;
        match House::open(pool, running, hands.clone()).await {
            Ok(house) => break house,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the lab can't be opened"),
        }
        sleep(HERE_EVERY).await;
    };
    let mut idle: u64 = 0;
    loop {
        ticks.tick().await;
        match store::take(pool).await {
            Ok(Some((id, wanted))) => house = one(house, id, wanted).await,
            // A run that is marked as running now was abandoned: its end could not be recorded.
            Ok(None) => {
                idle += 1;
                if idle.is_multiple_of(LOOKS_PER_LEFTOVER) {
                    let _ = store::end_leftovers(pool).await;
                }
            }
            Err(error) => tracing::debug!(%error, "no run can be taken"),
        }
    }
}

/// Executes a run, and records its result or its error.
async fn one(house: House, id: Uuid, wanted: Wanted) -> House {
    let pool = house.pool.clone();
    let stage = Stage::new(house, id, wanted);
    let played = timeout(LONGEST, play(&stage)).await;
    let restored = timeout(RESTORED_WITHIN, async {
        stage.restore().await?;
        stage.house.sweep(&stage.items()).await
    });
    let restored = restored.await;
    let restored = restored.unwrap_or_else(|_| Err(anyhow!("not everybody has come back")));
    let (house, mut outcome) = stage.strike();
    let failed = match (played, restored) {
        (Ok(Ok(Shown { shown, verdict })), Ok(())) => {
            (outcome.claim_shown, outcome.verdict) = (shown, verdict);
            None
        }
        (Ok(Err(error)), _) => Some(format!("{error:#}")),
        (Err(_), _) => Some(format!("it was not over after {} s", LONGEST.as_secs())),
        (_, Err(error)) => Some(format!("{error:#}")),
    };
    let state = if failed.is_some() { State::Failed } else { State::Done };
    if let Some(why) = failed {
        tracing::warn!(%id, why, "a run failed");
        outcome.verdict = format!("the run failed: {why}");
    }
    write_down(&pool, id, state, &outcome).await;
    house
}

/// Records the end of a run; retries, because Postgres may be what failed.
async fn write_down(pool: &Pool, id: Uuid, state: State, outcome: &Outcome) {
    const ATTEMPTS: u32 = 20;
    for attempt in 1..=ATTEMPTS {
        match store::end(pool, id, state, outcome).await {
            Ok(()) => return,
            Err(error) if attempt == ATTEMPTS => {
                tracing::error!(%id, %error, "what came of a run is lost");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    if let Some(name) = &stage.wanted.lesson {
        let lesson = lessons::named(name);
        let lesson = lesson.ok_or_else(|| anyhow::anyhow!("there is no lesson {name}"))?;
        return lesson.play(stage).await;
    }
    let specs: Vec<Spec> = stage.wanted.specs(stage.house.replicas.len());
    let quorum = specs.iter().any(|spec| spec.strategy == "redlock");
    ensure!(
        !quorum || !stage.house.hands.nodes.is_empty(),
        "redlock needs several Redis: start the shop with --redlock 5"
    );
    arms(stage, &specs).await?;
    let outcome = stage.outcome.lock();
    Ok(Shown { shown: None, verdict: verdict(&outcome) })
}

/// Executes the arms one after the other, and records their results.
pub(super) async fn arms(stage: &Stage, specs: &[Spec]) -> anyhow::Result<()> {
    stage.progress.lock().arms = specs.len();
    for (number, spec) in specs.iter().enumerate() {
        let arm = arm::run(stage, number, spec).await?;
        stage.outcome.lock().arms.push(arm);
    }
    Ok(())
}

fn verdict(outcome: &Outcome) -> String {
    let lines = outcome.arms.iter().map(|arm| {
        let name = arm.name();
        match arm {
            Arm { oversold: 1.., sku: None, .. } => {
                let (units, cents) = (arm.oversold / 100, arm.oversold % 100);
                format!("{name}: {units}.{cents:02} paid that nobody had, {} forks", arm.forks)
            }
            arm if arm.oversold > 0 => {
                format!("{name}: {} units that do not exist, {} forks", arm.oversold, arm.forks)
            }
            arm if arm.sold == 0 && arm.stock_opening > 0 => {
                format!("{name}: nothing was sold")
            }
            arm if !arm.ok => format!("{name}: the books do not add up, {} forks", arm.forks),
            _ => format!("{name}: sound"),
        }
    });
    lines.collect::<Vec<_>>().join(" · ")
}

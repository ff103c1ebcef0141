//! Executes the runs, one after the other, in the process that owns the replicas, and restores
//! everything after each of them.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use tokio::time::{interval, sleep, timeout};
use uuid::Uuid;

use super::arm_spec::ArmSpec;
use super::cluster::ManagedCluster;
use super::lesson::LessonResult;
use super::lessons;
use super::run::{ArmResult, LabRunState, RunRequest, RunResult};
use super::scenario::Scenario;
use super::store;
use crate::db::{self, Pool};
use crate::embedded::{ProcessControl, RunningUp};
use crate::messages::{Message, Text, message};
use crate::shop::Cents;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Idle polls between two checks for abandoned runs.
const POLLS_PER_CLEANUP: u64 = 20;
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const CONNECTIONS: u32 = 4;
const RESTORE_TIMEOUT: Duration = Duration::from_secs(90);
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

pub async fn serve(running: RunningUp, processes: ProcessControl) {
    let pool = match db::pool(&running.database_url, CONNECTIONS) {
        Ok(pool) => pool,
        Err(error) => {
            tracing::error!(%error, "the lab can't be opened: its runs will not be executed");
            return;
        }
    };
    if let Err(error) = store::fail_abandoned(&pool).await {
        tracing::warn!(%error, "abandoned runs could not be marked as failed");
    }
    tokio::join!(send_heartbeats(&pool), execute_runs(&pool, &running, processes));
}

/// Sends heartbeats from the start: a run requested before the cluster is opened can be queued.
async fn send_heartbeats(pool: &Pool) {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    loop {
        ticks.tick().await;
        if let Err(error) = store::heartbeat(pool).await {
            tracing::debug!(%error, "the heartbeat of the lab failed");
        }
    }
}

async fn execute_runs(pool: &Pool, running: &RunningUp, processes: ProcessControl) {
    let mut ticks = interval(POLL_INTERVAL);
    let mut cluster = loop {
        ticks.tick().await;
        match ManagedCluster::open(pool, running, processes.clone()).await {
            Ok(cluster) => break cluster,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the lab can't be opened"),
        }
        sleep(HEARTBEAT_INTERVAL).await;
    };
    let mut idle: u64 = 0;
    loop {
        ticks.tick().await;
        match store::claim(pool).await {
            Ok(Some((id, request))) => cluster = execute_run(cluster, id, request).await,
            // A run that is marked as running now was abandoned: its end could not be recorded.
            Ok(None) => {
                idle += 1;
                if idle.is_multiple_of(POLLS_PER_CLEANUP) {
                    let _ = store::fail_abandoned(pool).await;
                }
            }
            Err(error) => tracing::debug!(%error, "no run can be claimed"),
        }
    }
}

async fn execute_run(cluster: ManagedCluster, id: Uuid, request: RunRequest) -> ManagedCluster {
    let pool = cluster.pool.clone();
    let lab = Scenario::new(cluster, id, request);
    let executed = tokio::select! {
        executed = timeout(RUN_TIMEOUT, execute(&lab)) => executed,
        never = lab.publish_progress() => match never {},
    };
    let executed = executed
        .unwrap_or_else(|_| Err(anyhow!("it had not finished after {} s", RUN_TIMEOUT.as_secs())));
    let restored = timeout(RESTORE_TIMEOUT, async {
        lab.restore().await?;
        lab.cluster.delete_keys(&lab.items()).await
    });
    let restored = restored.await;
    let restored = restored.unwrap_or_else(|_| Err(anyhow!("not every process responds again")));
    let (cluster, mut outcome) = lab.into_parts();
    let state = match executed.and_then(|result| restored.map(|()| result)) {
        Ok(LessonResult { shown, verdict }) => {
            let supported = outcome.evidence.iter().all(|evidence| evidence.ok);
            outcome.claim_shown = shown.map(|shown| shown && supported);
            outcome.verdict = Some(verdict.into());
            LabRunState::Done
        }
        Err(error) => {
            let verdict = message!("run-failed", error = format!("{error:#}"));
            tracing::warn!(%id, verdict = verdict.english(), "a run failed");
            outcome.verdict = Some(verdict.into());
            LabRunState::Failed
        }
    };
    record_result(&pool, id, state, &outcome).await;
    cluster
}

/// Records the end of a run; retries, because Postgres may be what failed.
async fn record_result(pool: &Pool, id: Uuid, state: LabRunState, outcome: &RunResult) {
    const ATTEMPTS: u32 = 20;
    for attempt in 1..=ATTEMPTS {
        match store::finish(pool, id, state, outcome).await {
            Ok(()) => return,
            Err(error) if attempt == ATTEMPTS => {
                tracing::error!(%id, %error, "the result of a run could not be recorded");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

async fn execute(lab: &Scenario) -> anyhow::Result<LessonResult> {
    if let Some(name) = &lab.request.lesson {
        let lesson = lessons::named(name);
        let lesson = lesson.ok_or_else(|| anyhow::anyhow!("there is no lesson {name}"))?;
        return (lesson.run)(lab).await;
    }
    let specs: Vec<ArmSpec> = lab.request.arm_specs(lab.replica_count());
    let quorum = specs.iter().any(|spec| spec.strategy == "redlock");
    ensure!(
        !quorum || !lab.cluster.processes.nodes.is_empty(),
        "redlock needs several Redis servers: start the shop with --redlock 3"
    );
    let arms = lab.run_arms(&specs).await?;
    Ok(LessonResult { shown: None, verdict: verdict(&arms) })
}

fn verdict(arms: &[ArmResult]) -> Message {
    let lines = arms.iter().map(|arm| {
        let forks = arm.forks;
        let line = match arm {
            ArmResult { oversold: 1.., sku: None, .. } => {
                let amount = Cents(arm.oversold);
                message!("run-arm-overspent", name = arm.label(), amount, forks)
            }
            arm if arm.oversold > 0 => {
                message!("run-arm-oversold", name = arm.label(), units = arm.oversold, forks)
            }
            arm if arm.sold == 0 && arm.stock_opening > 0 => {
                message!("run-arm-nothing", name = arm.label())
            }
            arm if !arm.ok => message!("run-arm-unsound", name = arm.label(), forks),
            _ => message!("run-arm-sound", name = arm.label()),
        };
        Text::from(line)
    });
    message!("run-arms", arms = Text::List(lines.collect()))
}

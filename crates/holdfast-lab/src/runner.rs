//! Executes the runs in the process that owns the replicas, and restores everything after each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{interval, sleep, timeout};
use uuid::Uuid;

use super::arm_spec::ArmSpec;
use super::cluster::ManagedCluster;
use super::lessons::{self, LessonResult};
use super::run::{ArmResult, LabRunState, RunRequest};
use super::scenario::Scenario;
use super::store;
use holdfast_base::messages::{Message, Text, message};
use holdfast_services::{ProcessControl, RunningUp};
use holdfast_shop::db::{self, Pool};
use holdfast_shop::strategy::Guarantee;
use holdfast_shop::{Cents, Strategy};
use holdfast_story::Value;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
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
    let cluster = loop {
        ticks.tick().await;
        match ManagedCluster::open(pool, running, processes.clone()).await {
            Ok(cluster) => break Arc::new(cluster),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the lab can't be opened"),
        }
        sleep(HEARTBEAT_INTERVAL).await;
    };

    loop {
        ticks.tick().await;
        match store::claim(pool).await {
            Ok(Some((id, request))) => execute_run(&cluster, id, request).await,
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "no run can be claimed");
                // One that is claimed and cannot be read.
                let _ = store::fail_abandoned(pool).await;
            }
        }
    }
}

async fn execute_run(cluster: &Arc<ManagedCluster>, id: Uuid, request: RunRequest) {
    let lab = Scenario::new(Arc::clone(cluster), id, request);
    let executed = tokio::select! {
        executed = timeout(RUN_TIMEOUT, execute(&lab)) => {
            executed.context("it had not finished after five minutes").flatten()
        }
        never = lab.publish_progress() => match never {},
    };

    // After a failure too: the next run needs every process.
    let restored = timeout(RESTORE_TIMEOUT, async {
        lab.restore().await?;
        cluster.delete_keys(&lab.items()).await
    });
    let restored = restored.await.context("not every process responds again").flatten();

    let mut outcome = lab.into_outcome();
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

    // Postgres may be what failed; a result that it refuses is given up.
    let mut attempts = 0;
    while let Err(error) = store::finish(&cluster.pool, id, state, &outcome).await {
        tracing::error!(%id, %error, "the result of a run can't be recorded");
        attempts += 1;
        if attempts > 10 && store::fail_abandoned(&cluster.pool).await.is_ok() {
            return;
        }
        sleep(HEARTBEAT_INTERVAL).await;
    }
}

async fn execute(lab: &Scenario) -> anyhow::Result<LessonResult> {
    if let Some(name) = &lab.request.lesson {
        let lesson = lessons::named(name).context("there is no such lesson")?;
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
    let lines = arms.iter().map(|arm| Text::from(arm_verdict(arm)));
    message!("run-arms", arms = Text::List(lines.collect()))
}

fn arm_verdict(arm: &ArmResult) -> Message {
    let name = arm.label();
    let forks = arm.forks;
    match arm {
        ArmResult { oversold: 1.., sku: None, .. } => {
            message!("run-arm-overspent", name, amount = Cents(arm.oversold), forks)
        }
        arm if arm.oversold > 0 => {
            message!("run-arm-oversold", name, units = Value::Units(arm.oversold), forks)
        }
        arm if arm.sold == 0 && arm.stock_opening > 0 => message!("run-arm-nothing", name),
        arm if !arm.ok => message!("run-arm-unsound", name, forks),
        arm if !is_always_sound(&arm.strategy) => message!("run-arm-sound-once", name),
        _ => message!("run-arm-sound", name),
    }
}

/// Returns whether the strategy is sound in every run, and not only in one that goes well.
fn is_always_sound(strategy: &str) -> bool {
    let guarantee = Strategy::named(strategy).map(|strategy| strategy.guarantee);
    matches!(guarantee, Some(Guarantee::Always | Guarantee::AmongItself))
}

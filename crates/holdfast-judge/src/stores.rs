//! Is a lock in the servers that it is given? Two clients, each with a Redis and a database of its
//! own, ask for one key, and each must get it while the other one has it. A file, a socket or a
//! variable of this machine would exclude one of them.

use std::time::Duration;

use holdfast_services::{TempPostgres, TempRedis};
use tokio::sync::mpsc;

use super::adapter::AdapterProcess;
use super::ledger::Ledger;
use super::links::WorkerLinks;
use super::plan::JudgePlan;
use super::processes::end_orphans;
use super::protocol::{AdapterAnswer, AdapterOp, WorkerSetup};
use super::worker::introduce;

/// The database of the second client.
const ELSEWHERE: &str = "elsewhere";
/// Pass of its keys, which the work does not have.
const PASS: i64 = 0;

/// Returns whether a client was refused the lock while another one, with other servers, had it.
pub(super) async fn excludes_elsewhere(
    plan: &JudgePlan,
    postgres: &TempPostgres,
) -> anyhow::Result<bool> {
    postgres.create_database(ELSEWHERE).await?;
    let mut tables = Ledger::connect(&postgres.url_of(ELSEWHERE), PASS).await?;
    tables.create().await?;

    let mut setups = Vec::new();
    // They end when they are dropped.
    let mut servers = Vec::new();
    for (worker, database) in (0..).zip(["holdfast", ELSEWHERE]) {
        let redis = TempRedis::start().await?;
        // A server of the user's own is none of them: it is the lock's only one.
        let links = WorkerLinks::start(&redis, postgres, &[]).await?;
        let redis_url = format!("redis://:{}@127.0.0.1:{}/0", redis.password, redis.port);
        setups.push(links.setup(plan, (worker, PASS), redis_url, (postgres, database)));
        servers.push((redis, links));
    }
    let asked = ask(&setups).await;
    // First: one that was reaped as an orphan would be killed by a number that is another's.
    drop(servers);
    end_orphans(postgres.pid()).await;
    asked
}

/// Lets each client ask for the key, and none release it before all have asked.
async fn ask(setups: &[WorkerSetup]) -> anyhow::Result<bool> {
    let (failures, mut failed) = mpsc::unbounded_channel();
    let asking = async {
        let mut adapters = Vec::new();
        for setup in setups {
            let adapter = AdapterProcess::start(setup, failures.clone());
            let adapter = adapter.map_err(anyhow::Error::msg)?;
            introduce(&adapter, setup).await?;
            adapters.push((adapter, setup));
        }

        let mut answers = Vec::new();
        for (adapter, setup) in &adapters {
            let wait_ms = setup.args.wait_ms.min(setup.args.ttl_ms / 2);
            let acquire = AdapterOp::Acquire { key: &setup.key, wait_ms };
            answers.push(adapter.call(acquire, Duration::from_millis(wait_ms), None).await);
        }
        let is_refused =
            |answer: &AdapterAnswer| matches!(answer.reason.as_deref(), Some("busy" | "timeout"));
        Ok(answers[0].ok && answers[1..].iter().any(is_refused))
    };

    tokio::select! {
        asked = asking => asked,
        Some(why) = failed.recv() => Err(why.into()),
    }
}

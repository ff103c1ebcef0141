//! The cluster that runs are executed on: its replicas, their processes, its Postgres and Redis,
//! and the lab's own users.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::run::MAX_BUYERS;
use holdfast_base::messages::{Message, message};
use holdfast_services::load;
use holdfast_services::{ProcessControl, RunningUp};
use holdfast_shop::db::Pool;
use holdfast_shop::users::{self, LAB_NAME_PREFIX};
use holdfast_shop::{Sku, UserId, sessions};

/// Upper bound for a killed replica, or Redis, to respond again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(12);
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Prefix of the keys that lessons create in Redis themselves.
pub(super) const LESSON_KEY_PREFIX: &str = "holdfast-lab:";
const SCAN_COUNT: usize = 500;

#[derive(Debug)]
pub(super) struct ManagedCluster {
    pub(super) replicas: Vec<SocketAddr>,
    pub(super) processes: ProcessControl,
    pub(super) pool: Pool,
    pub(super) redis_url: String,
    /// Session tokens of the buyers, whose accounts are empty.
    pub(super) buyers: Vec<String>,
    pub(super) admin: String,
}

impl ManagedCluster {
    /// Creates sessions for the lab's users directly in Postgres: they have no known password.
    pub(super) async fn open(
        pool: &Pool,
        running: &RunningUp,
        processes: ProcessControl,
    ) -> anyhow::Result<Self> {
        let replicas: Result<Vec<SocketAddr>, _> =
            running.replicas.iter().map(|url| url.trim_start_matches("http://").parse()).collect();

        // Sessions of an earlier process, whose tokens are lost.
        let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
        sessions::end_by_name(&mut connection, LAB_NAME_PREFIX).await?;
        drop(connection);

        let names = (1..=MAX_BUYERS).map(|number| format!("{LAB_NAME_PREFIX}{number:02}"));
        let buyers = begin_sessions(pool, names, false).await?;
        let buyers = buyers.into_iter().map(|(_, token)| token).collect();
        let admins = [format!("{LAB_NAME_PREFIX}admin")];
        let (_, admin) = begin_sessions(pool, admins, true).await?.remove(0);

        Ok(Self {
            replicas: replicas.context("a replica's address")?,
            processes,
            pool: pool.clone(),
            redis_url: running.redis_url.clone(),
            buyers,
            admin,
        })
    }

    async fn redis_responds(&self) -> bool {
        let ping = async {
            let mut redis = connect(&self.redis_url).await?;
            redis::cmd("PING").exec_async(&mut redis).await?;
            anyhow::Ok(())
        };
        matches!(timeout(HEALTH_CHECK_TIMEOUT, ping).await, Ok(Ok(())))
    }

    /// Deletes the keys that a run left in Redis: those of its items, and those that a lesson
    /// created itself.
    pub(super) async fn delete_keys(&self, items: &[Sku]) -> anyhow::Result<()> {
        let mut redis = connect(&self.redis_url).await?;
        let mut keys = Vec::new();

        let of_items = items.iter().map(|sku| format!("*{sku}*"));
        for pattern in of_items.chain([format!("{LESSON_KEY_PREFIX}*")]) {
            let mut scan = redis::cmd("SCAN");
            scan.cursor_arg(0).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
            let mut found = scan.iter_async::<String>(&mut redis).await?;
            while let Some(key) = found.next_item().await {
                keys.push(key?);
            }
        }

        if !keys.is_empty() {
            redis::cmd("UNLINK").arg(keys).exec_async(&mut redis).await?;
        }
        Ok(())
    }

    /// Resumes every process, and waits until Redis and all replicas respond. Kills a replica that
    /// does not, so that the supervisor restarts it, and returns a sentence about it.
    pub(super) async fn restore(&self) -> anyhow::Result<Vec<Message>> {
        let ProcessControl { replicas, redis, nodes } = &self.processes;
        for process in replicas.iter().chain(nodes).chain([redis]) {
            process.resume().await;
        }

        // Redis first: a replica that lacks only Redis must not be killed.
        ensure!(responds(async || self.redis_responds().await).await, "Redis does not respond");

        let mut restarted = Vec::new();
        for (replica, process) in self.replicas.iter().zip(replicas) {
            if responds(async || is_alive(*replica).await).await {
                continue;
            }
            process.kill().await;

            let name = &process.name;
            restarted.push(message!("run-restarted", name));
            let is_back = responds(async || is_alive(*replica).await).await;
            ensure!(is_back, "{name} does not respond, not even after a restart");
        }
        Ok(restarted)
    }
}

/// Begins a session of each of these users of the lab, who are created if there are none; returns
/// the users with their tokens. In one transaction, because each commit waits for the disk: 200
/// buyers of a race would wait for seconds.
pub(super) async fn begin_sessions(
    pool: &Pool,
    names: impl IntoIterator<Item = String>,
    admin: bool,
) -> anyhow::Result<Vec<(UserId, String)>> {
    let mut tx = pool.begin().await.map_err(|(_, error)| error)?;
    let mut begun = Vec::new();
    for name in names {
        let id = users::find_or_create_lab_user(&mut tx, &name, admin).await?;
        let id = id.with_context(|| {
            format!("another user is called {name}; rename that user to open the lab")
        })?;
        begun.push((id, sessions::begin(&mut tx, id).await?.token));
    }

    tx.commit().await?;
    Ok(begun)
}

/// Repeats a health check until it succeeds, for at most [`RESTART_TIMEOUT`].
async fn responds(check: impl AsyncFn() -> bool) -> bool {
    let checks = async {
        while !check().await {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(RESTART_TIMEOUT, checks).await.is_ok()
}

pub(super) async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client.get_multiplexed_async_connection().await.context("Redis does not respond")
}

async fn is_alive(replica: SocketAddr) -> bool {
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let response = timeout(HEALTH_CHECK_TIMEOUT, load::send(replica, request)).await;
    matches!(response, Ok(Ok((200, _))))
}

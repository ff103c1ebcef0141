//! The Redis of a pass: a primary, for the failover a replica that can lag, and their counters.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, cmd};
use tokio::time::{Instant, sleep};

use holdfast_services::{Proxy, TempRedis, Traffic, Upstream};

const SYNC_TIMEOUT: Duration = Duration::from_secs(20);
/// Of the judge's own commands.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Memory that is free before the first key is evicted.
const EVICTION_ROOM: usize = 1 << 20;
const FILLER_BYTES: usize = 16 << 10;
/// Fifty fit in; of the others each evicts a key at random, so that one survives with 10⁻⁸.
const FILLERS: u64 = 1_000;
const MAX_NAMED_KEYS: usize = 50;

#[derive(Debug)]
pub(super) struct RedisServers {
    pub(super) primary: TempRedis,
    /// With the link over which it replicates.
    replica: Option<(TempRedis, Proxy)>,
    /// Commands of servers that were killed.
    past_commands: u64,
    /// Commands of the judge itself that adapters may send, too.
    own_commands: u64,
}

impl RedisServers {
    /// Starts an empty Redis, if asked for with a replica that is in sync.
    pub(super) async fn start(with_replica: bool) -> anyhow::Result<Self> {
        let primary = TempRedis::start().await?;
        let mut replica = None;
        if with_replica {
            let link = Proxy::start(Upstream::Socket(primary.socket())).await?;
            let server = TempRedis::start_with(&primary.password, Some(link.port)).await?;
            wait_in_sync(&server).await?;
            replica = Some((server, link));
        }
        Ok(Self { primary, replica, past_commands: 0, own_commands: 0 })
    }

    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        Ok(cmd("FLUSHALL").exec_async(&mut connect(&self.primary).await?).await?)
    }

    /// Closes the connections of all clients.
    pub(super) async fn close_connections(&self) -> anyhow::Result<()> {
        let mut connection = connect(&self.primary).await?;
        for kind in ["normal", "pubsub"] {
            // Not this one.
            cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).exec_async(&mut connection).await?;
        }
        Ok(())
    }

    /// Empties the cache of scripts, so that `EVALSHA` fails.
    pub(super) async fn flush_scripts(&self) -> anyhow::Result<()> {
        let mut connection = connect(&self.primary).await?;
        Ok(cmd("SCRIPT").arg("FLUSH").arg("SYNC").exec_async(&mut connection).await?)
    }

    /// Fills Redis up to `maxmemory` and on, with a policy that evicts any key, until hardly one of
    /// the keys that it had can be left. Removes what it has written.
    pub(super) async fn evict(&mut self) -> anyhow::Result<()> {
        let mut connection = connect(&self.primary).await?;
        let info: String = cmd("INFO").arg("memory").query_async(&mut connection).await?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        let used: usize = used.context("Redis does not say its memory")?.trim().parse()?;
        let limit = (used + EVICTION_ROOM).to_string();
        // The policy first: without one, commands fail instead.
        for (name, value) in [("maxmemory-policy", "allkeys-random"), ("maxmemory", &limit)] {
            let mut set = cmd("CONFIG");
            set.arg("SET").arg(name).arg(value).exec_async(&mut connection).await?;
        }

        let filler = vec![b'x'; FILLER_BYTES];
        let names: Vec<String> = (0..FILLERS).map(|number| format!("filler:{number}")).collect();
        for name in &names {
            cmd("SET").arg(name).arg(&filler).exec_async(&mut connection).await?;
        }

        let mut unset = cmd("CONFIG");
        unset.arg("SET").arg("maxmemory").arg(0).exec_async(&mut connection).await?;
        cmd("UNLINK").arg(&names).exec_async(&mut connection).await?;
        self.own_commands += FILLERS + 1;
        Ok(())
    }

    /// Kills the server and starts an empty one. Returns its socket.
    pub(super) async fn restart(&mut self) -> anyhow::Result<PathBuf> {
        let password = self.primary.password.clone();
        self.kill_primary().await?;
        self.primary = TempRedis::start_with(&password, None).await?;
        Ok(self.primary.socket())
    }

    /// Withholds from the replica what is written from now on.
    pub(super) fn let_replica_lag(&self) {
        if let Some((_, link)) = &self.replica {
            link.set(Traffic::Withheld);
        }
    }

    /// Kills the primary and promotes the replica. Returns its socket.
    pub(super) async fn fail_over(&mut self) -> anyhow::Result<PathBuf> {
        self.kill_primary().await?;
        let (server, _) = self.replica.take().context("there is no replica to promote")?;
        self.primary = server;
        let mut promote = cmd("REPLICAOF");
        promote.arg("NO").arg("ONE").exec_async(&mut connect(&self.primary).await?).await?;
        Ok(self.primary.socket())
    }

    async fn kill_primary(&mut self) -> anyhow::Result<()> {
        // A new server counts from zero.
        self.past_commands += self.count_current().await?;
        self.primary.kill().await
    }

    /// Returns the number of commands of clients so far. Those of scripts are counted, too.
    pub(super) async fn commands(&self) -> anyhow::Result<u64> {
        Ok((self.past_commands + self.count_current().await?).saturating_sub(self.own_commands))
    }

    async fn count_current(&self) -> anyhow::Result<u64> {
        let mut ask = cmd("INFO");
        let stats: String =
            ask.arg("commandstats").query_async(&mut connect(&self.primary).await?).await?;
        Ok(count_commands(&stats))
    }

    /// Returns the names of the keys, of very many only some, and their number.
    pub(super) async fn keys(&self) -> anyhow::Result<(u64, BTreeSet<String>)> {
        let mut connection = connect(&self.primary).await?;
        let mut names = BTreeSet::new();
        let mut cursor = 0_u64;
        loop {
            let (next, found): (u64, Vec<Vec<u8>>) =
                cmd("SCAN").arg(cursor).query_async(&mut connection).await?;
            names.extend(found.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
            cursor = next;
            if cursor == 0 || names.len() >= MAX_NAMED_KEYS {
                break;
            }
        }

        // Afterwards, as it also counts expired keys, which the scan deletes.
        let count = cmd("DBSIZE").query_async(&mut connection).await?;
        Ok((count, names))
    }
}

async fn connect(server: &TempRedis) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(server.url.as_str())?;
    // The client's own limit is half a second, which a reply on a loaded machine exceeds.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
    connection.context("the judge's Redis does not respond")
}

async fn wait_in_sync(replica: &TempRedis) -> anyhow::Result<()> {
    let mut connection = connect(replica).await?;
    let until = Instant::now() + SYNC_TIMEOUT;
    while Instant::now() < until {
        let info: String = cmd("INFO").arg("replication").query_async(&mut connection).await?;
        if info.contains("master_link_status:up") {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
    bail!("the replica of the judge's Redis does not get into sync")
}

fn count_commands(stats: &str) -> u64 {
    let calls = stats.lines().filter_map(|line| {
        let (name, counters) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let command = name.split('|').next()?;
        let calls = counters.strip_prefix("calls=")?.split(',').next()?;
        if is_uncounted(command) || name == "script|flush" {
            None
        } else {
            calls.parse::<u64>().ok()
        }
    });
    calls.sum()
}

/// Returns whether the command is of the judge itself, of replication, or of a new connection.
fn is_uncounted(command: &str) -> bool {
    let of_judge = matches!(command, "info" | "dbsize" | "flushall" | "config" | "scan");
    let of_replication = matches!(command, "replconf" | "psync" | "replicaof");
    of_judge || of_replication || matches!(command, "auth" | "hello" | "client" | "ping")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a machine that is busy with something else.
    #[tokio::test]
    async fn slow_reply_is_waited_for() {
        let servers = RedisServers::start(false).await.expect("a Redis");
        let mut connection = connect(&servers.primary).await.expect("it answers");
        let mut pause = cmd("CLIENT");
        pause.arg("PAUSE").arg(700).exec_async(&mut connection).await.expect("it pauses");
        assert_eq!(servers.commands().await.expect("it answers, late"), 0);
    }

    #[test]
    fn commands_of_the_judge_are_not_counted() {
        let stats = "# Commandstats\r\ncmdstat_set:calls=12,usec=4\r\ncmdstat_info:calls=9,usec=1\
                     \r\ncmdstat_client|setinfo:calls=4,usec=1\r\ncmdstat_evalsha:calls=3,usec=2";
        assert_eq!(count_commands(stats), 15);
    }
}

//! The servers that are measured: those of a temporary shop, or the user's own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use futures_util::future::join_all;
use holdfast_lock::{Redis, Settings};
use tokio::time::timeout;

use super::args::{ServerArgs, ServerUrls};
use super::database::BenchDatabase;
use super::runs::{BATCHED, MOST_REPLICAS};
use crate::app;
use crate::redis_connection::{self, RedisTlsArgs};
use holdfast_base::output::print_progress;
use holdfast_services::{TempReplicas, TempShop};
use holdfast_shop::locks::ShopLocks;

const REDLOCK_NODES: u16 = 3;
const DEFAULT_POOL_SIZE: u32 = 16;
/// Of the search for our keys, on a Redis that may have millions of others.
const CLEANING_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum Servers {
    Temporary(Box<TempShop>),
    Yours(Box<YourServers>),
}

/// The servers that the harness measures.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) database_url: String,
    /// Name of the database, if it is on the user's Postgres.
    pub(super) database: Option<String>,
    /// The shop's Redis, then the nodes of the quorum.
    pub(super) redis: Vec<Redis>,
    pub(super) replicas: Vec<SocketAddr>,
    /// Pid of the `up` below which all servers run, if they are the benchmark's own.
    pub(super) up: Option<i32>,
    pub(super) tenancy: Tenancy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tenancy {
    /// No other program uses the servers, and their settings may be changed.
    Alone,
    /// Their counters are also others', and all that they allow is to use the benchmark's database.
    Shared { pool_size: u32 },
}

impl Servers {
    /// Starts a temporary shop, or checks the user's servers, on which nothing is made yet. Must be
    /// called from the main thread.
    pub(super) async fn open(options: &ServerArgs) -> anyhow::Result<Self> {
        if options.on_your_servers {
            return Ok(Self::Yours(Box::new(YourServers::open(options).await?)));
        }
        let shop = TempShop::start("bench", MOST_REPLICAS, REDLOCK_NODES, false)?;
        Ok(Self::Temporary(Box::new(shop)))
    }

    /// Returns why a strategy can't be measured on these servers.
    pub(super) fn obstacle(&self, strategy: &str) -> Option<&'static str> {
        match self {
            Self::Yours(servers) if strategy == "redlock" && servers.urls.redlock.is_empty() => {
                Some("it needs REDLOCK_URLS, the addresses of three or five independent servers")
            }
            _ => None,
        }
    }

    /// Makes what the replicas need. Must not be cancelled; after it, also if it fails, the servers
    /// must be stopped.
    pub(super) async fn prepare(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Temporary(_) => Ok(()),
            Self::Yours(servers) => {
                print_progress(&format!("creating the database {} …", servers.database.name));
                servers.database.create().await
            }
        }
    }

    /// Waits until the replicas accept orders.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Site> {
        match self {
            Self::Temporary(shop) => {
                let running = shop.ready().await?;
                let urls = [&running.redis_url].into_iter().chain(&running.redlock_urls);
                let redis: Result<_, _> = urls.map(|url| Redis::open(url)).collect();
                let addresses = running.replicas.iter();
                let replicas: Result<_, _> =
                    addresses.map(|url| url.trim_start_matches("http://").parse()).collect();

                Ok(Site {
                    database_url: running.database_url,
                    database: None,
                    redis: redis?,
                    replicas: replicas?,
                    up: shop.pid(),
                    tenancy: Tenancy::Alone,
                })
            }
            Self::Yours(servers) => servers.ready().await,
        }
    }

    /// Ends what was started and removes what was made. The error says what is left.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Temporary(shop) => {
                shop.stop().await;
                Ok(())
            }
            Self::Yours(servers) => servers.stop().await,
        }
    }
}

#[derive(Debug)]
pub(super) struct YourServers {
    urls: ServerUrls,
    redis_tls: RedisTlsArgs,
    pool_size: u32,
    database: BenchDatabase,
    redis: Vec<Redis>,
    replicas: Option<TempReplicas>,
}

impl YourServers {
    /// Checks what the replicas will check, too: their errors would come with a log around them.
    async fn open(options: &ServerArgs) -> anyhow::Result<Self> {
        let urls = ServerUrls::of_environment()?;
        let redis_tls = options.redis_tls.clone();
        let pool_size = options.pool_size.unwrap_or(DEFAULT_POOL_SIZE);
        let mut redis = Vec::new();
        for url in urls.all_redis() {
            redis.push(redis_connection::open(url, &redis_tls)?);
        }

        let mut database = BenchDatabase::open(&urls.database).await?;
        database.check(pool_size).await?;
        check_redis(&redis, key_prefix(&database.name)).await?;
        for name in database.others().await? {
            let (quoted, prefix) = (name.replace('"', "\"\""), key_prefix(&name));
            print_progress(&format!(
                "there is a database {name}. If no other benchmark runs, a killed one has left it: \
                 drop database \"{quoted}\" with (force). Its keys in Redis: {}",
                removal(&prefix)
            ));
        }
        Ok(Self { urls, redis_tls, pool_size, database, redis, replicas: None })
    }

    async fn ready(&mut self) -> anyhow::Result<Site> {
        let Self { urls, redis_tls, pool_size, database, redis, replicas } = self;
        database.migrate().await?;

        print_progress("starting two replicas on this machine …");
        let path = |file: &Option<String>| file.clone().unwrap_or_default();
        let started = TempReplicas::start(&[
            ("DATABASE_URL", database.url()),
            ("REDIS_URL", urls.redis.clone()),
            ("REDLOCK_URLS", urls.redlock.join(",")),
            ("HOLDFAST_REDIS_PREFIX", key_prefix(&database.name)),
            ("HOLDFAST_REDIS_CA", path(&redis_tls.redis_ca)),
            ("HOLDFAST_REDIS_CERT", path(&redis_tls.redis_cert)),
            ("HOLDFAST_REDIS_KEY", path(&redis_tls.redis_key)),
            ("HOLDFAST_POOL_SIZE", pool_size.to_string()),
            ("HOLDFAST_LOCK", BATCHED.to_owned()),
        ])?;

        let addresses = replicas.insert(started).ready().await?;
        Ok(Site {
            database_url: database.url(),
            database: Some(database.name.clone()),
            redis: redis.clone(),
            replicas: addresses,
            up: None,
            tenancy: Tenancy::Shared { pool_size: *pool_size },
        })
    }

    async fn stop(self) -> anyhow::Result<()> {
        let Self { urls, database, redis, replicas, .. } = self;
        print_progress(&format!("stopping: removing the database {} …", database.name));
        if let Some(replicas) = replicas {
            replicas.stop().await;
        }

        let keys = remove_keys(&urls, &redis, &database.name).await;
        let database = database.remove().await;
        match (keys, database) {
            (Err(keys), Err(database)) => Err(anyhow!("{keys:#}; {database:#}")),
            (keys, database) => keys.and(database),
        }
    }
}

/// Its start is that of the keys for which `docs/SECURITY.md` gives a user of Redis the permission.
fn key_prefix(database: &str) -> String {
    format!("holdfast:{database}:")
}

async fn check_redis(redis: &[Redis], prefix: String) -> anyhow::Result<()> {
    let (redis, nodes) = redis.split_first().context("there is no Redis")?;
    let settings = Settings::default().with_key_prefix(prefix);
    let locks = ShopLocks::new(redis.clone(), nodes.to_vec(), settings)?;
    let strategy = if nodes.is_empty() { BATCHED } else { "redlock" };
    if let Some(lock) = app::strategy(strategy)?.lock_in_redis() {
        redis_connection::check_locks(async || locks.probe(lock).await).await?;
    }
    redis_connection::check_eviction_policy(redis).await
}

/// Removes the keys of a benchmark. The error says what is left, and where.
async fn remove_keys(urls: &ServerUrls, redis: &[Redis], database: &str) -> anyhow::Result<()> {
    let prefix = key_prefix(database);
    let removals = redis.iter().map(|server| remove_prefixed(server, &prefix));
    let outcomes = urls.all_redis().zip(join_all(removals).await);
    let failures = outcomes.filter_map(|(url, outcome)| {
        let error = outcome.err()?;
        Some(format!("{} ({error:#})", place(url)))
    });
    let failures: Vec<String> = failures.collect();
    ensure!(
        failures.is_empty(),
        "keys that begin with {prefix} may be left in the Redis {}; remove them with: {}",
        failures.join(", "),
        removal(&prefix)
    );
    Ok(())
}

/// Returns the command that removes keys.
fn removal(prefix: &str) -> String {
    format!("redis-cli --scan --pattern '{prefix}*' | xargs redis-cli unlink")
}

async fn remove_prefixed(server: &Redis, prefix: &str) -> anyhow::Result<()> {
    let removing = timeout(CLEANING_TIMEOUT, server.delete_prefixed(prefix));
    removing.await.context("it takes too long")??;
    Ok(())
}

/// Returns the hosts and ports of an address of Redis, without the password.
fn place(url: &str) -> &str {
    // The options, too, may have the password.
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    place.rsplit_once('@').map_or(place, |(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_has_no_password() {
        for (url, expected) in [
            ("redis://localhost:6379", "localhost:6379"),
            ("rediss://me:s%40t@db.example:6380/2", "db.example:6380/2"),
            ("redis-cluster://:secret@a:1,b:2", "a:1,b:2"),
            ("unix:///run/redis.sock?db=1&pass=s@t", "/run/redis.sock"),
        ] {
            assert_eq!(place(url), expected);
        }
    }
}

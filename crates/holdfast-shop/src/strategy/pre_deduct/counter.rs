//! The counter of an item's units in Redis, of the strategy `pre-deduct`.
//!
//! Guarantees: each change is one script, so no unit is given out twice while Redis keeps the
//! counter. A counter that is lost is loaded again from Postgres, which does not know of the units
//! that left it for orders on their way: those are sold a second time.
//! An error means that the outcome is unknown: the units may have left the counter.

use std::sync::LazyLock;
use std::time::Duration;

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Script, cmd};

use crate::Sku;
use crate::locks::ShopLocks;

/// Expiry of a counter after its last use. Far longer than an order is on its way, so that a
/// counter expires when nothing depends on it, and Redis does not keep those of deleted items.
const TTL: Duration = Duration::from_hours(24);
/// Expiry of an announcement whose replica has died: longer than a request takes.
const ANNOUNCEMENT_TTL: Duration = Duration::from_secs(15);

static ANNOUNCE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("announce.lua")));
static DEDUCT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("deduct.lua")));
static ADD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("add.lua")));
static REPLACE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("replace.lua")));

#[derive(Debug, Clone)]
pub struct StockCounter {
    redis: Redis,
    key: String,
    /// The number of announcements that are open, in the same slot of a Cluster.
    announced: String,
}

/// The result of [`StockCounter::deduct`], with the units that the counter had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deducted {
    Taken { before: i64 },
    TooFew { available: i64 },
}

impl StockCounter {
    pub fn new(locks: &ShopLocks, sku: &Sku) -> Self {
        let prefix = &locks.leases().settings().key_prefix;
        let item = sku.lock_key();
        Self {
            redis: locks.redis().clone(),
            key: format!("{prefix}stock:{item}"),
            announced: format!("{prefix}announced:{item}"),
        }
    }

    pub async fn get(&self) -> Result<Option<i64>, RedisError> {
        self.redis.query(cmd("GET").arg(&self.key).to_owned()).await
    }

    /// Takes all of the units, or none. Returns `None` if there is no counter.
    pub async fn deduct(&self, units: i64) -> Result<Option<Deducted>, RedisError> {
        let mut call = DEDUCT.key(&self.key);
        call.arg(units).arg(ms(TTL));
        let response: Vec<i64> = self.redis.run_script(call).await?;
        Ok(match response[..] {
            [before, 1] => Some(Deducted::Taken { before }),
            [available, _] => Some(Deducted::TooFew { available }),
            _ => None,
        })
    }

    /// Keeps the counter from being replaced until [`Self::add_announced`]. Returns `None` if there
    /// is no counter.
    pub async fn announce(&self) -> Result<Option<()>, RedisError> {
        let mut call = ANNOUNCE.key(&self.key);
        call.key(&self.announced).arg(ms(ANNOUNCEMENT_TTL));
        let response: Option<i64> = self.redis.run_script(call).await?;
        Ok(response.map(drop))
    }

    /// Adds the units that were announced: none if they did not come to the row.
    pub async fn add_announced(&self, units: i64) -> Result<(), RedisError> {
        let mut call = ADD.key(&self.key);
        call.key(&self.announced).arg(units).arg(ms(TTL));
        self.redis.run_script::<i64>(call).await.map(drop)
    }

    /// Sets a counter that does not exist.
    pub async fn load(&self, units: i64) -> Result<(), RedisError> {
        let mut set = cmd("SET");
        set.arg(&self.key).arg(units).arg("NX").arg("PX").arg(ms(TTL));
        self.redis.query::<Option<String>>(set).await.map(drop)
    }

    /// Adds units to a counter that exists.
    pub async fn add(&self, units: i64) -> Result<(), RedisError> {
        let mut call = ADD.key(&self.key);
        call.arg(units).arg(ms(TTL));
        self.redis.run_script::<i64>(call).await.map(drop)
    }

    /// Sets the counter if it still is `was` and nothing is announced; returns whether it did.
    pub async fn replace(&self, was: Option<i64>, units: i64) -> Result<bool, RedisError> {
        let was = was.map(|was| was.to_string()).unwrap_or_default();
        let mut call = REPLACE.key(&self.key);
        call.key(&self.announced).arg(was).arg(units).arg(ms(TTL));
        self.redis.run_script(call).await
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

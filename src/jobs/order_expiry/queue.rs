//! A delay queue on Redis: delivers an entry when it is due, to one worker at a time.
//!
//! Guarantees: at least once. A claim is exclusive for [`VISIBILITY_TIMEOUT`]; an entry that is not
//! removed by then is due again. A claim is one script, so two workers never get the same entry at
//! the same time. No shard has more than [`MAX_PER_SHARD`] members, so none becomes a big key.
//!
//! Does not guarantee that an entry is present: a Redis that was flushed or restarted has lost it,
//! and a full shard accepts no more, so producers need another record of their entries. Nor the
//! time: Redis's clock decides, and if it is adjusted, entries are delivered too early or too late,
//! so consumers check whether an entry is due. Tests: `tests/it/delay_queue.rs`.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use holdfast_lock::redis::Error as RedisError;
use rand::RngExt as _;
use redis::Script;
use uuid::Uuid;

use crate::shop::Shop;
use holdfast_lock::Redis;

/// Number of keys over which the queue is spread.
const SHARDS: u8 = 32;
/// Upper bound of a shard: a key with more elements is big (`holdfast keys`).
pub const MAX_PER_SHARD: usize = 5_000;

/// Time for which a claim is exclusive unless renewed. Entries of a killed worker are delayed by
/// it; those of a worker that stops for longer are looked up by two workers, which costs a query.
pub const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

static SCHEDULE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("schedule.lua")));
static CLAIM_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));

/// The queue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DelayQueue {
    redis: Redis,
    /// Prefix of its keys.
    name: String,
    pub max_per_shard: usize,
    pub visibility_timeout: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClaimedEntries {
    pub ids: Vec<Uuid>,
    /// Time until the next entry is due, as far as known.
    pub next_in: Option<Duration>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ScheduleResult {
    /// Number of entries that were absent and are now in the queue.
    pub added: usize,
    pub no_room: Vec<Uuid>,
}

/// Returns the queue of unpaid orders of the shop with this key prefix.
pub fn queue_of(redis: Redis, prefix: &str) -> DelayQueue {
    DelayQueue::new(redis, format!("{prefix}expiry:"))
}

impl DelayQueue {
    /// Creates a queue whose keys are `<name>{<shard>}`.
    pub fn new(redis: Redis, name: String) -> Self {
        Self { redis, name, max_per_shard: MAX_PER_SHARD, visibility_timeout: VISIBILITY_TIMEOUT }
    }

    /// Returns the queue of the unpaid orders of a shop.
    pub fn of_shop(shop: &Shop) -> Self {
        queue_of(shop.locks.redis().clone(), &shop.locks.leases().settings().key_prefix)
    }

    /// Adds entries that are not in the queue yet, each due after its duration. Returns the entries
    /// for which there was no room.
    ///
    /// # Errors
    /// If Redis does not respond; then all, some or none of the entries are in the queue.
    pub async fn add(&self, entries: &[(Uuid, Duration)]) -> Result<Vec<Uuid>, RedisError> {
        Ok(self.schedule("add", entries).await?.no_room)
    }

    /// Makes entries due now, and adds absent entries; claimed entries stay claimed.
    pub async fn bring_forward(&self, ids: &[Uuid]) -> Result<ScheduleResult, RedisError> {
        let now: Vec<_> = ids.iter().map(|id| (*id, Duration::ZERO)).collect();
        self.schedule("bring-forward", &now).await
    }

    /// Sets the due times of entries that are in the queue, from now.
    pub async fn postpone(&self, entries: &[(Uuid, Duration)]) -> Result<(), RedisError> {
        self.schedule("postpone", entries).await.map(drop)
    }

    /// Renews the claims of entries that were not removed since.
    pub async fn renew(&self, ids: &[Uuid]) -> Result<(), RedisError> {
        let kept: Vec<_> = ids.iter().map(|id| (*id, self.visibility_timeout)).collect();
        self.postpone(&kept).await
    }

    /// Claims up to `max` due entries for [`VISIBILITY_TIMEOUT`]; in a Cluster, where each shard is
    /// a call of its own, about four times as many. After an error, entries that were claimed all
    /// the same are due again after that time.
    pub async fn claim(&self, max: usize) -> Result<ClaimedEntries, RedisError> {
        // Starts at a random shard: with a permanent backlog, each shard gets its turn.
        let first = rand::rng().random_range(0..SHARDS);
        let shards: Vec<String> =
            (0..SHARDS).map(|shard| self.key((first + shard) % SHARDS)).collect();
        // A script sees one server, and in a Cluster one slot.
        let (calls, each) = if self.redis.is_cluster() {
            (shards.chunks(1).collect(), max.div_ceil(usize::from(SHARDS / 4)))
        } else {
            (vec![shards.as_slice()], max)
        };
        let responses = calls.into_iter().map(|keys| {
            let mut call = CLAIM_SCRIPT.prepare_invoke();
            for key in keys {
                call.key(key);
            }
            call.arg(milliseconds(self.visibility_timeout)).arg(each);
            self.redis.run_script::<(i64, Vec<String>)>(call)
        });
        // In a Cluster a primary may be unavailable: entries of the others are claimed now.
        let (responses, failed): (Vec<_>, Vec<_>) =
            join_all(responses).await.into_iter().partition(Result::is_ok);
        if let (true, Some(Err(error))) = (responses.is_empty(), failed.into_iter().next()) {
            return Err(error);
        }
        let mut claimed = ClaimedEntries::default();
        for (next, ids) in responses.into_iter().flatten() {
            claimed.ids.extend(ids.iter().filter_map(|id| Uuid::parse_str(id).ok()));
            let next = u64::try_from(next).ok().map(Duration::from_millis);
            claimed.next_in = claimed.next_in.into_iter().chain(next).min();
        }
        Ok(claimed)
    }

    /// Removes entries; returns the number of those that were present. Repeating it is harmless.
    pub async fn remove(&self, ids: &[Uuid]) -> Result<usize, RedisError> {
        let commands = by_shard(ids, |id| *id).into_iter().map(|(shard, ids)| {
            let mut command = redis::cmd("ZREM");
            command.arg(self.key(shard));
            for id in ids {
                command.arg(id.to_string());
            }
            self.redis.query::<usize>(command)
        });
        Ok(try_join_all(commands).await?.iter().sum())
    }

    /// Removes all entries. After an error some may be left.
    pub async fn clear(&self) -> Result<(), RedisError> {
        let commands = (0..SHARDS).map(|shard| {
            self.redis.query::<i64>(redis::cmd("UNLINK").arg(self.key(shard)).to_owned())
        });
        try_join_all(commands).await.map(drop)
    }

    pub async fn contains(&self, id: Uuid) -> Result<bool, RedisError> {
        let command =
            redis::cmd("ZSCORE").arg(self.key(shard_of(id))).arg(id.to_string()).to_owned();
        Ok(self.redis.query::<Option<f64>>(command).await?.is_some())
    }

    /// Returns the number of entries, and the number in the fullest shard.
    pub async fn lengths(&self) -> Result<(usize, usize), RedisError> {
        let lengths = (0..SHARDS).map(|shard| {
            let command = redis::cmd("ZCARD").arg(self.key(shard)).to_owned();
            self.redis.query::<usize>(command)
        });
        let lengths = try_join_all(lengths).await?;
        Ok((lengths.iter().sum(), lengths.into_iter().max().unwrap_or(0)))
    }

    fn key(&self, shard: u8) -> String {
        format!("{}{{{shard}}}", self.name)
    }

    /// Runs `schedule.lua`, which documents the modes.
    async fn schedule(
        &self,
        mode: &str,
        entries: &[(Uuid, Duration)],
    ) -> Result<ScheduleResult, RedisError> {
        let shards: Vec<_> = by_shard(entries, |entry| entry.0).into_iter().collect();
        // In a Cluster the shards lie on several nodes.
        let shards_per_call = if self.redis.is_cluster() { 1 } else { usize::from(SHARDS) };
        let calls = shards.chunks(shards_per_call);
        let responses = calls.map(|shards| {
            let mut call = SCHEDULE_SCRIPT.prepare_invoke();
            for (shard, _) in shards {
                call.key(self.key(*shard));
            }
            call.arg(mode).arg(self.max_per_shard).arg(milliseconds(self.visibility_timeout));
            for (at, (_, entries)) in shards.iter().enumerate() {
                for (id, due_in) in entries {
                    call.arg(at + 1).arg(milliseconds(*due_in)).arg(id.to_string());
                }
            }
            self.redis.run_script::<(usize, Vec<String>)>(call)
        });
        let mut result = ScheduleResult::default();
        for (added, rejected) in try_join_all(responses).await? {
            result.added += added;
            result.no_room.extend(rejected.iter().filter_map(|id| Uuid::parse_str(id).ok()));
        }
        Ok(result)
    }
}

/// Returns the shard of an entry, by the last byte of its id, which is random.
fn shard_of(id: Uuid) -> u8 {
    id.as_bytes()[15] % SHARDS
}

fn by_shard<T: Copy>(entries: &[T], id: impl Fn(&T) -> Uuid) -> BTreeMap<u8, Vec<T>> {
    let mut shards: BTreeMap<u8, Vec<T>> = BTreeMap::new();
    for entry in entries {
        shards.entry(shard_of(id(entry))).or_default().push(*entry);
    }
    shards
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

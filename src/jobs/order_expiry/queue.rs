//! A delay queue on Redis: delivers an entry when it is due, to one worker at a time.
//!
//! Guarantees: at least once. A claim is exclusive for [`CLAIM_TIMEOUT`]; an entry that is not
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
use redis::{Script, from_redis_value};
use uuid::Uuid;

use holdfast_lock::Redis;

/// Number of keys over which the queue is spread.
const SHARDS: u8 = 32;
/// Upper bound of a shard: a key with more elements is big (`holdfast keys`).
pub const MAX_PER_SHARD: usize = 5_000;

/// Time for which a claim is exclusive unless renewed. Entries of a killed worker are delayed by
/// it; those of a worker that stops for longer are looked up by two workers, which costs a query.
pub const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

static SCHEDULE_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("schedule.lua")));
static CLAIM_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));

/// The queue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DelayQueue {
    redis: Redis,
    /// Prefix of its keys.
    name: String,
    max_per_shard: usize,
    claim_timeout: Duration,
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

/// The change to an entry, by whether it is in the queue.
#[derive(Debug, Clone, Copy)]
enum ScheduleMode {
    /// Adds it if absent.
    AddIfAbsent,
    /// Sets its due time if present.
    Postpone,
    /// Adds it if absent; brings it forward if present and due later than a claim ends.
    BringForward,
}

impl ScheduleMode {
    fn label(self) -> &'static str {
        match self {
            ScheduleMode::AddIfAbsent => "in",
            ScheduleMode::Postpone => "off",
            ScheduleMode::BringForward => "now",
        }
    }
}

impl DelayQueue {
    /// Creates a queue whose keys are `<name>{<shard>}`.
    pub fn new(redis: Redis, name: String) -> Self {
        Self { redis, name, max_per_shard: MAX_PER_SHARD, claim_timeout: CLAIM_TIMEOUT }
    }

    /// Returns the queue with another bound, for tests.
    #[must_use]
    pub fn with_max_per_shard(self, max_per_shard: usize) -> Self {
        Self { max_per_shard, ..self }
    }

    /// Returns the queue with another claim time, for tests.
    #[must_use]
    pub fn with_claim_timeout(self, claim_timeout: Duration) -> Self {
        Self { claim_timeout, ..self }
    }

    /// Adds entries that are not in the queue yet, each due after its duration. Returns the entries
    /// for which there was no room.
    ///
    /// On a single server these are plain commands, except for shards that are nearly full: the
    /// script costs twice as much, and counts exactly. In a Cluster each shard has its own server's
    /// clock, so it is always the script.
    ///
    /// # Errors
    /// If Redis does not respond; then all, some or none of the entries are in the queue.
    pub async fn add(&self, entries: &[(Uuid, Duration)]) -> Result<Vec<Uuid>, RedisError> {
        if entries.is_empty() || self.redis.is_cluster() {
            return Ok(self.schedule(ScheduleMode::AddIfAbsent, entries).await?.no_room);
        }
        let shards = by_shard(entries.iter().copied(), |entry| entry.0);
        let mut lengths_call = redis::pipe();
        lengths_call.cmd("TIME");
        for shard in shards.keys() {
            lengths_call.zcard(self.key(*shard));
        }
        let responses: Vec<redis::Value> = self.redis.query_pipeline(lengths_call).await?;
        let mut responses = responses.into_iter();
        let (seconds, micros): (u64, u64) = from_redis_value(responses.next().unwrap_or_default())
            .map_err(RedisError::unexpected_response)?;
        let now_ms = seconds * 1_000 + micros / 1_000;
        let lengths: Vec<usize> = responses
            .map(from_redis_value)
            .collect::<Result<_, _>>()
            .map_err(RedisError::unexpected_response)?;

        // Room for entries that other replicas add between the two round trips.
        let margin = self.max_per_shard.div_ceil(10);
        let (mut add, mut nearly_full) = (redis::pipe(), Vec::new());
        for ((shard, entries), length) in shards.into_iter().zip(lengths) {
            if length + entries.len() + margin > self.max_per_shard {
                nearly_full.extend(entries);
                continue;
            }
            add.cmd("ZADD").arg(self.key(shard)).arg("NX").ignore();
            for (id, due_in) in entries {
                add.arg(now_ms.saturating_add(milliseconds(due_in))).arg(id.to_string());
            }
        }
        if !add.is_empty() {
            self.redis.query_pipeline::<()>(add).await?;
        }
        Ok(self.schedule(ScheduleMode::AddIfAbsent, &nearly_full).await?.no_room)
    }

    /// Makes entries due now, and adds absent entries; claimed entries stay claimed.
    pub async fn bring_forward(&self, ids: &[Uuid]) -> Result<ScheduleResult, RedisError> {
        let now: Vec<_> = ids.iter().map(|id| (*id, Duration::ZERO)).collect();
        self.schedule(ScheduleMode::BringForward, &now).await
    }

    /// Sets the due times of entries that are in the queue, from now.
    pub async fn postpone(&self, entries: &[(Uuid, Duration)]) -> Result<(), RedisError> {
        self.schedule(ScheduleMode::Postpone, entries).await.map(drop)
    }

    /// Renews the claims of entries that were not removed since, for [`CLAIM_TIMEOUT`] from now.
    pub async fn renew(&self, ids: &[Uuid]) -> Result<(), RedisError> {
        let kept: Vec<_> = ids.iter().map(|id| (*id, self.claim_timeout)).collect();
        self.postpone(&kept).await
    }

    /// Claims up to `max` due entries for [`CLAIM_TIMEOUT`]; in a Cluster, where each shard is a
    /// call of its own, about four times as many. After an error, entries that were claimed all the
    /// same are due again after that time.
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
            call.arg(milliseconds(self.claim_timeout)).arg(each);
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

    /// Removes entries. Repeating it is harmless.
    pub async fn remove(&self, ids: &[Uuid]) -> Result<(), RedisError> {
        let shards = by_shard(ids.iter().copied(), |id| *id);
        let commands = shards.into_iter().map(|(shard, ids)| {
            let mut command = redis::cmd("ZREM");
            command.arg(self.key(shard));
            for id in ids {
                command.arg(id.to_string());
            }
            self.redis.query::<i64>(command)
        });
        try_join_all(commands).await.map(drop)
    }

    /// Removes all entries. After an error some may be left.
    pub async fn clear(&self) -> Result<(), RedisError> {
        let commands = (0..SHARDS).map(|shard| {
            self.redis.query::<i64>(redis::cmd("UNLINK").arg(self.key(shard)).to_owned())
        });
        try_join_all(commands).await.map(drop)
    }

    pub async fn contains(&self, id: Uuid) -> Result<bool, RedisError> {
        let shard = id.as_bytes()[15] % SHARDS;
        let command = redis::cmd("ZSCORE").arg(self.key(shard)).arg(id.to_string()).to_owned();
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

    async fn schedule(
        &self,
        mode: ScheduleMode,
        entries: &[(Uuid, Duration)],
    ) -> Result<ScheduleResult, RedisError> {
        let shards = by_shard(entries.iter().copied(), |entry| entry.0);
        let shards: Vec<_> = shards.into_iter().collect();
        let calls = if self.redis.is_cluster() { shards.chunks(1) } else { shards.chunks(256) };
        let responses = calls.map(|shards| {
            let mut call = SCHEDULE_SCRIPT.prepare_invoke();
            for (shard, _) in shards {
                call.key(self.key(*shard));
            }
            call.arg(mode.label()).arg(self.max_per_shard).arg(milliseconds(self.claim_timeout));
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

/// Groups entries by shard: by the last byte of their ids, which is random.
fn by_shard<T>(entries: impl Iterator<Item = T>, id: impl Fn(&T) -> Uuid) -> BTreeMap<u8, Vec<T>> {
    let mut shards: BTreeMap<u8, Vec<T>> = BTreeMap::new();
    for entry in entries {
        let last = id(&entry).as_bytes()[15];
        shards.entry(last % SHARDS).or_default().push(entry);
    }
    shards
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

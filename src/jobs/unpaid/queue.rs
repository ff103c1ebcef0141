//! A delay queue on Redis: what is put in comes out when it is due, to one worker at a time.
//!
//! Guarantees: at least once. Who claims something has it alone for a while; if it is not removed
//! by then, it is due again. A claim is one script, so two workers never get the same thing at the
//! same time. No shard has more than [`MOST_PER_SHARD`] members, so none becomes a big key.
//!
//! Does not guarantee: that anything is there. A Redis that was flushed or restarted has forgotten
//! it, and a full shard takes nothing more; whoever puts something in must know it from elsewhere
//! too. Nor the moment: it is the server's clock that counts, and if that is set, things come too
//! early or too late. Whoever gets something asks whether it is due.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use rand::RngExt as _;
use redis::{RedisError, Script, from_redis_value};
use uuid::Uuid;

use crate::lock::Redis;

/// Over so many keys it is spread.
const SHARDS: u8 = 32;
/// More elements than this are a big key (`holdfast keys`).
pub const MOST_PER_SHARD: usize = 5_000;

/// How long what one worker has claimed is nobody else's, unless it says so again. A killed
/// worker's is that late; that of one which is stopped for longer is looked at by two, which costs
/// a look.
pub const CLAIM: Duration = Duration::from_secs(1);

static SCHEDULE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("schedule.lua")));
static CLAIM_DUE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));

/// The queue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DelayQueue {
    redis: Redis,
    /// What its keys begin with.
    name: String,
    most_per_shard: usize,
    claim: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub ids: Vec<Uuid>,
    /// When the next one is due, as far as is known now.
    pub next_in: Option<Duration>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// How many the queue did not know.
    pub unknown: usize,
    pub no_room: Vec<Uuid>,
}

/// What is done with something that is, or is not, in the queue.
#[derive(Debug, Clone, Copy)]
enum How {
    /// Put in what is not there.
    In,
    /// Put off what is there.
    Off,
    /// Put in what is not there, and bring forward what is there for later.
    Now,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            How::In => "in",
            How::Off => "off",
            How::Now => "now",
        }
    }
}

impl DelayQueue {
    /// The queue whose keys are `<name>{<shard>}`.
    pub fn new(redis: Redis, name: String) -> Self {
        Self { redis, name, most_per_shard: MOST_PER_SHARD, claim: CLAIM }
    }

    /// The same with another bound, for tests.
    #[must_use]
    pub fn with_most_per_shard(self, most_per_shard: usize) -> Self {
        Self { most_per_shard, ..self }
    }

    /// The same with another length of a claim, for tests.
    #[must_use]
    pub fn with_claim(self, claim: Duration) -> Self {
        Self { claim, ..self }
    }

    /// Adds entries that the queue does not have yet: each is due after its time span. Returns
    /// those for which there was no room.
    ///
    /// On a single server these are plain commands, but for shards that are nearly full: the script
    /// costs twice as much, and counts exactly. In a Cluster each shard has its own server's clock,
    /// so there it is always the script.
    ///
    /// # Errors
    /// When Redis does not respond; then all, some or none are in.
    pub async fn add(&self, entries: &[(Uuid, Duration)]) -> Result<Vec<Uuid>, RedisError> {
        if entries.is_empty() || self.redis.is_cluster() {
            return Ok(self.schedule(How::In, entries).await?.no_room);
        }
        let shards = by_shard(entries.iter().copied(), |entry| entry.0);
        let mut look = redis::pipe();
        look.cmd("TIME");
        for shard in shards.keys() {
            look.zcard(self.key(*shard));
        }
        let answers: Vec<redis::Value> = self.redis.pipe(look).await?;
        let mut answers = answers.into_iter();
        let (seconds, micros): (u64, u64) = from_redis_value(answers.next().unwrap_or_default())?;
        let now_ms = seconds * 1_000 + micros / 1_000;
        let lengths: Vec<usize> = answers.map(from_redis_value).collect::<Result<_, _>>()?;

        // What other replicas may add between the two round trips.
        let margin = self.most_per_shard.div_ceil(10);
        let (mut add, mut nearly_full) = (redis::pipe(), Vec::new());
        for ((shard, entries), length) in shards.into_iter().zip(lengths) {
            if length + entries.len() + margin > self.most_per_shard {
                nearly_full.extend(entries);
                continue;
            }
            add.cmd("ZADD").arg(self.key(shard)).arg("NX").ignore();
            for (id, due_in) in entries {
                add.arg(now_ms.saturating_add(milliseconds(due_in))).arg(id.to_string());
            }
        }
        if !add.is_empty() {
            self.redis.pipe::<()>(add).await?;
        }
        Ok(self.schedule(How::In, &nearly_full).await?.no_room)
    }

    /// Makes them due now, but for those that somebody has claimed.
    pub async fn bring_forward(&self, ids: &[Uuid]) -> Result<Brought, RedisError> {
        let now: Vec<_> = ids.iter().map(|id| (*id, Duration::ZERO)).collect();
        self.schedule(How::Now, &now).await
    }

    /// Makes what is there due so long after now instead.
    pub async fn put_off(&self, entries: &[(Uuid, Duration)]) -> Result<(), RedisError> {
        self.schedule(How::Off, entries).await.map(drop)
    }

    /// Keeps what was claimed, and not removed since, for another [`CLAIM`] from now.
    pub async fn renew(&self, ids: &[Uuid]) -> Result<(), RedisError> {
        let kept: Vec<_> = ids.iter().map(|id| (*id, self.claim)).collect();
        self.put_off(&kept).await
    }

    /// Claims what is due, at most so many, for [`CLAIM`]. After an error, what was claimed all the
    /// same is due again after that time.
    pub async fn claim(&self, most: usize) -> Result<Claimed, RedisError> {
        // From anywhere on: if there is always more than one claim takes, each shard has its turn.
        let first = rand::rng().random_range(0..SHARDS);
        let shards: Vec<String> =
            (0..SHARDS).map(|shard| self.key((first + shard) % SHARDS)).collect();
        // One script sees one server, and of a Cluster one slot.
        let (calls, each) = if self.redis.is_cluster() {
            (shards.chunks(1).collect(), most.div_ceil(usize::from(SHARDS / 4)))
        } else {
            (vec![shards.as_slice()], most)
        };
        let answers = calls.into_iter().map(|keys| {
            let mut call = CLAIM_DUE.prepare_invoke();
            for key in keys {
                call.key(key);
            }
            call.arg(milliseconds(self.claim)).arg(each);
            self.redis.invoke::<(i64, Vec<String>)>(call)
        });
        // Of a Cluster, one primary may be away: what the others gave is ours now.
        let (told, failed): (Vec<_>, Vec<_>) =
            join_all(answers).await.into_iter().partition(Result::is_ok);
        if let (true, Some(Err(error))) = (told.is_empty(), failed.into_iter().next()) {
            return Err(error);
        }
        let mut claimed = Claimed::default();
        for (next, ids) in told.into_iter().flatten() {
            claimed.ids.extend(ids.iter().filter_map(|id| Uuid::parse_str(id).ok()));
            let next = u64::try_from(next).ok().map(Duration::from_millis);
            claimed.next_in = claimed.next_in.into_iter().chain(next).min();
        }
        Ok(claimed)
    }

    /// Removes them for good. Repeating it is harmless.
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

    /// Empties it. After an error some of it may be left.
    pub async fn clear(&self) -> Result<(), RedisError> {
        let commands = (0..SHARDS).map(|shard| {
            self.redis.query::<i64>(redis::cmd("UNLINK").arg(self.key(shard)).to_owned())
        });
        try_join_all(commands).await.map(drop)
    }

    pub async fn has(&self, id: Uuid) -> Result<bool, RedisError> {
        let shard = id.as_bytes()[15] % SHARDS;
        let command = redis::cmd("ZSCORE").arg(self.key(shard)).arg(id.to_string()).to_owned();
        Ok(self.redis.query::<Option<f64>>(command).await?.is_some())
    }

    /// How many are in it, and how many of those in the fullest shard.
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
        how: How,
        entries: &[(Uuid, Duration)],
    ) -> Result<Brought, RedisError> {
        let shards = by_shard(entries.iter().copied(), |entry| entry.0);
        let shards: Vec<_> = shards.into_iter().collect();
        let calls = if self.redis.is_cluster() { shards.chunks(1) } else { shards.chunks(256) };
        let answers = calls.map(|shards| {
            let mut call = SCHEDULE.prepare_invoke();
            for (shard, _) in shards {
                call.key(self.key(*shard));
            }
            call.arg(how.word()).arg(self.most_per_shard).arg(milliseconds(self.claim));
            for (at, (_, entries)) in shards.iter().enumerate() {
                for (id, due_in) in entries {
                    call.arg(at + 1).arg(milliseconds(*due_in)).arg(id.to_string());
                }
            }
            self.redis.invoke::<(usize, Vec<String>)>(call)
        });
        let mut brought = Brought::default();
        for (added, refused) in try_join_all(answers).await? {
            brought.unknown += added;
            brought.no_room.extend(refused.iter().filter_map(|id| Uuid::parse_str(id).ok()));
        }
        Ok(brought)
    }
}

/// By the key they belong to: by the last byte of their ids, which is random.
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

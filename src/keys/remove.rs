//! Removes a big key, in the background or in batches.
//!
//! `UNLINK` removes the name at once and frees the memory in another thread. Without it, each
//! command removes few elements: a hash with `HSCAN` and one `HDEL` for all fields of a page; a set
//! with `SSCAN` and `SREM`; a list with `LTRIM` from its end; a sorted set with `ZREMRANGEBYRANK`;
//! a stream with `XTRIM`. `HRANDFIELD` and `SPOP` are slow in a table that is nearly empty.
//!
//! Guarantees: no command but `UNLINK` removes more than [`BATCH`] elements, or about 1 MB. The
//! removal ends: after about twice the initial number of elements it stops and reports what is
//! left. Other keys are not touched.
//!
//! Does not guarantee that a string goes unnoticed: it is one piece of memory, and Redis frees even
//! `UNLINK`ed strings at once (0.07 ms per MB). Nor that elements added during the removal are
//! spared, if the type stays the same.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, cmd};
use tokio::time::Instant;

use super::manners::{ask, is_another_type, is_refused, rest};
use super::{Big, Entry, Error, Kind, look_at, name};
use crate::lock::Redis;

/// Elements per command: about half a millisecond of Redis's time for a hash that is in no cache.
pub const BATCH: u64 = 500;
/// Memory per command: large elements are removed fewer at a time, because `HSCAN` sends their
/// values too.
const BATCH_BYTES: u64 = 1 << 20;
/// Upper bound of the scans of a hash or a set: the next scan finds elements added behind the
/// cursor.
const WALKS: u32 = 4;
/// Upper bound of the empty places that a scan step skips per requested element. A table that was
/// much larger has many of them.
const EMPTY_PER_ELEMENT: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum With {
    Unlink,
    Batches,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct Removal {
    pub with: With,
    /// True if the server refused `UNLINK` and the key was removed in batches.
    pub unlink_refused: bool,
    /// Elements (or a string's bytes) that were removed.
    pub removed: u64,
    /// Elements left, because the key grew; 0 if the key is gone.
    pub left: u64,
    /// Number of commands that remove something.
    pub commands: u64,
    /// Duration of the slowest of these commands, with its round trip.
    #[serde(serialize_with = "milliseconds", rename = "longest_ms")]
    pub longest: Duration,
    /// Total duration, with the pauses.
    #[serde(serialize_with = "milliseconds", rename = "took_ms")]
    pub took: Duration,
}

fn milliseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e3)
}

/// Removes a key; returns `None` if it does not exist. `progress` receives the number of removed
/// elements.
///
/// # Errors
/// If Redis stays unavailable or refuses, or the key is replaced by a key of another type. After an
/// error, or when dropped, some elements may be gone; call it again.
pub async fn remove(
    redis: &Redis,
    name: &[u8],
    with: With,
    progress: impl FnMut(u64) + Send,
) -> Result<Option<Removal>, Error> {
    let Some(entry) = look_at(redis, name, Big::default()).await? else { return Ok(None) };
    let mut work = Work::new(redis, &entry, progress);
    let whole = matches!(entry.kind, Kind::String | Kind::Other(_));
    let mut used = With::Unlink;
    if with == With::Unlink || whole {
        match work.unlink().await {
            Ok(()) => {}
            Err(error) if is_refused(&error) => {
                work.unlink_refused = true;
                if matches!(entry.kind, Kind::Other(_)) {
                    let (key, kind) = (name::shown(name), entry.kind.word().to_owned());
                    return Err(Error::Whole { key, kind, why: error.to_string() });
                }
                used = With::Batches;
            }
            Err(error) => return Err(error.into()),
        }
    } else {
        used = With::Batches;
    }
    if used == With::Batches {
        work.batches().await.map_err(|error| match error {
            error if is_another_type(&error) => Error::Changed(name::shown(name)),
            error => error.into(),
        })?;
    }
    work.done(used).await.map(Some)
}

struct Work<'a, P> {
    redis: &'a Redis,
    entry: &'a Entry,
    progress: P,
    /// Elements per command.
    batch: u64,
    began: Instant,
    removed: u64,
    commands: u64,
    longest: Duration,
    unlink_refused: bool,
}

impl<'a, P: FnMut(u64) + Send> Work<'a, P> {
    fn new(redis: &'a Redis, entry: &'a Entry, progress: P) -> Self {
        let length = entry.length.unwrap_or(1).max(1);
        let each = entry.memory_bytes.unwrap_or(0) / length;
        let batch = (BATCH_BYTES / each.max(1)).clamp(1, BATCH);
        Self {
            redis,
            entry,
            progress,
            batch,
            began: Instant::now(),
            removed: 0,
            commands: 0,
            longest: Duration::ZERO,
            unlink_refused: false,
        }
    }

    fn of_key(&self, command: &str) -> Cmd {
        cmd(command).arg(&self.entry.name).to_owned()
    }

    fn is_enough(&self) -> bool {
        let at_first = self.entry.length.unwrap_or(0);
        self.removed >= at_first.saturating_mul(2).saturating_add(self.batch)
    }

    async fn change<T: FromRedisValue + Send + 'static>(
        &mut self,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let began = Instant::now();
        let answer = ask(self.redis, command).await;
        self.commands += 1;
        self.longest = self.longest.max(began.elapsed());
        answer
    }

    fn gone(&mut self, elements: u64) {
        self.removed += elements;
        (self.progress)(self.removed);
    }

    async fn unlink(&mut self) -> Result<(), RedisError> {
        let unlinked: u64 = self.change(&self.of_key("UNLINK")).await?;
        self.gone(if unlinked > 0 { self.entry.length.unwrap_or(0) } else { 0 });
        Ok(())
    }

    async fn batches(&mut self) -> Result<(), RedisError> {
        match self.entry.kind {
            Kind::Hash => self.walks("HSCAN", "HDEL", 2).await,
            Kind::Set => self.walks("SSCAN", "SREM", 1).await,
            Kind::List => self.list().await,
            Kind::SortedSet => self.sorted_set().await,
            Kind::Stream => self.stream().await,
            // A string is one piece of memory: `DEL` does the same to it as `UNLINK`.
            Kind::String | Kind::Other(_) => {
                let deleted: u64 = self.change(&self.of_key("DEL")).await?;
                self.gone(if deleted > 0 { self.entry.length.unwrap_or(0) } else { 0 });
                Ok(())
            }
        }
    }

    async fn length(&self) -> Result<u64, RedisError> {
        match self.entry.kind.length() {
            Some(command) => ask(self.redis, &self.of_key(command)).await,
            None => ask(self.redis, &self.of_key("EXISTS")).await,
        }
    }

    /// Scans a hash or a set and removes what it returns; `stride` is 2 if values are interleaved.
    async fn walks(&mut self, scan: &str, remove: &str, stride: usize) -> Result<(), RedisError> {
        for _ in 0..WALKS {
            let length = self.length().await?;
            // Bounds the scan, far above its usual steps: a table has one place per element, or up
            // to ten after it shrank.
            let mut steps = (length / self.batch + 1) * EMPTY_PER_ELEMENT * 2 + 1_000;
            let mut cursor = 0_u64;
            while length > 0 && steps > 0 && !self.is_enough() {
                steps -= 1;
                let step = Instant::now();
                let mut look = self.of_key(scan);
                look.arg(cursor).arg("COUNT").arg(self.batch);
                let (next, shown): (u64, Vec<Vec<u8>>) = ask(self.redis, &look).await?;
                let elements: Vec<&Vec<u8>> = shown.iter().step_by(stride).collect();
                // A compactly encoded hash or set is returned as a whole, regardless of `COUNT`.
                for elements in elements.chunks(usize::try_from(self.batch).unwrap_or(1)) {
                    let mut command = self.of_key(remove);
                    command.arg(elements);
                    let removed = self.change(&command).await?;
                    self.gone(removed);
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
                rest(step.elapsed() / 2).await;
            }
            if length == 0 || self.is_enough() {
                break;
            }
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<(), RedisError> {
        let mut left: u64 = self.length().await?;
        while left > 0 && !self.is_enough() {
            let step = Instant::now();
            // All but the last elements of the list: `LTRIM` takes the range that stays.
            let last = -1 - i64::try_from(self.batch).unwrap_or(i64::MAX - 1);
            let mut trim = self.of_key("LTRIM");
            trim.arg(0).arg(last);
            let cut = left.min(self.batch);
            self.change::<()>(&trim).await?;
            left = self.length().await?;
            self.gone(cut);
            rest(step.elapsed() / 2).await;
        }
        Ok(())
    }

    async fn sorted_set(&mut self) -> Result<(), RedisError> {
        let mut remove = self.of_key("ZREMRANGEBYRANK");
        remove.arg(0).arg(self.batch - 1);
        while !self.is_enough() {
            let step = Instant::now();
            let removed: u64 = self.change(&remove).await?;
            self.gone(removed);
            if removed < self.batch {
                break;
            }
            rest(step.elapsed() / 2).await;
        }
        Ok(())
    }

    /// Trims a stream. An empty stream keeps its name and groups, so the key is removed last.
    async fn stream(&mut self) -> Result<(), RedisError> {
        loop {
            let step = Instant::now();
            let length = self.length().await?;
            if length == 0 || self.is_enough() {
                break;
            }
            let mut trim = self.of_key("XTRIM");
            trim.arg("MAXLEN").arg(length.saturating_sub(self.batch));
            let removed = self.change(&trim).await?;
            self.gone(removed);
            rest(step.elapsed() / 2).await;
        }
        if self.length().await? == 0 {
            match self.change::<u64>(&self.of_key("UNLINK")).await {
                Err(error) if is_refused(&error) => {
                    self.change::<u64>(&self.of_key("DEL")).await?;
                }
                answer => {
                    answer?;
                }
            }
        }
        Ok(())
    }

    async fn done(self, with: With) -> Result<Removal, Error> {
        let left = match (with, self.length().await) {
            // The key was absent at one instant. A key that exists now is new.
            (With::Unlink, _) => 0,
            (With::Batches, Err(error)) if is_another_type(&error) => 0,
            (With::Batches, left) => left?,
        };
        Ok(Removal {
            with,
            unlink_refused: self.unlink_refused,
            removed: self.removed,
            left,
            commands: self.commands,
            longest: self.longest,
            took: self.began.elapsed(),
        })
    }
}

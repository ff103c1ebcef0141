//! Removes a big key, in the background or in batches.
//!
//! `UNLINK` removes the name at once and frees the memory in another thread. Without it, each
//! command removes few elements: a hash with `HSCAN` and one `HDEL` for all fields of a page; a set
//! with `SSCAN` and `SREM`; a list with `LTRIM` from its end; a sorted set with `ZREMRANGEBYRANK`;
//! a stream with `XTRIM`. `HRANDFIELD` and `SPOP` are slow in a table that is nearly empty.
//!
//! Guarantees: no command but `UNLINK` removes more than [`MAX_BATCH_SIZE`] elements, or about
//! 1 MB. The removal ends: after about twice the initial number of elements it stops and reports
//! what is left. Other keys are not touched.
//!
//! Does not guarantee that a string goes unnoticed: it is one piece of memory, and Redis frees even
//! `UNLINK`ed strings at once (0.07 ms per MB). Nor that elements added during the removal are
//! spared, if the type stays the same.

use std::time::Duration;

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Cmd, FromRedisValue, cmd};
use tokio::time::Instant;

use super::throttle::{is_another_type, is_unsupported, pause_after, query};
use super::{BigKeyThreshold, Error, KeyEntry, KeyType, inspect, key_name};

/// Elements per command: about half a millisecond of Redis's time for a hash that is in no cache.
pub const MAX_BATCH_SIZE: u64 = 500;
/// Memory per command: large elements are removed fewer at a time, because `HSCAN` sends their
/// values too.
const MAX_BATCH_BYTES: u64 = 1 << 20;
/// Upper bound of the scans of a hash or a set: the next scan finds elements added behind the
/// cursor.
const MAX_SCANS: u32 = 4;
/// Upper bound of the empty places that a scan step skips per requested element. A table that was
/// much larger has many of them.
const MAX_EMPTY_PER_ELEMENT: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRemovalMethod {
    Unlink,
    Batches,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct Removal {
    pub with: KeyRemovalMethod,
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
    with: KeyRemovalMethod,
    progress: impl FnMut(u64) + Send,
) -> Result<Option<Removal>, Error> {
    let Some(entry) = inspect(redis, name, BigKeyThreshold::default()).await? else {
        return Ok(None);
    };
    let mut task = RemovalTask::new(redis, &entry, progress);
    let whole = matches!(entry.kind, KeyType::String | KeyType::Other(_));
    if with == KeyRemovalMethod::Unlink || whole {
        match task.unlink().await {
            Ok(()) => return task.finish(KeyRemovalMethod::Unlink).await.map(Some),
            Err(error) if is_unsupported(error.code(), &error) => {
                task.unlink_refused = true;
                if matches!(entry.kind, KeyType::Other(_)) {
                    let (key, kind) = (key_name::escape(name), entry.kind.label().to_owned());
                    return Err(Error::NotRemovableInBatches { key, kind, why: error.to_string() });
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    task.remove_in_batches().await.map_err(|error| match error {
        error if is_another_type(error.code()) => Error::TypeChanged(key_name::escape(name)),
        error => error.into(),
    })?;
    task.finish(KeyRemovalMethod::Batches).await.map(Some)
}

struct RemovalTask<'a, P> {
    redis: &'a Redis,
    entry: &'a KeyEntry,
    progress: P,
    /// Elements per command.
    batch: u64,
    began: Instant,
    removed: u64,
    commands: u64,
    longest: Duration,
    unlink_refused: bool,
}

impl<'a, P: FnMut(u64) + Send> RemovalTask<'a, P> {
    fn new(redis: &'a Redis, entry: &'a KeyEntry, progress: P) -> Self {
        let length = entry.length.unwrap_or(1).max(1);
        let each = entry.memory_bytes.unwrap_or(0) / length;
        let batch = (MAX_BATCH_BYTES / each.max(1)).clamp(1, MAX_BATCH_SIZE);
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

    fn key_command(&self, command: &str) -> Cmd {
        cmd(command).arg(&self.entry.name).to_owned()
    }

    fn limit_reached(&self) -> bool {
        let at_first = self.entry.length.unwrap_or(0);
        self.removed >= at_first.saturating_mul(2).saturating_add(self.batch)
    }

    async fn execute<T: FromRedisValue + Send + 'static>(
        &mut self,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        let began = Instant::now();
        let response = query(self.redis, command).await;
        self.commands += 1;
        self.longest = self.longest.max(began.elapsed());
        response
    }

    fn record_removed(&mut self, elements: u64) {
        self.removed += elements;
        (self.progress)(self.removed);
    }

    async fn unlink(&mut self) -> Result<(), RedisError> {
        let unlinked: u64 = self.execute(&self.key_command("UNLINK")).await?;
        self.record_removed(if unlinked > 0 { self.entry.length.unwrap_or(0) } else { 0 });
        Ok(())
    }

    async fn remove_in_batches(&mut self) -> Result<(), RedisError> {
        match self.entry.kind {
            KeyType::Hash => self.scan_and_remove("HSCAN", "HDEL", 2).await,
            KeyType::Set => self.scan_and_remove("SSCAN", "SREM", 1).await,
            KeyType::List => self.trim_list().await,
            KeyType::SortedSet => self.trim_sorted_set().await,
            KeyType::Stream => self.trim_stream().await,
            // A string is one piece of memory: `DEL` does the same to it as `UNLINK`.
            KeyType::String | KeyType::Other(_) => {
                let deleted: u64 = self.execute(&self.key_command("DEL")).await?;
                self.record_removed(if deleted > 0 { self.entry.length.unwrap_or(0) } else { 0 });
                Ok(())
            }
        }
    }

    async fn length(&self) -> Result<u64, RedisError> {
        match self.entry.kind.length_command() {
            Some(command) => query(self.redis, &self.key_command(command)).await,
            None => query(self.redis, &self.key_command("EXISTS")).await,
        }
    }

    /// Scans a hash or a set and removes what it returns; `stride` is 2 if values are interleaved.
    async fn scan_and_remove(
        &mut self,
        scan: &str,
        remove: &str,
        stride: usize,
    ) -> Result<(), RedisError> {
        for _ in 0..MAX_SCANS {
            let length = self.length().await?;
            // Bounds the scan, far above its usual steps: a table has one place per element, or up
            // to ten after it shrank.
            let mut steps = (length / self.batch + 1) * MAX_EMPTY_PER_ELEMENT * 2 + 1_000;
            let mut cursor = 0_u64;
            while length > 0 && steps > 0 && !self.limit_reached() {
                steps -= 1;
                let step = Instant::now();
                let mut command = self.key_command(scan);
                command.arg(cursor).arg("COUNT").arg(self.batch);
                let (next, page): (u64, Vec<Vec<u8>>) = query(self.redis, &command).await?;
                let elements: Vec<&Vec<u8>> = page.iter().step_by(stride).collect();
                // A compactly encoded hash or set is returned as a whole, regardless of `COUNT`.
                for elements in elements.chunks(usize::try_from(self.batch).unwrap_or(1)) {
                    let mut command = self.key_command(remove);
                    command.arg(elements);
                    let removed = self.execute(&command).await?;
                    self.record_removed(removed);
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
                pause_after(step.elapsed() / 2).await;
            }
            if length == 0 || self.limit_reached() {
                break;
            }
        }
        Ok(())
    }

    async fn trim_list(&mut self) -> Result<(), RedisError> {
        let mut left: u64 = self.length().await?;
        while left > 0 && !self.limit_reached() {
            let step = Instant::now();
            // All but the last elements of the list: `LTRIM` takes the range that stays.
            let last = -1 - i64::try_from(self.batch).unwrap_or(i64::MAX - 1);
            let mut trim = self.key_command("LTRIM");
            trim.arg(0).arg(last);
            let cut = left.min(self.batch);
            self.execute::<()>(&trim).await?;
            left = self.length().await?;
            self.record_removed(cut);
            pause_after(step.elapsed() / 2).await;
        }
        Ok(())
    }

    async fn trim_sorted_set(&mut self) -> Result<(), RedisError> {
        let mut remove = self.key_command("ZREMRANGEBYRANK");
        remove.arg(0).arg(self.batch - 1);
        while !self.limit_reached() {
            let step = Instant::now();
            let removed: u64 = self.execute(&remove).await?;
            self.record_removed(removed);
            if removed < self.batch {
                break;
            }
            pause_after(step.elapsed() / 2).await;
        }
        Ok(())
    }

    /// Trims a stream. An empty stream keeps its name and groups, so the key is removed last.
    async fn trim_stream(&mut self) -> Result<(), RedisError> {
        loop {
            let step = Instant::now();
            let length = self.length().await?;
            if length == 0 || self.limit_reached() {
                break;
            }
            let mut trim = self.key_command("XTRIM");
            trim.arg("MAXLEN").arg(length.saturating_sub(self.batch));
            let removed = self.execute(&trim).await?;
            self.record_removed(removed);
            pause_after(step.elapsed() / 2).await;
        }
        if self.length().await? == 0 {
            match self.execute::<u64>(&self.key_command("UNLINK")).await {
                Err(error) if is_unsupported(error.code(), &error) => {
                    self.execute::<u64>(&self.key_command("DEL")).await?;
                }
                response => {
                    response?;
                }
            }
        }
        Ok(())
    }

    async fn finish(self, with: KeyRemovalMethod) -> Result<Removal, Error> {
        let left = match (with, self.length().await) {
            // The key was absent at one instant. A key that exists now is new.
            (KeyRemovalMethod::Unlink, _) => 0,
            (KeyRemovalMethod::Batches, Err(error)) if is_another_type(error.code()) => 0,
            (KeyRemovalMethod::Batches, left) => left?,
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

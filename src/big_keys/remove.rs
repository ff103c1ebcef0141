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

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Cmd, cmd};
use tokio::time::Instant;

use super::throttle::{is_unsupported, pause_after, query};
use super::{Error, KeyEntry, inspect, key_name, length_command};

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
    /// At once; the memory is freed in the background.
    Unlink,
    /// In batches of elements.
    Batches,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct Removal {
    /// `Batches` also if the server refused `UNLINK`.
    pub with: KeyRemovalMethod,
    /// Elements (or a string's bytes) that were removed.
    pub removed: u64,
    /// Elements left, because the key grew; 0 if the key is gone.
    pub left: u64,
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
    let Some(entry) = inspect(redis, name).await? else { return Ok(None) };
    let mut task = BatchRemoval::new(redis, &entry, progress);
    let has_batches = entry.key_type != "string" && length_command(&entry.key_type).is_some();
    if with == KeyRemovalMethod::Unlink || !has_batches {
        match task.remove_whole("UNLINK").await {
            Ok(removed) => {
                return Ok(Some(Removal { with: KeyRemovalMethod::Unlink, removed, left: 0 }));
            }
            Err(error) if !is_unsupported(error.code(), &error) => return Err(error.into()),
            Err(_) if has_batches || entry.key_type == "string" => {}
            Err(_) => {
                let (key, key_type) = (key_name::escape(name), entry.key_type.clone());
                return Err(Error::NotRemovableInBatches { key, key_type });
            }
        }
    }
    match task.remove_in_batches().await {
        Ok(left) => {
            Ok(Some(Removal { with: KeyRemovalMethod::Batches, removed: task.removed, left }))
        }
        Err(error) if error.code() == Some("WRONGTYPE") => {
            Err(Error::TypeChanged(key_name::escape(name)))
        }
        Err(error) => Err(error.into()),
    }
}

struct BatchRemoval<'a, P> {
    redis: &'a Redis,
    entry: &'a KeyEntry,
    progress: P,
    /// Elements per command.
    batch: u64,
    removed: u64,
}

impl<'a, P: FnMut(u64) + Send> BatchRemoval<'a, P> {
    fn new(redis: &'a Redis, entry: &'a KeyEntry, progress: P) -> Self {
        let element_bytes = entry.memory_bytes.unwrap_or(0) / entry.length.unwrap_or(1).max(1);
        let batch = (MAX_BATCH_BYTES / element_bytes.max(1)).clamp(1, MAX_BATCH_SIZE);
        Self { redis, entry, progress, batch, removed: 0 }
    }

    fn key_command(&self, command: &str) -> Cmd {
        cmd(command).arg(&self.entry.name).to_owned()
    }

    async fn length(&self) -> Result<u64, RedisError> {
        let command = length_command(&self.entry.key_type).unwrap_or("EXISTS");
        query(self.redis, &self.key_command(command)).await
    }

    fn limit_reached(&self) -> bool {
        let at_first = self.entry.length.unwrap_or(0);
        self.removed >= at_first.saturating_mul(2).saturating_add(self.batch)
    }

    fn record_removed(&mut self, elements: u64) {
        self.removed += elements;
        (self.progress)(self.removed);
    }

    /// Removes the key with one command; returns the number of removed elements.
    async fn remove_whole(&mut self, command: &str) -> Result<u64, RedisError> {
        let keys: u64 = query(self.redis, &self.key_command(command)).await?;
        self.record_removed(if keys > 0 { self.entry.length.unwrap_or(0) } else { 0 });
        Ok(self.removed)
    }

    /// Returns the number of elements left.
    async fn remove_in_batches(&mut self) -> Result<u64, RedisError> {
        match self.entry.key_type.as_str() {
            "hash" => self.scan_and_remove("HSCAN", "HDEL", 2).await?,
            "set" => self.scan_and_remove("SSCAN", "SREM", 1).await?,
            "list" | "zset" | "stream" => self.trim().await?,
            // A string is one piece of memory: `DEL` does the same to it as `UNLINK`.
            _ => return self.remove_whole("DEL").await.map(|_| 0),
        }
        self.length().await
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
                    let removed = query(self.redis, &command).await?;
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

    /// Trims a list, a sorted set or a stream.
    async fn trim(&mut self) -> Result<(), RedisError> {
        loop {
            let step = Instant::now();
            let length = self.length().await?;
            if length == 0 || self.limit_reached() {
                break;
            }
            let left = length.saturating_sub(self.batch);
            let batch = i64::try_from(self.batch).unwrap_or(i64::MAX - 1);
            let command = match self.entry.key_type.as_str() {
                "zset" => self.key_command("ZREMRANGEBYRANK").arg(0).arg(batch - 1).to_owned(),
                "stream" => self.key_command("XTRIM").arg("MAXLEN").arg(left).to_owned(),
                // All but the last elements of the list: `LTRIM` takes the range that stays.
                _ => self.key_command("LTRIM").arg(0).arg(-1 - batch).to_owned(),
            };
            query::<redis::Value>(self.redis, &command).await?;
            self.record_removed(length - left);
            pause_after(step.elapsed() / 2).await;
        }
        // An empty stream keeps its name and its groups.
        if self.entry.key_type == "stream" && self.length().await? == 0 {
            query::<u64>(self.redis, &self.key_command("DEL")).await?;
        }
        Ok(())
    }
}

//! Finds the largest keys.
//!
//! A step is a `SCAN` of about a hundred names, one round trip for the `TYPE` of each, and one for
//! `MEMORY USAGE` and their lengths (`HLEN` and similar commands, all of constant time).
//! `redis-cli --bigkeys` would list one key per type, without memory; `KEYS` is one command as long
//! as the keyspace.

use std::cmp::Reverse;
use std::collections::HashSet;

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Pipeline, RedisResult, cmd};
use tokio::time::Instant;

use super::throttle::{is_gone, is_unsupported, pause_after, query, query_all};
use super::{Error, KeyEntry, MAX_ELEMENTS, MAX_STRING_BYTES, length_command};

/// Names per step: two hundred commands in a pipeline take a fraction of a millisecond.
const SCAN_COUNT: usize = 100;
/// Elements that `MEMORY USAGE` samples: its default, set explicitly because 0 means all.
const SAMPLES: usize = 5;

#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Pattern of the names, in Redis's syntax.
    pub pattern: String,
    /// Upper bound of the listed keys.
    pub top: usize,
    pub only_big: bool,
    /// Keys with this prefix are not listed; the big keys among them are counted.
    pub excluded_prefix: Option<String>,
}

#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct SearchResult {
    /// Keys of all servers.
    pub all: u64,
    /// Keys that were examined: those that match the pattern.
    pub seen: u64,
    /// Keys that disappeared, or moved, before they were examined.
    pub gone: u64,
    pub big: u64,
    /// Big keys that are not listed because of their prefix.
    pub left_out: u64,
    /// The largest keys by memory, largest first; by length if the server does not report memory.
    pub top: Vec<KeyEntry>,
}

/// Examines every key of every server, and changes nothing. `progress` receives the result so far.
pub async fn find(
    redis: &Redis,
    options: &SearchOptions,
    mut progress: impl FnMut(&SearchResult) + Send,
) -> Result<SearchResult, Error> {
    let servers = redis.primaries().await?;
    let mut result = SearchResult::default();
    for server in &servers {
        result.all += query::<u64>(server, &cmd("DBSIZE")).await?;
    }
    for server in &servers {
        let mut cursor = 0_u64;
        loop {
            let step = Instant::now();
            let mut command = cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&options.pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, names): (u64, Vec<Vec<u8>>) = query(server, &command).await?;
            // While a table is resized, `SCAN` may return many more names than requested.
            for names in names.chunks(SCAN_COUNT) {
                let entries = measure(server, names).await?;
                result.seen += names.len() as u64;
                result.gone += (names.len() - entries.len()) as u64;
                result.add(entries, options);
            }
            progress(&result);
            cursor = next;
            if cursor == 0 {
                break;
            }
            pause_after(step.elapsed()).await;
        }
    }
    Ok(result)
}

/// Examines one key; returns `None` if it does not exist.
pub async fn inspect(redis: &Redis, name: &[u8]) -> Result<Option<KeyEntry>, Error> {
    Ok(measure(redis, &[name.to_owned()]).await?.pop())
}

/// Examines keys of one server, or of one slot; omits those that do not exist.
async fn measure(server: &Redis, names: &[Vec<u8>]) -> Result<Vec<KeyEntry>, RedisError> {
    let mut commands = Pipeline::new();
    commands.ignore_errors();
    for name in names {
        commands.cmd("TYPE").arg(name);
    }
    let types: Vec<RedisResult<String>> = query_all(server, &commands).await?;
    let mut existing = Vec::with_capacity(names.len());
    let mut commands = Pipeline::new();
    commands.ignore_errors();
    for (name, key_type) in names.iter().zip(types) {
        match key_type {
            Ok(key_type) if key_type == "none" => {}
            Err(error) if is_gone(error.code()) => {}
            Ok(key_type) => {
                commands.cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(SAMPLES);
                commands.cmd(length_command(&key_type).unwrap_or("EXISTS")).arg(name);
                existing.push((name, key_type));
            }
            Err(error) => return Err(RedisError::unexpected_response(error)),
        }
    }
    if existing.is_empty() {
        return Ok(Vec::new());
    }
    let sizes: Vec<RedisResult<Option<u64>>> = query_all(server, &commands).await?;
    let mut entries = Vec::with_capacity(existing.len());
    for ((name, key_type), sizes) in existing.into_iter().zip(sizes.chunks(2)) {
        // The key was removed, was replaced by a key of another type, or moved.
        let gone = |size: &RedisResult<_>| matches!(size, Err(error) if is_gone(error.code()));
        if sizes.iter().any(gone) || matches!(sizes[0], Ok(None)) {
            continue;
        }
        let memory_bytes = supported(&sizes[0])?;
        let length = supported(&sizes[1])?.filter(|_| length_command(&key_type).is_some());
        let limit = if key_type == "string" { MAX_STRING_BYTES } else { MAX_ELEMENTS };
        let big = length.is_some_and(|length| length > limit);
        entries.push(KeyEntry { name: name.clone(), key_type, memory_bytes, length, big });
    }
    Ok(entries)
}

/// Returns `None` if the server does not execute the command.
fn supported(response: &RedisResult<Option<u64>>) -> Result<Option<u64>, RedisError> {
    match response {
        Ok(size) => Ok(*size),
        Err(error) if is_unsupported(error.code(), error) => Ok(None),
        Err(error) => Err(RedisError::unexpected_response(error)),
    }
}

impl SearchResult {
    /// Counts the entries, and lists those that are among the largest.
    fn add(&mut self, entries: Vec<KeyEntry>, options: &SearchOptions) {
        for entry in entries {
            self.big += u64::from(entry.big);
            let excluded_prefix = options.excluded_prefix.as_ref();
            if excluded_prefix.is_some_and(|prefix| entry.name.starts_with(prefix.as_bytes())) {
                self.left_out += u64::from(entry.big);
            } else if entry.big || !options.only_big {
                self.top.push(entry);
            }
        }
        self.top.sort_by_key(|entry| Reverse(entry.memory_bytes.or(entry.length)));
        let mut names = HashSet::new();
        self.top.retain(|entry| names.insert(entry.name.clone()));
        self.top.truncate(options.top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: usize, memory_bytes: u64) -> KeyEntry {
        KeyEntry {
            name: name.to_string().into_bytes(),
            key_type: "set".to_owned(),
            memory_bytes: Some(memory_bytes),
            length: None,
            big: false,
        }
    }

    fn largest(entries: impl IntoIterator<Item = KeyEntry>, top: usize) -> Vec<String> {
        let options =
            SearchOptions { pattern: "*".to_owned(), top, only_big: false, excluded_prefix: None };
        let mut result = SearchResult::default();
        for entry in entries {
            result.add(vec![entry], &options);
            assert!(result.top.len() <= top);
        }
        let names = result.top.into_iter().map(|entry| String::from_utf8(entry.name).unwrap());
        names.collect()
    }

    #[test]
    fn only_the_largest_entries_are_kept() {
        // Every size from 0 to 9,999, in no order.
        let sizes = (0..10_000_usize).map(|number| number * 7_919 % 10_000);
        let names = largest(sizes.map(|size| entry(size, size as u64)), 5);
        assert_eq!(names, ["9999", "9998", "9997", "9996", "9995"]);
    }

    #[test]
    fn key_scanned_twice_is_listed_once() {
        let entries = [(5, 1), (4, 2), (3, 3), (9, 1), (2, 2)];
        let names = largest(entries.map(|(size, name)| entry(name, size)), 3);
        assert_eq!(names, ["1", "2", "3"]);
    }
}

//! Finds the largest keys, by memory or by elements.
//!
//! A step is a `SCAN` of about a hundred names, one round trip for `TYPE` and `MEMORY USAGE` of
//! each, and one for their lengths (`HLEN` and similar commands, all of constant time). `--bigkeys`
//! would list one key per type, without memory; `KEYS` is one command as long as the keyspace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Pipeline, RedisResult, cmd};
use tokio::time::Instant;

use super::throttle::{is_another_type, is_moved, is_unsupported, pause_after, query, query_all};
use super::{BigKeyThreshold, Error, KeyEntry, KeyType};

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
    /// True: the largest by memory; false: by elements, with a string's bytes in proportion to
    /// [`BigKeyThreshold`].
    pub by_memory: bool,
    pub big: BigKeyThreshold,
    pub only_big: bool,
    /// Keys with this prefix are not listed; the big keys among them are counted.
    pub excluded_prefix: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct TypeTotal {
    pub keys: u64,
    /// Their estimated memory, as far as the server reports it.
    pub memory_bytes: u64,
    /// Sum of their elements, or of a string's bytes.
    pub length: u64,
    pub big: u64,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct SearchResult {
    /// Servers that were searched: all primaries of a Cluster.
    pub servers: usize,
    /// Keys of all servers.
    pub all: u64,
    /// Keys that were examined: those that match the pattern.
    pub seen: u64,
    /// Keys that disappeared, or moved, before they were examined.
    pub gone: u64,
    /// Keys that this user may not read.
    pub closed: u64,
    pub big: u64,
    /// Big keys that are not listed because of their names.
    pub left_out: u64,
    /// True if the list is by memory, false if by elements.
    pub by_memory: bool,
    /// Error of a server that does not report memory, if there is any.
    pub no_memory: Option<String>,
    /// Totals by type, as `TYPE` names it.
    pub types: BTreeMap<String, TypeTotal>,
    /// The largest keys, largest first.
    pub top: Vec<KeyEntry>,
    #[serde(serialize_with = "seconds", rename = "seconds")]
    pub took: Duration,
}

fn seconds<S: serde::Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((took.as_secs_f64() * 1e3).round() / 1e3)
}

/// Examines every key of every server, and changes nothing. `progress` receives the result so far.
pub async fn find(
    redis: &Redis,
    options: &SearchOptions,
    mut progress: impl FnMut(&SearchResult) + Send,
) -> Result<SearchResult, Error> {
    let began = Instant::now();
    let servers = redis.primaries().await?;
    let mut all = 0;
    let mut no_memory = None;
    for server in &servers {
        all += query::<u64>(server, &cmd("DBSIZE")).await?;
        // The key is most likely absent; a server that refuses the command refuses it for any key.
        let command = usage(b"holdfast:is-there-memory-usage");
        match query::<Option<u64>>(server, &command).await {
            Err(error) if is_unsupported(error.code(), &error) => {
                no_memory = Some(error.to_string())
            }
            // The key belongs to another node: the command is known.
            Err(error) if !is_moved(error.code()) => return Err(error.into()),
            _ => {}
        }
    }
    let by_memory = options.by_memory && no_memory.is_none();
    let mut scan = KeyScan {
        options,
        has_memory_usage: no_memory.is_none(),
        top: LargestKeys::default(),
        result: SearchResult {
            servers: servers.len(),
            all,
            seen: 0,
            gone: 0,
            closed: 0,
            big: 0,
            left_out: 0,
            by_memory,
            no_memory,
            types: BTreeMap::new(),
            top: Vec::new(),
            took: Duration::ZERO,
        },
    };
    for server in &servers {
        let mut cursor = 0_u64;
        loop {
            let step = Instant::now();
            let mut command = cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&options.pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, names): (u64, Vec<Vec<u8>>) = query(server, &command).await?;
            // While a table is resized, `SCAN` may return many more names than requested.
            for names in names.chunks(SCAN_COUNT) {
                scan.step(server, names).await?;
            }
            progress(&scan.result);
            cursor = next;
            if cursor == 0 {
                break;
            }
            pause_after(step.elapsed()).await;
        }
    }
    let KeyScan { top, mut result, .. } = scan;
    result.top = top.largest_first();
    result.took = began.elapsed();
    Ok(result)
}

/// Examines one key; returns `None` if it does not exist.
pub async fn inspect(
    redis: &Redis,
    name: &[u8],
    big: BigKeyThreshold,
) -> Result<Option<KeyEntry>, Error> {
    let key_type: String = query(redis, cmd("TYPE").arg(name)).await?;
    let Some(kind) = KeyType::parse(&key_type) else { return Ok(None) };
    let memory_bytes = match query(redis, &usage(name)).await {
        Err(error) if is_unsupported(error.code(), &error) => None,
        response => response?,
    };
    let length = match kind.length_command() {
        Some(command) => Some(query(redis, cmd(command).arg(name)).await?),
        None => None,
    };
    let big = big.is_exceeded(&kind, length);
    Ok(Some(KeyEntry { name: name.to_owned(), kind, memory_bytes, length, big }))
}

fn usage(name: &[u8]) -> redis::Cmd {
    cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(SAMPLES).to_owned()
}

struct KeyScan<'a> {
    options: &'a SearchOptions,
    /// True if the servers execute `MEMORY USAGE`.
    has_memory_usage: bool,
    top: LargestKeys,
    result: SearchResult,
}

impl KeyScan<'_> {
    async fn step(&mut self, server: &Redis, names: &[Vec<u8>]) -> Result<(), Error> {
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        for name in names {
            commands.cmd("TYPE").arg(name);
        }
        if self.has_memory_usage {
            for name in names {
                commands.add_command(usage(name));
            }
        }
        let responses: Vec<RedisResult<redis::Value>> = query_all(server, &commands).await?;
        let (types, sizes) = responses.split_at(names.len().min(responses.len()));
        let mut known = Vec::with_capacity(names.len());
        for (at, (name, key_type)) in names.iter().zip(types).enumerate() {
            self.result.seen += 1;
            let bytes = sizes.get(at).and_then(|bytes| bytes.as_ref().ok());
            let bytes = bytes.and_then(|value| redis::from_redis_value_ref(value).ok());
            match key_type {
                Ok(key_type) => match KeyType::parse(
                    &redis::from_redis_value_ref::<String>(key_type)
                        .map_err(RedisError::unexpected_response)?,
                ) {
                    Some(kind) => known.push((name, kind, bytes)),
                    None => self.result.gone += 1,
                },
                Err(error) if is_moved(error.code()) => self.result.gone += 1,
                Err(error) if is_unsupported(error.code(), &error) => self.result.closed += 1,
                Err(error) => return Err(RedisError::unexpected_response(error).into()),
            }
        }
        self.measure(server, known).await
    }

    async fn measure(
        &mut self,
        server: &Redis,
        known: Vec<(&Vec<u8>, KeyType, Option<u64>)>,
    ) -> Result<(), Error> {
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        for (name, kind, _) in &known {
            if let Some(command) = kind.length_command() {
                commands.cmd(command).arg(*name);
            }
        }
        let mut responses: Vec<RedisResult<u64>> = Vec::new();
        if !commands.is_empty() {
            responses = query_all(server, &commands).await?;
        }
        let mut responses = responses.into_iter();
        for (name, kind, memory_bytes) in known {
            let length = match kind.length_command().and_then(|_| responses.next()) {
                None => None,
                Some(Ok(length)) => Some(length),
                // The key was replaced by a key of another type, or moved.
                Some(Err(error)) if is_another_type(error.code()) || is_moved(error.code()) => {
                    self.result.gone += 1;
                    continue;
                }
                Some(Err(error)) if is_unsupported(error.code(), &error) => None,
                Some(Err(error)) => return Err(RedisError::unexpected_response(error).into()),
            };
            let big = self.options.big.is_exceeded(&kind, length);
            self.record(KeyEntry { name: name.clone(), kind, memory_bytes, length, big });
        }
        Ok(())
    }

    fn record(&mut self, entry: KeyEntry) {
        let total = match self.result.types.get_mut(entry.kind.label()) {
            Some(total) => total,
            None => self.result.types.entry(entry.kind.label().to_owned()).or_default(),
        };
        total.keys += 1;
        total.memory_bytes += entry.memory_bytes.unwrap_or(0);
        total.length += entry.length.unwrap_or(0);
        total.big += u64::from(entry.big);
        self.result.big += u64::from(entry.big);
        let excluded_prefix = self.options.excluded_prefix.as_ref();
        if excluded_prefix.is_some_and(|prefix| entry.name.starts_with(prefix.as_bytes())) {
            self.result.left_out += u64::from(entry.big);
        } else if entry.big || !self.options.only_big {
            self.top.offer(self.weight(&entry), entry, self.options.top);
        }
    }

    fn weight(&self, entry: &KeyEntry) -> u128 {
        if self.result.by_memory {
            return entry.memory_bytes.unwrap_or(0).into();
        }
        // Length in proportion to the limit, without a division.
        let BigKeyThreshold { string_bytes, elements } = self.options.big;
        let other = if entry.kind == KeyType::String { elements } else { string_bytes };
        u128::from(entry.length.unwrap_or(0)) * u128::from(other.max(1))
    }
}

#[derive(Default)]
struct LargestKeys {
    order: BTreeSet<(u128, Vec<u8>)>,
    entries: HashMap<Vec<u8>, (u128, KeyEntry)>,
}

impl LargestKeys {
    /// Adds an entry if it is among the `max` largest. It replaces an entry of the same name.
    fn offer(&mut self, weight: u128, entry: KeyEntry, max: usize) {
        if let Some((before, _)) = self.entries.remove(&entry.name) {
            self.order.remove(&(before, entry.name.clone()));
        }
        let too_light = self.order.first().is_some_and(|(least, _)| weight <= *least);
        if max == 0 || (too_light && self.order.len() >= max) {
            return;
        }
        self.order.insert((weight, entry.name.clone()));
        self.entries.insert(entry.name.clone(), (weight, entry));
        if self.order.len() > max
            && let Some((_, name)) = self.order.pop_first()
        {
            self.entries.remove(&name);
        }
    }

    fn largest_first(mut self) -> Vec<KeyEntry> {
        let names = self.order.into_iter().rev().map(|(_, name)| name);
        names.filter_map(|name| self.entries.remove(&name).map(|(_, entry)| entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: usize) -> KeyEntry {
        let name = name.to_string().into_bytes();
        KeyEntry { name, kind: KeyType::Set, memory_bytes: None, length: None, big: false }
    }

    #[test]
    fn only_the_largest_entries_are_kept() {
        let mut top = LargestKeys::default();
        // Every weight from 0 to 9,999, in no order.
        for number in 0..10_000_usize {
            let weight = number * 7_919 % 10_000;
            top.offer(weight as u128, entry(weight), 5);
            assert!(top.order.len() <= 5 && top.entries.len() == top.order.len());
        }
        let names: Vec<Vec<u8>> = top.largest_first().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["9999", "9998", "9997", "9996", "9995"].map(|n| n.as_bytes().to_vec()));
    }

    #[test]
    fn key_scanned_twice_is_listed_once() {
        let mut top = LargestKeys::default();
        for (weight, name) in [(5, 1), (4, 2), (3, 3), (9, 1), (2, 2)] {
            top.offer(weight, entry(name), 3);
        }
        let names: Vec<Vec<u8>> = top.largest_first().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [b"1", b"3", b"2"].map(|n| n.to_vec()));
    }
}

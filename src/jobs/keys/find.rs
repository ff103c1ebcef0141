//! Finds the largest keys, by memory or by elements.
//!
//! A step is a `SCAN` of about a hundred names, one round trip for `TYPE` and `MEMORY USAGE` of
//! each, and one for their lengths (`HLEN` and similar commands, all of constant time). `--bigkeys`
//! would list one key per type, without memory; `KEYS` is one command as long as the keyspace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use redis::{Pipeline, RedisError, RedisResult, cmd};
use tokio::time::Instant;

use super::manners::{ask, ask_all, is_another_type, is_elsewhere, is_refused, rest};
use super::{Big, Entry, Error, Kind};
use crate::lock::Redis;

/// Names per step: two hundred commands in a pipeline take a fraction of a millisecond.
const STEP: usize = 100;
/// Elements that `MEMORY USAGE` samples: its default, set explicitly because 0 means all.
const SAMPLES: usize = 5;

#[derive(Debug, Clone)]
pub struct Search {
    /// Pattern of the names, in Redis's syntax.
    pub pattern: String,
    /// Upper bound of the listed keys.
    pub top: usize,
    /// True: the largest by memory; false: by elements, with a string's bytes in proportion to
    /// [`Big`].
    pub by_memory: bool,
    pub big: Big,
    pub only_big: bool,
    /// Keys with this prefix are not listed; the big keys among them are counted.
    pub leave: Option<String>,
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Keys that `SCAN` returned and that were examined.
    pub seen: u64,
    /// Keys of all servers, regardless of their names.
    pub all: u64,
    pub big: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Total {
    pub keys: u64,
    /// Their estimated memory, as far as the server reports it.
    pub memory_bytes: u64,
    /// Sum of their elements, or of a string's bytes.
    pub length: u64,
    pub big: u64,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct Found {
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
    pub types: BTreeMap<String, Total>,
    /// The largest keys, largest first.
    pub top: Vec<Entry>,
    #[serde(serialize_with = "seconds", rename = "seconds")]
    pub took: Duration,
}

fn seconds<S: serde::Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((took.as_secs_f64() * 1e3).round() / 1e3)
}

/// Examines every key of every server, and changes nothing.
pub async fn find(
    redis: &Redis,
    search: &Search,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<Found, Error> {
    let began = Instant::now();
    let servers = redis.each().await?;
    let mut far = Progress::default();
    let mut no_memory = None;
    for server in &servers {
        far.all += ask::<u64>(server, &cmd("DBSIZE")).await?;
        // The key is most likely absent; a server that refuses the command refuses it for any key.
        let question = usage(b"holdfast:is-there-memory-usage");
        match ask::<Option<u64>>(server, &question).await {
            Err(error) if is_refused(&error) => no_memory = Some(error.to_string()),
            // The key belongs to another node: the command is known.
            Err(error) if !is_elsewhere(&error) => return Err(error.into()),
            _ => {}
        }
    }
    let by_memory = search.by_memory && no_memory.is_none();
    let mut walk = Walk {
        search,
        by_memory,
        weigh: no_memory.is_none(),
        top: Top::default(),
        found: Found {
            servers: servers.len(),
            all: far.all,
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
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&search.pattern).arg("COUNT").arg(STEP);
            let (next, names): (u64, Vec<Vec<u8>>) = ask(server, &scan).await?;
            // While a table is resized, `SCAN` may return many more names than requested.
            for names in names.chunks(STEP) {
                walk.step(server, names).await?;
            }
            far = Progress { seen: walk.found.seen, big: walk.found.big, ..far };
            progress(&far);
            cursor = next;
            if cursor == 0 {
                break;
            }
            rest(step.elapsed()).await;
        }
    }
    let Walk { top, mut found, .. } = walk;
    found.top = top.largest_first();
    found.took = began.elapsed();
    Ok(found)
}

/// Examines one key; returns `None` if it does not exist.
pub async fn look_at(redis: &Redis, name: &[u8], big: Big) -> Result<Option<Entry>, Error> {
    let word: String = ask(redis, cmd("TYPE").arg(name)).await?;
    let Some(kind) = Kind::read(&word) else { return Ok(None) };
    let memory_bytes = match ask(redis, &usage(name)).await {
        Err(error) if is_refused(&error) => None,
        answer => answer?,
    };
    let length = match kind.length() {
        Some(command) => Some(ask(redis, cmd(command).arg(name)).await?),
        None => None,
    };
    let big = big.is(&kind, length);
    Ok(Some(Entry { name: name.to_owned(), kind, memory_bytes, length, big }))
}

fn usage(name: &[u8]) -> redis::Cmd {
    cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(SAMPLES).to_owned()
}

struct Walk<'a> {
    search: &'a Search,
    by_memory: bool,
    /// True if the servers execute `MEMORY USAGE`.
    weigh: bool,
    top: Top,
    found: Found,
}

impl Walk<'_> {
    async fn step(&mut self, server: &Redis, names: &[Vec<u8>]) -> Result<(), Error> {
        let mut questions = Pipeline::new();
        questions.ignore_errors();
        for name in names {
            questions.cmd("TYPE").arg(name);
        }
        if self.weigh {
            for name in names {
                questions.add_command(usage(name));
            }
        }
        let answers: Vec<RedisResult<redis::Value>> = ask_all(server, &questions).await?;
        let (words, weights) = answers.split_at(names.len().min(answers.len()));
        let mut known = Vec::with_capacity(names.len());
        for (at, (name, word)) in names.iter().zip(words).enumerate() {
            self.found.seen += 1;
            let weight = weights.get(at).and_then(|weight| weight.as_ref().ok());
            let weight = weight.and_then(|value| redis::from_redis_value_ref(value).ok());
            match word {
                Ok(word) => match Kind::read(
                    &redis::from_redis_value_ref::<String>(word).map_err(RedisError::from)?,
                ) {
                    Some(kind) => known.push((name, kind, weight)),
                    None => self.found.gone += 1,
                },
                Err(error) if is_elsewhere(error) => self.found.gone += 1,
                Err(error) if is_refused(error) => self.found.closed += 1,
                Err(error) => return Err(error.clone().into()),
            }
        }
        self.measure(server, known).await
    }

    async fn measure(
        &mut self,
        server: &Redis,
        known: Vec<(&Vec<u8>, Kind, Option<u64>)>,
    ) -> Result<(), Error> {
        let mut questions = Pipeline::new();
        questions.ignore_errors();
        for (name, kind, _) in &known {
            if let Some(command) = kind.length() {
                questions.cmd(command).arg(*name);
            }
        }
        let mut answers: Vec<RedisResult<u64>> = Vec::new();
        if !questions.is_empty() {
            answers = ask_all(server, &questions).await?;
        }
        let mut answers = answers.into_iter();
        for (name, kind, memory_bytes) in known {
            let length = match kind.length().and_then(|_| answers.next()) {
                None => None,
                Some(Ok(length)) => Some(length),
                // The key was replaced by a key of another type, or moved.
                Some(Err(error)) if is_another_type(&error) || is_elsewhere(&error) => {
                    self.found.gone += 1;
                    continue;
                }
                Some(Err(error)) if is_refused(&error) => None,
                Some(Err(error)) => return Err(error.into()),
            };
            let big = self.search.big.is(&kind, length);
            self.take(Entry { name: name.clone(), kind, memory_bytes, length, big });
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry) {
        let total = match self.found.types.get_mut(entry.kind.word()) {
            Some(total) => total,
            None => self.found.types.entry(entry.kind.word().to_owned()).or_default(),
        };
        total.keys += 1;
        total.memory_bytes += entry.memory_bytes.unwrap_or(0);
        total.length += entry.length.unwrap_or(0);
        total.big += u64::from(entry.big);
        self.found.big += u64::from(entry.big);
        let leave = self.search.leave.as_ref();
        if leave.is_some_and(|prefix| entry.name.starts_with(prefix.as_bytes())) {
            self.found.left_out += u64::from(entry.big);
        } else if entry.big || !self.search.only_big {
            self.top.offer(self.weight(&entry), entry, self.search.top);
        }
    }

    fn weight(&self, entry: &Entry) -> u128 {
        if self.by_memory {
            return entry.memory_bytes.unwrap_or(0).into();
        }
        // Length in proportion to the limit, without a division.
        let Big { string_bytes, elements } = self.search.big;
        let other = if entry.kind == Kind::String { elements } else { string_bytes };
        u128::from(entry.length.unwrap_or(0)) * u128::from(other.max(1))
    }
}

#[derive(Default)]
struct Top {
    order: BTreeSet<(u128, Vec<u8>)>,
    entries: HashMap<Vec<u8>, (u128, Entry)>,
}

impl Top {
    /// Adds an entry if it is among the `most` largest. It replaces an entry of the same name.
    fn offer(&mut self, weight: u128, entry: Entry, most: usize) {
        if let Some((before, _)) = self.entries.remove(&entry.name) {
            self.order.remove(&(before, entry.name.clone()));
        }
        let too_light = self.order.first().is_some_and(|(least, _)| weight <= *least);
        if most == 0 || (too_light && self.order.len() >= most) {
            return;
        }
        self.order.insert((weight, entry.name.clone()));
        self.entries.insert(entry.name.clone(), (weight, entry));
        if self.order.len() > most
            && let Some((_, name)) = self.order.pop_first()
        {
            self.entries.remove(&name);
        }
    }

    fn largest_first(mut self) -> Vec<Entry> {
        let names = self.order.into_iter().rev().map(|(_, name)| name);
        names.filter_map(|name| self.entries.remove(&name).map(|(_, entry)| entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: usize) -> Entry {
        let name = name.to_string().into_bytes();
        Entry { name, kind: Kind::Set, memory_bytes: None, length: None, big: false }
    }

    #[test]
    fn only_the_largest_entries_are_kept() {
        let mut top = Top::default();
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
        let mut top = Top::default();
        for (weight, name) in [(5, 1), (4, 2), (3, 3), (9, 1), (2, 2)] {
            top.offer(weight, entry(name), 3);
        }
        let names: Vec<Vec<u8>> = top.largest_first().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [b"1", b"3", b"2"].map(|n| n.to_vec()));
    }
}

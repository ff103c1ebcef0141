//! The largest keys, by memory or by elements.
//!
//! One step: `SCAN` for about a hundred names; `TYPE` and `MEMORY USAGE` of each in one round trip;
//! how long each is (`HLEN` and its kin, all of constant time) in another. Not `--bigkeys`, which
//! keeps one per type and does not weigh, nor `KEYS`, which is one command as long as the keyspace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use redis::{Pipeline, RedisError, RedisResult, cmd};
use tokio::time::Instant;

use super::manners::{ask, ask_all, is_another_type, is_elsewhere, is_refused, rest};
use super::{Big, Entry, Error, Kind};
use crate::lock::Redis;

/// Names per step: some two hundred commands at once are a fraction of a millisecond.
const STEP: usize = 100;
/// Elements that `MEMORY USAGE` looks at. Its default as well, said because 0 would mean all.
const SAMPLES: usize = 5;

#[derive(Debug, Clone)]
pub struct Search {
    /// Only names like this, as Redis' own patterns are written.
    pub pattern: String,
    /// How many are listed at most.
    pub top: usize,
    /// The largest by memory; else by elements, with a string's bytes in proportion to [`Big`].
    pub by_memory: bool,
    pub big: Big,
    pub only_big: bool,
    /// Names that begin so are not listed; the big ones among them are counted.
    pub leave: Option<String>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Keys that `SCAN` has shown, and were looked at.
    pub seen: u64,
    /// Keys there are, all servers together, whatever their names.
    pub all: u64,
    pub big: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Total {
    pub keys: u64,
    /// About what they take together, as far as the server tells.
    pub memory_bytes: u64,
    /// Their elements, or a string's bytes, together.
    pub length: u64,
    pub big: u64,
}

#[derive(Debug, Clone, serde::Serialize)]
pub struct Found {
    /// Servers that were looked at: all primaries of a Cluster.
    pub servers: usize,
    /// Keys there are.
    pub all: u64,
    /// Keys that were looked at: those like the pattern.
    pub seen: u64,
    /// Keys that had gone, or moved, before they could be looked at.
    pub gone: u64,
    /// Keys that this user may not look at.
    pub closed: u64,
    pub big: u64,
    /// Big ones that are not listed because of their names.
    pub left_out: u64,
    /// Whether the list is by memory, and not by elements.
    pub by_memory: bool,
    /// Why a server does not tell what a key takes, if one does not.
    pub no_memory: Option<String>,
    /// By type, as `TYPE` says it.
    pub types: BTreeMap<String, Total>,
    /// The largest, the largest first.
    pub top: Vec<Entry>,
    #[serde(serialize_with = "seconds", rename = "seconds")]
    pub took: Duration,
}

fn seconds<S: serde::Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((took.as_secs_f64() * 1e3).round() / 1e3)
}

/// Looks at every key of every server, and changes nothing.
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
        // Of a key that most likely is not there; a server that refuses does so for any.
        let question = usage(b"holdfast:is-there-memory-usage");
        match ask::<Option<u64>>(server, &question).await {
            Err(error) if is_refused(&error) => no_memory = Some(error.to_string()),
            // The key would be another node's: the command is known there.
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
            // A table that grows may show many more than were asked for.
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

/// One key; `None` when it is not there.
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
    /// Whether `MEMORY USAGE` is answered.
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
                // It has gone and come back as something else.
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
        // How many times the most that is not big, without a division.
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
    /// Takes it in if it belongs to the `most` largest. What was shown before replaces itself.
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
    fn however_many_are_offered_the_largest_few_are_kept() {
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
    fn a_key_that_is_shown_twice_is_listed_once() {
        let mut top = Top::default();
        for (weight, name) in [(5, 1), (4, 2), (3, 3), (9, 1), (2, 2)] {
            top.offer(weight, entry(name), 3);
        }
        let names: Vec<Vec<u8>> = top.largest_first().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [b"1", b"3", b"2"].map(|n| n.to_vec()));
    }
}

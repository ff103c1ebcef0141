//! Big keys: all of them are found, and a deletion keeps neighbouring keys; on one Redis, one
//! Valkey, a Cluster, and a primary with sentinels.

use std::collections::BTreeSet;

use holdfast::big_keys::{
    Error, KeyRemovalMethod, MAX_BATCH_SIZE, SearchOptions, SearchResult, find, inspect, remove,
};
use holdfast_lock::Redis;
use redis::{Cmd, FromRedisValue, RedisResult, cmd};

use crate::topology::{self, Running, Topology, ask};

const EVERYWHERE: [Topology; 4] =
    [Topology::Redis, Topology::Valkey, Topology::Cluster, Topology::Sentinel];
const TYPES: [&str; 5] = ["hash", "set", "zset", "list", "stream"];

/// The search of `holdfast keys` without options.
fn default_search() -> SearchOptions {
    SearchOptions { pattern: "*".to_owned(), top: 20, only_big: false, excluded_prefix: None }
}

/// Redis in some shape, with nothing in it.
pub struct TestRedis {
    running: Running,
    redis: Redis,
}

impl TestRedis {
    /// `None` when there is no such program here, which is said.
    pub fn start(topology: Topology) -> Option<Self> {
        let running = topology::start(topology)?;
        let redis = Redis::open(&running.url).unwrap();
        Some(Self { running, redis })
    }

    pub fn single() -> Self {
        Self::start(Topology::Redis).unwrap()
    }

    pub fn url(&self) -> &str {
        &self.running.url
    }

    pub async fn query<T: FromRedisValue + Send + 'static>(&self, command: &Cmd) -> T {
        self.redis.query(command.clone()).await.unwrap()
    }

    /// Writes a key of that type with `length` elements (or bytes).
    pub async fn put(&self, kind: &str, key: &[u8], length: u64) {
        self.redis.query::<redis::Value>(add_elements(kind, key, 0, length)).await.unwrap();
    }

    pub async fn has(&self, key: &[u8]) -> bool {
        self.query(cmd("EXISTS").arg(key)).await
    }

    /// The number of keys.
    pub async fn count(&self) -> u64 {
        let mut count = 0;
        for server in self.redis.primaries().await.unwrap() {
            count += server.query::<u64>(cmd("DBSIZE")).await.unwrap();
        }
        count
    }

    async fn find(&self, search: &SearchOptions) -> SearchResult {
        find(&self.redis, search, |_| {}).await.unwrap()
    }

    /// Calls of a command since the statistics were reset, on all servers.
    async fn calls(&self, command: &str) -> u64 {
        let mut calls = 0;
        for server in self.redis.primaries().await.unwrap() {
            let info = cmd("INFO").arg("commandstats").to_owned();
            let info: String = server.query(info).await.unwrap();
            let line = format!("cmdstat_{command}:calls=");
            let found = info.lines().find_map(|text| text.strip_prefix(&line));
            calls += found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap());
        }
        calls
    }

    async fn reset_calls(&self) {
        for server in self.redis.primaries().await.unwrap() {
            let reset = cmd("CONFIG").arg("RESETSTAT").to_owned();
            server.query::<()>(reset).await.unwrap();
        }
    }
}

/// The command that adds `length` elements, numbered from `first` on.
fn add_elements(kind: &str, key: &[u8], first: u64, length: u64) -> Cmd {
    let mut script = cmd("EVAL");
    let add = match kind {
        "string" => return cmd("SET").arg(key).arg("x".repeat(length as usize)).to_owned(),
        "hash" => "redis.call('HSET', KEYS[1], 'field' .. i, i)",
        "set" => "redis.call('SADD', KEYS[1], 'member' .. i)",
        "zset" => "redis.call('ZADD', KEYS[1], i, 'member' .. i)",
        "list" => "redis.call('RPUSH', KEYS[1], i)",
        "stream" => "redis.call('XADD', KEYS[1], '*', 'number', i)",
        other => panic!("{other}"),
    };
    script.arg(format!("for i = ARGV[1], ARGV[2] - 1 do {add} end")).arg(1).arg(key);
    script.arg(first).arg(first + length).to_owned()
}

/// The command that removes a batch of elements.
fn batch_command(kind: &str) -> &'static str {
    match kind {
        "hash" => "hdel",
        "set" => "srem",
        "zset" => "zremrangebyrank",
        "list" => "ltrim",
        "stream" => "xtrim",
        other => panic!("{other}"),
    }
}

fn names(found: &SearchResult) -> BTreeSet<String> {
    found.top.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_big_keys_are_found() {
    for topology in EVERYWHERE {
        let Some(redis_server) = TestRedis::start(topology) else { continue };
        for number in 0..500 {
            for kind in TYPES.into_iter().chain(["string"]) {
                redis_server
                    .put(kind, format!("small:{kind}:{number}").as_bytes(), 1 + number % 40)
                    .await;
            }
        }
        let mut big = BTreeSet::new();
        for kind in TYPES {
            redis_server.put(kind, format!("just-not:{kind}").as_bytes(), 5_000).await;
            redis_server.put(kind, format!("big:{kind}").as_bytes(), 5_001).await;
            big.insert(format!("big:{kind}"));
        }
        redis_server.put("string", b"just-not:string", 10_240).await;
        redis_server.put("string", b"big:string", 10_241).await;
        big.insert("big:string".to_owned());

        let search = SearchOptions { only_big: true, ..default_search() };
        let found = redis_server.find(&search).await;
        assert_eq!(names(&found), big, "{topology:?}");
        assert_eq!((found.big, found.seen, found.gone), (6, 3_012, 0), "{topology:?}");
        assert_eq!(found.all, 3_012);
        let lengths: u64 = found.top.iter().map(|entry| entry.length.unwrap()).sum();
        assert_eq!(lengths, 5 * 5_001 + 10_241);
        let search = SearchOptions { pattern: "big:[hl]*".to_owned(), ..default_search() };
        let found = redis_server.find(&search).await;
        assert_eq!((found.seen, names(&found).len()), (2, 2), "{topology:?}");
        // No small key is among the largest twelve, and no more are listed than requested.
        let found = redis_server.find(&SearchOptions { top: 12, ..default_search() }).await;
        assert!(names(&found).iter().all(|name| !name.starts_with("small")), "{:?}", found.top);
        assert_eq!(found.top.len(), 12);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_by_memory() {
    let redis_server = TestRedis::single();
    redis_server.put("list", b"many", 6_000).await;
    let mut heavy = cmd("HSET");
    heavy.arg("heavy");
    for field in 0..10 {
        heavy.arg(field).arg("x".repeat(200_000));
    }
    redis_server.query::<()>(&heavy).await;
    redis_server.put("string", b"text", 60_000).await;

    let found = redis_server.find(&default_search()).await;
    let order: Vec<&[u8]> = found.top.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(order, [&b"heavy"[..], b"text", b"many"]);
    let memory_bytes = found.top[0].memory_bytes.unwrap();
    assert!((2_000_000..3_000_000).contains(&memory_bytes), "{memory_bytes}");
    assert!(!found.top[0].big, "it has ten elements");
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_sends_only_fast_read_commands() {
    let redis_server = TestRedis::single();
    for kind in TYPES.into_iter().chain(["string"]) {
        redis_server.put(kind, kind.as_bytes(), 6_000).await;
    }
    let dirty = async || -> String {
        let info: String = redis_server.query(cmd("INFO").arg("persistence")).await;
        info.lines().find(|line| line.starts_with("rdb_changes_since")).unwrap().to_owned()
    };
    let before = dirty().await;
    redis_server.reset_calls().await;
    redis_server.find(&default_search()).await;
    assert_eq!(dirty().await, before);
    let info: String = redis_server.query(cmd("INFO").arg("commandstats")).await;
    let sent = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    let harmless = [
        "scan",
        "type",
        "memory|usage",
        "strlen",
        "llen",
        "scard",
        "zcard",
        "hlen",
        "xlen",
        "dbsize",
        "info",
        "config|resetstat",
        "client|setinfo",
        "hello",
        "ping",
        "select",
    ];
    for command in sent {
        assert!(harmless.contains(&command), "{command} was sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_deleted_during_scan_are_skipped() {
    let redis_server = TestRedis::single();
    for number in 0..3_000 {
        redis_server.put("set", format!("going:{number}").as_bytes(), 2).await;
    }
    // Each step deletes the first fifty keys of the next hundred, and replaces the others by keys
    // of another type.
    let (url, mut step) = (redis_server.url().to_owned(), 0);
    let search = SearchOptions { top: 3_000, ..default_search() };
    let found = find(&redis_server.redis, &search, |_| {
        for number in step * 100..step * 100 + 50 {
            let _: i64 = ask(&url, &format!("DEL going:{number}")).unwrap();
            let _: String = ask(&url, &format!("SET going:{} x", number + 50)).unwrap();
        }
        step += 1;
    });
    let found = found.await.unwrap();
    // At least half of the keys are left, so the table is not shrunk, and no key is scanned twice.
    assert_eq!(found.seen, found.top.len() as u64 + found.gone);
    let kept = (0..3_000).filter(|number| number % 100 >= 50);
    let kept: BTreeSet<String> = kept.map(|number| format!("going:{number}")).collect();
    let missing: Vec<String> = kept.difference(&names(&found)).cloned().collect();
    assert_eq!(missing, Vec::<String>::new(), "they exist throughout");
    assert!(inspect(&redis_server.redis, b"nothing").await.unwrap().is_none());
    let removed =
        remove(&redis_server.redis, b"nothing", KeyRemovalMethod::Batches, |_| {}).await.unwrap();
    assert!(removed.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_is_deleted_without_its_neighbours() {
    const LENGTH: u64 = 3_456;
    for topology in EVERYWHERE {
        let Some(redis_server) = TestRedis::start(topology) else { continue };
        for with in [KeyRemovalMethod::Batches, KeyRemovalMethod::Unlink] {
            for kind in TYPES.into_iter().chain(["string"]) {
                // With a zero byte, and no letters of any language.
                let name = [kind.as_bytes(), b"\x00\xff{"].concat();
                let neighbours =
                    [name[..name.len() - 1].to_vec(), [&name[..], b"x"].concat(), b"x".to_vec()];
                for neighbour in &neighbours {
                    redis_server.put(kind, neighbour, 700).await;
                }
                redis_server.put(kind, &name, LENGTH).await;
                redis_server.reset_calls().await;
                let mut heard = Vec::new();
                let done = remove(&redis_server.redis, &name, with, |gone| heard.push(gone)).await;
                let done = done.unwrap().unwrap();
                assert_eq!((done.removed, done.left), (LENGTH, 0), "{topology:?} {kind} {done:?}");
                assert!(!redis_server.has(&name).await, "{topology:?} {kind}");
                assert!(heard.is_sorted() && heard.last() == Some(&LENGTH), "{heard:?}");
                let whole = redis_server.calls("del").await + redis_server.calls("unlink").await;
                if with == KeyRemovalMethod::Batches && kind != "string" {
                    assert_eq!(done.with, KeyRemovalMethod::Batches);
                    let batches = redis_server.calls(batch_command(kind)).await;
                    assert!(batches >= LENGTH / MAX_BATCH_SIZE, "{kind}: {batches}");
                    // An empty stream is still there, and has to be named once.
                    assert_eq!(whole, u64::from(kind == "stream"), "{kind} was removed piecewise");
                } else {
                    assert_eq!((done.with, whole), (KeyRemovalMethod::Unlink, 1), "{kind}");
                }
                for neighbour in &neighbours {
                    let there = inspect(&redis_server.redis, neighbour).await.unwrap();
                    assert_eq!(there.unwrap().length, Some(700), "{topology:?} {kind}");
                    redis_server.query::<u64>(cmd("DEL").arg(neighbour)).await;
                }
            }
        }
        assert_eq!(redis_server.count().await, 0);
    }
}

/// How a small hash or set is kept, all in one piece, does not make a batch larger.
#[tokio::test(flavor = "multi_thread")]
async fn delete_batch_is_bounded_by_elements_and_bytes() {
    let redis_server = TestRedis::single();
    for setting in ["hash-max-listpack-entries", "set-max-intset-entries"] {
        redis_server.query::<()>(cmd("CONFIG").arg("SET").arg(setting).arg(100_000)).await;
    }
    redis_server.put("hash", b"in-one-piece", 10 * MAX_BATCH_SIZE).await;
    redis_server.reset_calls().await;
    remove(&redis_server.redis, b"in-one-piece", KeyRemovalMethod::Batches, |_| {}).await.unwrap();
    assert_eq!(redis_server.calls("hdel").await, 10);

    for field in 0..60 {
        redis_server
            .query::<()>(cmd("HSET").arg("heavy").arg(field).arg("x".repeat(300_000)))
            .await;
    }
    redis_server.reset_calls().await;
    let done = remove(&redis_server.redis, b"heavy", KeyRemovalMethod::Batches, |_| {})
        .await
        .unwrap()
        .unwrap();
    assert_eq!((done.removed, done.left), (60, 0));
    let calls = redis_server.calls("hdel").await;
    assert!(calls >= 60 / 4, "at most about 1 MB at once, and it took {calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_fast_growing_key_ends() {
    const LENGTH: u64 = 4_000;
    let redis_server = TestRedis::single();
    for kind in TYPES {
        redis_server.put(kind, kind.as_bytes(), LENGTH).await;
        // For every batch that goes, two come.
        let (url, mut next) = (redis_server.url().to_owned(), LENGTH);
        let grow = |_| {
            let _: redis::Value =
                query_once(&url, &add_elements(kind, kind.as_bytes(), next, 2 * MAX_BATCH_SIZE))
                    .unwrap();
            next += 2 * MAX_BATCH_SIZE;
        };
        let done =
            remove(&redis_server.redis, kind.as_bytes(), KeyRemovalMethod::Batches, grow).await;
        let done = done.unwrap().unwrap();
        assert!(done.removed <= 2 * (LENGTH + MAX_BATCH_SIZE), "{kind}: {done:?}");
        let there = inspect(&redis_server.redis, kind.as_bytes()).await.unwrap().unwrap();
        assert_eq!(there.length, Some(done.left), "{kind}");
        assert!(done.left > LENGTH, "{kind}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_added_during_deletion_are_deleted() {
    const LENGTH: u64 = 4_000;
    let redis_server = TestRedis::single();
    for kind in TYPES {
        redis_server.put(kind, kind.as_bytes(), LENGTH).await;
        let (url, mut next) = (redis_server.url().to_owned(), LENGTH);
        let grow = |_| {
            if next < LENGTH + 5 * 100 {
                let _: redis::Value =
                    query_once(&url, &add_elements(kind, kind.as_bytes(), next, 100)).unwrap();
                next += 100;
            }
        };
        let done =
            remove(&redis_server.redis, kind.as_bytes(), KeyRemovalMethod::Batches, grow).await;
        let done = done.unwrap().unwrap();
        assert_eq!((done.left, done.removed), (0, LENGTH + 500), "{kind}: {done:?}");
        assert!(!redis_server.has(kind.as_bytes()).await, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_replaced_during_deletion_is_kept() {
    let redis_server = TestRedis::single();
    for kind in TYPES {
        redis_server.put(kind, kind.as_bytes(), 4_000).await;
        let url = redis_server.url().to_owned();
        let replace = |_| {
            let _: i64 = ask(&url, &format!("DEL {kind}")).unwrap();
            let _: String = ask(&url, &format!("SET {kind} precious")).unwrap();
        };
        let done =
            remove(&redis_server.redis, kind.as_bytes(), KeyRemovalMethod::Batches, replace).await;
        assert!(
            matches!(done, Err(Error::TypeChanged(ref name)) if name == kind),
            "{kind}: {done:?}"
        );
        assert_eq!(redis_server.query::<String>(cmd("GET").arg(kind)).await, "precious", "{kind}");
    }
}

/// As some that are run by others do.
#[tokio::test(flavor = "multi_thread")]
async fn missing_redis_commands_have_fallbacks() {
    let redis_server = TestRedis::single();
    let rules = "ACL SETUSER limited on >secret ~* &* +@all -memory -unlink";
    let _: String = ask(redis_server.url(), rules).unwrap();
    redis_server.put("zset", b"many", 7_000).await;
    redis_server.put("hash", b"few", 3).await;
    redis_server.put("stream", b"stream", 600).await;
    redis_server.put("string", b"text", 600).await;
    let url = format!("{}?user=limited&pass=secret", redis_server.url());
    let limited = Redis::open(&url).unwrap();

    let found = find(&limited, &default_search(), |_| {}).await.unwrap();
    assert_eq!(found.top[0].name, b"many", "by length instead");
    assert!(found.top.iter().all(|entry| entry.memory_bytes.is_none()));
    for (name, kind) in [("many", "zset"), ("stream", "stream"), ("text", "string")] {
        let there = inspect(&limited, name.as_bytes()).await.unwrap().unwrap();
        assert_eq!(there.key_type, kind);
        let done = remove(&limited, name.as_bytes(), KeyRemovalMethod::Unlink, |_| {})
            .await
            .unwrap()
            .unwrap();
        assert_eq!((done.with, done.left), (KeyRemovalMethod::Batches, 0), "{done:?}");
        assert!(!redis_server.has(name.as_bytes()).await);
    }
    assert_eq!(redis_server.count().await, 1);
}

/// On a connection of its own, from within something that can't wait.
fn query_once<T: FromRedisValue>(url: &str, command: &Cmd) -> RedisResult<T> {
    command.query(&mut redis::Client::open(url)?.get_connection()?)
}

//! The command `holdfast keys`: its output, its errors, and that it deletes only what its options
//! name.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, AcquireRequest, LockKey, LockKind, Locks, Redis, Settings, Wait,
};
use serde_json::Value;

use crate::keys::TestRedis;
use crate::topology::Topology;

/// It, not run yet.
pub fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"HOLDFAST_") {
            command.env_remove(name);
        }
    }
    command.arg("keys").args(arguments).env("REDIS_URL", url);
    command
}

/// Runs it, without a terminal.
fn keys(url: &str, arguments: &[&str]) -> Output {
    command(url, arguments).stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Its stdout, if it succeeded.
pub fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// Its stderr, if it failed.
pub fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text(&output.stderr)
}

/// Something big of every type, something small, and something of the shop's.
pub async fn filled(topology: Topology) -> Option<TestRedis> {
    let redis_server = TestRedis::start(topology)?;
    for kind in ["hash", "set", "zset", "list", "stream"] {
        redis_server.put(kind, format!("big:{kind}").as_bytes(), 5_500).await;
        redis_server.put(kind, format!("small:{kind}").as_bytes(), 10).await;
    }
    redis_server.put("string", b"big:\x00\xff\n", 20_000).await;
    redis_server.put("zset", b"holdfast:expiry:{1}", 6_000).await;
    Some(redis_server)
}

#[tokio::test(flavor = "multi_thread")]
async fn table_and_json_agree() {
    for topology in [Topology::Redis, Topology::Cluster] {
        let Some(redis_server) = filled(topology).await else { continue };
        let report: Value =
            serde_json::from_str(&stdout_of(&keys(redis_server.url(), &["--json"]))).unwrap();
        assert_eq!(
            (&report["seen"], &report["all"], &report["big"]),
            (&12.into(), &12.into(), &7.into())
        );
        assert!(report.get("deleted").is_none(), "{report:#}");
        let table = stdout_of(&keys(redis_server.url(), &[]));
        let lines: Vec<&str> = table.lines().collect();
        let top = report["top"].as_array().unwrap();
        assert_eq!(top.len(), 12);
        for (entry, line) in top.iter().zip(&lines[1..]) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (key, kind) = (entry["key"].as_str().unwrap(), entry["type"].as_str().unwrap());
            assert_eq!(words.contains(&"*"), entry["big"] == true, "{line}");
            assert!(words.contains(&kind) && words.last() == Some(&key), "{line} {entry}");
        }
        assert!(table.contains("12 of 12 keys examined"), "{table}");
        assert!(table.contains("7 big (* a string of more than 10,240 bytes"), "{table}");
        assert!(table.contains("big:\\x00\\xff\\n"), "what can't be printed: {table}");
        let few = stdout_of(&keys(redis_server.url(), &["--top", "2"]));
        assert!(few.contains("more big keys, not listed (--top): 5"), "{few}");
        assert_eq!(redis_server.count().await, 12);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_requires_explicit_options() {
    let redis_server = filled(Topology::Redis).await.unwrap();
    let why = error_of(&keys(redis_server.url(), &["--delete-big"]));
    assert!(why.contains("no terminal") && why.contains("--yes"), "{why}");
    let why = error_of(&keys(redis_server.url(), &["--delete", "big:hash", "nonesuch"]));
    assert!(why.contains("no key nonesuch") && why.contains("Nothing was removed"), "{why}");
    let why = error_of(&keys(redis_server.url(), &["--delete", "big:*"]));
    assert!(why.contains("given whole"), "a name is no pattern: {why}");
    let why = error_of(&keys(redis_server.url(), &["--delete", "big:\\q"]));
    assert!(why.contains("backslash"), "{why}");
    for arguments in [
        &["--yes"][..],
        &["--delete"],
        &["--delete", "big:hash", "--delete-big"],
        &["--delete", "big:hash", "--pattern", "*"],
        &["--top", "0"],
    ] {
        let output = keys(redis_server.url(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_eq!(redis_server.count().await, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_named_keys_are_deleted() {
    let redis_server = filled(Topology::Redis).await.unwrap();
    let gone = ["big:\\x00\\xff\\n", "small:list", "big:stream", "small:list"];
    let output = stdout_of(&keys(redis_server.url(), &[&["--delete"], &gone[..]].concat()));
    assert!(output.contains("removed      big:\\x00\\xff\\n (string, 20,000 bytes)"), "{output}");
    assert_eq!(output.lines().count(), 3, "{output}");
    for name in [&b"big:\x00\xff\n"[..], b"small:list", b"big:stream"] {
        assert!(!redis_server.has(name).await, "{name:?}");
    }
    assert_eq!(redis_server.count().await, 9);
    let output = stdout_of(&keys(redis_server.url(), &["--json", "--delete", "big:hash"]));
    let output: Value = serde_json::from_str(&output).unwrap();
    let one = &output["deleted"][0];
    assert_eq!((&one["key"], &one["with"]), (&"big:hash".into(), &"unlink".into()), "{output:#}");
    assert_eq!((&one["removed"], &one["left"]), (&5_500.into(), &0.into()), "{output:#}");
    assert_eq!(redis_server.count().await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_big_keeps_the_shops_own_keys() {
    for topology in [Topology::Redis, Topology::Cluster] {
        let Some(redis_server) = filled(topology).await else { continue };
        // It lists and deletes at most `--top` keys at a time.
        let some = ["--delete-big", "--yes", "--top", "4"];
        let output = stdout_of(&keys(redis_server.url(), &some));
        assert_eq!(
            output.lines().filter(|line| line.starts_with("removed ")).count(),
            4,
            "{output}"
        );
        assert!(output.contains("big keys of the shop itself, never removed: 1"), "{output}");
        assert_eq!(redis_server.count().await, 8);
        let output = stdout_of(&keys(redis_server.url(), &["--delete-big", "--yes", "--json"]));
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(output["deleted"].as_array().map(Vec::len), Some(2), "{output:#}");
        assert_eq!(output["left_out"], 1);
        assert!(redis_server.has(b"holdfast:expiry:{1}").await);
        assert_eq!(redis_server.count().await, 6, "the small ones and the shop's");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn held_lock_is_never_deleted() {
    let redis_server = TestRedis::single();
    let locks = Locks::new(Redis::open(redis_server.url()).unwrap(), Settings::default()).unwrap();
    let held = [LockKey::new("{sku:tea}").unwrap()];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let ask =
        AcquireRequest { kind: LockKind::Owner, wait: Wait::Try, ttl: None, deadline, keys: &held };
    let AcquireOutcome::Acquired(guards) = locks.acquire(ask).await.unwrap() else {
        panic!("it is free")
    };
    let name = "holdfast:lock:{sku:tea}";
    let why = error_of(&keys(redis_server.url(), &["--delete", name]));
    assert!(why.contains("belongs to the shop") && why.contains("held twice"), "{why}");
    assert_eq!(locks.held_locks(&[]).await.unwrap().len(), 1);
    // The prefix of another shop is protected in the same way.
    let other = keys(redis_server.url(), &["--redis-prefix", "other:", "--delete", "other:x"]);
    assert!(error_of(&other).contains("other:"));
    guards.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_errors_explain_what_to_do() {
    let why = error_of(&keys("http://127.0.0.1", &[]));
    assert!(why.contains("redis-cluster://") && why.contains("REDIS_URL"), "{why}");
    let why = error_of(&keys("redis+unix:///nowhere/redis.sock", &[]));
    assert!(why.contains("Redis"), "{why}");
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    nowhere.args(["keys", "--data", "/nowhere"]).env_remove("REDIS_URL").stdin(Stdio::null());
    let why = error_of(&nowhere.output().unwrap());
    assert!(why.contains("--redis-url") && why.contains("/nowhere"), "{why}");
}

//! Faults of a lock that only a Cluster or Sentinel has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_lock::{AcquireOutcome, Error, Redis, Released, Wait};
use rustix::process::Signal;

use crate::history::Rendezvous;
use crate::server::{
    LONG_TTL, Process, Server, TTL, each_topology, enqueue, ping, run, until, until_holder_listens,
    until_notified_of_waiter,
};
use crate::topology::Topology;

/// A key on each of the three primaries, in their order.
const KEY_PER_PRIMARY: [&str; 3] = ["{b}", "{c}", "{a}"];
/// A silent primary costs its own keys up to two seconds.
const MAX_ACQUIRE_TIME: Duration = Duration::from_millis(1_500);

each_topology!(
    key_without_hash_tag_gets_one,
    address_is_parsed_as_documented,
    only_keys_with_prefix_are_deleted
);

async fn key_without_hash_tag_gets_one(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.lock("plain").await;
    assert!(!there.is_free("plain").await);
    assert_eq!(held.release().await, Released::Held);
    assert!(there.is_free("plain").await);
}

/// With a user, and with a database where the topology has several.
async fn address_is_parsed_as_documented(server: &Server) {
    let with_user = server.url().replace("://", "://default:any%20word@");
    let url = match server.url() {
        url if url.starts_with("redis-cluster:") => format!("{with_user}/0"),
        url if url.starts_with("redis-sentinel:") => format!("{with_user}/1"),
        url => format!("{url}?db=1&user=default&pass=any%20word"),
    };
    let redis = Redis::open(&url).unwrap();
    ping(&redis).await.unwrap();
    assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("noeviction"));
}

/// On all primaries; a prefix is no pattern.
async fn only_keys_with_prefix_are_deleted(server: &Server) {
    let redis = server.process().0.redis().clone();
    let prefixes = ["ours[1]:", "ours1:", "theirs:"];
    for key in KEY_PER_PRIMARY {
        for prefix in prefixes {
            let set = ::redis::cmd("SET").arg(format!("{prefix}{key}")).arg("value").to_owned();
            let _: () = redis.query(set).await.unwrap();
        }
    }

    for prefix in prefixes {
        assert_eq!(redis.delete_prefixed(prefix).await.unwrap(), 3, "{prefix}");
        assert_eq!(redis.delete_prefixed(prefix).await.unwrap(), 0, "{prefix}");
    }

    let set = ::redis::cmd("SET").arg("theirs").arg("value").to_owned();
    let _: () = redis.query(set).await.unwrap();
    redis.delete_prefixed("").await.unwrap_err();
    let get = ::redis::cmd("GET").arg("theirs").to_owned();
    assert_eq!(redis.query::<String>(get).await.unwrap(), "value", "no prefix is not every key");
}

#[test]
fn silent_pubsub_channel_is_kept() {
    run(Topology::Redis, async |server| {
        let process = server.process();
        process.lock("{a}").await.release().await;
        let subscribers = || -> String { server.query("CLIENT LIST TYPE pubsub") };
        let first = |list: &str| list.split(' ').next().unwrap_or("").to_owned();
        until("it is subscribed", async || !subscribers().is_empty()).await;
        let before = subscribers();
        until("it sends a ping", async || subscribers().contains("cmd=ping")).await;
        let pinged = subscribers();
        let age = |list: &str| list.split(" age=").nth(1)?.split(' ').next()?.parse::<u32>().ok();
        until("the connection outlives the ping", async || age(&subscribers()) > age(&pinged))
            .await;
        assert_eq!(first(&subscribers()), first(&before), "the same connection");
    });
}

#[test]
fn keys_on_several_primaries_are_atomic() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process(), server.process());
        let AcquireOutcome::Acquired(all) =
            here.try_acquire(&KEY_PER_PRIMARY, Wait::Notify, TTL).await.unwrap()
        else {
            panic!("they are free")
        };
        for key in KEY_PER_PRIMARY {
            assert!(!there.is_free(key).await, "{key}");
        }
        let locks = server.query_each::<i64>("EXISTS holdfast:lock:{b}").len();
        assert_eq!(locks, 1, "a key belongs to one primary");
        let keys: Vec<usize> = server.query_each("DBSIZE");
        assert!(keys.iter().all(|keys| *keys >= 2), "each has a lock and its fence: {keys:?}");
        let held = here.0.held_locks().await.unwrap();
        assert_eq!(held.len(), 3, "all primaries are searched: {held:?}");

        let mut clients = tokio::task::JoinSet::new();
        // Any two of three keys have one in common.
        let rendezvous = Arc::new(Rendezvous::default());
        for (number, process) in [&here, &there, &here, &there].into_iter().enumerate() {
            let (process, rendezvous) = (process.clone(), rendezvous.clone());
            let mut keys = KEY_PER_PRIMARY;
            keys.rotate_left(number % 3);
            clients.spawn(async move {
                let outcome =
                    process.try_acquire(&keys[..2], Wait::Notify, TTL * 10).await.unwrap();
                let AcquireOutcome::Acquired(guards) = outcome else { panic!("{outcome:?}") };
                assert!(!rendezvous.overlaps(Duration::from_millis(20)).await, "two hold one key");
                assert_eq!(guards.release().await, Released::Held);
            });
        }
        assert_eq!(all.release().await, Released::Held);
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
        until("nothing is left behind", async || server.keys_left().is_empty()).await;
    });
}

#[test]
fn silent_primary_delays_only_its_keys() {
    run(Topology::Cluster, async |server| {
        let (process, there) = (server.process(), server.process());
        for key in KEY_PER_PRIMARY {
            let held = process.lock(key).await;
            assert!(!there.is_free(key).await, "{key}");
            held.release().await;
        }
        server.signal_one(2, Signal::STOP);
        let [first, second, silent] = KEY_PER_PRIMARY;
        for _ in 0..3 {
            let result = process.try_acquire(&KEY_PER_PRIMARY, Wait::Notify, TTL * 3).await;
            assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
            for key in [first, second] {
                let started = Instant::now();
                assert!(process.is_free(key).await, "{key} was released");
                assert!(started.elapsed() < MAX_ACQUIRE_TIME, "{:?}", started.elapsed());
            }
        }
        server.signal_one(2, Signal::CONT);
        until("it is served again", async || try_lock(&process, silent).await.is_ok()).await;
    });
}

#[test]
fn one_evicting_primary_is_reported() {
    run(Topology::Cluster, async |server| {
        let redis = Redis::open(server.url()).unwrap();
        assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("noeviction"));
        server.mark_as_changed();
        let _: String = server.query_node(1, "CONFIG SET maxmemory-policy allkeys-lru").unwrap();
        assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("allkeys-lru"));
    });
}

#[test]
fn moved_slot_keeps_its_lock() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process(), server.process());
        let held = here.lock("{a}").await;
        let began = Instant::now();
        move_slot(server, &["", ":fence"], async || {
            // Neither node serves several keys now, of which some are missing.
            assert!(try_lock(&there, "{a}").await.is_err());
        })
        .await;
        let is_free = there.is_free("{a}").await;
        assert!(!is_free || began.elapsed() > TTL / 2, "the holder renews it there");
        let released = held.release().await;
        assert!(released == Released::Held || began.elapsed() > TTL / 2, "{released:?}");
        for process in [&here, &there] {
            assert_eq!(process.lock("{a}").await.release().await, Released::Held);
        }
    });
}

#[test]
fn handoff_follows_a_moved_slot() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process_with_long_times(), server.process_with_long_times());
        let mut locks = Vec::new();
        for key in ["{a}", "{a}too"] {
            let held = here.lock(key).await;
            until_holder_listens(server, key).await;
            let theirs = enqueue(server, &there, key).await;
            until_notified_of_waiter(&held, key).await;
            locks.push((held, theirs));
        }
        let (after, before) = (locks.pop().unwrap(), locks.pop().unwrap());
        let keys =
            ["", "too"].map(|key| ["", ":queue", ":seen", ":fence"].map(|end| [key, end].concat()));
        let keys: Vec<&str> = keys.iter().flatten().map(String::as_str).collect();
        move_slot(server, &keys, async || {
            // The old node redirects to the new one (ASK).
            assert_eq!(before.0.release().await, Released::Held);
        })
        .await;
        // Now it replies MOVED.
        assert_eq!(after.0.release().await, Released::Held);
        for theirs in [before.1, after.1] {
            assert_eq!(theirs.await.unwrap().release().await, Released::Held);
        }
    });
}

/// Moves the slot of `{a}` and its keys with those ends from the third primary to the first.
async fn move_slot(server: &Server, ends: &[&str], before_all_nodes_know: impl AsyncFnOnce()) {
    const SLOT: u16 = 15_495;
    server.mark_as_changed();
    let [to, from] = [0, 2].map(|node| server.query_node::<String>(node, "CLUSTER MYID").unwrap());
    let slot = |rest: &str| format!("CLUSTER SETSLOT {SLOT} {rest}");
    let _: String = server.query_node(0, &slot(&format!("IMPORTING {from}"))).unwrap();
    let _: String = server.query_node(2, &slot(&format!("MIGRATING {to}"))).unwrap();
    for end in ends {
        let key = format!("holdfast:lock:{{a}}{end}");
        let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 5000", server.port(0));
        let _: String = server.query_node(2, &migrate).unwrap();
    }
    before_all_nodes_know().await;
    for node in [0, 2, 1] {
        let _: String = server.query_node(node, &slot(&format!("NODE {to}"))).unwrap();
    }
}

/// Returns the outcome, or an error of Redis, long before the timeout: an outage, or a rejection
/// because a failover or a migration is in progress.
async fn try_lock(process: &Process, key: &str) -> Result<AcquireOutcome, Error> {
    let started = Instant::now();
    let result = process.try_acquire(&[key], Wait::Notify, LONG_TTL).await;
    if let Err(error) = &result {
        assert!(matches!(error, Error::Unavailable(_) | Error::Refused(_)), "{error}");
        assert!(started.elapsed() < LONG_TTL / 2, "{:?}", started.elapsed());
    }
    result
}

/// The lock works again on another primary; until then it fails with errors of Redis, and is never
/// *busy*.
async fn assert_lock_survives(server: &Server, signal: Signal) {
    let (here, there) = (server.process(), server.process());
    for process in [&here, &there] {
        process.lock("{a}").await.release().await;
    }
    let before = server.primary();
    server.signal_one(before, signal);
    let stopped = Instant::now();
    let mut unavailable = 0;
    until("another primary grants the lock", async || match try_lock(&here, "{a}").await {
        Ok(AcquireOutcome::Acquired(guards)) => {
            guards.release().await;
            true
        }
        Ok(other) => panic!("{other:?}"),
        Err(_) => {
            unavailable += 1;
            false
        }
    })
    .await;
    println!("{signal:?}: {:?}, {unavailable} times unavailable", stopped.elapsed());
    assert!(unavailable > 0);
    if signal == Signal::STOP {
        server.signal_one(before, Signal::CONT);
    }
    // A resumed primary considers itself one until the sentinels demote it: two locks, for a
    // moment.
    until("there is one primary", async || server.primaries() == 1).await;
    until("the other process has found it", async || try_lock(&there, "{a}").await.is_ok()).await;
    // Both receive messages there: a handoff costs no poll but the first.
    let held = here.lock("{a}").await;
    let waiter = crate::server::enqueue(server, &there, "{a}").await;
    held.release().await;
    waiter.await.unwrap().release().await;
}

#[test]
fn lock_survives_death_of_primary() {
    run(Topology::Sentinel, async |server| assert_lock_survives(server, Signal::KILL).await);
}

#[test]
fn lock_survives_hanging_primary() {
    run(Topology::Sentinel, async |server| assert_lock_survives(server, Signal::STOP).await);
}

//! Faults of a lock that only a Cluster or Sentinel has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_lock::{AcquireOutcome, Error, Redis, Released, Wait};
use rustix::process::Signal;

use crate::history::Rendezvous;
use crate::server::{Process, Server, TTL, everywhere, in_line, ping, run, until, wanted};
use crate::topology::Topology;

/// A key on each of the three primaries, in their order.
const APART: [&str; 3] = ["{b}", "{c}", "{a}"];
const MOMENT: Duration = Duration::from_millis(300);

everywhere!(key_without_hash_tag_gets_one, address_is_parsed_as_documented);

async fn key_without_hash_tag_gets_one(server: &Server) {
    let (here, there) = (server.process(), server.process());
    let held = here.take("plain").await;
    assert!(!there.finds_it_free("plain").await);
    assert_eq!(held.release().await, Released::Held);
    assert!(there.finds_it_free("plain").await);
}

/// With a user, and with a database where the shape has them.
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

#[test]
fn silent_pubsub_channel_is_kept() {
    run(Topology::Redis, async |server| {
        let process = server.process();
        process.take("{a}").await.release().await;
        let ears = || -> String { server.ask("CLIENT LIST TYPE pubsub") };
        let first = |list: &str| list.split(' ').next().unwrap_or("").to_owned();
        until("it listens", async || !ears().is_empty()).await;
        let before = ears();
        until("it asks whether anybody is there", async || ears().contains("cmd=ping")).await;
        let asked = ears();
        let age = |list: &str| list.split(" age=").nth(1)?.split(' ').next()?.parse::<u32>().ok();
        until("that was not the end of it", async || age(&ears()) > age(&asked)).await;
        assert_eq!(first(&ears()), first(&before), "the same connection");
    });
}

#[test]
fn keys_on_several_primaries_are_atomic() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process(), server.process());
        let AcquireOutcome::Acquired(all) = here.try_ask(&APART, Wait::Notify, TTL).await.unwrap()
        else {
            panic!("they are free")
        };
        for key in APART {
            assert!(!there.finds_it_free(key).await, "{key}");
        }
        let locks = server.ask_each::<i64>("EXISTS holdfast:lock:{b}").len();
        assert_eq!(locks, 1, "a key belongs to one primary");
        let keys: Vec<usize> = server.ask_each("DBSIZE");
        assert!(keys.iter().all(|keys| *keys >= 2), "each has a lock and its fence: {keys:?}");
        let held = here.0.held_locks().await.unwrap();
        assert_eq!(held.len(), 3, "all primaries are looked at: {held:?}");

        let mut askers = tokio::task::JoinSet::new();
        // Any two of three keys have one in common.
        let rendezvous = Arc::new(Rendezvous::default());
        for (number, process) in [&here, &there, &here, &there].into_iter().enumerate() {
            let (process, rendezvous) = (process.clone(), rendezvous.clone());
            let mut keys = APART;
            keys.rotate_left(number % 3);
            askers.spawn(async move {
                let took = process.try_ask(&keys[..2], Wait::Notify, TTL * 10).await.unwrap();
                let AcquireOutcome::Acquired(guards) = took else { panic!("{took:?}") };
                assert!(!rendezvous.meets(Duration::from_millis(20)).await, "two hold one key");
                assert_eq!(guards.release().await, Released::Held);
            });
        }
        assert_eq!(all.release().await, Released::Held);
        while let Some(asker) = askers.join_next().await {
            asker.unwrap();
        }
        until("nothing is left behind", async || server.keys_left().is_empty()).await;
    });
}

#[test]
fn silent_primary_delays_only_its_keys() {
    run(Topology::Cluster, async |server| {
        let (process, there) = (server.process(), server.process());
        for key in APART {
            let held = process.take(key).await;
            assert!(!there.finds_it_free(key).await, "{key}");
            held.release().await;
        }
        server.signal_one(2, Signal::STOP);
        let [first, second, silent] = APART;
        for _ in 0..3 {
            let asked = process.try_ask(&APART, Wait::Notify, TTL * 3).await;
            assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
            for key in [first, second] {
                let started = Instant::now();
                assert!(process.finds_it_free(key).await, "{key} was given back");
                assert!(started.elapsed() < MOMENT, "{:?}", started.elapsed());
            }
        }
        server.signal_one(2, Signal::CONT);
        until("it is served again", async || asked(&process, silent).await.is_ok()).await;
    });
}

#[test]
fn one_evicting_primary_is_reported() {
    run(Topology::Cluster, async |server| {
        let redis = Redis::open(server.url()).unwrap();
        assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("noeviction"));
        server.spoil();
        let _: String = server.ask_one(1, "CONFIG SET maxmemory-policy allkeys-lru").unwrap();
        assert_eq!(redis.eviction_policy().await.unwrap().as_deref(), Some("allkeys-lru"));
    });
}

#[test]
fn moved_slot_keeps_its_lock() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process(), server.process());
        let held = here.take("{a}").await;
        let on_its_way = Instant::now();
        move_slot(server, &["", ":fence"], async || {
            // Of several keys, some of which are not there, neither node will speak now.
            assert!(asked(&there, "{a}").await.is_err());
        })
        .await;
        let is_free = there.finds_it_free("{a}").await;
        assert!(!is_free || on_its_way.elapsed() > TTL / 2, "the holder keeps it there");
        let released = held.release().await;
        assert!(released == Released::Held || on_its_way.elapsed() > TTL / 2, "{released:?}");
        for process in [&here, &there] {
            assert_eq!(process.take("{a}").await.release().await, Released::Held);
        }
    });
}

#[test]
fn handoff_follows_a_moved_slot() {
    run(Topology::Cluster, async |server| {
        let (here, there) = (server.process_without_hurry(), server.process_without_hurry());
        let mut locks = Vec::new();
        for key in ["{a}", "{a}too"] {
            let held = here.take(key).await;
            let theirs = in_line(server, &there, key).await;
            wanted(&held, key).await;
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
async fn move_slot(server: &Server, ends: &[&str], before_they_all_know: impl AsyncFnOnce()) {
    const SLOT: u16 = 15_495;
    server.spoil();
    let [to, from] = [0, 2].map(|node| server.ask_one::<String>(node, "CLUSTER MYID").unwrap());
    let slot = |rest: &str| format!("CLUSTER SETSLOT {SLOT} {rest}");
    let _: String = server.ask_one(0, &slot(&format!("IMPORTING {from}"))).unwrap();
    let _: String = server.ask_one(2, &slot(&format!("MIGRATING {to}"))).unwrap();
    for end in ends {
        let key = format!("holdfast:lock:{{a}}{end}");
        let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 5000", server.port(0));
        let _: String = server.ask_one(2, &migrate).unwrap();
    }
    before_they_all_know().await;
    for node in [0, 2, 1] {
        let _: String = server.ask_one(node, &slot(&format!("NODE {to}"))).unwrap();
    }
}

/// The outcome, or an error of Redis within two seconds: of one that is away, or of a server that
/// refuses because a failover or a migration is in progress.
async fn asked(process: &Process, key: &str) -> Result<AcquireOutcome, Error> {
    let started = Instant::now();
    let asked = process.try_ask(&[key], Wait::Notify, Duration::from_secs(5)).await;
    if let Err(error) = &asked {
        assert!(matches!(error, Error::Unavailable(_) | Error::Refused(_)), "{error}");
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
    asked
}

/// The lock goes on with another primary; until then there are errors of Redis, and it is never
/// *busy*.
async fn survives(server: &Server, signal: Signal) {
    let (here, there) = (server.process(), server.process());
    for process in [&here, &there] {
        process.take("{a}").await.release().await;
    }
    let before = server.primary();
    server.signal_one(before, signal);
    let gone = Instant::now();
    let mut unavailable = 0;
    loop {
        match asked(&here, "{a}").await {
            Ok(AcquireOutcome::Acquired(guards)) => {
                guards.release().await;
                break;
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => unavailable += 1,
        }
        assert!(gone.elapsed() < Duration::from_secs(20), "in vain: another primary");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{signal:?}: {:?}, {unavailable} times unavailable", gone.elapsed());
    assert!(unavailable > 0 && gone.elapsed() < Duration::from_secs(10), "{:?}", gone.elapsed());
    if signal == Signal::STOP {
        server.signal_one(before, Signal::CONT);
    }
    // One that was away believes in itself until the sentinels tell it: two locks, for a moment.
    until("there is one primary", async || server.primaries() == 1).await;
    until("the other process has found it too", async || asked(&there, "{a}").await.is_ok()).await;
    // Both receive messages there: a handoff costs no poll but the first.
    let held = here.take("{a}").await;
    let waiter = crate::server::in_line(server, &there, "{a}").await;
    held.release().await;
    waiter.await.unwrap().release().await;
}

#[test]
fn lock_survives_death_of_primary() {
    run(Topology::Sentinel, async |server| survives(server, Signal::KILL).await);
}

#[test]
fn lock_survives_hanging_primary() {
    run(Topology::Sentinel, async |server| survives(server, Signal::STOP).await);
}

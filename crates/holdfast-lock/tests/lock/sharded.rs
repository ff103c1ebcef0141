//! Messages in a Cluster: on sharded channels, which only one node has, and on plain ones where
//! there are none.

use std::time::Duration;

use holdfast_lock::{Delivery, LockKey, Locks, Redis, Released, Settings};
use tokio::time::timeout;

use crate::server::{Process, Server, enqueue, run, until};
use crate::topology::Topology;

/// Of the third node.
const KEY: &str = "{a}";
const NODES: usize = 3;

/// The calls of a command on each node.
fn calls(server: &Server, command: &str) -> [u64; NODES] {
    std::array::from_fn(|node| {
        let stats: String = server.query_node(node, "INFO commandstats").unwrap();
        let line = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|text| text.strip_prefix(&line)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    })
}

/// The channels that have a subscriber, on each node.
fn sharded_channels(server: &Server) -> [usize; NODES] {
    let channels = |node| server.query_node::<Vec<String>>(node, "PUBSUB SHARDCHANNELS").unwrap();
    std::array::from_fn(|node| channels(node).len())
}

async fn hand_off(server: &Server, from: &Process, to: &Process) {
    let held = from.lock(KEY).await;
    let waiting = enqueue(server, to, KEY).await;
    assert_eq!(held.release().await, Released::Held);
    assert_eq!(waiting.await.unwrap().release().await, Released::Held);
}

async fn hand_off_both_ways(server: &Server, [here, there]: &[Process; 2]) {
    hand_off(server, here, there).await;
    hand_off(server, there, here).await;
}

#[test]
fn waiters_are_notified_by_one_node() {
    run(Topology::Cluster, async |server| {
        let processes = [server.process_with_long_times(), server.process_with_long_times()];
        // The first messages of a key come on the plain channels.
        until("both have subscribed", async || {
            hand_off_both_ways(server, &processes).await;
            sharded_channels(server) == [0, 0, 2]
        })
        .await;

        let plain = calls(server, "publish");
        let sharded = calls(server, "spublish");
        for _ in 0..5 {
            hand_off_both_ways(server, &processes).await;
        }
        assert_eq!(calls(server, "publish"), plain, "no other node hears of it");
        let after = calls(server, "spublish");
        assert_eq!(after[..2], sharded[..2]);
        // Each waiter is announced, and then granted the lock.
        assert!(after[2] >= sharded[2] + 20, "{sharded:?}, {after:?}");

        // Their end is noticed by the next message, which comes on the plain channel.
        let _: i64 = server.query_node(2, "CLIENT KILL TYPE pubsub").unwrap();
        until("both have subscribed again", async || {
            hand_off_both_ways(server, &processes).await;
            sharded_channels(server) == [0, 0, 2]
        })
        .await;
    });
}

/// As with Redis 6, which has no such commands.
#[test]
fn cluster_without_sharded_channels_uses_plain_ones() {
    run(Topology::Cluster, async |server| {
        server.mark_as_changed();
        let permissions = "~holdfast:* &holdfast:* +@all -spublish -ssubscribe";
        server.execute_on_all(&format!("ACL SETUSER shop on >word {permissions}"));
        let user = || crate::logins::process_of(server, "shop");
        let processes = [user(), user()];
        hand_off_both_ways(server, &processes).await;

        let plain: u64 = calls(server, "publish").iter().sum();
        hand_off_both_ways(server, &processes).await;
        let after: u64 = calls(server, "publish").iter().sum();
        assert!(after >= plain + 4, "{plain}, {after}");
        assert_eq!(sharded_channels(server), [0; NODES]);

        let mut inbox = processes[0].0.inbox("test");
        send_until_received(&processes[1].0, &processes[0].0, &mut inbox).await;
    });
}

#[test]
fn inbox_gets_messages_from_one_node() {
    run(Topology::Cluster, async |server| {
        let locks = || Locks::new(Redis::open(server.url()).unwrap(), Settings::default()).unwrap();
        let (here, there) = (locks(), locks());
        let mut inbox = here.inbox("test");
        send_until_received(&there, &here, &mut inbox).await;
        until("it has subscribed", async || sharded_channels(server).iter().sum::<usize>() == 1)
            .await;

        let plain = calls(server, "publish");
        for number in 0..5 {
            let sent = format!("message {number}");
            there.send_to_process(&here.process_id(), "test", &sent).await.unwrap();
            let received = timeout(Duration::from_secs(20), next_new(&mut inbox)).await;
            assert_eq!(received.unwrap(), sent);
        }
        assert_eq!(calls(server, "publish"), plain);

        // To the holder of a lock: by the node of its key.
        let key = LockKey::new(KEY).unwrap();
        let held = here.lock(&key).await.unwrap();
        let lease = held.lease_id();
        let send = async |message: &str| {
            let sent = there.send_to_holder(&key, &lease, "test", message).await.unwrap();
            assert_eq!(sent, Delivery::Published);
        };
        until("it has subscribed for the key", async || {
            send("first").await;
            inbox.next().await;
            sharded_channels(server)[2] >= 1 && sharded_channels(server).iter().sum::<usize>() == 2
        })
        .await;
        let plain = calls(server, "publish");
        send("for the holder").await;
        let received = timeout(Duration::from_secs(20), next_new(&mut inbox)).await;
        assert_eq!(received.unwrap(), "for the holder");
        assert_eq!(calls(server, "publish"), plain);
        held.release().await;
    });
}

/// What is sent before the inbox has subscribed is lost.
async fn send_until_received(from: &Locks, to: &Locks, inbox: &mut holdfast_lock::Inbox) {
    until("a message arrives", async || {
        from.send_to_process(&to.process_id(), "test", "first").await.unwrap();
        timeout(Duration::from_millis(50), inbox.next()).await.is_ok()
    })
    .await;
}

async fn next_new(inbox: &mut holdfast_lock::Inbox) -> String {
    let new = async {
        loop {
            let message = inbox.next().await;
            if message != "first" {
                return message;
            }
        }
    };
    timeout(Duration::from_secs(20), new).await.expect("a new message arrives")
}

/// Those of the README; `documented_permissions_are_enough` has the shop's.
#[test]
fn documented_permissions_are_enough_in_a_cluster() {
    run(Topology::Cluster, async |server| {
        server.mark_as_changed();
        let mut quoted = include_str!("../../README.md").split('`');
        let permissions = quoted.find(|text| text.starts_with("~PREFIX* ")).unwrap();
        let permissions = permissions.replace("PREFIX", &Settings::default().key_prefix);
        server.execute_on_all(&format!("ACL SETUSER shop on >word {permissions}"));

        let user = || crate::logins::process_of(server, "shop");
        let processes = [user(), user()];
        until("both have subscribed", async || {
            hand_off_both_ways(server, &processes).await;
            sharded_channels(server) == [0, 0, 2]
        })
        .await;
        let refused = server.query_each::<Vec<redis::Value>>("ACL LOG").concat();
        assert!(refused.is_empty(), "{refused:?}");
    });
}

//! `batched` on several replicas: commands go to the replica that holds the item's lease. While it
//! is killed, paused or cut off, and while Redis loses its data, none is executed twice, and each
//! client learns what became of its order.

use std::collections::HashSet;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::{Either, join_all, select};
use holdfast_checker::ObservedOutcome;
use holdfast_testkit::barrier::own_redis;
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::pause_points::PausedCall;
use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::topology::{self, Topology};
use holdfast_testkit::{Call, Reply, TestShop, User, fresh_key, services, until};

use crate::batched_faults::REQUEST_TIMEOUT;
use crate::metrics::{metrics, value};

const STOCK: i64 = 100;
/// The orders at replica 1, which forwards them.
const FORWARDED: usize = 10;

pub async fn forwarded(shop: &TestShop, replica: usize, result: &str) -> f64 {
    let line = format!("holdfast_forwarded_commands_total{{result=\"{result}\"}}");
    value(&metrics(shop, replica).await, &line).unwrap_or(0.0)
}

pub async fn unanswered(shop: &TestShop, replica: usize) -> f64 {
    let metrics = metrics(shop, replica).await;
    value(&metrics, "holdfast_forwarded_commands_waiting").unwrap_or(0.0)
}

/// Orders at both replicas at the same time.
async fn order_at_both(alice: &User, sku: &str, orders: usize) -> Vec<Reply> {
    join_all((0..orders).map(|n| alice.at(n % 2).orders(sku, 1).send())).await
}

#[tokio::test]
async fn commands_go_to_the_replica_with_the_lease() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let mut executed_elsewhere = 0;
    until("orders are executed by another replica", async || {
        for (n, reply) in order_at_both(&alice, &sku, 40).await.into_iter().enumerate() {
            let is_elsewhere = reply.header("holdfast-replica") != shop.replicas[n % 2].name();
            executed_elsewhere += i32::from(is_elsewhere);
            reply.succeeds(201);
        }
        executed_elsewhere > 20
    })
    .await;
    let counted = forwarded(&shop, 0, "executed").await + forwarded(&shop, 1, "executed").await;
    assert!(counted >= f64::from(executed_elsewhere), "{counted} of {executed_elsewhere}");
    shop.assert_sound().await;
}

#[tokio::test]
async fn forwarded_commands_are_rejected_and_replayed_as_others() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let keys: Vec<String> = (0..40).map(|_| fresh_key()).collect();
    until("rejections are another replica's", async || {
        let sku = shop.lab_item(10).await;
        let each = keys.iter().enumerate();
        let orders = each.map(|(n, _)| alice.at(n % 2).orders(&sku, 1).key(&fresh_key()).send());
        let replies = join_all(orders).await;
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 10);
        for reply in replies.into_iter().filter(|reply| reply.status != 201) {
            assert_eq!(reply.fails(409, "sold-out")["requested"], 1);
        }
        forwarded(&shop, 0, "rejected").await + forwarded(&shop, 1, "rejected").await > 0.0
    })
    .await;

    // Of the duplicates at both replicas, one is executed.
    let sku = shop.shop_item(1_000, 100).await;
    for _ in 0..2 {
        let orders = keys.iter().flat_map(|key| {
            (0..2).map(|at| alice.at(at).orders(&sku, 1).key(key).send()).collect::<Vec<_>>()
        });
        for reply in join_all(orders.collect::<Vec<_>>()).await {
            if reply.status != 201 {
                reply.fails(409, "idempotency-key-in-flight");
            }
        }
    }
    assert_eq!(shop.item_audit(&sku).await["sold"], 40);
    shop.assert_sound().await;
}

/// Pauses an order of replica 0 under the item's lease for four seconds, sends orders to replica 1,
/// which forwards them, and lets `fault` happen. Each client asks until it knows the outcome.
async fn check_fault(shop: &TestShop, running: usize, fault: impl AsyncFnOnce()) {
    let observer = RequestRecorder::of(shop).await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(STOCK, 100).await;
    let lines = [(sku.as_str(), 1)];
    let buy = async |n: usize, pause: Option<&str>| {
        let key = fresh_key();
        let with_pause = |it: Call| match pause {
            Some(point) => it.pause(point),
            None => it,
        };
        let outcome = observer.place(n, &key, &lines, with_pause, Some(REQUEST_TIMEOUT)).await;
        if !matches!(outcome, ObservedOutcome::Done { .. }) {
            observer.buy(n + 3, &key, &lines, REQUEST_TIMEOUT).await;
        }
    };

    let mut holder = Box::pin(buy(0, Some("read:4000")));
    let paused = pin!(shop.until_one_is_paused(&admin, "read"));
    let Either::Right(_) = select(&mut holder, paused).await else { panic!("it was not paused") };
    let others = join_all((0..FORWARDED).map(|n| buy(2 * n + 1, None)));
    let fault = async {
        until("orders are forwarded", async || unanswered(shop, 1).await >= 1.0).await;
        fault().await;
    };
    futures_util::join!(holder, others, fault);

    assert_eq!(orders(shop).await, FORWARDED as i64 + 1);
    observer.assert_consistent(running, &[&sku]).await;
}

async fn orders(shop: &TestShop) -> i64 {
    shop.number("select count(*) from orders").await
}

async fn until_others_are_sold(shop: &TestShop) {
    until("the other replica sells", async || orders(shop).await >= FORWARDED as i64).await;
}

#[tokio::test]
async fn killed_holder_loses_no_forwarded_command() {
    let shop = TestShop::start(2).await;
    check_fault(&shop, 1, async || shop.replicas[0].send_kill()).await;
}

#[tokio::test]
async fn paused_holder_executes_no_command_twice() {
    let shop = TestShop::start(2).await;
    let pause = async || {
        shop.replicas[0].pause();
        until_others_are_sold(&shop).await;
        shop.replicas[0].resume();
    };
    check_fault(&shop, 1, pause).await;
}

#[tokio::test]
async fn duplicate_without_an_answer_is_a_replay() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    until("a duplicate is forwarded", async || {
        let sku = shop.shop_item(STOCK, 100).await;
        let key = fresh_key();
        let first = alice.at(1).orders(&sku, 1).key(&key).send().await;
        let holder = shop.pause(&admin, admin.at(0).orders(&sku, 1), "read").await;

        let duplicate = alice.at(1).orders(&sku, 1).key(&key).send();
        until("it is forwarded, or answered", async || {
            duplicate.is_finished() || unanswered(&shop, 1).await >= 1.0
        })
        .await;
        if duplicate.is_finished() {
            // Redis took so long to name the holder that replica 1 looked up the key meanwhile.
            shop.resume(&admin, holder).await.succeeds(201);
            duplicate.await.replays(&first);
            return false;
        }

        shop.replicas[0].pause();
        let duplicate = duplicate.await;
        shop.replicas[0].resume();
        // If it is not paused any more, its time was over.
        shop.resume_request(&admin, 0, &holder.id).await;
        holder.sent.await;
        assert_eq!(forwarded(&shop, 1, "resolved").await, 1.0);
        duplicate.replays(&first);
        true
    })
    .await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_without_redis_executes_no_command_twice() {
    let redis = proxy::to_redis().await;
    let mut shop = TestShop::without_replicas().await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    shop.add_replica(&[("REDIS_URL", url.as_str())]);
    shop.add_replica(&[]);
    let cut = async || {
        redis.set(Traffic::Withheld);
        until_others_are_sold(&shop).await;
        redis.set(Traffic::Forwarded);
    };
    check_fault(&shop, 1, cut).await;
}

#[tokio::test]
async fn redis_that_loses_its_data_loses_no_forwarded_command() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let flush = async || {
        let _: String = topology::query(&redis.url, "FLUSHALL").unwrap();
    };
    check_fault(&shop, 1, flush).await;
}

#[tokio::test]
async fn replica_that_forwards_and_dies_loses_no_command() {
    let shop = TestShop::start(2).await;
    check_fault(&shop, 0, async || shop.replicas[1].send_kill()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_forwarded_in_cluster_and_behind_sentinels() {
    for topology in [Topology::Cluster, Topology::Sentinel] {
        let redis = tokio::task::spawn_blocking(move || topology::start(topology)).await.unwrap();
        let redis = redis.expect("redis-server is installed");
        let shop = TestShop::start_with(2, &[("REDIS_URL", redis.url.as_str())]).await;
        let alice = shop.sign_in("alice").await;
        let sku = shop.shop_item(1_000_000, 100).await;
        until("orders are forwarded", async || {
            for reply in order_at_both(&alice, &sku, 40).await {
                reply.succeeds(201);
            }
            forwarded(&shop, 0, "executed").await + forwarded(&shop, 1, "executed").await > 0.0
        })
        .await;
        shop.assert_sound().await;
    }
}

/// Waits until a process waits for the lock of the item that another one has.
async fn until_item_is_awaited(shop: &TestShop, admin: &User, sku: &str) {
    let key = format!("{}lock:{{sku:{sku}}}", shop.prefix);
    until("the item's lock is awaited", async || {
        let locks = admin.reads("/api/locks").await;
        let held = locks.as_array().unwrap().iter().find(|lock| lock["key"] == key);
        held.is_some_and(|held| held["waiting"] == 1)
    })
    .await;
}

#[tokio::test]
async fn command_without_a_leader_gets_no_orders() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    let single = alice.at(0).orders(&sku, 1).lock("fenced");
    let holder = shop.pause(&admin, single, "read").await;

    let order = alice.at(1).orders(&sku, 1).send();
    until_item_is_awaited(&shop, &admin, &sku).await;
    shop.resume(&admin, holder).await.succeeds(201);
    let reply = order.await;
    assert_eq!(reply.header("holdfast-replica"), shop.replicas[1].name());
    reply.succeeds(201);
    assert_eq!(forwarded(&shop, 1, "returned").await, 0.0);
    shop.assert_sound().await;
}

/// An order is forwarded; then a command of its replica needs the lease, and the next order waits
/// behind that. A leader that has held the lease for a second executes nothing more.
#[tokio::test]
async fn accepted_order_is_executed_before_others_get_the_lease() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let waiting = "holdfast_lock_waiting_requests{strategy=\"batched\"}";
    until("nothing comes back", async || {
        let returned = forwarded(&shop, 1, "returned").await;
        let sku = shop.lab_item(STOCK).await;
        let holder = shop.pause(&admin, alice.at(0).orders(&sku, 1), "read").await;
        let first = alice.at(1).orders(&sku, 1).send();
        until("it is forwarded", async || unanswered(&shop, 1).await >= 1.0).await;

        let single = alice.at(1).orders(&sku, 1).lock("fenced").send();
        until_item_is_awaited(&shop, &admin, &sku).await;
        let second = alice.at(1).orders(&sku, 1).send();
        until("it waits for the lease itself", async || {
            value(&metrics(&shop, 1).await, waiting) == Some(1.0)
        })
        .await;

        shop.resume(&admin, holder).await.succeeds(201);
        for order in [first, single, second] {
            order.succeeds(201).await;
        }
        forwarded(&shop, 1, "returned").await == returned
    })
    .await;
    shop.assert_sound().await;
}

/// Redis loses the lease of a batch with a forwarded order, whose key the holder has locked. The
/// replica that forwarded it executes it, as the former holder cannot write it any more.
#[tokio::test]
async fn key_lock_of_a_former_holder_rejects_no_forwarded_order() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let redis = &services().running.redis_url;
    let user = shop.user_id("alice").await.0;
    until("a batch of the holder has the order", async || {
        let sku = shop.lab_item(STOCK).await;
        let first = shop.pause(&admin, alice.at(0).orders(&sku, 1), "read").await;
        // Both wait for the next batch, in which one is paused.
        let (id, replica) = (fresh_key(), 0);
        let order = alice.at(replica).orders(&sku, 1).header("X-Request-Id", &id);
        let beside = PausedCall { sent: order.pause("read").send(), id, replica };
        let key = fresh_key();
        let order = alice.at(1).orders(&sku, 1).key(&key).send();
        until("it is forwarded", async || unanswered(&shop, 1).await >= 1.0).await;
        shop.resume(&admin, first).await.succeeds(201);
        shop.until_paused(&admin, replica, &beside.id, "read").await;

        let locked = format!("EXISTS {}token:{{{user}:{key}}}", shop.prefix);
        let locked: i64 = topology::query(redis, &locked).unwrap();
        if locked == 0 || unanswered(&shop, 1).await == 0.0 {
            // It came before that batch, or behind it.
            shop.resume(&admin, beside).await.succeeds(201);
            order.succeeds(201).await;
            return false;
        }

        let lost = format!("DEL {}lock:{{sku:{sku}}}", shop.prefix);
        let lost: i64 = topology::query(redis, &lost).unwrap();
        assert_eq!(lost, 1);
        order.succeeds(201).await;
        shop.resume(&admin, beside).await.fails(503, "lock-lost");
        true
    })
    .await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_arrives_twice_is_accepted_once() {
    let (shop, server) = TestShop::with_own_redis().await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let client = redis::Client::open(server.url.as_str()).unwrap();
    let mut publisher = client.get_multiplexed_async_connection().await.unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.psubscribe("*mail:*").await.unwrap();
    let repeat = async {
        let mut messages = subscriber.on_message();
        let mut repeated: HashSet<String> = HashSet::new();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload().unwrap();
            // What this test has published comes too.
            if repeated.insert(text.clone()) {
                let mut publish = redis::cmd("PUBLISH");
                publish.arg(message.get_channel_name()).arg(text);
                let _: i64 = publish.query_async(&mut publisher).await.unwrap();
            }
        }
    };

    let mut placed = 0;
    let place = until("orders are forwarded", async || {
        for reply in order_at_both(&alice, &sku, 40).await {
            reply.succeeds(201);
        }
        placed += 40;
        forwarded(&shop, 0, "executed").await + forwarded(&shop, 1, "executed").await > 100.0
    });
    let Either::Left(_) = select(pin!(place), pin!(repeat)).await else { panic!("it ended") };
    assert_eq!(orders(&shop).await, placed);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_would_miss_the_answers_forwards_nothing() {
    let redis = own_redis().await;
    let deaf = "ACL SETUSER deaf on >word ~* &* +@all -subscribe";
    let _: String = topology::query(&redis.url, deaf).unwrap();
    let mut shop = TestShop::without_replicas().await;
    shop.add_replica(&[("REDIS_URL", redis.url.as_str())]);
    let url = format!("{}?user=deaf&pass=word", redis.url);
    shop.add_replica(&[("REDIS_URL", url.as_str())]);
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    for _ in 0..3 {
        for reply in order_at_both(&alice, &sku, 40).await {
            reply.succeeds(201);
        }
    }
    for result in ["executed", "rejected", "returned", "resolved", "unknown"] {
        assert_eq!(forwarded(&shop, 1, result).await, 0.0, "{result}");
    }
    shop.assert_sound().await;
}

//! Unpaid orders: each expires exactly once, despite killed replicas and a flushed Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use holdfast_shop::jobs::order_expiry::failures;
use holdfast_shop::jobs::purge::{PurgeLimits, purge};
use holdfast_shop::{OrderId, RequestContext, Strategy, engine};
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::topology::query;
use holdfast_testkit::{TestShop, assert_has, id_of, services, until};
use serde_json::json;
use uuid::Uuid;

use crate::metrics::{metrics, value};

/// Short leases, as a killed replica blocks its locks for one.
const SHORT_LEASE: (&str, &str) = ("HOLDFAST_LOCK_TTL_MS", "1000");
/// Runs the expiry worker.
pub const JOBS_ON: (&str, &str) = ("HOLDFAST_JOBS", "on");

#[tokio::test(flavor = "multi_thread")]
async fn unpaid_orders_expire() {
    let shop = TestShop::start_with(2, &[JOBS_ON, ("HOLDFAST_PAY_WITHIN_S", "1")]).await;
    let alice = shop.promoted("alice").await;
    let ring = alice.orders("key-ring", 2).ok().await;
    alice.at(1).orders_all(&[("key-ring", 1), ("deadbolt", 3)]).ok().await;

    shop.until_no_order_is_pending().await;
    assert_eq!(shop.stock("key-ring").await, 300);
    assert_eq!(shop.stock("deadbolt").await, 40);
    assert_eq!(shop.expiry_entries().await, 3);
    let early = "select count(*) from stock_ledger e join orders o on o.id = e.order_id
                  where e.reason = 'expiry' and e.at < o.expires_at";
    assert_eq!(shop.number(early).await, 0, "not before their time");

    let expired = alice.order(&ring).await;
    assert_has(&expired, json!({ "status": "cancelled", "expired": true }));
    let listed = alice.reads("/api/orders").await;
    let mut orders = listed["items"].as_array().unwrap().iter();
    assert!(orders.all(|order| order["expired"] == true), "{listed}");
    alice.pays(&ring).fails(409, "order-expired").await;
    alice.cancels(&ring).fails(409, "order-state").await;
    shop.assert_sound().await;
}

/// Kills the worker of one replica at that point; the other's follows.
async fn check_kill_at(mut shop: TestShop, point: &str) {
    let alice = shop.promoted("alice").await;
    shop.configure_worker(0, json!({ "rest_ms": 30_000 })).await;
    shop.configure_worker(1, json!({ "pause": point })).await;
    let order = shop.place_expiring_order(&alice, 0, "deadbolt", 1).await;
    shop.until_worker_paused(1, point).await;
    let lease = format!("PTTL {}lock:{{sku:deadbolt}}", shop.prefix);
    let lease: i64 = query(&services().running.redis_url, &lease).unwrap();
    let locked = ["held", "read", "write", "commit", "committed"].contains(&point);
    // On a busy machine it may have ended before its renewal.
    assert!(lease <= if locked { 1_000 } else { -2 }, "{point}: {lease}");
    shop.replicas[1].kill();
    shop.configure_worker(0, json!({ "rest_ms": 0 })).await;
    until("the other worker has followed", async || {
        alice.order(&order).await["status"] == "cancelled"
    })
    .await;
    // The other worker has passed all that was due before.
    shop.place_expiring_order(&alice, 0, "key-ring", 1).await;
    shop.until_no_order_is_pending().await;
    assert_eq!(shop.expiry_entries().await, 2, "{point}");
    assert_eq!(shop.stock("deadbolt").await, 40, "{point}");
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_survives_kill_before_commit() {
    let points = ["claimed", "wait", "held", "read", "write", "commit"];
    TestShop::check_each(points, &[JOBS_ON, SHORT_LEASE], check_kill_at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_after_commit_expires_order_once() {
    let points = ["committed", "release"];
    TestShop::check_each(points, &[JOBS_ON, SHORT_LEASE], check_kill_at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_many_items_expire_after_flush() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let alice = shop.promoted("alice").await;
    let mut orders = Vec::new();
    for _ in 0..8 {
        let sku = shop.lab_item(10).await;
        for replica in [0, 1, 0] {
            let order = shop.place_expiring_order(&alice, replica, &sku, 1).await.parse().unwrap();
            orders.push((OrderId(order), vec![(sku.clone().try_into().unwrap(), 1)]));
        }
    }
    query::<String>(&redis.url, "FLUSHALL").unwrap();
    let here = shop.in_process_with_redis("batched", &redis.url);
    let conditions = RequestContext::new(&here, Uuid::new_v4());
    let all: BTreeSet<OrderId> = orders.iter().map(|(order, _)| *order).collect();
    // One that was paid after it was found to be due.
    let paid = id_of(&alice.orders("key-ring", 1).ok().await);
    alice.pays(&paid).succeeds(200).await;
    let due = "update orders set expires_at = now() where status = 'paid'";
    sqlx::query(due).execute(&shop.pool).await.unwrap();
    orders.push((
        OrderId(paid.parse().unwrap()),
        vec![("key-ring".to_owned().try_into().unwrap(), 1)],
    ));
    let expired = engine::expire_orders(&here, &conditions, orders).await.unwrap();
    assert_eq!(expired, all);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_at_a_time_reads_the_queue() {
    let shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let lease = async || {
        let lease = "select holder, lease_until::text from expiry_lease";
        sqlx::query_as::<_, (Uuid, String)>(lease).fetch_one(&shop.pool).await.unwrap()
    };
    until("a worker has the lease", async || {
        let held = "select count(*) from expiry_lease where lease_until > clock_timestamp()";
        shop.number(held).await == 1
    })
    .await;
    let mut last = lease().await;
    let holder = last.0;
    for _ in 0..4 {
        until("the lease is renewed", async || lease().await.1 != last.1).await;
        last = lease().await;
        assert_eq!(last.0, holder);
    }
    let alice = shop.promoted("alice").await;
    let mut holders = Vec::new();
    for replica in 0..2 {
        shop.configure_worker(replica, json!({ "rest_ms": 30_000 })).await;
        shop.place_expiring_order(&alice, 0, "key-ring", 1).await;
        shop.until_no_order_is_pending().await;
        holders.push(lease().await.0);
        shop.configure_worker(replica, json!({ "rest_ms": 0 })).await;
    }
    assert_ne!(holders[0], holders[1], "each time the other worker was at rest");
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_order_is_parked_alone() {
    let shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let alice = shop.promoted("alice").await;
    let (good, bad) = (shop.lab_item(100).await, shop.lab_item(100).await);
    for replica in 0..2 {
        shop.configure_worker(replica, json!({ "rest_ms": 30_000 })).await;
    }
    let poisoned = shop.place_expiring_order(&alice, 0, &bad, 1).await;
    join_all((0..20).map(|n| shop.place_expiring_order(&alice, n % 2, &good, 1))).await;
    // At the maximum of the stock, no unit can be returned.
    let fill = "update items set stock = 2000000000 where sku = $1";
    sqlx::query(fill).bind(&bad).execute(&shop.pool).await.unwrap();
    for replica in 0..2 {
        shop.configure_worker(replica, json!({ "rest_ms": 0 })).await;
    }
    until("the other orders have expired", async || shop.expiry_entries().await == 20).await;
    let here = shop.in_process("batched");
    let failed = async || failures::list(&here, 10).await.unwrap();
    until("the failure is recorded", async || failed().await.len() == 1).await;
    // Skips to the last attempt: waiting for all of them takes a quarter of an hour.
    let almost = "update unpaid_failures set attempts = 9, next_at = now()";
    sqlx::query(almost).execute(&shop.pool).await.unwrap();
    until("it is parked", async || failed().await[0].next_at.is_none()).await;
    let failure = failed().await.swap_remove(0);
    assert_eq!((failure.attempts, failure.order.to_string()), (10, poisoned.clone()));
    assert!(failure.cause.contains("items_stock_range"), "{}", failure.cause);

    let mend = "update items set stock = 99 where sku = $1";
    sqlx::query(mend).bind(&bad).execute(&shop.pool).await.unwrap();
    let admin = shop.sign_in("admin").await;
    let shown = &admin.reads("/api/jobs").await["unpaid"];
    assert_eq!((&shown["due"], &shown["failures"][0]["order"]), (&json!(1), &json!(poisoned)));
    let again =
        async |order: &str| admin.post(&format!("/api/jobs/expiry/{order}/retry")).await.status;
    assert_eq!(again(&Uuid::now_v7().to_string()).await, 404);
    assert_eq!(again(&poisoned).await, 204);
    shop.until_no_order_is_pending().await;
    assert_eq!(shop.stock(&bad).await, 100);
    assert_eq!(purge(&here.pool, &PurgeLimits::default()).await.purged["failures"], 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_row_is_restored() {
    let shop = TestShop::start_with(1, &[JOBS_ON]).await;
    let alice = shop.promoted("alice").await;
    let sku = shop.lab_item(1).await;
    shop.execute("delete from expiry_lease").await;
    shop.place_expiring_order(&alice, 0, &sku, 1).await;
    shop.until_no_order_is_pending().await;
    assert_eq!(shop.number("select count(*) from expiry_lease").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_item_delays_no_other_item() {
    let shop = TestShop::start_with(2, &[JOBS_ON]).await;
    let alice = shop.promoted("alice").await;
    let (stuck, free) = (shop.shop_item(500, 100).await, shop.shop_item(500, 100).await);
    // Half of them are due while an idle transaction has locked the item's row.
    stream::iter(0..200)
        .for_each_concurrent(16, |n| {
            let (shop, alice, stuck) = (&shop, &alice, &stuck);
            async move {
                shop.place_expiring_order(alice, n % 2, stuck, 1_500).await;
            }
        })
        .await;
    let mut idle = shop.pool.begin().await.unwrap();
    let lock = "select from items where sku = $1 for update";
    sqlx::query(lock).bind(&stuck).execute(&mut *idle).await.unwrap();
    join_all((0..20).map(|n| shop.place_expiring_order(&alice, n % 2, &free, 1_500))).await;
    let expired = async |sku: &str| {
        let count = "select count(*) from stock_ledger where reason = 'expiry' and sku = $1";
        sqlx::query_scalar::<_, i64>(count).bind(sku).fetch_one(&shop.pool).await.unwrap()
    };
    until("the other orders have expired", async || expired(&free).await == 20).await;
    assert!(expired(&stuck).await < 200, "the item was locked");
    idle.rollback().await.unwrap();
    shop.until_no_order_is_pending().await;
    assert_eq!((expired(&stuck).await, shop.stock(&stuck).await), (200, 500));
    shop.assert_sound().await;
}

/// Two items with one due order each share a transaction, whose wait for the lock of one delays the
/// other. It is shorter than that of an order, which began before it and waits still.
#[tokio::test(flavor = "multi_thread")]
async fn locked_item_delays_its_transaction_less_than_a_lock_timeout() {
    let shop = TestShop::start_with(1, &[JOBS_ON]).await;
    let alice = shop.promoted("alice").await;
    let (stuck, free) = (shop.shop_item(50, 100).await, shop.shop_item(50, 100).await);
    shop.configure_worker(0, json!({ "rest_ms": 30_000 })).await;
    join_all([&stuck, &free].map(|sku| shop.place_expiring_order(&alice, 0, sku, 1_000))).await;

    let lock = Barrier::before_item(&shop, &stuck).await;
    let waiting = alice.orders(&stuck, 1).lock("fenced").send();
    until("an order waits for the lock", async || {
        let waiters = "holdfast_lock_waiting_requests{strategy=\"fenced\"}";
        value(&metrics(&shop, 0).await, waiters) == Some(1.0)
    })
    .await;
    let early = "select count(*) from orders where expires_at > now()";
    until("both are due", async || shop.number(early).await == 0).await;
    shop.configure_worker(0, json!({ "rest_ms": 0 })).await;
    until("the other item's order has expired", async || shop.expiry_entries().await == 1).await;
    assert!(!waiting.is_finished(), "it has expired before the timeout of a lock");
    assert_eq!((shop.stock(&free).await, shop.stock(&stuck).await), (50, 49));

    lock.open().await;
    waiting.ok().await;
    until("both have expired", async || shop.expiry_entries().await == 2).await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_time_of_shop_items_is_bounded() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_PAY_WITHIN_S", "60")]).await;
    let alice = shop.promoted("alice").await;
    let place =
        |sku: &str, hold_ms: u64| alice.orders(sku, 1).header("Holdfast-Pay-Within-Ms", hold_ms);
    place("deadbolt", 60_001).fails(403, "forbidden").await;
    place("deadbolt", 60_000).succeeds(201).await;
    let lab = shop.lab_item(5).await;
    place(&lab, 3_600_000).succeeds(201).await;
    place(&lab, 3_600_001).fails(422, "invalid-request").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_expire_under_every_strategy() {
    let strategies = Strategy::names();
    // `units` and `pre-deduct` are of no server.
    let is_left_out = |name: &&str| ["redlock", "units", "pre-deduct"].contains(name);
    let strategies: Vec<&str> = strategies.split(", ").filter(|name| !is_left_out(name)).collect();
    assert!(strategies.len() > 15, "{strategies:?}");
    stream::iter(strategies)
        .for_each_concurrent(4, |strategy| async move {
            let shop =
                TestShop::start_with(1, &[JOBS_ON, SHORT_LEASE, ("HOLDFAST_LOCK", strategy)]).await;
            let alice = shop.promoted("alice").await;
            let skus = ["deadbolt", "key-ring"];
            join_all(skus.map(|sku| shop.place_expiring_order(&alice, 0, sku, 1))).await;
            shop.until_no_order_is_pending().await;
            assert_eq!(shop.expiry_entries().await, 2, "{strategy}");
            shop.assert_sound().await;
        })
        .await;
}

/// A thousand orders, with kills and flushes while they expire. A flush also deletes the claims and
/// locks of a killed worker, so one worker is killed without a flush.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_orders_expire_once_under_faults() {
    let (mut shop, redis) = TestShop::with_own_redis_and(&[JOBS_ON, SHORT_LEASE]).await;
    let alice = shop.promoted("alice").await;
    let mut skus = vec![shop.shop_item(2_000, 100).await];
    for _ in 0..9 {
        skus.push(shop.shop_item(200, 100).await);
    }
    let began = Instant::now();
    stream::iter(0..1_000)
        .for_each_concurrent(32, |n: usize| {
            // Every other one is of the hot item.
            let sku = if n.is_multiple_of(2) { &skus[0] } else { &skus[1 + n % 9] };
            let (shop, alice) = (&shop, &alice);
            async move {
                shop.place_expiring_order(alice, n % 2, sku, 4_000).await;
            }
        })
        .await;
    let placing = began.elapsed().as_secs_f64();
    let env = [JOBS_ON, SHORT_LEASE, ("REDIS_URL", redis.url.as_str())];
    for (share, flush) in [(200, true), (400, false), (600, true)] {
        until(&format!("{share} have expired"), async || shop.expiry_entries().await >= share)
            .await;
        if flush {
            query::<String>(&redis.url, "FLUSHALL").unwrap();
        }
        shop.replicas[1].kill();
        shop.replicas.truncate(1);
        shop.add_replica(&env);
    }
    shop.until_no_order_is_pending().await;
    assert_eq!(shop.expiry_entries().await, 1_000);
    for (at, sku) in skus.iter().enumerate() {
        assert_eq!(shop.stock(sku).await, if at == 0 { 2_000 } else { 200 });
    }
    shop.assert_sound().await;
    let late: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from e.at - o.expires_at)::float8 from stock_ledger e
           join orders o on o.id = e.order_id where e.reason = 'expiry' order by 1",
    )
    .fetch_all(&shop.pool)
    .await
    .unwrap();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    let percentiles: BTreeMap<&str, f64> =
        [("p50", at(0.5)), ("p90", at(0.9)), ("p99", at(0.99)), ("longest", at(1.0))].into();
    println!("seconds late: {percentiles:.2?}; placed in {placing:.1} s");
    assert!(late[0] >= 0.0, "none before its time");
    // One or two seconds on an idle machine. An order expires about as fast as it is placed, so a
    // busy machine has as many times more for both.
    let longest = f64::max(10.0, 3.0 * placing);
    assert!(at(0.5) < longest / 2.0 && at(1.0) < longest, "{percentiles:.2?}, {placing:.1} s");
}

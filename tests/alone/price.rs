//! The cost of `batched`: reads of Redis and transactions of Postgres per order, and the cost of a
//! rejection as sold out.
//!
//! Other tests at the same time would make batches smaller and orders more expensive.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_checker::ObservedOutcome;
use holdfast_services::load::{self, LoadClient, LoadPlan, Posts};
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::topology::{command_calls, query};
use holdfast_testkit::{TestShop, fresh_key, options, until};
use sqlx::{Connection as _, PgConnection};

use crate::whole_machine;

const CONNECTIONS: usize = 128;
const ORDERS: usize = 25 * CONNECTIONS;
/// Upper bounds per order: reads of Redis, and writing transactions of Postgres. One of two
/// replicas forwards its orders to the other, in a message per batch, and each has an answer.
const MAX_COST: (f64, f64) = (0.25, 0.07);
/// Reads of Redis per writing transaction: those of a batch, its messages and its answers.
const MAX_READS_PER_WRITE: f64 = 4.0;
/// What else runs on the machine makes an order dearer, never cheaper: one low cost suffices.
const MAX_MEASUREMENTS: usize = 3;

/// The resources that a shop has used since its start.
#[derive(Debug, Clone)]
struct Usage {
    at: Instant,
    /// Reads from sockets by Redis (`total_reads_processed`).
    reads: f64,
    writes: f64,
    /// Rows written, also by transactions that were rolled back.
    rows: f64,
    /// Calls by command, in scripts too.
    calls: BTreeMap<String, u64>,
}

impl Usage {
    /// Reads the counters of the shop's database and of its own Redis. Ends the sessions in
    /// Postgres: otherwise they report their counters up to ten seconds late.
    async fn by(shop: &TestShop, redis: &str) -> Self {
        let mut admin = PgConnection::connect_with(&options()).await.unwrap();
        until("the sessions have ended", async || {
            let sessions: i64 = sqlx::query_scalar(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1",
            )
            .bind(&shop.database)
            .fetch_one(&mut admin)
            .await
            .unwrap();
            sessions == 0
        })
        .await;
        let (writes, rows): (i64, i64) = sqlx::query_as(
            // Each transaction that writes has taken one number.
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                    tup_inserted + tup_updated + tup_deleted
               from pg_stat_database where datname = $1",
        )
        .bind(&shop.database)
        .fetch_one(&mut admin)
        .await
        .unwrap();
        admin.close().await.unwrap();
        let stats: String = query(redis, "INFO stats").unwrap();
        let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        let reads = reads.unwrap().trim().parse().unwrap();
        Self {
            at: Instant::now(),
            reads,
            writes: writes as f64,
            rows: rows as f64,
            calls: command_calls(redis),
        }
    }
}

/// The cost of one order, as an average of [`ORDERS`].
#[derive(Debug)]
struct OrderCost {
    reads: f64,
    writes: f64,
}

impl OrderCost {
    /// Returns the cost between two readings, less what the shop uses while it is idle.
    fn between(idle: [&Usage; 2], before: &Usage, after: &Usage) -> Self {
        let share = (after.at - before.at).div_duration_f64(idle[1].at - idle[0].at);
        let each = |counter: fn(&Usage) -> f64| {
            let idle_usage = share * (counter(idle[1]) - counter(idle[0]));
            (counter(after) - counter(before) - idle_usage) / ORDERS as f64
        };
        let cost = Self { reads: each(|used| used.reads), writes: each(|used| used.writes) };
        let per_second = ORDERS as f64 / (after.at - before.at).as_secs_f64();
        println!("{cost:.4?} per order, {per_second:.0} orders a second; calls per order:");
        for (name, calls) in &after.calls {
            let calls = (calls - before.calls.get(name).unwrap_or(&0)) as f64 / ORDERS as f64;
            if calls > 0.0 {
                println!("  {calls:.4} {name}");
            }
        }
        cost
    }

    fn is_low(&self) -> bool {
        let is_below_max = self.reads <= MAX_COST.0 && self.writes <= MAX_COST.1;
        is_below_max && self.reads < MAX_READS_PER_WRITE * self.writes
    }
}

/// The jobs, and rate limits that are never reached.
const ALL_FEATURES: [(&str, &str); 4] = [
    ("HOLDFAST_JOBS", "on"),
    ("HOLDFAST_LIMIT_CLIENT", "100000/s"),
    ("HOLDFAST_LIMIT_ADDRESS", "100000/s"),
    ("HOLDFAST_LIMIT_UNPAID", "100000"),
];

/// Unoptimized, on a busy machine, fewer clients are back in time for the next batch, so this
/// allows several times what `script/bench` demands (P12).
#[tokio::test(flavor = "multi_thread")]
async fn batched_order_costs_fraction_of_a_write() {
    let _machine = whole_machine();
    let (shop, redis) = TestShop::with_own_redis_and(&ALL_FEATURES).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(1_000_000, 100).await;
    let lines = format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":1}}]}}");
    // Clients that need little CPU: they share the cores of the servers.
    let load = async |orders: usize| {
        let each = (orders / CONNECTIONS) as u64;
        let posts = || {
            let body = std::slice::from_ref(&lines);
            Posts::new("/api/orders", &alice.token, &[], body, 0).limit(each)
        };
        let target = |n: usize| shop.replicas[n % 2].base_url[7..].parse().unwrap();
        let client = |n| LoadClient { targets: vec![target(n)], script: posts() };
        let clients = (0..CONNECTIONS).map(client).collect();
        let plan = LoadPlan::new(clients, |status| status == 201);
        let report = load::run(plan).await.unwrap();
        assert_eq!(report.expected_total, orders as u64, "{:?}", report.statuses);
    };
    load(5 * CONNECTIONS).await;
    // The idle shop, for about as long as a load takes: its cost is a rate, which no event ends.
    let idle = Usage::by(&shop, &redis.url).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = [&idle, &Usage::by(&shop, &redis.url).await];
    let mut measurements = 0;
    let cost = loop {
        let before = Usage::by(&shop, &redis.url).await;
        load(ORDERS).await;
        let after = Usage::by(&shop, &redis.url).await;

        measurements += 1;
        let cost = OrderCost::between(idle, &before, &after);
        if cost.is_low() || measurements == MAX_MEASUREMENTS {
            break cost;
        }
    };
    assert!(cost.is_low(), "{cost:?}: more than {MAX_COST:?}, or more than a few reads per batch");
    let audit = shop.item_audit(&sku).await;
    let sold = measurements * ORDERS + 5 * CONNECTIONS;
    assert_eq!((&audit["sold"], &audit["ok"]), (&sold.into(), &true.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sold_out_costs_no_lock_or_write() {
    let _machine = whole_machine();
    let (shop, redis) = TestShop::with_own_redis().await;
    let observer = RequestRecorder::of(&shop).await;
    let sku = shop.shop_item(5, 100).await;
    let order = async |requests: usize| {
        let orders = (0..requests).map(|n| {
            let lines = [(sku.as_str(), 1)];
            let observer = &observer;
            async move { observer.place(n, &fresh_key(), &lines, |it| it, None).await }
        });
        join_all(orders).await
    };
    // Sold out, and cached by both replicas.
    order(30).await;
    assert_eq!(observer.count(|it| matches!(it, ObservedOutcome::Done { .. })), 5);
    // A lock is released after the response.
    let locks = format!("KEYS {}lock:*", shop.prefix);
    until("the locks are released", async || {
        let keys: Vec<String> = query(&redis.url, &locks).unwrap();
        keys.iter().all(|key| key.ends_with(":fence"))
    })
    .await;
    let before = Usage::by(&shop, &redis.url).await;
    let fence = format!("GET {}lock:{{sku:{sku}}}:fence", shop.prefix);
    let fence_before: i64 = query(&redis.url, &fence).unwrap();
    let outcomes = order(200).await;
    let sold_out = ObservedOutcome::Insufficient { key: sku.clone(), requested: 1, available: 0 };
    assert!(outcomes.iter().all(|outcome| *outcome == sold_out), "{outcomes:?}");
    let fence_after: i64 = query(&redis.url, &fence).unwrap();
    assert_eq!(fence_before, fence_after, "the lock was acquired");
    let after = Usage::by(&shop, &redis.url).await;
    assert_eq!(after.rows - before.rows, 0.0, "rows were written");
    for (name, calls) in &after.calls {
        let own = ["info", "get", "hello", "ping"].contains(&name.as_str())
            || name.starts_with("client|");
        assert!(own || Some(calls) == before.calls.get(name), "{name} was called");
    }
    // The reads of this test alone.
    let reads = after.reads - before.reads;
    assert!(reads < 20.0, "{reads} reads of Redis for 200 rejections");

    shop.restock(&sku, 40).await;
    let placed = order(40).await;
    assert!(placed.iter().all(|it| matches!(it, ObservedOutcome::Done { .. })), "{placed:?}");
    // The stock is refilled and sold repeatedly: each rejection happened while it was empty.
    let restocks = async {
        for _ in 0..20 {
            shop.restock(&sku, 2).await;
        }
    };
    futures_util::join!(restocks, order(150));
    observer.assert_consistent(0, &[&sku]).await;
}

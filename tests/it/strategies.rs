//! The guarantees of each strategy: safe strategies are exact, and broken ones are shown broken.

use std::time::{Duration, Instant};

use holdfast_shop::strategy::STRATEGIES;
use holdfast_shop::strategy::data_path::ShopParts;
use holdfast_shop::strategy::registry::data_paths;
use holdfast_testkit::{BUSY_MACHINE, Call, TestShop, User, assert_has, until};
use serde_json::{Value, json};

/// Units of the item of a run, and orders for it.
const STOCK: i64 = 20;
const ORDERS: usize = 50;

struct Run {
    accepted: i64,
    audit: Value,
}

impl Run {
    fn forks(&self) -> usize {
        self.audit["forks"].as_array().unwrap().len()
    }

    fn is_sound(&self) -> bool {
        self.audit["ok"] == true && self.forks() == 0 && self.audit["oversold"] == 0
    }
}

/// Sends concurrent orders to all replicas, under that strategy.
async fn run(shop: &TestShop, strategy: &str, work_ms: &str) -> Run {
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    let orders = (0..ORDERS).map(|n| {
        let order = alice.at(n % shop.replicas.len()).orders(&sku, 1).lock(strategy);
        order.header("Holdfast-Work-Ms", work_ms).send()
    });
    let mut accepted = 0;
    for response in futures_util::future::join_all(orders).await {
        match response.status {
            201 => accepted += 1,
            503 => drop(response.fails(503, "lock-timeout")),
            _ => drop(response.fails(409, "sold-out")),
        }
    }
    // Of `pre-deduct`: the row follows the orders.
    until("the orders are settled", async || shop.item_audit(&sku).await["unsettled"] == 0).await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["sold"], accepted, "the responses match the ledger");
    Run { accepted, audit }
}

/// Without its line in the table, a strategy would take nothing, and lock nothing.
#[tokio::test]
async fn every_data_path_has_its_line() {
    let shop = TestShop::without_replicas().await.in_process("batched");
    let parts =
        ShopParts { pool: shop.pool.clone(), locks: shop.locks.clone(), tasks: shop.tasks.clone() };
    let paths = data_paths(&parts);

    for strategy in STRATEGIES {
        let has_path = paths.of(strategy).is_some();
        assert_eq!(has_path, strategy.data_path.is_some(), "{}", strategy.name);
        let has_own_items = paths.own_items(strategy).is_some();
        assert_eq!(has_own_items, strategy.has_own_items(), "{}", strategy.name);
        assert!(!(has_path && strategy.batches), "{}: it writes alone", strategy.name);
    }
}

#[tokio::test]
async fn safe_strategies_sell_exact_stock() {
    let shop = TestShop::start(2).await;
    let safe = ["owner", "watchdog", "redlock", "fenced", "batched", "row-lock", "atomic"];
    for strategy in safe.into_iter().chain(["pre-deduct"]) {
        let run = run(&shop, strategy, "2").await;
        assert!(run.is_sound(), "{strategy}: {:#}", run.audit);
        assert_eq!(run.accepted, STOCK, "{strategy}");
        assert_eq!(run.audit["stock"], 0, "{strategy}");
    }
    shop.assert_sound().await;
}

#[tokio::test]
async fn watchdog_renews_lease_of_long_work() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    let orders = (0..3).map(|n| {
        alice.at(n % 2).orders(&sku, 1).lock("watchdog").ttl_ms(600).work_ms(1_500).send()
    });
    for response in futures_util::future::join_all(orders).await {
        response.succeeds(201);
    }
    let audit = shop.item_audit(&sku).await;
    assert_has(&audit, json!({ "ok": true, "forks": [] }));
}

#[tokio::test]
async fn paused_watchdog_or_redlock_holder_writes_stale() {
    for strategy in ["watchdog", "redlock"] {
        check_stale_write(strategy).await;
    }
}

async fn check_stale_write(strategy: &str) {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    let order = |replica: usize| alice.at(replica).orders(&sku, 1).lock(strategy).ttl_ms(500);
    let late = order(0).pause("read:3000").send();
    shop.until_one_is_paused(&admin, "read").await;
    shop.replicas[0].pause();
    order(1).succeeds(201).await;
    shop.replicas[0].resume();
    late.succeeds(201).await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["forks"].as_array().unwrap().len(), 1, "{audit:#}");
    assert_eq!(audit["ok"], false);
}

/// Starts an order that holds the lock of `sku` (under `owner`) until its request times out.
async fn hold_lock(shop: &TestShop, who: &User, sku: &str, ttl_ms: &str) {
    who.orders(sku, 1).lock("owner").header("Holdfast-Ttl-Ms", ttl_ms).pause("held").send();
    let admin = shop.sign_in("admin").await;
    until("the lock is held", async || {
        let locks = admin.at(1).get("/api/locks").ok().await;
        let lock = format!("lock:{{sku:{sku}}}");
        locks.as_array().unwrap().iter().any(|l| l["key"].as_str().unwrap().ends_with(&lock))
    })
    .await;
}

#[tokio::test]
async fn dead_holder_blocks_for_one_lease() {
    const TTL: Duration = Duration::from_millis(1_500);
    let mut shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", "owner")]).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    hold_lock(&shop, &alice, &sku, &TTL.as_millis().to_string()).await;
    shop.replicas[0].kill();
    let killed = Instant::now();
    alice.at(1).orders(&sku, 1).header("Holdfast-Wait", "retry").ok().await;
    assert!(killed.elapsed() < TTL + BUSY_MACHINE, "{:?}", killed.elapsed());
    until("no lock and no key lock is left", async || {
        admin.at(1).get("/api/locks").ok().await.as_array().unwrap().is_empty()
    })
    .await;
    let audit = shop.item_audit_at(1, &sku).await;
    assert_has(&audit, json!({ "sold": 1, "ok": true }));
}

#[tokio::test]
async fn opposite_item_orders_never_deadlock() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let (a, b) = (shop.lab_item(1_000).await, shop.lab_item(1_000).await);
    for strategy in [
        "owner",
        "fenced",
        "batched",
        "row-lock",
        "atomic",
        "local",
        "none",
        "setnx",
        "ttl",
        "wrong-key",
        "advisory",
        "queue",
    ] {
        let orders = (0..24).map(|n| {
            let (first, second) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let order = alice.at(n % 2).orders_all(&[(first, 1), (second, 1)]);
            order.lock(strategy).send()
        });
        for response in futures_util::future::join_all(orders).await {
            assert_eq!(response.status, 201, "{strategy}: {response}");
        }
    }
}

#[tokio::test]
async fn invalid_lab_headers_are_rejected() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK", "owner")]).await;
    let alice = shop.promoted("alice").await;
    let sku = shop.lab_item(10).await;
    let with = |sku: &str, headers: &[(&str, &str)]| {
        let order = alice.orders(sku, 1);
        headers.iter().fold(order, |order: Call, (name, value)| order.header(name, *value))
    };
    type Headers = &'static [(&'static str, &'static str)];
    const TRY_IN_QUEUE: [(&str, &str); 3] =
        [("Holdfast-Lock", "queue"), ("Holdfast-Wait", "try"), ("Holdfast-Offer", "put")];
    let rejected: [(&str, Headers, u16, &str); 24] = [
        ("deadbolt", &[("Holdfast-Lock", "none")], 403, "forbidden"),
        ("deadbolt", &[("Holdfast-Lock", "local")], 403, "forbidden"),
        ("deadbolt", &[("Holdfast-Ttl-Ms", "50")], 403, "forbidden"),
        ("deadbolt", &[("Holdfast-Ttl-Ms", "60000")], 403, "forbidden"),
        ("deadbolt", &[("Holdfast-Lock", "atomic")], 403, "forbidden"),
        (&sku, &[("Holdfast-Lock", "wishful")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "owner"), ("Holdfast-Wait", "notify")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "row-lock"), ("Holdfast-Wait", "try")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "queue"), ("Holdfast-Wait", "retry")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "queue"), ("Holdfast-Offer", "beg")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "queue"), ("Holdfast-Offer", "put:9")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "queue"), ("Holdfast-Places", "0")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "queue"), ("Holdfast-Priority", "1")], 422, "invalid-request"),
        (&sku, &TRY_IN_QUEUE, 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "setnx"), ("Holdfast-Wait", "notify")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Locks", "none")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Wait", "perhaps")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "5001")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "-1")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Ttl-Ms", "9")], 422, "invalid-request"),
        // Without a lease of its own.
        (&sku, &[("Holdfast-Renew", "off")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Retry-Ms", "0")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Trace", "loud")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Pause", "lunch")], 422, "invalid-request"),
    ];
    for (sku, headers, status, kind) in rejected {
        with(sku, headers).fails(status, kind).await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn lab_headers_require_lab_mode() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LAB", "off")]).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    for header in [
        "Holdfast-Lock",
        "Holdfast-Wait",
        "Holdfast-Retry-Ms",
        "Holdfast-Offer",
        "Holdfast-Places",
        "Holdfast-Priority",
        "Holdfast-Work-Ms",
        "Holdfast-Ttl-Ms",
        "Holdfast-Renew",
        "Holdfast-Trace",
        "Holdfast-Pause",
    ] {
        alice.orders("deadbolt", 1).header(header, "owner").fails(403, "forbidden").await;
    }
    admin.creates_lab_item(&json!({ "stock": 1 })).fails(403, "forbidden").await;
    let lines = json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] });
    alice.post("/api/lab/noop").json(&lines).fails(403, "forbidden").await;
}

#[tokio::test]
async fn trace_lists_probe_points_in_order() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let call = alice.orders(&sku, 2).traced().work_ms(30);
    let order = call.clone().ok().await;
    let trace = order["trace"].as_array().unwrap();
    let events: Vec<&str> = trace.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "commit", "write", "committed", "release"]);
    let times: Vec<u64> = trace.iter().map(|event| event["t_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());
    assert!(times[3] - times[2] >= 30_000, "the work is between read and commit");
    assert_eq!((&trace[2]["value"], &trace[4]["value"]), (&json!(5), &json!(3)));
    assert_eq!(trace[0]["replica"], shop.replicas[0].name());
    let replay = call.ok().await;
    assert!(replay.get("trace").is_none(), "a trace is not stored");
}

/// A lesson kills the worker that cancels an order there.
#[tokio::test]
async fn cancel_is_paused_after_its_commit() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(5).await;
    let order = alice.orders(&sku, 1).ok().await;
    let cancel = alice.cancels(&order).lock("row-lock").traced();
    let paused = shop.pause(&admin, cancel, "committed").await;
    assert_eq!(shop.stock(&sku).await, 5, "the unit is back");
    let cancelled = shop.resume(&admin, paused).await.ok();
    let trace = cancelled["trace"].as_array().unwrap();
    let write = trace.iter().find(|event| event["event"] == "write").unwrap();
    assert_eq!(write["value"], 5);
    assert_eq!(cancelled["order"]["status"], "cancelled");
}

#[tokio::test]
async fn trace_shows_fence_of_ledger_entry() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for (strategy, fenced) in [("batched", true), ("fenced", true), ("owner", false)] {
        let sku = shop.lab_item(5).await;
        let order = alice.orders(&sku, 1).lock(strategy).traced().succeeds(201).await;
        let ledger = alice.reads(&format!("/api/items/{sku}/ledger")).await;
        let fence = &ledger["items"].as_array().unwrap().last().unwrap()["fence"];
        assert_eq!(fence.is_i64(), fenced, "{strategy}: {ledger}");
        for event in order["trace"].as_array().unwrap() {
            let has = if event["event"] == "wait" { &Value::Null } else { fence };
            assert_eq!(&event["fence"], has, "{strategy}: {event}");
        }
    }
}

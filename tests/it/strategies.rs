//! The guarantees of each strategy: safe strategies are exact, and broken ones are shown broken.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::requests::{Answer as _, keyed};
use crate::common::{Shop, User, until};

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
async fn run(shop: &Shop, strategy: &str, work_ms: &str) -> Run {
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    let orders = (0..ORDERS).map(|n| {
        shop.order(&alice, n % shop.replicas.len(), &sku, 1)
            .header("Holdfast-Lock", strategy)
            .header("Holdfast-Work-Ms", work_ms)
            .send()
    });
    let mut accepted = 0;
    for response in futures_util::future::join_all(orders).await {
        let response = response.unwrap();
        match response.status().as_u16() {
            201 => accepted += 1,
            503 => assert_eq!(response.fails(503).await, "lock-timeout"),
            _ => assert_eq!(response.fails(409).await, "sold-out"),
        }
    }
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["sold"], accepted, "the responses match the ledger");
    Run { accepted, audit }
}

#[tokio::test]
async fn safe_strategies_sell_exact_stock() {
    let shop = Shop::start(2).await;
    for strategy in ["owner", "watchdog", "redlock", "fenced", "batched", "row-lock", "atomic"] {
        let run = run(&shop, strategy, "2").await;
        assert!(run.is_sound(), "{strategy}: {:#}", run.audit);
        assert_eq!(run.accepted, STOCK, "{strategy}");
        assert_eq!(run.audit["stock"], 0, "{strategy}");
    }
    shop.assert_sound().await;
}

#[tokio::test]
async fn watchdog_renews_lease_of_long_work() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    let orders = (0..4).map(|n| {
        shop.order(&alice, n % 2, &sku, 1)
            .header("Holdfast-Lock", "watchdog")
            .header("Holdfast-Ttl-Ms", "300")
            .header("Holdfast-Work-Ms", "700")
            .send()
    });
    for response in futures_util::future::join_all(orders).await {
        response.unwrap().gives(201).await;
    }
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["ok"], &audit["forks"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn paused_watchdog_or_redlock_holder_writes_stale() {
    for strategy in ["watchdog", "redlock"] {
        check_stale_write(strategy).await;
    }
}

async fn check_stale_write(strategy: &str) {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    let order = |replica: usize| {
        shop.order(&alice, replica, &sku, 1)
            .header("Holdfast-Lock", strategy)
            .header("Holdfast-Ttl-Ms", "500")
    };
    let late = tokio::spawn(order(0).header("Holdfast-Pause", "read:3000").send());
    shop.until_one_is_paused(&admin, "read").await;
    shop.replicas[0].pause();
    order(1).gives(201).await;
    shop.replicas[0].resume();
    late.gives(201).await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["forks"].as_array().unwrap().len(), 1, "{audit:#}");
    assert_eq!(audit["ok"], false);
}

/// Starts an order that holds the lock of `sku` (under `owner`) until its request times out.
async fn hold_lock(shop: &Shop, who: &User, sku: &str, ttl_ms: &str) {
    let holder = shop
        .order(who, 0, sku, 1)
        .header("Holdfast-Lock", "owner")
        .header("Holdfast-Ttl-Ms", ttl_ms)
        .header("Holdfast-Pause", "held");
    tokio::spawn(holder.send());
    let admin = shop.sign_in("admin").await;
    until("the lock is held", async || {
        let locks = shop.get(&admin, 1, "/api/locks").gives(200).await;
        let lock = format!("lock:{{sku:{sku}}}");
        locks.as_array().unwrap().iter().any(|l| l["key"].as_str().unwrap().ends_with(&lock))
    })
    .await;
}

#[tokio::test]
async fn dead_holder_blocks_for_one_lease() {
    let mut shop = Shop::start_with(2, &[("HOLDFAST_LOCK", "owner")]).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    hold_lock(&shop, &alice, &sku, "1500").await;
    shop.replicas[0].kill();
    let killed = Instant::now();
    shop.order(&alice, 1, &sku, 1).header("Holdfast-Wait", "retry").gives(201).await;
    assert!(killed.elapsed() < Duration::from_secs(4), "{:?}", killed.elapsed());
    until("no lock and no key lock is left", async || {
        shop.get(&admin, 1, "/api/locks").gives(200).await.as_array().unwrap().is_empty()
    })
    .await;
    let audit = shop.item_audit_at(1, &sku).await;
    assert_eq!((&audit["sold"], &audit["ok"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn opposite_item_orders_never_deadlock() {
    let shop = Shop::start(2).await;
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
            let order = shop.order_lines(&alice, n % 2, &[(first, 1), (second, 1)]);
            order.header("Holdfast-Lock", strategy).send()
        });
        for response in futures_util::future::join_all(orders).await {
            let response = response.unwrap();
            assert_eq!(response.status(), 201, "{strategy}: {}", response.text().await.unwrap());
        }
    }
}

#[tokio::test]
async fn invalid_lab_headers_are_rejected() {
    let shop = Shop::start_with(1, &[("HOLDFAST_LOCK", "owner")]).await;
    let alice = shop.promoted("alice").await;
    let sku = shop.lab_item(10).await;
    let with = |sku: &str, headers: &[(&str, &str)]| {
        let order = shop.order(&alice, 0, sku, 1);
        headers
            .iter()
            .fold(order, |order: RequestBuilder, (name, value)| order.header(*name, *value))
    };
    type Headers = &'static [(&'static str, &'static str)];
    const TRY_IN_QUEUE: [(&str, &str); 3] =
        [("Holdfast-Lock", "queue"), ("Holdfast-Wait", "try"), ("Holdfast-Offer", "put")];
    let rejected: [(&str, Headers, u16, &str); 21] = [
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
        (&sku, &[("Holdfast-Wait", "perhaps")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "5001")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "-1")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Ttl-Ms", "9")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Trace", "loud")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Pause", "lunch")], 422, "invalid-request"),
    ];
    for (sku, headers, status, kind) in rejected {
        assert_eq!(with(sku, headers).fails(status).await, kind, "{headers:?}");
    }
    assert_eq!(shop.number("select count(*) from orders").await, 0);
}

#[tokio::test]
async fn lab_headers_require_lab_mode() {
    let shop = Shop::start_with(1, &[("HOLDFAST_LAB", "off")]).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    for header in [
        "Holdfast-Lock",
        "Holdfast-Wait",
        "Holdfast-Offer",
        "Holdfast-Places",
        "Holdfast-Priority",
        "Holdfast-Work-Ms",
        "Holdfast-Ttl-Ms",
        "Holdfast-Trace",
        "Holdfast-Pause",
    ] {
        assert_eq!(
            shop.order(&alice, 0, "deadbolt", 1).header(header, "owner").fails(403).await,
            "forbidden",
            "{header}"
        );
    }
    shop.request(&admin, Method::POST, 0, "/api/lab/items")
        .json(&json!({ "stock": 1 }))
        .refuses(403, "forbidden")
        .await;
    shop.post(&alice, 0, "/api/lab/noop")
        .json(&json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] }))
        .refuses(403, "forbidden")
        .await;
}

#[tokio::test]
async fn trace_lists_probe_points_in_order() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let key = Uuid::new_v4().to_string();
    let send = || {
        let order = keyed(&shop, &alice, 0, &key, &sku, 2).header("Holdfast-Trace", "on");
        order.header("Holdfast-Work-Ms", "30")
    };
    let order = send().gives(201).await;
    let trace = order["trace"].as_array().unwrap();
    let events: Vec<&str> = trace.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "commit", "write", "committed", "release"]);
    let times: Vec<u64> = trace.iter().map(|event| event["t_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());
    assert!(times[3] - times[2] >= 30_000, "the work is between read and commit");
    assert_eq!((&trace[2]["value"], &trace[4]["value"]), (&json!(5), &json!(3)));
    assert_eq!(trace[0]["replica"], shop.replicas[0].name());
    let replay = send().gives(201).await;
    assert!(replay.get("trace").is_none(), "a trace is not stored");
}

#[tokio::test]
async fn trace_shows_fence_of_ledger_entry() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for (strategy, fenced) in [("batched", true), ("fenced", true), ("owner", false)] {
        let sku = shop.lab_item(5).await;
        let order = shop.order(&alice, 0, &sku, 1).header("Holdfast-Lock", strategy);
        let order = order.header("Holdfast-Trace", "on").gives(201).await;
        let ledger = shop.read(&alice, &format!("/api/items/{sku}/ledger")).await;
        let fence = &ledger["items"].as_array().unwrap().last().unwrap()["fence"];
        assert_eq!(fence.is_i64(), fenced, "{strategy}: {ledger}");
        for event in order["trace"].as_array().unwrap() {
            let has = if event["event"] == "wait" { &Value::Null } else { fence };
            assert_eq!(&event["fence"], has, "{strategy}: {event}");
        }
    }
}

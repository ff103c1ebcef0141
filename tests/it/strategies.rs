//! What each strategy guarantees, and what not: broken strategies are shown broken.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::{Shop, User, body, problem, until};

/// Units in the run's item, and orders thrown at it.
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

/// Throws orders at all replicas at once, under that strategy.
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
            503 => assert_eq!(problem(response, 503).await, "lock-timeout"),
            _ => assert_eq!(problem(response, 409).await, "sold-out"),
        }
    }
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["sold"], accepted, "what was answered is what is written");
    Run { accepted, audit }
}

#[tokio::test]
async fn shop_oversells_without_a_lock() {
    let shop = Shop::start(2).await;
    let run = run(&shop, "none", "20").await;
    assert!(run.forks() > 0, "{:#}", run.audit);
    assert!(run.accepted > STOCK, "{} units of {STOCK} were sold", run.accepted);
    assert!(run.audit["oversold"].as_i64().unwrap() > 0);
    assert_eq!(run.audit["ok"], false);
    // Nothing was negative, and yet more was sold than existed; the shop's own books stay sound.
    assert!(run.audit["stock"].as_i64().unwrap() >= 0);
    shop.assert_sound().await;
}

#[tokio::test]
async fn local_mutex_oversells_on_two_replicas() {
    let one = Shop::start(1).await;
    let run_on_one = run(&one, "local", "2").await;
    assert!(run_on_one.is_sound(), "{:#}", run_on_one.audit);
    assert_eq!(run_on_one.accepted, STOCK);
    let two = Shop::start(2).await;
    let run_on_two = run(&two, "local", "20").await;
    assert!(run_on_two.forks() > 0, "{:#}", run_on_two.audit);
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
async fn owner_breaks_when_work_outlives_lease() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    let orders = (0..8).map(|n| {
        shop.order(&alice, n % 2, &sku, 1)
            .header("Holdfast-Lock", "owner")
            .header("Holdfast-Ttl-Ms", "50")
            .header("Holdfast-Work-Ms", "400")
            .send()
    });
    for response in futures_util::future::join_all(orders).await {
        body(response.unwrap(), StatusCode::CREATED).await;
    }
    let audit = shop.item_audit(&sku).await;
    assert!(!audit["forks"].as_array().unwrap().is_empty(), "{audit:#}");
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
        body(response.unwrap(), StatusCode::CREATED).await;
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
    let under_it = |replica: usize| {
        shop.order(&alice, replica, &sku, 1)
            .header("Holdfast-Lock", strategy)
            .header("Holdfast-Ttl-Ms", "500")
    };
    let late = tokio::spawn(under_it(0).header("Holdfast-Pause", "read:3000").send());
    shop.until_one_is_paused(&admin, "read").await;
    shop.replicas[0].pause();
    body(under_it(1).send().await.unwrap(), StatusCode::CREATED).await;
    shop.replicas[0].resume();
    body(late.await.unwrap().unwrap(), StatusCode::CREATED).await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!(audit["forks"].as_array().unwrap().len(), 1, "{audit:#}");
    assert_eq!(audit["ok"], false);
}

#[tokio::test]
async fn server_without_lock_reports_strategy() {
    let shop = Shop::start_with(1, &[("HOLDFAST_LOCK", "none")]).await;
    let alice = shop.sign_in("alice").await;
    let order = shop.order(&alice, 0, "deadbolt", 1).send().await.unwrap();
    assert_eq!(order.headers()["holdfast-strategy"], "none");
    body(order, StatusCode::CREATED).await;
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
        let locks = body(
            shop.request(&admin, Method::GET, 1, "/api/locks").send().await.unwrap(),
            StatusCode::OK,
        )
        .await;
        let lock = format!("lock:{{sku:{sku}}}");
        locks.as_array().unwrap().iter().any(|l| l["key"].as_str().unwrap().ends_with(&lock))
    })
    .await;
}

#[tokio::test]
async fn try_reports_a_busy_lock() {
    let shop = Shop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(STOCK).await;
    hold_lock(&shop, &alice, &sku, "20000").await;
    let busy = shop.order(&alice, 1, &sku, 1).header("Holdfast-Wait", "try").send().await.unwrap();
    assert_eq!(busy.status(), 423);
    assert_eq!(busy.headers()["retry-after"], "1");
    let busy: Value = busy.json().await.unwrap();
    assert_eq!(busy["type"], "/problems/lock-busy");
    assert!(busy["holder_since"].as_str().unwrap().starts_with("20"), "{busy}");
    assert!(busy["retry_after_ms"].as_u64().unwrap() > 0, "{busy}");
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
    let next = shop.order(&alice, 1, &sku, 1).header("Holdfast-Wait", "retry");
    body(next.send().await.unwrap(), StatusCode::CREATED).await;
    assert!(killed.elapsed() < Duration::from_secs(4), "{:?}", killed.elapsed());
    until("no lock and no token is left", async || {
        let locks = shop.request(&admin, Method::GET, 1, "/api/locks").send().await.unwrap();
        body(locks, StatusCode::OK).await.as_array().unwrap().is_empty()
    })
    .await;
    let audit = shop.item_audit_at(1, &sku).await;
    assert_eq!((&audit["sold"], &audit["ok"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn disconnected_client_keeps_lock_until_commit() {
    let shop = Shop::start_with(2, &[("HOLDFAST_LOCK", "owner")]).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(STOCK).await;
    let slow = shop.order(&alice, 0, &sku, 1).header("Holdfast-Pause", "read:700");
    let slow = tokio::spawn(slow.send());
    shop.until_one_is_paused(&admin, "read").await;
    slow.abort();
    // It holds the lock until its commit: the next order reads what it wrote.
    let next =
        body(shop.order(&alice, 1, &sku, 1).send().await.unwrap(), StatusCode::CREATED).await;
    assert_eq!(next["lines"][0]["stock"]["before"], STOCK - 1);
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["sold"], &audit["ok"]), (&json!(2), &json!(true)));
    assert_eq!(audit["forks"], json!([]));
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
            shop.request(&alice, Method::POST, n % 2, "/api/orders")
                .header("Idempotency-Key", Uuid::new_v4().to_string())
                .header("Holdfast-Lock", strategy)
                .json(&json!({ "lines": [
                    { "sku": first, "quantity": 1 }, { "sku": second, "quantity": 1 },
                ] }))
                .send()
        });
        for response in futures_util::future::join_all(orders).await {
            let response = response.unwrap();
            assert_eq!(response.status(), 201, "{strategy}: {}", response.text().await.unwrap());
        }
    }
}

#[tokio::test]
async fn unsafe_payment_does_not_unbalance_shop() {
    let shop = Shop::start(2).await;
    let carol = shop.sign_in("carol").await;
    let sku = shop.lab_item(100).await;
    let mut paths = Vec::new();
    for _ in 0..12 {
        let order = shop.place_order(&carol, &sku, 1).await;
        paths.push(format!("/api/orders/{}/pay", order["id"].as_str().unwrap()));
    }
    // The first one opens the lab account; from then on they overlap.
    let pay = |n: usize| {
        shop.request(&carol, Method::POST, n % 2, &paths[n])
            .header("Idempotency-Key", Uuid::new_v4().to_string())
            .header("Holdfast-Lock", "none")
            .header("Holdfast-Work-Ms", "50")
            .send()
    };
    body(pay(0).await.unwrap(), StatusCode::OK).await;
    for paid in futures_util::future::join_all((1..12).map(pay)).await {
        body(paid.unwrap(), StatusCode::OK).await;
    }
    let me = shop.read(&carol, "/api/me").await;
    let spent = 100_000 - me["lab_balance_cents"].as_i64().unwrap();
    assert!(spent < 12 * 100, "{spent} cents were paid for twelve orders of 100");
    assert_eq!(me["balance_cents"], 100_000);
    shop.assert_sound().await;
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
    let refused: [(&str, Headers, u16, &str); 22] = [
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
        (&sku, &[("Holdfast-Lock", "local"), ("Holdfast-Offer", "put")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "fenced"), ("Holdfast-Places", "2")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Lock", "setnx"), ("Holdfast-Wait", "notify")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Wait", "perhaps")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "5001")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Work-Ms", "-1")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Ttl-Ms", "9")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Trace", "loud")], 422, "invalid-request"),
        (&sku, &[("Holdfast-Pause", "lunch")], 422, "invalid-request"),
    ];
    for (sku, headers, status, kind) in refused {
        let response = with(sku, headers).send().await.unwrap();
        assert_eq!(problem(response, status).await, kind, "{headers:?}");
    }
    let mixed = shop
        .request(&alice, Method::POST, 0, "/api/orders")
        .header("Idempotency-Key", Uuid::new_v4().to_string())
        .header("Holdfast-Lock", "none")
        .json(&json!({ "lines": [
            { "sku": sku, "quantity": 1 }, { "sku": "deadbolt", "quantity": 1 },
        ] }));
    assert_eq!(problem(mixed.send().await.unwrap(), 422).await, "invalid-request");
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
        let order = shop.order(&alice, 0, "deadbolt", 1).header(header, "owner");
        assert_eq!(problem(order.send().await.unwrap(), 403).await, "forbidden", "{header}");
    }
    let item = shop.request(&admin, Method::POST, 0, "/api/lab/items").json(&json!({ "stock": 1 }));
    assert_eq!(problem(item.send().await.unwrap(), 403).await, "forbidden");
    let noop = shop
        .request(&alice, Method::POST, 0, "/api/lab/noop")
        .header("Idempotency-Key", Uuid::new_v4().to_string())
        .json(&json!({ "lines": [{ "sku": "deadbolt", "quantity": 1 }] }));
    assert_eq!(problem(noop.send().await.unwrap(), 403).await, "forbidden");
}

#[tokio::test]
async fn trace_lists_probe_points_in_order() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let key = Uuid::new_v4().to_string();
    let send = || {
        shop.request(&alice, Method::POST, 0, "/api/orders")
            .header("Idempotency-Key", &key)
            .header("Holdfast-Trace", "on")
            .header("Holdfast-Work-Ms", "30")
            .json(&json!({ "lines": [{ "sku": sku, "quantity": 2 }] }))
            .send()
    };
    let order = body(send().await.unwrap(), StatusCode::CREATED).await;
    let trace = order["trace"].as_array().unwrap();
    let events: Vec<&str> = trace.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["wait", "held", "read", "commit", "write", "committed", "release"]);
    let times: Vec<u64> = trace.iter().map(|event| event["t_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());
    assert!(times[3] - times[2] >= 30_000, "the work lies between read and commit");
    assert_eq!((&trace[2]["value"], &trace[4]["value"]), (&json!(5), &json!(3)));
    assert_eq!(trace[0]["replica"], shop.replicas[0].name());
    let replay = body(send().await.unwrap(), StatusCode::CREATED).await;
    assert!(replay.get("trace").is_none(), "a trace is not stored");
}

#[tokio::test]
async fn trace_shows_fence_of_ledger_entry() {
    let shop = Shop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for (strategy, fenced) in [("batched", true), ("fenced", true), ("owner", false)] {
        let sku = shop.lab_item(5).await;
        let order = shop.order(&alice, 0, &sku, 1).header("Holdfast-Lock", strategy);
        let order = order.header("Holdfast-Trace", "on").send().await.unwrap();
        let order = body(order, StatusCode::CREATED).await;
        let ledger = shop.read(&alice, &format!("/api/items/{sku}/ledger")).await;
        let fence = &ledger["items"].as_array().unwrap().last().unwrap()["fence"];
        assert_eq!(fence.is_i64(), fenced, "{strategy}: {ledger}");
        for event in order["trace"].as_array().unwrap() {
            let has = if event["event"] == "wait" { &Value::Null } else { fence };
            assert_eq!(&event["fence"], has, "{strategy}: {event}");
        }
    }
}

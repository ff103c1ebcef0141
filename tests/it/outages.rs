//! An outage of Postgres or Redis: reported within two seconds, no partial write, automatic
//! recovery.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_testkit::proxy::{self, Proxy, Traffic};
use holdfast_testkit::{BUSY_MACHINE, Call, Reply, TestShop, fresh_key, until};

/// "Within two seconds"; otherwise a request takes eight.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(2).saturating_add(BUSY_MACHINE);

pub async fn shop_behind(postgres: Option<&Proxy>, redis: Option<&Proxy>) -> TestShop {
    let mut shop = TestShop::without_replicas().await;
    let mut env = Vec::new();
    if let Some(proxy) = postgres {
        let url = format!("postgres://holdfast@127.0.0.1:{}/{}", proxy.port, shop.database);
        env.push(("DATABASE_URL", url));
    }
    if let Some(proxy) = redis {
        env.push(("REDIS_URL", format!("redis://127.0.0.1:{}", proxy.port)));
    }
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    shop.add_replica(&env);
    shop
}

/// Waits until the first replica reports these states; its last result may be from before.
async fn until_reported(shop: &TestShop, status: u16, postgres: &str, redis: &str) {
    until("it is reported", async || {
        let ready = send_in_time(shop.anonymous().get("/readyz")).await;
        let body = &ready.body;
        ready.status == status && body["postgres"] == postgres && body["redis"] == redis
    })
    .await;
}

pub async fn send_in_time(request: Call) -> Reply {
    let started = Instant::now();
    let response = request.await;
    assert!(started.elapsed() < MAX_RESPONSE_TIME, "{:?}", started.elapsed());
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_outage_rejects_writes_and_serves_reads() {
    let redis = proxy::to_redis().await;
    let shop = shop_behind(None, Some(&redis)).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(5).await;
    let order = alice.orders("deadbolt", 1).ok().await;
    shop.until_item_is_free("deadbolt").await;
    redis.cut().await;
    let rejected = send_in_time(alice.orders("deadbolt", 1)).await;
    let retry_after = rejected.header("retry-after").to_owned();
    rejected.fails(503, "unavailable");
    assert_eq!(retry_after, "1");
    send_in_time(alice.pays(&order)).await.fails(503, "unavailable");
    assert_eq!(alice.reads("/api/me").await["balance_cents"], 100_000);
    assert_eq!(shop.item_audit("deadbolt").await["sold"], 1);
    // Reads still work, so the replica stays ready.
    until_reported(&shop, 200, "ok", "away").await;
    // A strategy without Redis still works.
    alice.orders(&sku, 1).lock("row-lock").ok().await;
    redis.set(Traffic::Forwarded);
    until("service is back", async || alice.orders("deadbolt", 1).await.status == 201).await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_outage_rejects_all_requests() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.sign_in("alice").await;
    alice.orders("deadbolt", 1).ok().await;
    postgres.cut().await;
    // Also those that are queued behind the first one.
    let orders = (0..8).map(|_| send_in_time(alice.orders("deadbolt", 1)));
    for rejected in join_all(orders).await {
        rejected.fails(503, "unavailable");
    }
    send_in_time(shop.anonymous().get("/api/items")).await.fails(503, "unavailable");
    until_reported(&shop, 503, "away", "ok").await;
    assert_eq!(shop.anonymous().get("/healthz").await.status, 200);
    postgres.set(Traffic::Forwarded);
    until("service is back", async || alice.orders("deadbolt", 1).await.status == 201).await;
    shop.assert_sound().await;
}

/// The first statement fails on a dead connection, and is repeated on the next one.
#[tokio::test(flavor = "multi_thread")]
async fn dead_idle_sessions_are_replaced() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(100).await;
    let mut bought = 0;
    for strategy in ["owner", "fenced", "batched", "row-lock"] {
        let orders = (0..8).map(|_| alice.orders(&sku, 1).lock(strategy).send());
        for response in futures_util::future::join_all(orders).await {
            assert_eq!(response.status, 201, "{strategy}");
            bought += 1;
        }
        let key = fresh_key();
        let order = || alice.orders(&sku, 1).key(&key).lock(strategy);
        let mut responses = Vec::new();
        for _ in 0..2 {
            let ended = shop
                .number(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity
                      where datname = current_database() and application_name = 'holdfast'
                        and pid <> pg_backend_pid()",
                )
                .await;
            assert!(ended > 0, "{strategy}");
            responses.push(order().succeeds(201).await);
        }
        bought += 1;
        assert_eq!(responses[0], responses[1], "{strategy}");
    }
    assert_eq!(shop.item_audit(&sku).await["sold"], bought);
    shop.assert_sound().await;
}

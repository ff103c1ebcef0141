//! Excess load: requests that cannot be executed in time are rejected at once, the others are
//! executed.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_shop::idempotency::{IdempotencyRequest, Operation};
use holdfast_shop::{IdempotencyKey, UserId};
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::{Replica, TestShop, User, fresh_key, until};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::metrics::{metrics, value};

/// Two batches, which the queue always admits: `MIN_LENGTH` in `queue/limit.rs` of the engine.
const MIN_QUEUE: usize = 512;
/// More than the default backlog of a listener (128).
const CONNECTIONS: usize = 600;
/// Longer than any connection takes that is not rejected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A paused replica accepts no connection: the kernel queues as many as the backlog holds, and
/// further clients retry after one and three seconds. When it resumes it serves all of them, though
/// it was started with a smaller limit of open files.
#[tokio::test]
async fn backlog_holds_connections_of_paused_replica() {
    let limit = tokio::fs::read_to_string("/proc/sys/net/core/somaxconn").await;
    // An old kernel has a maximum of 128.
    let limit = limit.ok().and_then(|it| it.trim().parse().ok()).unwrap_or(128).min(CONNECTIONS);
    let mut shop = TestShop::without_replicas().await;
    shop.add_replica_with(|env| Replica::start_with_file_limit(CONNECTIONS / 2, env), &[]);
    let replica = &shop.replicas[0];
    let address = replica.base_url.strip_prefix("http://").unwrap();
    replica.pause();
    let mut connections = Vec::new();
    for n in 0..limit {
        let connection = timeout(REQUEST_TIMEOUT, TcpStream::connect(address))
            .await
            .unwrap_or_else(|_| panic!("the backlog holds only {n}"));
        connections.push(connection.unwrap());
    }
    replica.resume();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for connection in &mut connections {
        connection.write_all(request.as_bytes()).await.unwrap();
    }
    for (n, connection) in connections.iter_mut().enumerate() {
        let status = timeout(REQUEST_TIMEOUT, status(connection)).await;
        assert_eq!(status.unwrap_or_else(|_| panic!("only {n} are served")), "HTTP/1.1 200");
    }
}

/// Returns the begin of a response.
async fn status(connection: &mut TcpStream) -> String {
    let mut head = [0; 12];
    connection.read_exact(&mut head).await.unwrap();
    String::from_utf8_lossy(&head).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_queue_rejects_at_once() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK_TIMEOUT_MS", "7000")]).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(10_000).await;
    let order = |key: &str| alice.orders(&sku, 1).key(key);
    let done = fresh_key();
    order(&done).succeeds(201).await;
    // One order takes so long that no later one is executed in time …
    let slow = order(&fresh_key()).pause("read:1500").send();
    shop.until_one_is_paused(&admin, "read").await;
    let behind = order(&fresh_key()).send();
    // … and then the test holds the lock.
    let mut barrier = Barrier::before_item(&shop, &sku).await;
    slow.succeeds(201).await;
    let mut queued = Vec::new();
    for _ in 1..MIN_QUEUE {
        queued.push(send_order(&shop, &alice, &sku).await);
    }
    barrier.until_queued(MIN_QUEUE).await;
    let key = fresh_key();
    let rejected = order(&key).await;
    let is_waiting = |connection: &TcpStream| connection.try_read(&mut [0]).is_err();
    assert!(queued.iter().all(is_waiting), "it is rejected while the others wait");
    assert_eq!(rejected.header("retry-after"), "1");
    rejected.fails(503, "overloaded");
    let text = metrics(&shop, 0).await;
    assert_eq!(value(&text, "holdfast_batch_queue_full_total"), Some(1.0));
    // A finished key is looked up before it is rejected, unless the lookup takes too long.
    until("the finished key is replayed while the queue is full", async || {
        let response = order(&done).await;
        response.is_replayed() && response.status == 201
    })
    .await;
    barrier.open().await;
    behind.succeeds(201).await;
    for connection in &mut queued {
        assert_eq!(status(connection).await, "HTTP/1.1 201");
    }
    until("the rejected key succeeds", async || order(&key).await.status == 201).await;
    let audit = shop.item_audit(&sku).await;
    assert_eq!((&audit["sold"], &audit["ok"]), (&(MIN_QUEUE + 3).into(), &true.into()));
}

/// Sends an order, and returns the connection. A whole HTTP client would take as much of the
/// machine as the replica: hundreds of orders have to be queued before the first one times out.
async fn send_order(shop: &TestShop, user: &User, sku: &str) -> TcpStream {
    let address = shop.replicas[0].base_url.strip_prefix("http://").unwrap();
    let body = json!({ "lines": [{ "sku": sku, "quantity": 1 }] }).to_string();
    let request = format!(
        "POST /api/orders HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Idempotency-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        user.token,
        fresh_key(),
        body.len(),
    );
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// On one thread, so that all lookups are requested before the first one begins.
#[tokio::test]
async fn rejected_duplicates_still_get_replays() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(10, 100).await;
    let finished = fresh_key();
    let order = || alice.orders(&sku, 1).key(&finished).send();
    let placed = order().succeeds(201).await;
    let (user, fingerprint): (_, Vec<u8>) =
        sqlx::query_as("select user_id, fingerprint from idempotency where key = $1")
            .bind(&finished)
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    let fingerprint: [u8; 32] = fingerprint.try_into().unwrap();
    let domain = shop.in_process("batched");
    let request = |key: IdempotencyKey| {
        let request = IdempotencyRequest::new(UserId(user), Operation::PlaceOrder, Some(key), "");
        IdempotencyRequest { fingerprint, ..request }
    };
    let lookups = (0..4_000).map(|n| {
        let key = if n % 999 == 0 { finished.clone() } else { fresh_key() };
        let (request, domain) = (request(key.try_into().unwrap()), &domain);
        async move { domain.engine.duplicates.find(&request, REQUEST_TIMEOUT).await }
    });
    for (n, stored) in join_all(lookups).await.into_iter().enumerate() {
        match stored {
            Some(Ok(stored)) if n % 999 == 0 => {
                let order: serde_json::Value =
                    serde_json::from_slice(&stored.response.body).unwrap();
                assert_eq!(order["id"], placed["id"]);
            }
            None if n % 999 != 0 => {}
            other => panic!("{n}: {other:?}"),
        }
    }
}

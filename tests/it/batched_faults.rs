//! `batched` while Postgres or Redis fails: every client learns the outcome of its order with the
//! idempotency key that it sent.

use std::cell::Cell;
use std::future::{Future, ready};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast_checker::ObservedOutcome;
use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::observer::RequestRecorder;
use holdfast_testkit::proxy::{self, StatementProxy, Traffic};
use holdfast_testkit::topology::query;
use holdfast_testkit::{Call, TestShop, fresh_key, services, until};

use crate::outages::shop_behind;

const CONCURRENT_BUYERS: usize = 48;
/// More than the test sells.
const LARGE_STOCK: i64 = 1_000_000;
/// Longer than any request takes.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients buy for as long as the fault lasts; each retries until it knows the outcome.
pub async fn buy_during(
    observer: &RequestRecorder<'_>,
    sku: &str,
    fault: impl Future<Output = ()>,
) {
    let over = Cell::new(false);
    let buyers = stream::iter(0..).take_while(|_| ready(!over.get())).for_each_concurrent(
        CONCURRENT_BUYERS,
        |n| async move {
            let key = fresh_key();
            let bought = observer.buy(n, &key, &[(sku, 1)], REQUEST_TIMEOUT).await;
            assert!(matches!(bought, ObservedOutcome::Done { .. }), "{bought:?}");
        },
    );
    let fault = async {
        fault.await;
        over.set(true);
    };
    futures_util::join!(buyers, fault);
}

pub async fn until_sold_more(shop: &TestShop, more: i64) {
    let before = shop.number("select count(*) from orders").await;
    until("more is sold", async || {
        shop.number("select count(*) from orders").await >= before + more
    })
    .await;
}

#[tokio::test]
async fn terminated_postgres_sessions_lose_nothing() {
    let shop = TestShop::start(2).await;
    let observer = RequestRecorder::of(&shop).await;
    let sku = shop.shop_item(LARGE_STOCK, 100).await;
    let failed =
        || observer.count(|it| *it == ObservedOutcome::Rejected || *it == ObservedOutcome::Unknown);
    let end_transactions = || {
        shop.number(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity
              where datname = current_database()
                and (backend_xid is not null or wait_event_type = 'Lock')
                and application_name = 'holdfast'",
        )
    };
    let fault = async {
        // These end before their commit: they wait for the item's row.
        for _ in 0..12 {
            let mut row = shop.pool.begin().await.unwrap();
            let lock = sqlx::query("select from items where sku = $1 for update").bind(&sku);
            lock.execute(&mut *row).await.unwrap();

            let before = failed();
            until("an order failed", async || {
                end_transactions().await;
                failed() > before
            })
            .await;
            row.rollback().await.unwrap();
        }

        // These end at any time; one that has committed is found by its keys.
        for _ in 0..100 {
            end_transactions().await;
        }
    };
    buy_during(&observer, &sku, fault).await;
    observer.assert_consistent(0, &[&sku]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_batch_outcome_is_resolved() {
    for is_written in [true, false] {
        resolve_batch_outcome(is_written).await;
    }
}

/// The batch requests more than the stock. Its response is lost, or its write arrives late.
async fn resolve_batch_outcome(is_written: bool) {
    let postgres = StatementProxy::start().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(25, 100).await;
    let keys: Vec<String> = (0..30).map(|_| fresh_key()).collect();
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let mut sent = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        let order = alice.orders(&sku, 1).key(key);
        let pause = if n == 0 { "commit:1500" } else { "commit:0" };
        sent.push(order.pause(pause).send());
        barrier.until_queued(n + 1).await;
    }
    barrier.open().await;
    shop.until_one_is_paused(&admin, "commit").await;
    if is_written {
        postgres.drop_next_response();
    } else {
        postgres.delay_next_statement();
    }
    let mut responses = Vec::new();
    for (n, sent) in sent.into_iter().enumerate() {
        let response = sent.await;
        assert!(!response.is_replayed());
        // The last five are sold out if the others were executed.
        let expected = match n {
            _ if !is_written => (503, "unavailable"),
            0..25 => (201, ""),
            _ => (409, "sold-out"),
        };
        assert_eq!(response.outcome(), expected, "{response}");
        responses.push(response.body);
    }
    if !is_written {
        postgres.deliver().await.unwrap();
        assert_eq!(shop.number("select count(*) from orders").await, 0);
        return;
    }
    for (key, first) in keys.iter().zip(responses).take(25) {
        let again = alice.orders(&sku, 1).key(key).await;
        assert!(again.is_replayed());
        assert_eq!(again.succeeds(201), first);
    }
    for key in &keys[25..] {
        alice.orders(&sku, 1).key(key).fails(409, "sold-out").await;
    }
    assert_eq!(shop.order_transactions().await, 1);
    shop.until_no_locks_are_held(0).await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_write_after_resolution_changes_nothing() {
    let postgres = StatementProxy::start().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    for strategy in ["batched", "fenced"] {
        let sku = shop.shop_item(25, 100).await;
        let key = fresh_key();
        let order = || alice.orders(&sku, 1).key(&key).lock(strategy);
        let orders = shop.number("select count(*) from orders").await;
        let sent = order().pause("commit:1000").send();
        shop.until_one_is_paused(&admin, "commit").await;
        postgres.delay_next_statement();
        sent.fails(503, "unavailable").await;
        // The response says that nothing was done, and this must stay true.
        postgres.deliver().await.unwrap();
        assert_eq!(shop.number("select count(*) from orders").await, orders, "{strategy}");

        // Other writes are refused until a commit has ended, as this one did not end.
        let mut again = order().await;
        until("writes are accepted again", async || {
            if again.outcome() == (503, "unavailable") {
                again = order().await;
            }
            again.status != 503
        })
        .await;
        assert!(!again.is_replayed(), "{strategy}");
        assert_eq!(again.status, 201, "{strategy}");
        assert_eq!(shop.number("select count(*) from orders").await, orders + 1, "{strategy}");
    }
    shop.until_no_locks_are_held(0).await;
    shop.assert_sound().await;
}

/// The connection of a write that waits for its row is lost, and the write commits.
#[tokio::test(flavor = "multi_thread")]
async fn resolution_waits_for_running_write() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(25, 100).await;
    let mut holder = shop.pool.begin().await.unwrap();
    let hold = sqlx::query("select from items where sku = $1 for update").bind(&sku);
    hold.execute(&mut *holder).await.unwrap();
    let sent = alice.orders(&sku, 1).send();
    until("the write waits", async || shop.waiting_sessions().await == 1).await;
    postgres.cut_clients().await;
    until("the resolution waits behind it", async || shop.waiting_sessions().await == 2).await;
    holder.commit().await.unwrap();
    sent.succeeds(201).await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

/// A late write without a version check would overwrite that of the next holder.
#[tokio::test(flavor = "multi_thread")]
async fn unversioned_write_keeps_lock_until_it_expires() {
    for (strategy, kept) in [("owner", 1), ("fenced", 0)] {
        let postgres = proxy::to_postgres().await;
        let shop = shop_behind(Some(&postgres), None).await;
        let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
        let sku = shop.lab_item(25).await;
        let sent = alice.orders(&sku, 1).lock(strategy).ttl_ms(20_000).pause("commit:1000").send();
        shop.until_one_is_paused(&admin, "commit").await;
        postgres.cut().await;
        let body = sent.fails(503, "unavailable").await;
        assert_eq!(body["outcome"], "unknown", "{strategy}: {body}");
        let exists = format!("EXISTS {}lock:{{sku:{sku}}}", shop.prefix);
        let locks: i64 = query(&services().running.redis_url, &exists).unwrap();
        assert_eq!(locks, kept, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_outcome_is_unknown_without_postgres() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(25, 100).await;
    let keys: Vec<String> = (0..10).map(|_| fresh_key()).collect();
    let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
    let sent: Vec<_> = keys
        .iter()
        .map(|key| alice.orders(&sku, 1).key(key).pause("commit:700"))
        .map(Call::send)
        .collect();
    barrier.until_queued(keys.len()).await;
    barrier.open().await;
    shop.until_one_is_paused(&admin, "commit").await;
    postgres.cut().await;
    for sent in sent {
        let body = sent.fails(503, "unavailable").await;
        assert_eq!(body["outcome"], "unknown", "{body}");
    }
    postgres.set(Traffic::Forwarded);
    assert_eq!(shop.number("select count(*) from orders").await, 0);
    // The idempotency lock is left to expire, as the write may be in flight; then the key succeeds.
    for key in &keys {
        until("the same key succeeds", async || {
            let again = alice.orders(&sku, 1).key(key).await;
            again.status == 201 && !again.is_replayed()
        })
        .await;
    }
    assert_eq!(shop.number("select count(*) from orders").await, 10);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_redis_flushes_lose_nothing() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let observer = RequestRecorder::of(&shop).await;
    let sku = shop.shop_item(LARGE_STOCK, 100).await;
    let fault = async {
        for _ in 0..8 {
            until_sold_more(&shop, 60).await;
            let _: String = query(&redis.url, "FLUSHALL").unwrap();
        }
    };
    buy_during(&observer, &sku, fault).await;
    observer.assert_consistent(0, &[&sku]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_without_its_lock_cannot_write() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let alice = shop.promoted("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.shop_item(10, 100).await;
    let lock = format!("{}lock:{{sku:{sku}}}", shop.prefix);
    let first = alice.orders(&sku, 1).pause("read:1500").send();
    shop.until_one_is_paused(&admin, "read").await;
    let deleted: i64 = query(&redis.url, &format!("DEL {lock}")).unwrap();
    assert_eq!(deleted, 1);
    // The next holder does not wait: no row is locked.
    let second = alice.at(1).orders(&sku, 1).await.succeeds(201);
    assert_eq!(second["lines"][0]["stock"]["before"], 10);
    first.fails(503, "lock-lost").await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.until_no_locks_are_held(0).await;
    shop.assert_sound().await;
}

//! A Postgres that does not respond: connections stay open, and nothing arrives on them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_shop::Error;
use holdfast_shop::db;
use holdfast_shop::jobs::{Job, RunOutcome, Scheduler};
use holdfast_shop::probe::Probe;
use holdfast_testkit::proxy::{self, Proxy, StatementProxy, Traffic};
use holdfast_testkit::{BUSY_MACHINE, LEASE, TestShop, id_of, until};
use serde_json::json;
use sqlx::{Executor as _, Row as _};
use tokio::time::timeout;

use crate::jobs::{DUE, job, offer, replica, replica_over};
use crate::outages::{send_in_time, shop_behind};

const REQUEST_TIME: Duration = Duration::from_secs(8);

fn url_behind(proxy: &Proxy, shop: &TestShop) -> String {
    format!("postgres://holdfast@127.0.0.1:{}/{}", proxy.port, shop.database)
}

/// More requests than connections: those that wait for one are not rejected as overload.
#[tokio::test(flavor = "multi_thread")]
async fn silent_postgres_is_unavailable_in_time() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.sign_in("alice").await;
    let mut items = vec!["deadbolt".to_owned()];
    for _ in 0..3 {
        items.push(shop.lab_item(100).await);
    }
    // All connections are in use a moment before the silence, and none is pinged first.
    let read = || shop.anonymous().get("/api/items");
    for response in join_all((0..40).map(|_| read().send())).await {
        assert_eq!(response.status, 200);
    }
    postgres.set(Traffic::Withheld);
    let orders = items.iter().flat_map(|sku| (0..4).map(move |_| sku));
    let orders = orders.map(|sku| send_in_time(alice.orders(sku, 1)));
    let direct = (0..4).map(|n| {
        let order = alice.orders(&items[1 + n % 3], 1);
        send_in_time(order.lock(["fenced", "row-lock"][n % 2]))
    });
    let reads = (0..40).map(|_| send_in_time(read()));
    let (orders, direct, reads) =
        futures_util::join!(join_all(orders), join_all(direct), join_all(reads));
    for response in orders.into_iter().chain(direct).chain(reads) {
        response.fails(503, "unavailable");
    }
    assert_eq!(send_in_time(shop.anonymous().get("/readyz")).await.status, 503);
    postgres.set(Traffic::Forwarded);
    until("service is back", async || alice.orders("deadbolt", 1).await.status == 201).await;
    shop.assert_sound().await;
}

/// No other request uses Postgres: the write's own probe detects the outage, without waiting for
/// the timeout of the write (3.3 s) and then for a connection (1.5 s).
#[tokio::test(flavor = "multi_thread")]
async fn silent_write_is_given_up_early() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    let sent = alice.orders("deadbolt", 1).pause("commit:300").send();
    shop.until_one_is_paused(&admin, "commit").await;
    postgres.set(Traffic::Withheld);
    let began = Instant::now();
    let response = sent.await;
    let elapsed = began.elapsed();
    let rejected = response.fails(503, "unavailable");
    assert_eq!(rejected["outcome"], "unknown");
    assert!(elapsed < Duration::from_millis(3_300 + 1_500), "{elapsed:?}");
    postgres.set(Traffic::Forwarded);
    shop.assert_sound().await;
}

/// A firewall that drops connections: each costs its next user 300 ms.
#[tokio::test(flavor = "multi_thread")]
async fn forgotten_idle_connections_are_replaced() {
    let postgres = proxy::to_postgres().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.sign_in("alice").await;
    let read = || shop.anonymous().get("/api/items");
    for response in join_all((0..40).map(|_| read().send())).await {
        assert_eq!(response.status, 200);
    }
    until("all sessions of the replica are idle for a second", async || {
        let used = "select count(*) from pg_stat_activity
                     where datname = current_database() and application_name = 'holdfast'
                       and state_change > clock_timestamp() - interval '1.1 s'";
        shop.number(used).await == 0
    })
    .await;
    postgres.set(Traffic::WithheldOnOlder(tokio::time::Instant::now()));
    let orders = (0..8).map(|_| send_in_time(alice.orders("deadbolt", 1)));
    let reads = (0..40).map(|_| send_in_time(read()));
    let (orders, reads) = futures_util::join!(join_all(orders), join_all(reads));
    for response in orders {
        assert_eq!(response.status, 201);
    }
    for response in reads {
        assert_eq!(response.status, 200);
    }
    shop.assert_sound().await;
}

/// The caller gives up while `begin` is in flight. The next caller's statements are autocommitted.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_begin_leaves_no_transaction() {
    let postgres = StatementProxy::start().await;
    let shop = TestShop::without_replicas().await;
    let pool = db::pool(&url_behind(&postgres, &shop), 1).unwrap();
    drop(pool.acquire().await.unwrap());
    postgres.delay_next_statement();
    let cancelled = timeout(Duration::from_millis(100), pool.begin()).await;
    assert!(cancelled.is_err(), "`begin` is in flight");
    postgres.deliver().await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    // In the simple protocol, an autocommitted transaction begins with its statement.
    let row = connection.fetch_one("select now() <> statement_timestamp()").await.unwrap();
    let open: bool = row.get(0);
    assert!(!open);
}

/// The caller gives up; the statement is cancelled, and another caller gets a connection.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_read_frees_its_connection() {
    let shop = TestShop::without_replicas().await;
    let pool = db::pool(&shop.database_url(), 1).unwrap();
    let mut connection = pool.acquire().await.unwrap();
    connection.execute("set statement_timeout = '60s'").await.unwrap();
    let asleep = "select count(*) from pg_stat_activity
                   where datname = current_database() and query like 'select pg_sleep%'
                     and state = 'active'";
    let read = async { connection.execute("select pg_sleep(60)").await.map(drop) };
    let sleeps = until("it sleeps", async || shop.number(asleep).await == 1);
    tokio::select! {
        _ = read => panic!("the read ended"),
        () = sleeps => {}
    }
    drop(connection);
    pool.acquire().await.unwrap();
    until("the statement is cancelled", async || shop.number(asleep).await == 0).await;
}

/// Without the lab, a paused process keeps its rows no longer than a lease.
#[tokio::test(flavor = "multi_thread")]
async fn idle_transaction_releases_rows_like_lease() {
    let shop = TestShop::start(1).await;
    let pool = db::pool(&shop.database_url(), 2).unwrap();
    let mut paused = pool.begin().await.unwrap();
    paused.execute("select from items where sku = 'deadbolt' for update").await.unwrap();
    let began = Instant::now();
    let mut waiting = shop.pool.acquire().await.unwrap();
    waiting.execute("select from items where sku = 'deadbolt' for update").await.unwrap();
    assert!(began.elapsed() < LEASE + BUSY_MACHINE, "{:?}", began.elapsed());
    // The lab's own pauses may be longer.
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(1).await;
    alice.orders(&sku, 1).lock("row-lock").pause("read:4000").ok().await;
}

static CLAIMED: Job = job("claimed", |_| Box::pin(async { Ok(json!({})) }));

/// Offers the job's tick. Fails if that takes longer than its attempts to write may.
async fn offer_in_time(to: &Scheduler, job: &'static Job) -> Result<RunOutcome, Error> {
    let offered = to.offer(job, DUE, Probe::Off);
    timeout(Duration::from_secs(15), offered).await.expect("the run ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_claim_ends_in_time() {
    let postgres = StatementProxy::start().await;
    let shop = TestShop::without_replicas().await;
    let a = replica_over(&shop, "a", &CLAIMED, &url_behind(&postgres, &shop));
    postgres.delay_next_statement();
    let outcome = offer_in_time(&a, &CLAIMED).await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    let b = replica(&shop, "b", &CLAIMED);
    assert!(matches!(offer(&b, &CLAIMED, DUE).await, RunOutcome::Done(_)));
}

static BEFORE_RECORD: OnceLock<StatementProxy> = OnceLock::new();
static RECORDED: Job = job("recorded", |_| {
    Box::pin(async {
        BEFORE_RECORD.get().unwrap().delay_next_statement();
        Ok(json!({}))
    })
});

#[tokio::test(flavor = "multi_thread")]
async fn silent_record_is_written_again() {
    let postgres = StatementProxy::start().await;
    let shop = TestShop::without_replicas().await;
    let a = replica_over(&shop, "a", &RECORDED, &url_behind(&postgres, &shop));
    assert!(BEFORE_RECORD.set(postgres).is_ok());
    let outcome = offer_in_time(&a, &RECORDED).await;
    assert!(matches!(outcome, Ok(RunOutcome::Done(_))), "{outcome:?}");
    assert_eq!(shop.number("select count(*) from job_runs where state = 'done'").await, 1);
}

/// A connection that falls silent between two statements: each read is its own test, so that none
/// waits for the end of the request's time.
#[tokio::test(flavor = "multi_thread")]
async fn read_does_not_wait_for_a_silent_connection() {
    let postgres = StatementProxy::start().await;
    let shop = shop_behind(Some(&postgres), None).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 1).ok().await;
    let order = format!("/api/orders/{}", id_of(&order));

    for path in [order.as_str(), "/api/items/deadbolt"] {
        until("it responds", async || alice.get(path).await.status == 200).await;
        postgres.delay_next_statement();
        let began = Instant::now();
        alice.get(path).fails(503, "unavailable").await;
        assert!(
            began.elapsed() < REQUEST_TIME - Duration::from_secs(1),
            "{path}: {:?}",
            began.elapsed()
        );
        postgres.deliver().await.unwrap();
    }
}

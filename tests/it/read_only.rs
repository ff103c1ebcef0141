//! A Postgres that responds and cannot write: a standby, a full disk, an I/O error.

use holdfast_testkit::barrier::Barrier;
use holdfast_testkit::{TestShop, fresh_key, until};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _};

/// Error codes of a server that cannot write, or of a session that must be replaced.
const CODES: [&str; 5] = ["25006", "53100", "53200", "58030", "0A000"];
const BATCH: usize = 40;
/// What customers buy from.
const PAGES: [&str; 3] = ["/shop", "/items/deadbolt", "/basket"];

/// One batch costs two transactions at most: it is not retried in halves.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_write_is_unavailable_and_known() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for code in CODES {
        let sku = shop.shop_item(1_000, 100).await;
        // A sequence counts attempts that are rolled back, too.
        let trigger = format!(
            "create sequence attempts;
             create function fail() returns trigger language plpgsql as $$ begin
                 perform nextval('attempts');
                 raise exception using errcode = '{code}';
             end $$;
             create trigger fail before insert on orders
                 for each statement execute function fail()"
        );
        shop.pool.execute(AssertSqlSafe(trigger)).await.unwrap();
        let mut barrier = Barrier::before_idle_item(&shop, &sku).await;
        let keys: Vec<String> = (0..BATCH).map(|_| fresh_key()).collect();
        let sent: Vec<_> = keys.iter().map(|key| alice.orders(&sku, 1).key(key).send()).collect();
        barrier.until_queued(BATCH).await;
        barrier.open().await;
        for sent in sent {
            let response = sent.await;
            assert!(!response.header("retry-after").is_empty(), "{code}");
            let body = response.fails(503, "unavailable");
            assert_eq!(body["outcome"], Value::Null, "{code}: the outcome is known");
        }
        let attempts = shop.number("select last_value from attempts").await;
        assert!(attempts <= 2, "{code}: {attempts} transactions");
        let removal = "drop function fail cascade; drop sequence attempts";
        shop.pool.execute(removal).await.unwrap();
        let again = alice.orders(&sku, 1).key(&keys[0]).await;
        assert_eq!(again.status, 201, "{code}: no lock is left");
    }
    shop.assert_sound().await;
}

/// After a failover the old primary is a standby; a new session may find the new primary.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_is_not_ready() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let ready = async || {
        let ready = shop.anonymous().get("/readyz").await;
        (ready.status, ready.body["postgres"].clone())
    };
    let set_read_only = async |value: &str| {
        let database = &shop.database;
        let set = format!("alter database {database} set default_transaction_read_only = {value}");
        let mut admin = shop.pool.begin().await.unwrap();
        admin.execute("set transaction read write").await.unwrap();
        admin.execute(AssertSqlSafe(set)).await.unwrap();
        admin.commit().await.unwrap();
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where datname = current_database() and application_name = 'holdfast'";
        assert!(shop.number(end).await > 0);
    };
    let sku = shop.lab_item(10).await;
    assert_eq!(ready().await, (200, "ok".into()));
    set_read_only("on").await;
    until("the replica is not ready", async || ready().await == (503, "read-only".into())).await;
    for strategy in ["batched", "fenced", "version", "row-lock"] {
        let body = alice.orders(&sku, 1).lock(strategy).fails(503, "unavailable").await;
        assert_eq!(body["outcome"], Value::Null, "{strategy}");
    }
    assert_eq!(shop.anonymous().get("/api/items").await.status, 200);
    let is_paused = async |path: &str| {
        let page = alice.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        page.text().contains("Selling is paused.")
    };
    for path in PAGES {
        assert!(is_paused(path).await, "{path}");
    }
    set_read_only("off").await;
    until("the replica is ready", async || ready().await == (200, "ok".into())).await;
    for path in PAGES {
        assert!(!is_paused(path).await, "{path}");
    }
    assert_eq!(alice.orders("deadbolt", 1).await.status, 201);
    shop.assert_sound().await;
}

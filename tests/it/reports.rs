//! Running sums, and the cost of reports: pages do not read the history, audits have their own
//! connections, and a long audit reports its progress.

use std::time::Duration;

use holdfast_shop::Sku;
use holdfast_shop::audit::{self, AuditStatus};
use holdfast_testkit::{TestShop, until};
use sqlx::{Connection as _, Executor as _, PgConnection};

/// The running sums of an item, and its stock.
async fn sums(shop: &TestShop, sku: &str) -> [i64; 4] {
    let row: (i64, i64, i64, i64) =
        sqlx::query_as("select opening, restocked, sold, stock::bigint from items where sku = $1")
            .bind(sku)
            .fetch_one(&shop.pool)
            .await
            .unwrap();
    row.into()
}

/// A connection of the test that keeps every session from reading a table.
async fn lock_tables(shop: &TestShop, tables: &str) -> PgConnection {
    let options = shop.pool.connect_options();
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    let lock = format!("begin; lock table {tables} in access exclusive mode");
    connection.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn running_sums_follow_every_change() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.promoted("alice").await, shop.sign_in("admin").await);
    let [opening, ..] = sums(&shop, "deadbolt").await;
    let mut sold = 0;
    for (n, strategy) in ["batched", "fenced", "atomic", "row-lock", "version"].iter().enumerate() {
        for actions in [&[][..], &["pay"], &["cancel"], &["pay", "refund"]] {
            // One line alone is batched, two are not.
            let lines = &[("deadbolt", 1), ("key-ring", 1)][..2 - n % 2];
            let order = alice.orders_all(lines).lock(strategy).ok().await;
            for action in actions {
                alice.acts(&order, action).lock(strategy).ok().await;
            }
        }
        sold += 2;
        for delta in [7, -4] {
            admin.restocks("deadbolt", delta).lock(strategy).ok().await;
        }
        let restocked = 3 * (i64::try_from(n).unwrap() + 1);
        let expected = [opening, restocked, sold, opening + restocked - sold];
        assert_eq!(sums(&shop, "deadbolt").await, expected, "{strategy}");
    }
    shop.assert_sound().await;
}

/// The sums are incremented, while `none` writes a stock that it computed from a read.
#[tokio::test(flavor = "multi_thread")]
async fn lost_update_breaks_the_equation() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(10).await;
    let mut paused = Vec::new();
    for _ in 0..2 {
        paused.push(shop.pause(&admin, alice.orders(&sku, 1).lock("none"), "read").await);
    }
    for order in paused {
        shop.resume(&admin, order).await.ok();
    }
    assert_eq!(sums(&shop, &sku).await, [10, 0, 2, 9]);
    let sku = Sku::try_from(sku).unwrap();
    let summary = audit::summary(&mut shop.pool.acquire().await.unwrap(), &sku).await.unwrap();
    assert_eq!(summary.unwrap().unaccounted(), -1);
}

/// Public pages are complete while orders and ledgers cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn common_pages_read_no_history() {
    let shop = TestShop::start(1).await;
    let _locked = lock_tables(&shop, "stock_ledger, orders, order_lines").await;
    for path in ["/", "/shop", "/bar", "/basket"] {
        let page = shop.anonymous().get(path).await;
        assert_eq!(page.status, 200, "{path}");
        let text = page.text();
        assert!(text.contains("the books balance"), "{path}: {text}");
    }
}

/// Returns the ledger entries that this session has read and not yet reported.
async fn entries_read(db: &mut sqlx::PgConnection) -> i64 {
    let read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables
                 where relname = 'stock_ledger'";
    sqlx::query_scalar(read).fetch_one(db).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn item_page_reads_bounded_history() {
    let shop = TestShop::start(1).await;
    sqlx::raw_sql(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         select 'deadbolt', 39 + n, 1, 40 + n, n, 'restock', gen_random_uuid()
           from generate_series(1, 30000) n;
         update items set stock = 30040, restocked = 30000, version = 30001 where sku = 'deadbolt';
         analyze stock_ledger",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    shop.assert_sound().await;
    let sku = Sku::try_from("deadbolt".to_owned()).unwrap();
    let mut tx = shop.pool.begin().await.unwrap();
    // The counters of a session include its transactions of the last second.
    let before = entries_read(&mut tx).await;
    let summary = audit::summary(&mut tx, &sku).await.unwrap().unwrap();
    assert!(summary.adds_up() && !summary.is_complete, "{summary:?}");
    assert_eq!(audit::forks_near(&mut tx, &sku, 15_000).await.unwrap(), []);
    let read = entries_read(&mut tx).await - before;
    assert!(read <= 3_000, "{read} entries were read");
    drop(tx);
    let page = shop.anonymous().get("/items/deadbolt/ledger").await;
    let text = page.text();
    assert!(text.contains("The books balance") && text.contains("latest 1000 entries"), "{text}");
    // A break among the latest entries is found.
    sqlx::raw_sql(
        "update stock_ledger set before = before + 1, after = after + 1
          where sku = 'deadbolt' and seq = (select max(seq) - 5 from stock_ledger)",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    let summary =
        audit::summary(&mut shop.pool.acquire().await.unwrap(), &sku).await.unwrap().unwrap();
    assert_eq!((summary.breaks, summary.drift, summary.oversold), (2, 0, 0));
}

/// Audits of items wait for a locked ledger: one for all requests of an item, two in all. The rest
/// of the replica serves.
#[tokio::test(flavor = "multi_thread")]
async fn item_audits_have_their_own_connections() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let locked = lock_tables(&shop, "stock_ledger").await;
    let audits = |skus: Vec<String>| {
        let requests = skus
            .into_iter()
            .map(|sku| shop.anonymous().get(&format!("/api/items/{sku}/audit")).send());
        requests.collect::<Vec<_>>()
    };
    let same = audits(vec!["deadbolt".to_owned(); 24]);
    until("an audit waits", async || shop.waiting_sessions().await == 1).await;
    let others = audits((0..24).map(|n| format!("item-{n}")).collect());
    until("two audits wait", async || shop.waiting_sessions().await == 2).await;
    for _ in 0..20 {
        alice.reads("/api/me").await;
        let waiting = shop.waiting_sessions().await;
        assert!(waiting <= 2, "{waiting} sessions wait");
    }
    drop(locked);
    for audit in same.into_iter().chain(others) {
        let status = audit.await.status;
        assert!([200, 404, 503].contains(&status), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_audit_is_joined_not_repeated() {
    let shop = TestShop::start(1).await;
    let reports = shop.in_process("batched").audits;
    let locked = lock_tables(&shop, "top_ups").await;
    let wait = Duration::from_millis(1);
    until("the audit waits at a check", async || match reports.whole_audit(wait).await.unwrap() {
        AuditStatus::Running(progress) => progress.check == "top-ups" && progress.done > 10,
        AuditStatus::Done(_) => panic!("the audit can't end"),
    })
    .await;
    // The progress names a check before its statement has reached the lock.
    until("its statement waits", async || shop.waiting_sessions().await > 0).await;
    assert_eq!(shop.waiting_sessions().await, 1);
    drop(locked);
    let AuditStatus::Done(report) = reports.whole_audit(Duration::from_secs(20)).await.unwrap()
    else {
        panic!("the audit does not end");
    };
    assert!(report.ok, "{report:#?}");
    // The next call begins a new one.
    shop.execute("update items set stock = stock + 1").await;
    let next = reports.whole_audit(Duration::from_secs(20)).await.unwrap();
    assert!(matches!(next, AuditStatus::Done(report) if !report.ok));
}

/// API and page wait for a while, say how far the audit is, and later have its result.
#[tokio::test(flavor = "multi_thread")]
async fn long_audit_responds_with_progress() {
    let shop = TestShop::start(1).await;
    let admin = shop.sign_in("admin").await;
    let locked = lock_tables(&shop, "top_ups").await;
    let (api, page) = (admin.get("/api/audit").send(), admin.get("/audit").send());
    let (api, page) = (api.await, page.await);
    assert_eq!(api.header("retry-after"), "1");
    let progress = api.succeeds(202);
    assert_eq!(progress["check"], "top-ups");
    let [done, total] = ["done", "total"].map(|name| progress[name].as_u64().unwrap());
    assert!(0 < done && done < total, "{progress}");
    assert_eq!((page.status, page.header("refresh")), (200, "1"));
    assert!(page.text().contains("check: <code>top-ups</code>"));
    drop(locked);
    assert_eq!(admin.reads("/api/audit").await["ok"], true);
}

#[tokio::test]
async fn audit_counts_more_violations_than_listed() {
    let shop = TestShop::without_replicas().await;
    shop.execute(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         select 'no-such-item', 0, 5, 5, n, 'found', gen_random_uuid()
           from generate_series(1, 1000) n",
    )
    .await;
    let audit = shop.audit().await;
    let check = audit.checks.iter().find(|check| check.name == "stock-entries").unwrap();
    assert_eq!(check.detail.matches("there is no such item").count(), 5, "{}", check.detail);
    assert!(check.detail.ends_with("; and 995 more"), "{}", check.detail);
}

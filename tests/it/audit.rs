//! The audit: it succeeds after load, and a check detects every forgery.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdfast_shop::audit;
use holdfast_shop::{Sku, UserId};
use holdfast_testkit::TestShop;
use holdfast_testkit::recorded_state;
use reqwest::Method;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::forgeries::{COLUMNS, FORGERIES, ForgedColumn, OTHER_TABLES, UNCHECKED_COLUMNS};

/// A shop with orders in every status and a top-up.
pub async fn shop_with_history() -> TestShop {
    let shop = TestShop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    for who in [&alice, &bob] {
        for actions in [&[][..], &["pay"], &["cancel"], &["pay", "refund"]] {
            let lines = [("key-ring", 3), ("deadbolt", 1)];
            let order = who.orders_all(&lines).ok().await;
            for action in actions {
                who.acts(&order, action).ok().await;
            }
        }
    }
    bob.tops_up(5).succeeds(201).await;
    shop.assert_sound().await;
    shop
}

async fn pay_in_lab(shop: &TestShop) {
    let alice = shop.sign_in("alice").await;
    let lab = shop.lab_item(5).await;
    for actions in [&["pay"][..], &["pay", "refund"]] {
        let order = alice.orders(&lab, 1).ok().await;
        for action in actions {
            alice.acts(&order, action).ok().await;
        }
    }
}

/// Forges a copy of the database, and returns the checks that fail.
async fn failing_checks(shop: &TestShop, forgery: &str) -> Vec<String> {
    let forged = shop.copy().await;
    sqlx::raw_sql(AssertSqlSafe(forgery.to_owned())).execute(&forged.pool).await.unwrap();
    let failing = forged.failing_checks().await;
    forged.pool.close().await;
    failing
}

/// A database that can be copied, which has orders of the lab, too.
async fn database_to_forge() -> TestShop {
    let mut shop = shop_with_history().await;
    pay_in_lab(&shop).await;
    shop.execute("update users set nickname = 'Mia', folded_nickname = 'mia' where name = 'carol'")
        .await;
    shop.assert_sound().await;
    // A database with open connections can't be copied.
    shop.replicas.clear();
    shop.pool.close().await;
    shop
}

#[tokio::test]
async fn every_forgery_is_caught() {
    let shop = database_to_forge().await;
    for forgery in &FORGERIES {
        let failing = failing_checks(&shop, forgery.sql).await;
        for check in forgery.caught_by {
            assert!(failing.iter().any(|name| name == check), "{}: {failing:?}", forgery.what);
        }
    }
}

#[tokio::test]
async fn every_forged_column_is_caught() {
    let shop = database_to_forge().await;
    for ForgedColumn { column, value, rows, caught_by } in &COLUMNS {
        let (table, name) = column.split_once('.').unwrap();
        // Also forges what the constraints of Postgres would reject.
        let forgery = format!(
            "set session_replication_role = replica;
             alter table stock_ledger drop constraint stock_ledger_sum;
             alter table balance_ledger drop constraint balance_ledger_sum;
             update {table} set {name} = {value} where {rows}"
        );
        let failing = failing_checks(&shop, &forgery).await;
        assert!(failing.iter().any(|name| name == caught_by), "{column}: {failing:?}");
    }
}

/// A new column needs a check, or a reason why it has none.
#[tokio::test]
async fn every_column_is_forged_or_explained() {
    let shop = TestShop::without_replicas().await;
    let columns: Vec<String> = sqlx::query_scalar(
        "select table_name || '.' || column_name from information_schema.columns
          where table_schema = 'public' and table_name <> all($1)",
    )
    .bind(OTHER_TABLES)
    .fetch_all(&shop.pool)
    .await
    .unwrap();
    let forged = COLUMNS.iter().map(|forged| forged.column);
    let unchecked = UNCHECKED_COLUMNS.iter().map(|(column, _)| *column);

    let listed: BTreeSet<&str> = forged.chain(unchecked).collect();
    let existing: BTreeSet<&str> = columns.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), COLUMNS.len() + UNCHECKED_COLUMNS.len(), "each is listed once");
    assert_eq!(listed, existing);
}

#[tokio::test]
async fn every_check_has_a_forgery() {
    let shop = TestShop::without_replicas().await;
    let of_columns = COLUMNS.iter().map(|forged| forged.caught_by);
    let of_rows = FORGERIES.iter().flat_map(|forgery| forgery.caught_by.iter().copied());
    let failing: BTreeSet<&str> = of_columns.chain(of_rows).collect();
    for check in shop.audit().await.checks {
        assert!(failing.contains(check.name.as_str()), "no forgery makes {} fail", check.name);
    }
}

/// An order with a missing line would look complete, and return too few units when cancelled.
#[tokio::test]
async fn line_without_entry_is_an_error() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("key-ring", 1).ok().await;
    let path = format!("/api/orders/{}", order["id"].as_str().unwrap());
    sqlx::raw_sql("update order_lines set entry_seq = entry_seq + 1000")
        .execute(&shop.pool)
        .await
        .unwrap();

    let cancel = format!("{path}/cancel");
    for (method, path) in
        [(Method::GET, "/api/orders"), (Method::GET, &path), (Method::POST, &cancel)]
    {
        let response = alice.request(method, path).await;
        assert_eq!(response.status, 500, "{path}");
    }
    assert_eq!(shop.failing_checks().await, ["order-lines", "stock-entries"]);
}

/// Numbers that do not grow with the versions: two checks say so, and the others go by versions.
/// Here all sales and payments have lower numbers than the entries before them.
#[tokio::test]
async fn numbers_out_of_order_break_only_the_chains() {
    let shop = shop_with_history().await;
    sqlx::raw_sql(
        "update order_lines set limit_per_user = 9 where sku = 'key-ring';
         update stock_ledger l set seq = new.seq
           from (select sku, version, 1000000 + row_number() over (order by delta > 0, version desc)
                        as seq from stock_ledger) new
          where l.sku = new.sku and l.version = new.version;
         update order_lines l set entry_seq = e.seq from stock_ledger e
          where e.sku = l.sku and e.order_id = l.order_id and e.reason = 'order';
         update balance_ledger l set seq = new.seq
           from (select user_id, version,
                        1000000 + row_number() over (order by delta > 0, version desc) as seq
                   from balance_ledger) new
          where l.user_id = new.user_id and l.version = new.version;
         select setval('stock_ledger_seq_seq', max(seq)) from stock_ledger;
         select setval('balance_ledger_seq_seq', max(seq)) from balance_ledger",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    assert_eq!(shop.failing_checks().await, ["stock-chain", "balance-chain"]);
    let pool = shop.pool.clone().into();
    let skus = ["key-ring", "deadbolt"].map(|sku| Sku::try_from(sku.to_owned()).unwrap());
    for sku in &skus {
        let item = audit::check_item(&pool, sku).await.unwrap().unwrap();
        assert!(item.ok && item.oversold == 0 && item.breaks == 0, "{item:#?}");
    }
    let users: Vec<Uuid> =
        sqlx::query_scalar("select user_id from accounts").fetch_all(&shop.pool).await.unwrap();
    let users: Vec<UserId> = users.into_iter().map(UserId).collect();
    let recorded = recorded_state::read(&shop.pool, &skus, &users).await;
    assert_eq!(holdfast_checker::check(&recorded, &[]), []);
}

#[tokio::test]
async fn audit_is_sound_after_load() {
    let shop = TestShop::start(2).await;
    let users =
        [shop.sign_in("alice").await, shop.sign_in("bob").await, shop.sign_in("carol").await];
    let journeys = (0..60).map(|n| {
        let who = &users[n % 3];
        async move {
            let lines = [("brass-padlock", 1 + n as i64 % 3), ("last-lantern", 1)];
            let lines = if n % 10 == 0 { &lines[..] } else { &lines[..1] };
            let order = who.at(n % 2).orders_all(lines).await;
            if order.status != 201 {
                assert!([409, 503].contains(&order.status), "{}", order.status);
                return;
            }
            for action in [["pay"], ["cancel"], ["refund"]].concat().iter().skip(n % 2).take(n % 3)
            {
                let done = who.at((n + 1) % 2).acts(&order.body, action).await;
                let status = done.status;
                assert!([200, 402, 409, 503].contains(&status), "{status}");
            }
        }
    });
    futures_util::future::join_all(journeys).await;
    assert!(shop.number("select count(*) from orders").await > 10);
    shop.assert_sound().await;
}

/// Without statistics, a join by the sku alone would compare each of these orders with all others,
/// for half a minute.
#[tokio::test]
async fn audit_of_unanalyzed_tables_is_fast() {
    check_speed_of_audit("").await;
}

/// When they were made, an item had one line: by its index a row was found as fast as by the key.
#[tokio::test]
async fn audit_with_old_statistics_is_fast() {
    check_speed_of_audit(
        "insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
             select md5(sku)::uuid, sku, 1, 5, 'Goods', 0 from items;
         analyze order_lines, stock_ledger;
         delete from order_lines;",
    )
    .await;
}

/// Audits many orders of one item. (They have no key records, which the audit reports.)
async fn check_speed_of_audit(statistics: &'static str) {
    let shop = TestShop::without_replicas().await;
    sqlx::raw_sql(
        "alter table orders set (autovacuum_enabled = false);
         alter table order_lines set (autovacuum_enabled = false);
         alter table stock_ledger set (autovacuum_enabled = false)",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    sqlx::raw_sql(statistics).execute(&shop.pool).await.unwrap();
    sqlx::raw_sql(
        "create temporary table numbers as
             select n, md5(n::text)::uuid as id from generate_series(1, 60000) n;
         insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select numbers.id, users.id, 'pending', 5, n, now(), now()
               from numbers, users where name = 'alice';
         insert into order_lines (order_id, sku, quantity, unit_price_cents, name, entry_seq)
             select id, 'deadbolt', 1, 5, 'Bolt', 1000 + n from numbers;
         insert into stock_ledger
             (seq, sku, before, delta, after, version, reason, order_id, request_id)
             select 1000 + n, 'deadbolt', 60001 - n, -1, 60000 - n, n, 'order', id, id from numbers",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    let began = Instant::now();
    let audit = shop.audit().await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let entries = audit.checks.iter().find(|check| check.name == "stock-entries").unwrap();
    assert!(entries.ok, "{}", entries.detail);
}

#[tokio::test]
async fn only_admin_reads_the_audit() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    alice.get("/api/audit").fails(403, "forbidden").await;
    let audit = admin.reads("/api/audit").await;
    assert_eq!(audit["ok"], true);
    assert_eq!(audit["checks"].as_array().unwrap().len(), 28);
}

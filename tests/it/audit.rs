//! The audit: sound after load, and every forgery is found by its check.

use std::time::{Duration, Instant};

use holdfast::shop::audit;
use holdfast::shop::{Sku, UserId};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::common::{Shop, body, problem};
use crate::forgeries::{FORGERIES, Forgery, LAB_FORGERIES};
use crate::{checker, recorded_state};

/// Books with something of everything in them: orders pending, paid, cancelled and refunded.
pub async fn busy_books() -> Shop {
    let shop = Shop::start(1).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    for who in [&alice, &bob] {
        for actions in [&[][..], &["pay"], &["cancel"], &["pay", "refund"]] {
            let order = shop
                .request(who, Method::POST, 0, "/api/orders")
                .header("Idempotency-Key", Uuid::new_v4().to_string())
                .json(&json!({ "lines": [
                    { "sku": "key-ring", "quantity": 3 }, { "sku": "deadbolt", "quantity": 1 },
                ] }));
            let order = body(order.send().await.unwrap(), StatusCode::CREATED).await;
            for action in actions {
                let path = format!("/api/orders/{}/{action}", order["id"].as_str().unwrap());
                let done = shop
                    .request(who, Method::POST, 0, &path)
                    .header("Idempotency-Key", Uuid::new_v4().to_string());
                body(done.send().await.unwrap(), StatusCode::OK).await;
            }
        }
    }
    shop.assert_sound().await;
    shop
}

/// Pays and refunds orders of a lab item.
async fn pay_in_lab(shop: &Shop) {
    let alice = shop.sign_in("alice").await;
    let lab = shop.lab_item(5).await;
    for actions in [&["pay"][..], &["pay", "refund"]] {
        let order = shop.place_order(&alice, &lab, 1).await;
        for action in actions {
            let path = format!("/api/orders/{}/{action}", order["id"].as_str().unwrap());
            let done = shop.request(&alice, Method::POST, 0, &path);
            let done = done.header("Idempotency-Key", Uuid::new_v4().to_string());
            body(done.send().await.unwrap(), StatusCode::OK).await;
        }
    }
}

async fn assert_caught(mut books: Shop, forgeries: &[Forgery]) {
    // A database with open connections can't be copied.
    books.replicas.clear();
    books.pool.close().await;
    for forgery in forgeries {
        let forged = books.copy().await;
        forged.assert_sound().await;
        sqlx::raw_sql(AssertSqlSafe(forgery.sql.to_owned())).execute(&forged.pool).await.unwrap();
        let failing = forged.failing_checks().await;
        for check in forgery.caught_by {
            assert!(failing.iter().any(|name| name == check), "{}: {failing:?}", forgery.what);
        }
        forged.pool.close().await;
    }
}

#[tokio::test]
async fn every_forgery_is_caught() {
    assert_caught(busy_books().await, &FORGERIES).await;
}

#[tokio::test]
async fn forged_payer_is_caught() {
    let books = busy_books().await;
    pay_in_lab(&books).await;
    assert_caught(books, &LAB_FORGERIES).await;
}

/// A statement may take its number before another one that commits first. Here all sales and
/// payments have lower numbers than what was there before them.
#[tokio::test]
async fn sequence_numbers_out_of_order_are_sound() {
    let shop = busy_books().await;
    sqlx::raw_sql(
        "update order_lines set limit_per_user = 9 where sku = 'key-ring';
         update stock_ledger l set seq = new.seq
           from (select sku, version, 1000000 + row_number() over (order by delta > 0, version desc)
                        as seq from stock_ledger) new
          where l.sku = new.sku and l.version = new.version;
         update balance_ledger l set seq = new.seq
           from (select user_id, version,
                        1000000 + row_number() over (order by delta > 0, version desc) as seq
                   from balance_ledger) new
          where l.user_id = new.user_id and l.version = new.version",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    shop.assert_sound().await;
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
    assert_eq!(checker::check(&recorded, &[]), []);
}

#[tokio::test]
async fn every_check_has_a_forgery() {
    let shop = Shop::without_replicas().await;
    for check in shop.audit().await.checks {
        let forged = FORGERIES.iter().any(|f| f.caught_by.contains(&check.name.as_str()));
        assert!(forged, "nothing shows that {} can fail", check.name);
    }
}

#[tokio::test]
async fn audit_is_sound_after_load() {
    let shop = Shop::start(2).await;
    let users =
        [shop.sign_in("alice").await, shop.sign_in("bob").await, shop.sign_in("carol").await];
    let journeys = (0..60).map(|n| {
        let (shop, who) = (&shop, &users[n % 3]);
        async move {
            let lines = json!({ "lines": [
                { "sku": "brass-padlock", "quantity": 1 + n % 3 }, { "sku": "last-lantern", "quantity": 1 },
            ] });
            let lines = if n % 10 == 0 { lines } else { json!({ "lines": [lines["lines"][0]] }) };
            let order = shop
                .request(who, Method::POST, n % 2, "/api/orders")
                .header("Idempotency-Key", Uuid::new_v4().to_string())
                .json(&lines);
            let order = order.send().await.unwrap();
            if order.status() != 201 {
                assert!([409, 503].contains(&order.status().as_u16()), "{}", order.status());
                return;
            }
            let order: serde_json::Value = order.json().await.unwrap();
            for action in [["pay"], ["cancel"], ["refund"]].concat().iter().skip(n % 2).take(n % 3) {
                let path = format!("/api/orders/{}/{action}", order["id"].as_str().unwrap());
                let done = shop
                    .request(who, Method::POST, (n + 1) % 2, &path)
                    .header("Idempotency-Key", Uuid::new_v4().to_string());
                let status = done.send().await.unwrap().status().as_u16();
                assert!([200, 402, 409, 503].contains(&status), "{status}");
            }
        }
    });
    futures_util::future::join_all(journeys).await;
    assert!(shop.number("select count(*) from orders").await > 10);
    shop.assert_sound().await;
}

/// Without statistics, a join by the sku alone would compare each of these orders with all others,
/// for half a minute. (They have no key records, which the audit reports.)
#[tokio::test]
async fn audit_of_unanalyzed_tables_is_fast() {
    let shop = Shop::without_replicas().await;
    sqlx::raw_sql(
        "alter table orders set (autovacuum_enabled = false);
         alter table order_lines set (autovacuum_enabled = false);
         alter table stock_ledger set (autovacuum_enabled = false);
         create temporary table numbers as
             select n, md5(n::text)::uuid as id from generate_series(1, 60000) n;
         insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select numbers.id, users.id, 'pending', 5, n, now(), now()
               from numbers, users where name = 'alice';
         insert into order_lines (order_id, sku, quantity, unit_price_cents, entry_seq)
             select id, 'deadbolt', 1, 5, n from numbers;
         insert into stock_ledger (sku, before, delta, after, version, reason, order_id, request_id)
             select 'deadbolt', 60001 - n, -1, 60000 - n, n, 'order', id, id from numbers",
    )
    .execute(&shop.pool)
    .await
    .unwrap();
    let began = Instant::now();
    let audit = shop.audit().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let entries = audit.checks.iter().find(|check| check.name == "stock-entries").unwrap();
    assert!(entries.ok, "{}", entries.detail);
}

#[tokio::test]
async fn only_admin_reads_the_audit() {
    let shop = Shop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let denied = shop.request(&alice, Method::GET, 0, "/api/audit").send().await.unwrap();
    assert_eq!(problem(denied, 403).await, "forbidden");
    let audit = shop.read(&admin, "/api/audit").await;
    assert_eq!(audit["ok"], true);
    assert_eq!(audit["checks"].as_array().unwrap().len(), 22);
}

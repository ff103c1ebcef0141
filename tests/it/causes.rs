//! Problems name their cause for every kind of failure in Postgres.

use holdfast_testkit::TestShop;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _};

/// Makes every insert of an order fail with that code.
async fn fail_orders(shop: &TestShop, code: &str) {
    let trigger = format!(
        "create function fail() returns trigger language plpgsql as $$ begin
             raise exception using errcode = '{code}';
         end $$;
         create trigger fail before insert on orders
             for each statement execute function fail()"
    );
    shop.pool.execute(AssertSqlSafe(trigger)).await.unwrap();
}

#[tokio::test]
async fn failed_orders_name_their_cause() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    for (code, problem_type, cause) in [
        ("40001", "overloaded", "another change was written first"),
        ("40P01", "overloaded", "another change was written first"),
        ("57014", "overloaded", "Postgres cancelled a statement"),
        ("53300", "overloaded", "every connection to Postgres is in use"),
        ("55P03", "lock-timeout", "a row stayed locked in Postgres"),
        ("25006", "unavailable", "Postgres accepts no writes now"),
        ("42501", "unavailable", "Postgres refuses the shop's user"),
        ("25P03", "unavailable", "Postgres ended a session that was idle for too long"),
        ("57P05", "unavailable", "Postgres ended a session that was idle for too long"),
        ("0A000", "unavailable", "or a migration changed a table"),
    ] {
        fail_orders(&shop, code).await;
        let body = alice.orders("deadbolt", 1).fails(503, problem_type).await;
        assert!(body["detail"].as_str().unwrap().contains(cause), "{code}: {body}");
        assert_eq!(body["outcome"], Value::Null, "{code}: nothing was written");
        shop.pool.execute("drop function fail cascade").await.unwrap();
    }
    alice.orders("deadbolt", 1).ok().await;
    shop.assert_sound().await;
}

#[tokio::test]
async fn given_up_retries_say_how_often_they_conflicted() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(10).await;
    fail_orders(&shop, "40001").await;
    for strategy in ["version", "serializable"] {
        let body = alice.orders(&sku, 1).lock(strategy).fails(503, "overloaded").await;
        let detail = body["detail"].as_str().unwrap();
        let attempts: Vec<u32> = detail.split(' ').filter_map(|it| it.parse().ok()).collect();
        assert!(attempts.iter().any(|attempts| *attempts > 1), "{strategy}: {detail}");
        assert!(detail.contains("attempts another change was written first"), "{detail}");
    }
    shop.pool.execute("drop function fail cascade").await.unwrap();
    alice.orders(&sku, 1).lock("version").ok().await;
    shop.assert_sound().await;
}

#[tokio::test]
async fn pages_explain_given_up_retries_in_chinese() {
    let shop = TestShop::start(1).await;
    let page = shop.anonymous().get("/problems").header("Accept-Language", "zh").await.text();
    assert!(page.contains("其他修改每次都先写入"), "{page}");
}

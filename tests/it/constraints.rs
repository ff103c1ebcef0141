//! Writes that the database rejects by itself, independent of locks.

use sqlx::error::DatabaseError;

use crate::audit::shop_with_history;

/// Invalid writes, each with the constraint that rejects it.
const INVALID_WRITES: [(&str, &str); 29] = [
    ("update items set sku = 'No Sku' where sku = 'lonely'", "items_sku_shape"),
    ("update items set name = ''", "items_name_length"),
    ("update items set name = repeat('x', 201)", "items_name_length"),
    ("update items set price_cents = -1", "items_price_range"),
    ("update items set price_cents = 1000000001", "items_price_range"),
    ("update items set stock = -1", "items_stock_not_negative"),
    // An item of the shop has no exception.
    ("update items set stock = -1, may_go_below_zero = true", "items_stock_not_negative"),
    ("update items set stock = 2000000001", "items_stock_range"),
    ("update items set stock = -2000000001", "items_stock_range"),
    ("update items set kind = 'stall'", "shop_or_lab"),
    ("update items set limit_per_user = 0", "customer_limit_range"),
    ("update items set limit_per_user = 1001", "customer_limit_range"),
    ("update orders set status = 'lost'", "orders_status"),
    ("update orders set status = 'paid' where status = 'pending'", "orders_paid_at"),
    ("update orders set total_cents = -1", "cents_not_negative"),
    ("update order_lines set quantity = 0", "order_lines_quantity"),
    ("update order_lines set quantity = 50001", "order_lines_quantity"),
    ("update order_lines set unit_price_cents = -1", "cents_not_negative"),
    ("update order_lines set limit_per_user = 1001", "customer_limit_range"),
    ("update stock_ledger set before = before + 1", "stock_ledger_sum"),
    ("update stock_ledger set reason = ''", "stock_ledger_reason"),
    ("update accounts set balance_cents = -1", "accounts_balance_range"),
    ("update accounts set balance_cents = 1000000000000001", "accounts_balance_range"),
    ("update accounts set kind = 'stall'", "shop_or_lab"),
    ("update balance_ledger set before = -1, after = delta - 1", "cents_not_negative"),
    ("update balance_ledger set before = before + 1", "balance_ledger_sum"),
    ("update balance_ledger set reason = 'gift'", "balance_ledger_reason"),
    ("update idempotency set key = repeat('k', 15)", "idempotency_key_length"),
    ("update idempotency set key = repeat('k', 256)", "idempotency_key_length"),
];

#[tokio::test]
async fn invalid_values_violate_a_named_constraint() {
    let shop = shop_with_history().await;
    shop.execute("insert into items (sku, name, price_cents, stock) values ('lonely', 'L', 1, 0)")
        .await;
    for (sql, name) in INVALID_WRITES {
        let done = sqlx::raw_sql(sql).execute(&shop.pool).await;
        let rejected = done.as_ref().err().and_then(sqlx::Error::as_database_error);
        assert_eq!(rejected.and_then(DatabaseError::constraint), Some(name), "{sql}: {done:?}");
        assert_eq!(rejected.and_then(DatabaseError::code).as_deref(), Some("23514"), "{sql}");
    }
}

#[tokio::test]
async fn rows_referenced_by_orders_cannot_change() {
    let shop = shop_with_history().await;
    let user =
        "insert into users (id, name, password_hash) values (gen_random_uuid(), 'unused', '')";
    let item =
        "insert into items (sku, name, price_cents, stock) values ('nothing', 'Nothing', 1, 0)";
    for sql in [user, item] {
        sqlx::raw_sql(sql).execute(&shop.pool).await.unwrap();
    }
    for (sql, ok) in [
        ("delete from orders where status = 'pending'", false),
        ("update orders set id = gen_random_uuid() where status = 'pending'", false),
        ("delete from items where sku = 'key-ring'", false),
        ("update items set sku = 'key-rings' where sku = 'key-ring'", false),
        ("update items set sku = 'something' where sku = 'nothing'", true),
        ("delete from items where sku = 'something'", true),
        // Her account and her sessions would prevent it, too.
        (
            "begin; set local session_replication_role = replica;
          delete from accounts; delete from sessions; commit",
            true,
        ),
        ("update users set id = gen_random_uuid() where name = 'alice'", false),
        ("delete from users where name = 'alice'", false),
        ("delete from users where name = 'unused'", true),
    ] {
        let done = sqlx::raw_sql(sql).execute(&shop.pool).await;
        let rejected = done.as_ref().err().and_then(sqlx::Error::as_database_error);
        let code = rejected.and_then(DatabaseError::code);
        assert_eq!(code.as_deref(), (!ok).then_some("23503"), "{sql}: {done:?}");
    }
}

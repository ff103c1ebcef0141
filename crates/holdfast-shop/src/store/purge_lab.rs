//! Deletes throw-away items of the lab with their orders, payments, ledger and key records.
//!
//! Items that one order names belong together, and so do the items of further orders that name
//! these: they are deleted together, or not at all, so that no order loses a line.

use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::Pool;
use crate::failure::Error;
use crate::idempotency::ORDERS_PATH;
use crate::types::Sku;

#[derive(Debug, PartialEq, Eq)]
struct ConnectedItems {
    skus: Vec<String>,
    orders: Vec<Uuid>,
}

/// Returns the sku before which the lab's items of before `now - age` sort: each begins with its
/// time of creation.
pub fn oldest_kept(age: Duration) -> String {
    let oldest = OffsetDateTime::now_utc() - age;
    format!("lab-{:012x}", oldest.unix_timestamp_nanos() / 1_000_000)
}

/// Returns lab items that sort behind `after` and before `before`, in order. Not those of a race,
/// which are deleted with it.
pub async fn lab_items_between(
    pool: &Pool,
    after: &str,
    before: &str,
    limit: i64,
) -> Result<Vec<Sku>, Error> {
    let skus = sqlx::query_scalar!(
        r#"select sku as "sku: Sku" from items i
            where sku > $1 and sku < $2 and kind = 'lab'
              and not exists (select from lab_runs run where run.sku = i.sku)
            order by sku limit $3"#,
        after,
        before,
        limit,
    );
    Ok(skus.fetch_all(&mut *pool.acquire().await?).await?)
}

/// Deletes a lab item and those that belong to it, in one transaction. Returns `false`, and deletes
/// nothing, if one of them sorts behind `newest`, or while one of their orders is pending.
pub async fn purge_lab_item(pool: &Pool, sku: &Sku, newest: &str) -> Result<bool, Error> {
    let mut tx = pool.begin().await?;
    let found = connected_items(&mut tx, sku).await?;
    if found.skus.iter().any(|sku| sku.as_str() > newest) {
        tx.rollback().await?;
        return Ok(false);
    }
    // In the order of a command. An order locks its items' rows, or its units, so none is committed
    // between the check and the deletion; one that was committed before the locks shows below.
    sqlx::query!("select from orders where id = any($1) order by id for update", &found.orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("select from items where sku = any($1) order by sku for update", &found.skus)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "select from item_units where sku = any($1) order by sku, unit for update",
        &found.skus
    )
    .execute(&mut *tx)
    .await?;

    if connected_items(&mut tx, sku).await? != found || is_in_use(&mut tx, &found).await? {
        tx.rollback().await?;
        return Ok(false);
    }

    delete(&mut tx, &found).await?;
    tx.commit().await?;
    Ok(true)
}

async fn connected_items(db: &mut PgConnection, sku: &Sku) -> sqlx::Result<ConnectedItems> {
    let skus = sqlx::query_scalar!(
        r#"with recursive connected (sku) as (
               select $1::text collate "C"
                union
               select other.sku from connected c
                 join order_lines l on l.sku = c.sku
                 join order_lines other on other.order_id = l.order_id
           )
           select sku as "sku!" from connected order by sku"#,
        sku.as_str(),
    )
    .fetch_all(&mut *db)
    .await?;
    let orders = sqlx::query_scalar!(
        "select distinct order_id from order_lines where sku = any($1) order by order_id",
        &skus,
    )
    .fetch_all(db)
    .await?;
    Ok(ConnectedItems { skus, orders })
}

/// Returns whether a pending order would lose its units, or the shop an item or a payment.
async fn is_in_use(db: &mut PgConnection, found: &ConnectedItems) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select from orders where id = any($1) and status = 'pending')
               or exists (select from items where sku = any($2) and kind <> 'lab')
               or exists (select from balance_ledger e
                            join accounts a on a.user_id = e.user_id and a.kind <> 'lab'
                           where e.order_id = any($1)) as "is_in_use!""#,
        &found.orders,
        &found.skus,
    )
    .fetch_one(db)
    .await
}

async fn delete(db: &mut PgConnection, found: &ConnectedItems) -> sqlx::Result<()> {
    let ConnectedItems { skus, orders } = found;
    // The id of a key record, as `Operation::record_id` computes it.
    sqlx::query!(
        "delete from idempotency where id in (
             select encode(substring(sha256(convert_to(
                        user_id || ' POST ' || $2::text || ' ' || token, 'UTF8'))
                    from 1 for 16), 'hex')::uuid
               from orders where id = any($1))",
        orders,
        ORDERS_PATH,
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from order_lines where order_id = any($1)", orders)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from balance_ledger where order_id = any($1)", orders)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from orders where id = any($1)", orders).execute(&mut *db).await?;
    // Also of units.
    sqlx::query!("delete from stock_ledger where sku = any($1)", skus).execute(&mut *db).await?;
    sqlx::query!("delete from item_units where sku = any($1)", skus).execute(&mut *db).await?;
    sqlx::query!("delete from items where sku = any($1) and kind = 'lab'", skus)
        .execute(db)
        .await?;
    Ok(())
}

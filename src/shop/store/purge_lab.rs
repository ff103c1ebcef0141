//! Deletes a throw-away item of the lab with its orders, ledger and key records.

use crate::db::Pool;
use crate::shop::failure::Error;
use crate::shop::idempotency::ORDERS_PATH;
use crate::shop::types::Sku;

/// Deletes a lab item and everything about it, in one transaction. Returns `false`, and deletes
/// nothing, while one of its orders is pending or paid, or has lines of other items.
pub async fn purge_lab_item(pool: &Pool, sku: &Sku) -> Result<bool, Error> {
    let sku = sku.as_str();
    let mut tx = pool.begin().await?;
    // An order locks the item's row, so none is committed between the check and the deletion.
    sqlx::query!("select from items where sku = $1 for update", sku)
        .fetch_optional(&mut *tx)
        .await?;
    let is_in_use = sqlx::query_scalar!(
        r#"select exists (
               select from order_lines l join orders o on o.id = l.order_id
                where l.sku = $1 and (o.status <> 'cancelled'
                   or exists (select from order_lines other
                               where other.order_id = o.id and other.sku <> $1))
           ) or exists (select from items where sku = $1 and kind <> 'lab') as "is_in_use!""#,
        sku,
    )
    .fetch_one(&mut *tx)
    .await?;
    if is_in_use {
        tx.rollback().await?;
        return Ok(false);
    }
    // The id of a key record, as `idempotency::record_id` computes it.
    let orders = sqlx::query_scalar!(
        "with keys as (
             select encode(substring(sha256(convert_to(
                        o.user_id || ' POST ' || $2::text || ' ' || o.token, 'UTF8'))
                    from 1 for 16), 'hex')::uuid as id
               from order_lines l join orders o on o.id = l.order_id where l.sku = $1
         ), records as (
             delete from idempotency i using keys where i.id = keys.id
         )
         delete from order_lines where sku = $1 returning order_id",
        sku,
        ORDERS_PATH,
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!("delete from orders where id = any($1)", &orders).execute(&mut *tx).await?;
    sqlx::query!("delete from stock_ledger where sku = $1", sku).execute(&mut *tx).await?;
    sqlx::query!("delete from items where sku = $1 and kind = 'lab'", sku)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(true)
}

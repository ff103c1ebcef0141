//! The statement that places orders: it writes orders and their lines, the rows of items, ledger
//! entries, and key records with their responses.

use sqlx::PgConnection;
use uuid::Uuid;

use super::changed_rows::fence_of;
use super::{BatchWrite, WriteResult, column};
use crate::command::changes::{NewOrder, StockChange};
use crate::failure::Error;
use crate::idempotency::ORDERS_PATH;
use crate::model::OrderLine;

struct PlacedLine<'a> {
    new: &'a NewOrder,
    line: &'a OrderLine,
    limit: Option<i64>,
    change: &'a StockChange,
    fence: Option<i64>,
    request_id: Uuid,
}

/// Writes orders in one statement, all or nothing.
/// Fails with [`Error::Conflict`] if a key record was inserted since the read. After
/// [`Error::Unavailable`] the outcome is unknown.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub async fn place(db: &mut PgConnection, batches: &[&BatchWrite]) -> Result<WriteResult, Error> {
    let items = super::item_rows(batches);

    let mut orders = Vec::new();
    let mut lines = Vec::new();
    for batch in batches {
        for write in &batch.commands {
            let Some(new) = &write.changes.order else { continue };
            orders.push((write, new));

            let changes = new.order.lines.iter().zip(&new.limits).zip(&write.changes.stock);
            lines.extend(changes.map(|((line, limit), change)| PlacedLine {
                new,
                line,
                limit: *limit,
                change,
                fence: fence_of(&batch.rows.items, &line.sku),
                request_id: write.request_id,
            }));
        }
    }

    // As in `transition`, each part selects from what it waits for. Key records are inserted in
    // sorted order, or two statements with the same two keys would deadlock.
    let holds = sqlx::query_scalar!(
        r#"with row_lock_timeout as materialized (
             select case when $26::text is not null
                         then set_config('lock_timeout', $26, true) end),
         locked_items as materialized (
             select i.sku
               from row_lock_timeout,
                    unnest($1::text[], $2::bigint[], $3::bigint[]) as g (sku, version, fence)
               join items i on i.sku = g.sku
              where (g.version is null or i.version = g.version)
                and (g.fence is null or i.fence <= g.fence)
              order by i.sku for no key update of i),
         guard as materialized (select count(*) = cardinality($1) as holds from locked_items),

         updated_items as (
             update items i
                set stock = r.stock, version = i.version + r.increment,
                    fence = coalesce(r.fence, i.fence), sold = i.sold + r.sold
               from guard, unnest($1::text[], $3::bigint[], $4::bigint[], $5::bigint[],
                                  $27::bigint[])
                           as r (sku, fence, stock, increment, sold)
              where guard.holds and i.sku = r.sku and r.stock is not null),

         new_orders as (
             select o.* from guard,
                    unnest($6::uuid[], $7::uuid[], $8::bigint[], $9::text[], $10::timestamptz[],
                           $11::bytea[], $12::bytea[], $25::uuid[], $13::timestamptz[])
                    as o (id, user_id, total_cents, token, expires_at, fingerprint, body,
                          record_id, created_at)
              where guard.holds),
         inserted_orders as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select id, user_id, 'pending', total_cents, token, created_at, expires_at
               from new_orders),

         new_lines as materialized (
             select nextval('stock_ledger_seq_seq') as seq, l.* from guard,
                    unnest($14::uuid[], $15::uuid[], $16::text[], $17::bigint[], $18::bigint[],
                           $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::uuid[],
                           $28::text[], $29::text[])
                    with ordinality
                    as l (order_id, user_id, sku, quantity, price, max_per_user, before, version,
                          fence, request_id, name, name_zh, place)
              where guard.holds order by place),
         inserted_lines as (
             insert into order_lines (order_id, sku, quantity, unit_price_cents, name, name_zh,
                                      counts_for, limit_per_user, entry_seq)
             select order_id, sku, quantity, price, name, name_zh, user_id, max_per_user, seq
               from new_lines),
         inserted_entries as (
             insert into stock_ledger
                 (seq, sku, before, delta, after, version, fence, reason, order_id, request_id)
             select seq, sku, before, -quantity, before - quantity, version, fence, 'order',
                    order_id, request_id
               from new_lines),

         inserted_keys as (
             insert into idempotency
                 (id, user_id, method, path, key, fingerprint, status, body, order_id)
             select record_id, user_id, 'POST', $24, token, fingerprint, 201, body, id
               from new_orders order by record_id)

         select holds as "holds!" from guard"#,
        &column(&items, |(_, row)| row.key.as_str()) as &[&str],
        &column(&items, |(_, row)| row.version) as &[Option<i64>],
        &column(&items, |(_, row)| row.fence) as &[Option<i64>],
        &column(&items, |(_, row)| row.value) as &[Option<i64>],
        &column(&items, |(_, row)| row.increment),
        &column(&orders, |(_, new)| new.order.id.0),
        &column(&orders, |(_, new)| new.user.0),
        &column(&orders, |(_, new)| new.order.total_cents),
        &column(&orders, |(write, _)| write.idempotency.key.as_str()) as &[&str],
        &column(&orders, |(_, new)| new.order.expires_at),
        &column(&orders, |(write, _)| write.idempotency.fingerprint.as_slice()) as &[&[u8]],
        &column(&orders, |(write, _)| write.response.body.as_slice()) as &[&[u8]],
        &column(&orders, |(_, new)| new.order.created_at),
        &column(&lines, |line| line.new.order.id.0),
        &column(&lines, |line| line.new.user.0),
        &column(&lines, |line| line.line.sku.as_str()) as &[&str],
        &column(&lines, |line| line.line.quantity),
        &column(&lines, |line| line.line.unit_price_cents),
        &column(&lines, |line| line.limit) as &[Option<i64>],
        &column(&lines, |line| line.change.before),
        &column(&lines, |line| line.change.version),
        &column(&lines, |line| line.fence) as &[Option<i64>],
        &column(&lines, |line| line.request_id),
        ORDERS_PATH,
        &column(&orders, |(write, _)| write.idempotency.id),
        super::row_lock_timeout(batches),
        &column(&items, |(batch, row)| batch.sold(&row.key)),
        &column(&lines, |line| line.line.names.name.as_str()) as &[&str],
        &column(&lines, |line| line.line.names.name_zh.as_deref()) as &[Option<&str>],
    )
    .fetch_one(db)
    .await
    .map_err(super::key_records::duplicate_key_conflict)?;

    Ok(WriteResult::from_guard(holds))
}

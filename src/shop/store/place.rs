//! The statement that places orders: it writes orders and their lines, the rows of items, ledger
//! entries, and key records with their responses.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::changed_rows::{ChangedRows, GuardedRows, SumIncrements};
use super::{BatchWrite, CommandWrite, WriteResult};
use crate::shop::command::changes::{NewOrder, NewOrderLine, StockChange};
use crate::shop::failure::Error;
use crate::shop::idempotency::ORDERS_PATH;

/// Columns of new orders, one row each.
#[derive(Default)]
struct OrderColumns<'a> {
    ids: Vec<Uuid>,
    users: Vec<Uuid>,
    totals: Vec<i64>,
    keys: Vec<&'a str>,
    creations: Vec<OffsetDateTime>,
    expiries: Vec<OffsetDateTime>,
    fingerprints: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    records: Vec<Uuid>,
}

/// Columns of order lines, one row each; a line is one ledger entry.
#[derive(Default)]
struct LineColumns<'a> {
    orders: Vec<Uuid>,
    users: Vec<Uuid>,
    skus: Vec<&'a str>,
    quantities: Vec<i64>,
    prices: Vec<i64>,
    limits: Vec<Option<i64>>,
    befores: Vec<i64>,
    versions: Vec<i64>,
    fences: Vec<Option<i64>>,
    requests: Vec<Uuid>,
}

/// Writes orders in one statement, all or nothing.
/// Fails with [`Error::Conflict`] if a key record was inserted since the read. After
/// [`Error::Unavailable`] the outcome is unknown.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub async fn place(db: &mut PgConnection, batches: &[&BatchWrite]) -> Result<WriteResult, Error> {
    let (mut rows, mut sums) = (GuardedRows::default(), SumIncrements::default());
    let (mut orders, mut lines) = (OrderColumns::default(), LineColumns::default());
    for batch in batches {
        let BatchWrite { rows: ChangedRows { items, .. }, commands, .. } = batch;
        rows.extend(items);
        sums.extend(items, batch.stock_changes());
        for write in commands {
            let Some(order) = &write.changes.order else { continue };
            orders.push(write, order);
            for (line, change) in order.lines.iter().zip(&write.changes.stock) {
                let fence = items.fence(line.sku.as_str());
                lines.push(write, order, (line, change), fence);
            }
        }
    }
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
                           $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::uuid[])
                    with ordinality
                    as l (order_id, user_id, sku, quantity, price, max_per_user, before, version,
                          fence, request_id, place)
              where guard.holds order by place),
         inserted_lines as (
             insert into order_lines (order_id, sku, quantity, unit_price_cents, counts_for,
                                      limit_per_user, entry_seq)
             select order_id, sku, quantity, price, user_id, max_per_user, seq from new_lines),
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
        &rows.keys,
        &rows.versions as &[Option<i64>],
        &rows.fences as &[Option<i64>],
        &rows.values as &[Option<i64>],
        &rows.increments,
        &orders.ids,
        &orders.users,
        &orders.totals,
        &orders.keys as &[&str],
        &orders.expiries,
        &orders.fingerprints as &[&[u8]],
        &orders.bodies as &[&[u8]],
        &orders.creations,
        &lines.orders,
        &lines.users,
        &lines.skus as &[&str],
        &lines.quantities,
        &lines.prices,
        &lines.limits as &[Option<i64>],
        &lines.befores,
        &lines.versions,
        &lines.fences as &[Option<i64>],
        &lines.requests,
        ORDERS_PATH,
        &orders.records,
        super::row_lock_timeout(batches),
        &sums.sold,
    )
    .fetch_one(db)
    .await
    .map_err(super::key_records::duplicate_key_conflict)?;
    Ok(WriteResult::from_guard(holds))
}

impl<'a> OrderColumns<'a> {
    fn push(&mut self, write: &'a CommandWrite, order: &'a NewOrder) {
        self.ids.push(order.id.0);
        self.users.push(order.user.0);
        self.totals.push(order.total_cents);
        self.keys.push(&order.key);
        self.creations.push(order.created_at);
        self.expiries.push(order.expires_at);
        self.fingerprints.push(&write.idempotency.fingerprint);
        self.bodies.push(&write.response.body);
        self.records.push(write.idempotency.id);
    }
}

impl<'a> LineColumns<'a> {
    fn push(
        &mut self,
        write: &CommandWrite,
        order: &'a NewOrder,
        (line, change): (&'a NewOrderLine, &'a StockChange),
        fence: Option<i64>,
    ) {
        self.orders.push(order.id.0);
        self.users.push(order.user.0);
        self.skus.push(line.sku.as_str());
        self.quantities.push(line.quantity);
        self.prices.push(line.unit_price_cents);
        self.limits.push(line.limit_per_user);
        self.befores.push(change.before);
        self.versions.push(change.version);
        self.fences.push(fence);
        self.requests.push(write.request_id);
    }
}

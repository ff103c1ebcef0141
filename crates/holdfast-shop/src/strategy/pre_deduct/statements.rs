//! Orders of `pre-deduct`, whose units left a counter in Redis: the statement that inserts them,
//! and the settlement that takes their units from the item's row, with the ledger entries.
//!
//! Guarantees: the settlement reads what is unsettled under the row's lock, never before it, so any
//! number of processes may settle an item at once, and its time does not grow with their number. A
//! line that the row has no units for stays unsettled: it is oversold, and the audit says so.

use sqlx::PgConnection;

use crate::db::Pool;
use crate::failure::Error;
use crate::idempotency::ORDERS_PATH;
use crate::model::OrderStatus;
use crate::probe::Point;
use crate::store::key_records::duplicate_key_conflict;
use crate::store::{BatchWrite, WriteResult, column};
use crate::{OrderId, Sku, UserId};

/// The statements for an item, at the points at which the lab shows them.
pub(super) const SENDS: &[(Point, &str)] = &[
    (Point::Deducted, "if GET counter >= quantity\nthen DECRBY counter quantity"),
    (Point::Read, "select price_cents from items\n where sku = $1"),
    (
        Point::Write,
        "-- one statement: orders, order_lines, idempotency\n\
         -- items and stock_ledger follow",
    ),
];

/// Lines that one transaction settles: it keeps the item's row locked.
const MAX_SETTLED: i64 = 1_000;

/// The units of an item in its row, and those of them that are sold already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStock {
    pub stock: i64,
    pub unsettled: i64,
}

impl RowStock {
    /// Returns the units that may be sold; negative if units were sold that do not exist.
    pub fn free(self) -> i64 {
        self.stock - self.unsettled
    }
}

/// An order with an unsettled line, and its status at that time.
#[derive(Debug, Clone, Copy)]
pub struct UnsettledOrder {
    pub id: OrderId,
    pub user: UserId,
    pub status: OrderStatus,
}

/// Inserts an order with its lines, its unsettled lines and its key record, all or nothing. Errors
/// are those of [`crate::store::place::place`].
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub async fn place(db: &mut PgConnection, batch: &BatchWrite) -> Result<WriteResult, Error> {
    let orders: Vec<_> =
        batch.commands.iter().filter_map(|w| Some((w, w.changes.order.as_ref()?))).collect();

    let mut lines = Vec::new();
    for (write, new) in &orders {
        let limited = new.order.lines.iter().zip(&new.limits);
        lines.extend(limited.map(|(line, limit)| (*write, *new, line, *limit)));
    }
    let mut skus: Vec<&str> = lines.iter().map(|(_, _, line, _)| line.sku.as_str()).collect();
    skus.sort_unstable();
    skus.dedup();

    // `for key share` keeps the item from being deleted, and lets others write its row.
    let holds = sqlx::query_scalar!(
        r#"with known_items as materialized (
             select sku from items where sku = any($1) order by sku for key share),
         guard as materialized (select count(*) = cardinality($1) as holds from known_items),

         new_orders as (
             select o.* from guard,
                    unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::timestamptz[],
                           $7::bytea[], $8::bytea[], $9::uuid[], $10::timestamptz[])
                    as o (id, user_id, total_cents, token, expires_at, fingerprint, body,
                          record_id, created_at)
              where guard.holds),
         inserted_orders as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select id, user_id, 'pending', total_cents, token, created_at, expires_at
               from new_orders),

         new_lines as (
             select l.* from guard,
                    unnest($11::uuid[], $12::uuid[], $13::text[], $14::bigint[], $15::bigint[],
                           $16::bigint[], $17::uuid[], $19::bigint[], $20::text[], $21::text[])
                    as l (order_id, user_id, sku, quantity, price, max_per_user, request_id, before,
                          name, name_zh)
              where guard.holds),
         inserted_lines as (
             insert into order_lines (order_id, sku, quantity, unit_price_cents, name, name_zh,
                                      counts_for, limit_per_user, entry_seq)
             select order_id, sku, quantity, price, name, name_zh, user_id, max_per_user, 0
               from new_lines),
         inserted_unsettled as (
             insert into unsettled_lines (sku, order_id, quantity, before, request_id)
             select sku, order_id, quantity, before, request_id from new_lines),

         inserted_keys as (
             insert into idempotency
                 (id, user_id, method, path, key, fingerprint, status, body, order_id)
             select record_id, user_id, 'POST', $18, token, fingerprint, 201, body, id
               from new_orders order by record_id)

         select holds as "holds!" from guard"#,
        &skus as &[&str],
        &column(&orders, |(_, new)| new.order.id.0),
        &column(&orders, |(_, new)| new.user.0),
        &column(&orders, |(_, new)| new.order.total_cents),
        &column(&orders, |(write, _)| write.idempotency.key.as_str()) as &[&str],
        &column(&orders, |(_, new)| new.order.expires_at),
        &column(&orders, |(write, _)| write.idempotency.fingerprint.as_slice()) as &[&[u8]],
        &column(&orders, |(write, _)| write.response.body.as_slice()) as &[&[u8]],
        &column(&orders, |(write, _)| write.idempotency.id),
        &column(&orders, |(_, new)| new.order.created_at),
        &column(&lines, |(_, new, ..)| new.order.id.0),
        &column(&lines, |(_, new, ..)| new.user.0),
        &column(&lines, |(_, _, line, _)| line.sku.as_str()) as &[&str],
        &column(&lines, |(_, _, line, _)| line.quantity),
        &column(&lines, |(_, _, line, _)| line.unit_price_cents),
        &column(&lines, |(.., limit)| *limit) as &[Option<i64>],
        &column(&lines, |(write, ..)| write.request_id),
        ORDERS_PATH,
        &column(&lines, |(_, _, line, _)| line.stock.before),
        &column(&lines, |(_, _, line, _)| line.names.name.as_str()) as &[&str],
        &column(&lines, |(_, _, line, _)| line.names.name_zh.as_deref()) as &[Option<&str>],
    )
    .fetch_one(db)
    .await
    .map_err(duplicate_key_conflict)?;

    Ok(WriteResult::from_guard(holds))
}

/// Settles the lines that the item's row has units for: first those of orders that gave their units
/// back to the row, then the others in the order of their orders. One for which too few are left is
/// passed over.
pub async fn settle(pool: &Pool, sku: &Sku) -> Result<(), Error> {
    loop {
        let mut tx = pool.begin().await?;
        let is_settled = settle_some(&mut tx, sku).await?;
        tx.commit().await?;

        if is_settled {
            return Ok(());
        }
    }
}

/// Settles [`MAX_SETTLED`] lines at most. Returns whether there are no more to settle.
async fn settle_some(tx: &mut PgConnection, sku: &Sku) -> sqlx::Result<bool> {
    // A statement of its own: the next one sees what was committed before this lock was acquired.
    let stock = sqlx::query_scalar!(
        r#"select stock as "stock!" from items where sku = $1 for no key update"#,
        sku.as_str(),
    );
    let stock = stock.fetch_optional(&mut *tx).await?.unwrap_or(0);
    if stock == 0 {
        return Ok(true);
    }

    // Both parts of `oldest` end at their limit, however many lines there are: the first reads an
    // index of its own, the second the primary key. By `ctid`, because a join could read them all;
    // any other change of a line waits for the item's row.
    let settled = sqlx::query!(
        r#"with oldest as (
             select *, row_number() over (order by place, order_id) as number
               from ((select ctid as line, order_id, quantity, request_id, 1 as place
                        from unsettled_lines
                       where sku = $1 and returned and quantity <= $3
                       order by order_id limit $2)
                     union all
                     (select ctid, order_id, quantity, request_id, 2 from unsettled_lines
                       where sku = $1 and not returned and quantity <= $3
                       order by order_id limit $2)) lines
              order by number limit $2),
         summed as materialized (
             select o.*, (sum(quantity) over (order by number))::bigint as total from oldest o),
         settled as materialized (
             select s.*, nextval('stock_ledger_seq_seq') as seq, i.stock, i.version
               from summed s join items i on i.sku = $1
              where s.total <= i.stock order by s.number),
         deleted as (
             delete from unsettled_lines where ctid = any(array(select line from settled))),
         entries as (
             insert into stock_ledger
                 (seq, sku, before, delta, after, version, reason, order_id, request_id)
             select seq, $1, stock - total + quantity, -quantity, stock - total,
                    version + number - 1, 'order', order_id, request_id
               from settled),
         numbered_lines as (
             update order_lines l set entry_seq = s.seq from settled s
              where l.order_id = s.order_id and l.sku || '' = $1),
         updated as (
             update items i
                set stock = i.stock - s.units, version = i.version + s.number,
                    sold = i.sold + s.units
               from (select sum(quantity)::bigint as units, count(*) as number from settled) s
              where i.sku = $1 and s.number > 0)
         select (select count(*) from summed) as "found!", (select count(*) from settled) as "lines!"
        "#,
        sku.as_str(),
        MAX_SETTLED,
        stock,
    )
    .fetch_one(tx)
    .await?;
    // With fewer than it found, the next line is too large for what is left; smaller ones may not
    // be.
    Ok(settled.found < MAX_SETTLED && settled.lines == settled.found)
}

/// Returns what an item's row has; `None` if there is no such item.
pub async fn row_stock(db: &mut PgConnection, sku: &Sku) -> sqlx::Result<Option<RowStock>> {
    sqlx::query_as!(
        RowStock,
        r#"select stock as "stock!",
                  (select coalesce(sum(quantity), 0)::bigint from unsettled_lines u
                    where u.sku = i.sku) as "unsettled!"
             from items i where sku = $1"#,
        sku.as_str(),
    )
    .fetch_optional(db)
    .await
}

/// Returns the newest order with an unsettled line, of those that have not given it back.
pub async fn newest_unsettled(pool: &Pool, sku: &Sku) -> Result<Option<UnsettledOrder>, Error> {
    let newest = sqlx::query_as!(
        UnsettledOrder,
        r#"select o.id as "id: OrderId", o.user_id as "user: UserId",
                  o.status as "status: OrderStatus"
             from (select order_id from unsettled_lines
                    where sku = $1 and not returned order by order_id desc limit 1) u
             join orders o on o.id = u.order_id"#,
        sku.as_str(),
    );
    Ok(newest.fetch_optional(&mut *pool.acquire().await?).await?)
}

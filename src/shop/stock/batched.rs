//! `batched`: many orders for one item, one lock and one write.
//!
//! # Guarantee
//! The row is locked from the read to the commit (`for no key update`), so nothing comes between,
//! whatever the lease does; and the row's fence is looked at under that lock, so a holder that
//! comes too late writes nothing. Orders are taken in their order of arrival: each one's `before`
//! is the `after` of the one before it, and each has a ledger entry and a version of its own, as if
//! it had come alone.
//!
//! # Breaks when
//! It does not. A replica that is stopped in the middle of its transaction keeps the row, and with
//! it everybody, until Postgres ends its session (`idle_in_transaction_session_timeout`).
//!
//! # Seen in the wild
//! Flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010); the grouped hot-row updates of
//! `PolarDB` and `TXSQL`; every ledger database.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Exclusion;
use crate::db;
use crate::shop::idempotency::ClaimRow;
use crate::shop::{Answer, Error, OrderId, Sku, UserId};

/// A row that is locked until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Shelf {
    /// The item's price.
    pub price_cents: i64,
    /// What is there.
    pub stock: i64,
    /// How many of it one customer may have.
    pub limit_per_user: Option<i64>,
    /// When it was read, by Postgres's clock.
    pub now: OffsetDateTime,
    version: i64,
    fence: i64,
}

/// An account's row that is locked until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Purse {
    /// What is there.
    pub balance_cents: i64,
    /// When it was read, by Postgres's clock.
    pub now: OffsetDateTime,
    version: i64,
    fence: i64,
}

/// One change of a batch: for which order, by which request, and by how much.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The order it belongs to.
    pub order: OrderId,
    /// The request that wants it.
    pub request_id: Uuid,
    /// What is added; negative when something is taken.
    pub delta: i64,
}

/// One order of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Sale<'a> {
    /// The order.
    pub order: OrderId,
    /// Whose it is.
    pub user: UserId,
    /// The buyer's token.
    pub token: &'a str,
    /// The request that wants it.
    pub request_id: Uuid,
    /// How many units.
    pub quantity: i64,
    /// What they cost together.
    pub total_cents: i64,
    /// Until when it can be paid.
    pub expires_at: OffsetDateTime,
    /// What the buyer will be told.
    pub answer: &'a Answer,
    /// The claim with which that is stored.
    pub claim: &'a ClaimRow,
}

impl Sale<'_> {
    fn part(&self) -> Part {
        Part { order: self.order, request_id: self.request_id, delta: -self.quantity }
    }
}

/// One payment of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Payment<'a> {
    /// The order, and what it takes from the account.
    pub part: Part,
    /// What the payer will be told.
    pub answer: &'a Answer,
    /// The claim with which that is stored.
    pub claim: &'a ClaimRow,
}

/// Locks the item's row and reads it; `None` when there is no such item.
///
/// # Errors
/// [`Error::Stale`] when the row knows a higher fence than the lock has; [`Error::Bug`] when no
/// lock covers the item; Postgres's.
pub async fn lock_shelf(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    sku: &Sku,
) -> Result<Option<Shelf>, Error> {
    exclusion.check(&sku.lock_key())?;
    let fence = exclusion.fence(&sku.lock_key())?;
    let row = sqlx::query!(
        r#"select price_cents, stock, limit_per_user, version, fence,
                  clock_timestamp() as "now!"
             from items where sku = $1 for no key update"#,
        sku.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) if row.fence > fence => Err(Error::Stale(vec![(sku.lock_key(), row.fence)])),
        Some(row) => Ok(Some(Shelf {
            price_cents: row.price_cents,
            stock: row.stock,
            limit_per_user: row.limit_per_user,
            now: row.now,
            version: row.version,
            fence,
        })),
        None => Ok(None),
    }
}

/// Places the orders, which must not take more than there is, nor give anybody more than the item's
/// limit: them and their lines, what is left
/// on the shelf, a ledger entry for each, in their order, and their answers.
///
/// All in one statement: the item is locked, everybody waits for it, and each round trip to
/// Postgres is time in which nothing is done.
///
/// # Errors
/// Postgres's; among them that there was not enough, and that an order's token was used before.
pub async fn sell(
    tx: &mut PgConnection,
    sku: &Sku,
    shelf: Shelf,
    sales: &[Sale<'_>],
) -> Result<(), Error> {
    let parts: Vec<Part> = sales.iter().map(Sale::part).collect();
    let entries = Entries::of(shelf.stock, shelf.version, &parts);
    let users: Vec<Uuid> = sales.iter().map(|sale| sale.user.0).collect();
    let totals: Vec<i64> = sales.iter().map(|sale| sale.total_cents).collect();
    let tokens: Vec<String> = sales.iter().map(|sale| sale.token.to_owned()).collect();
    let quantities: Vec<i64> = sales.iter().map(|sale| sale.quantity).collect();
    let expiries: Vec<OffsetDateTime> = sales.iter().map(|sale| sale.expires_at).collect();
    let stored = Answers::of(sales.iter().map(|sale| (sale.claim, sale.answer)));
    let written = sqlx::query!(
        "with placed as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select id, user_id, 'pending', total_cents, token, $6, expires_at
               from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $7::timestamptz[])
                    as new (id, user_id, total_cents, token, expires_at)),
         lines as (
             insert into order_lines
                 (order_id, sku, quantity, unit_price_cents, counts_for, limit_per_user)
             select id, $8, quantity, $9::bigint, user_id, $20::bigint
               from unnest($1::uuid[], $2::uuid[], $5::bigint[]) as new (id, user_id, quantity)),
         shelf as (
             update items set stock = $10::bigint, version = $11, fence = $12
              where sku = $8 returning sku),
         entered as (
             insert into stock_ledger
                 (sku, before, delta, after, version, fence, reason, order_id, request_id)
             select shelf.sku, before, delta, before + delta, new.version, $12, 'order', order_id,
                    request_id
               from shelf,
                    unnest($13::bigint[], $14::bigint[], $15::bigint[], $1::uuid[], $16::uuid[])
                    with ordinality as new (before, delta, version, order_id, request_id, place)
              order by place
             returning 1),
         answered as (
             update idempotency i set status = new.status, body = new.body
               from unnest($17::text[], $18::smallint[], $19::bytea[]) as new (claim, status, body)
              where i.ctid = new.claim::tid
             returning 1)
         select (select count(*) from entered) as \"entries!\",
                (select count(*) from answered) as \"answers!\"",
        &entries.orders,
        &users,
        &totals,
        &tokens,
        &quantities,
        shelf.now,
        &expiries,
        sku.as_str(),
        shelf.price_cents,
        entries.after,
        entries.next_version,
        shelf.fence,
        &entries.befores,
        &entries.deltas,
        &entries.versions,
        &entries.requests,
        &stored.claims,
        &stored.statuses,
        &stored.bodies as &[&[u8]],
        shelf.limit_per_user,
    )
    .fetch_one(tx)
    .await
    .map_err(used_long_ago)?;
    entries.all_written(&[written.entries, written.answers])
}

/// A token that was used so long ago that its answer is forgotten: it is looked for, and only then,
/// when the batch is tried again.
fn used_long_ago(error: sqlx::Error) -> Error {
    if db::violates(&error, "orders_token_key") {
        Error::Conflict("a token was used long ago".to_owned())
    } else {
        error.into()
    }
}

/// Locks the account's row and reads it; `None` when there is none.
///
/// # Errors
/// As [`lock_shelf`].
pub async fn lock_purse(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    user: UserId,
) -> Result<Option<Purse>, Error> {
    exclusion.check(&user.lock_key())?;
    let fence = exclusion.fence(&user.lock_key())?;
    let row = sqlx::query!(
        r#"select balance_cents, version, fence, clock_timestamp() as "now!" from accounts
            where user_id = $1 for no key update"#,
        user.0,
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) if row.fence > fence => Err(Error::Stale(vec![(user.lock_key(), row.fence)])),
        Some(row) => {
            let (balance_cents, version, now) = (row.balance_cents, row.version, row.now);
            Ok(Some(Purse { balance_cents, now, version, fence }))
        }
        None => Ok(None),
    }
}

/// Pays for the orders, which are locked and pending, and must not cost more than there is: their
/// status, what is left on the account, a ledger entry for each, in their order, and their answers.
/// All in one statement, as in [`sell`].
///
/// # Errors
/// Postgres's; among them that there was not enough. [`Error::Bug`] when an order was not pending.
pub async fn spend(
    tx: &mut PgConnection,
    user: UserId,
    purse: Purse,
    payments: &[Payment<'_>],
) -> Result<(), Error> {
    let parts: Vec<Part> = payments.iter().map(|payment| payment.part).collect();
    let entries = Entries::of(purse.balance_cents, purse.version, &parts);
    let stored = Answers::of(payments.iter().map(|payment| (payment.claim, payment.answer)));
    let written = sqlx::query!(
        r#"with moved as (
             update orders set status = 'paid', paid_at = $5
              where id = any($9::uuid[]) and status = 'pending' returning 1),
         purse as (
             update accounts set balance_cents = $2::bigint, version = $3, fence = $4
              where user_id = $1 returning user_id),
         entered as (
             insert into balance_ledger
                 (user_id, before, delta, after, version, fence, reason, order_id, request_id)
             select purse.user_id, before, delta, before + delta, new.version, $4, 'payment',
                    order_id, request_id
               from purse,
                    unnest($6::bigint[], $7::bigint[], $8::bigint[], $9::uuid[], $10::uuid[])
                    with ordinality as new (before, delta, version, order_id, request_id, place)
              order by place
             returning 1),
         answered as (
             update idempotency i set status = new.status, body = new.body
               from unnest($11::text[], $12::smallint[], $13::bytea[]) as new (claim, status, body)
              where i.ctid = new.claim::tid
             returning 1)
         select (select count(*) from moved) as "moved!",
                (select count(*) from entered) as "entries!",
                (select count(*) from answered) as "answers!""#,
        user.0,
        entries.after,
        entries.next_version,
        purse.fence,
        purse.now,
        &entries.befores,
        &entries.deltas,
        &entries.versions,
        &entries.orders,
        &entries.requests,
        &stored.claims,
        &stored.statuses,
        &stored.bodies as &[&[u8]],
    )
    .fetch_one(tx)
    .await?;
    entries.all_written(&[written.moved, written.entries, written.answers])
}

/// The answers of a batch, column by column.
struct Answers<'a> {
    claims: Vec<String>,
    statuses: Vec<i16>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> Answers<'a> {
    fn of(answers: impl Iterator<Item = (&'a ClaimRow, &'a Answer)>) -> Self {
        let mut columns = Self { claims: Vec::new(), statuses: Vec::new(), bodies: Vec::new() };
        for (claim, answer) in answers {
            columns.claims.push(claim.ctid().to_owned());
            columns.statuses.push(answer.status_column());
            columns.bodies.push(&answer.body);
        }
        columns
    }
}

/// The entries of a batch, column by column.
struct Entries {
    befores: Vec<i64>,
    deltas: Vec<i64>,
    versions: Vec<i64>,
    orders: Vec<Uuid>,
    requests: Vec<Uuid>,
    after: i64,
    next_version: i64,
}

impl Entries {
    fn of(value: i64, version: i64, parts: &[Part]) -> Self {
        let mut entries = Self {
            befores: Vec::with_capacity(parts.len()),
            deltas: parts.iter().map(|part| part.delta).collect(),
            versions: Vec::with_capacity(parts.len()),
            orders: parts.iter().map(|part| part.order.0).collect(),
            requests: parts.iter().map(|part| part.request_id).collect(),
            after: value,
            next_version: version,
        };
        for part in parts {
            entries.befores.push(entries.after);
            entries.versions.push(entries.next_version);
            entries.after += part.delta;
            entries.next_version += 1;
        }
        entries
    }

    /// Whether each part has its row in every table.
    fn all_written(&self, rows: &[i64]) -> Result<(), Error> {
        let parts = self.deltas.len() as u64;
        if rows.iter().all(|rows| rows.unsigned_abs() == parts) {
            Ok(())
        } else {
            Err(Error::Bug(format!("a batch of {parts} wrote {rows:?} rows")))
        }
    }
}

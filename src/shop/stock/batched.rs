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

use super::{Exclusion, Moved};
use crate::shop::{Error, OrderId, Sku, UserId};

/// A row that is locked until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Shelf {
    /// The item's price.
    pub price_cents: i64,
    /// What is there.
    pub stock: i64,
    /// When the transaction began, by Postgres's clock.
    pub now: OffsetDateTime,
    version: i64,
    fence: i64,
}

/// An account's row that is locked until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Purse {
    /// What is there.
    pub balance_cents: i64,
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
        r#"select price_cents, stock, version, fence, now() as "now!" from items
            where sku = $1 for no key update"#,
        sku.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) if row.fence > fence => Err(Error::Stale(vec![(sku.lock_key(), row.fence)])),
        Some(row) => Ok(Some(Shelf {
            price_cents: row.price_cents,
            stock: row.stock,
            now: row.now,
            version: row.version,
            fence,
        })),
        None => Ok(None),
    }
}

/// Writes what is left on the shelf after all parts, and a ledger entry for each, in their order.
/// The parts must not take more than there is.
///
/// # Errors
/// Postgres's; among them that there was not enough.
pub async fn write_shelf(
    tx: &mut PgConnection,
    sku: &Sku,
    shelf: Shelf,
    reason: &str,
    parts: &[Part],
) -> Result<Vec<Moved>, Error> {
    let entries = Entries::of(shelf.stock, shelf.version, parts);
    let seqs = sqlx::query_scalar!(
        "with shelf as (
             update items set stock = $2, version = $3, fence = $4 where sku = $1 returning sku)
         insert into stock_ledger
             (sku, before, delta, after, version, fence, reason, order_id, request_id)
         select shelf.sku, before, delta, before + delta, new.version, $4, $5, order_id, request_id
           from shelf,
                unnest($6::bigint[], $7::bigint[], $8::bigint[], $9::uuid[], $10::uuid[])
                with ordinality as new (before, delta, version, order_id, request_id, place)
          order by place
         returning seq",
        sku.as_str(),
        entries.after,
        entries.next_version,
        shelf.fence,
        reason,
        &entries.befores,
        &entries.deltas,
        &entries.versions,
        &entries.orders,
        &entries.requests,
    )
    .fetch_all(tx)
    .await?;
    entries.moved(seqs)
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
        "select balance_cents, version, fence from accounts where user_id = $1 for no key update",
        user.0,
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) if row.fence > fence => Err(Error::Stale(vec![(user.lock_key(), row.fence)])),
        Some(row) => {
            Ok(Some(Purse { balance_cents: row.balance_cents, version: row.version, fence }))
        }
        None => Ok(None),
    }
}

/// Writes what is left on the account after all parts, and a ledger entry for each, in their order.
/// The parts must not take more than there is.
///
/// # Errors
/// As [`write_shelf`].
pub async fn write_purse(
    tx: &mut PgConnection,
    user: UserId,
    purse: Purse,
    reason: &str,
    parts: &[Part],
) -> Result<Vec<Moved>, Error> {
    let entries = Entries::of(purse.balance_cents, purse.version, parts);
    let seqs = sqlx::query_scalar!(
        "with purse as (
             update accounts set balance_cents = $2, version = $3, fence = $4
              where user_id = $1 returning user_id)
         insert into balance_ledger
             (user_id, before, delta, after, version, fence, reason, order_id, request_id)
         select purse.user_id, before, delta, before + delta, new.version, $4, $5, order_id,
                request_id
           from purse,
                unnest($6::bigint[], $7::bigint[], $8::bigint[], $9::uuid[], $10::uuid[])
                with ordinality as new (before, delta, version, order_id, request_id, place)
          order by place
         returning seq",
        user.0,
        entries.after,
        entries.next_version,
        purse.fence,
        reason,
        &entries.befores,
        &entries.deltas,
        &entries.versions,
        &entries.orders,
        &entries.requests,
    )
    .fetch_all(tx)
    .await?;
    entries.moved(seqs)
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

    fn moved(self, seqs: Vec<i64>) -> Result<Vec<Moved>, Error> {
        if seqs.len() != self.deltas.len() {
            return Err(Error::Bug("a batch wrote another number of entries".to_owned()));
        }
        let rows =
            seqs.into_iter().zip(self.befores).zip(self.deltas.into_iter().zip(self.versions));
        Ok(rows
            .map(|((seq, before), (delta, version))| Moved {
                seq,
                before,
                delta,
                after: before + delta,
                version,
            })
            .collect())
    }
}

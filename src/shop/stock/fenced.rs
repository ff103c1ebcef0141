//! `fenced`: a computed write that shows its fence and the version it was computed from.
//!
//! # Guarantee
//! The write happens only if the row is as it was read (`version`, which every write raises) and
//! nobody with a higher fence has written since. Equality on the version is what makes a lost
//! update impossible; the fence alone would not: with fences 1 and 2, *read 1, read 2, write 1,
//! write 2* passes both checks and loses a sale. The fence is what tells a holder that it comes
//! *too late* (another one has had the lock) from a row that merely moved.
//!
//! The read locks no row, so a holder that is paused holds up nobody.
//!
//! An order for one item is one statement ([`sell`]): everybody waits for its lock, and a trip
//! to Postgres is time in which nothing is done. The write is conditional in any case; its order
//! and its ledger entry hang on it.
//!
//! # Breaks when
//! It does not: whatever the lock does, the write is compared with the row.
//!
//! # Seen in the wild
//! `where version = ?` is every object mapper's optimistic lock; fences checked by the store itself
//! are what lock libraries recommend and leave to the reader.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    BalanceReading, Exclusion, Moved, Origin, Short, StockReading, entries, read_then_update,
};
use crate::lock::LockKey;
use crate::shop::idempotency::{Claim, METHOD};
use crate::shop::{Answer, Error, OrderId, Sku};

/// An order for one item.
#[derive(Debug, Clone, Copy)]
pub struct Sale<'a> {
    /// The key under which it is placed: whose it is, and the buyer's token.
    pub claim: &'a Claim,
    /// What the buyer will be told.
    pub answer: &'a Answer,
    /// How many units.
    pub quantity: i64,
    /// What they cost together.
    pub total_cents: i64,
    /// When the transaction began that claimed the key.
    pub created_at: OffsetDateTime,
    /// Until when it can be paid.
    pub expires_at: OffsetDateTime,
    /// The order.
    pub order: OrderId,
    /// The request that wants it.
    pub request_id: Uuid,
}

/// What came of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sold {
    /// It is done.
    Done,
    /// An order was placed with that token long ago. Whoever hears so must roll back.
    TokenUsed,
}

/// Places an order for one item, of which there must be enough: the order, its line, what is left
/// on the shelf, the ledger entry, and the answer under its key, which this transaction has
/// claimed; in one statement.
///
/// # Errors
/// As for every fenced write: [`Error::Stale`] when the row has a higher fence, and
/// [`Error::Conflict`] when it has another version. [`Error::Bug`] when no lock covers the item.
pub async fn sell(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    reading: &StockReading,
    sale: Sale<'_>,
) -> Result<Sold, Error> {
    let key = reading.sku.lock_key();
    exclusion.check(&key)?;
    let fence = exclusion.fence(&key)?;
    let Sale { claim, answer, quantity, .. } = sale;
    let row = sqlx::query!(
        r#"with shelf as (
             update items set stock = $3::bigint, fence = $4
              where sku = $1 and version = $2 and fence <= $4
             returning sku),
         placed as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select $5, $6, 'pending', $7::bigint, $8, $9, $10 from shelf
             on conflict on constraint orders_token_key do nothing
             returning id),
         lined as (
             insert into order_lines
                 (order_id, sku, quantity, unit_price_cents, counts_for, limit_per_user)
             select id, $1, $11::bigint, $12::bigint, $6, $13::bigint from placed),
         entered as (
             insert into stock_ledger
                 (sku, before, delta, after, version, fence, reason, order_id, request_id)
             select $1, $14::bigint, -$11, $3, $2, $4, 'order', id, $15 from placed),
         answered as (
             update idempotency set status = $16, body = $17
              where user_id = $6 and method = $18 and path = $19 and key = $8
             returning 1)
         select exists (select from shelf) as "written!", exists (select from placed) as "placed!",
                exists (select from answered) as "answered!""#,
        reading.sku.as_str(),
        reading.version,
        reading.stock - quantity,
        fence,
        sale.order.0,
        claim.user.0,
        sale.total_cents,
        claim.key.as_str(),
        sale.created_at,
        sale.expires_at,
        quantity,
        reading.price_cents,
        reading.limit_per_user,
        reading.stock,
        sale.request_id,
        answer.status_column(),
        answer.body,
        METHOD,
        claim.path,
    )
    .fetch_one(&mut *tx)
    .await?;
    match (row.written, row.placed, row.answered) {
        (true, true, true) => Ok(Sold::Done),
        (true, true, false) => Err(Error::Bug("an order has no claim for its answer".to_owned())),
        (true, false, _) => Ok(Sold::TokenUsed),
        (false, ..) => Err(refused(stale(tx, std::slice::from_ref(&reading.sku), &[fence]).await?)),
    }
}

/// Whether one of the items' rows knows a higher fence than its lock has, before anything is
/// written: [`Error::Stale`] with all that do.
pub(super) async fn look_at_fences(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    skus: &[Sku],
) -> Result<(), Error> {
    let keys = skus.iter().map(Sku::lock_key);
    let fences = keys.map(|key| exclusion.fence(&key)).collect::<Result<Vec<i64>, Error>>()?;
    let stale = stale(tx, skus, &fences).await?;
    if stale.is_empty() { Ok(()) } else { Err(Error::Stale(stale)) }
}

/// The items whose rows know a higher fence than that, and which.
async fn stale(
    tx: &mut PgConnection,
    skus: &[Sku],
    fences: &[i64],
) -> Result<Vec<(LockKey, i64)>, Error> {
    let names: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let rows = sqlx::query!("select sku, fence from items where sku = any($1)", &names)
        .fetch_all(tx)
        .await?;
    let mut stale = Vec::new();
    for (sku, fence) in skus.iter().zip(fences) {
        let row = rows.iter().find(|row| row.sku == sku.as_str());
        if let Some(row) = row.filter(|row| row.fence > *fence) {
            stale.push((sku.lock_key(), row.fence));
        }
    }
    Ok(stale)
}

/// Writes all rows and their entries, or none: whoever gets an error must roll back.
pub(super) async fn write_stock(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    let afters = match read_then_update::afters(readings, deltas) {
        Ok(afters) => afters,
        Err(short) => return Ok(Err(short)),
    };
    let skus: Vec<String> = readings.iter().map(|reading| reading.sku.to_string()).collect();
    let versions: Vec<i64> = readings.iter().map(|reading| reading.version).collect();
    let fences = readings
        .iter()
        .map(|reading| exclusion.fence(&reading.sku.lock_key()))
        .collect::<Result<Vec<i64>, Error>>()?;
    let written = sqlx::query!(
        "update items set stock = new.stock, fence = new.fence
           from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])
                as new (sku, stock, version, fence)
          where items.sku = new.sku and items.version = new.version and items.fence <= new.fence",
        &skus,
        &afters,
        &versions,
        &fences,
    )
    .execute(&mut *tx)
    .await?;
    if written.rows_affected() == readings.len() as u64 {
        return Ok(Ok(entries::append_stock(tx, readings, deltas, Some(&fences), origin).await?));
    }
    let skus: Vec<Sku> = readings.iter().map(|reading| reading.sku.clone()).collect();
    Err(refused(stale(tx, &skus, &fences).await?))
}

/// Writes the balance and its entry, or nothing.
pub(super) async fn write_balance(
    tx: &mut PgConnection,
    exclusion: &Exclusion<'_>,
    reading: BalanceReading,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Short>, Error> {
    let after = reading.balance_cents + delta;
    if after < 0 {
        return Ok(Err(Short { at: 0, available: reading.balance_cents }));
    }
    let key = reading.user.lock_key();
    let fence = exclusion.fence(&key)?;
    let written = sqlx::query!(
        "update accounts set balance_cents = $2::bigint, fence = $4
          where user_id = $1 and version = $3 and fence <= $4",
        reading.user.0,
        after,
        reading.version,
        fence,
    )
    .execute(&mut *tx)
    .await?;
    if written.rows_affected() == 1 {
        return Ok(Ok(entries::append_balance(tx, reading, delta, Some(fence), origin).await?));
    }
    let row = sqlx::query_scalar!("select fence from accounts where user_id = $1", reading.user.0)
        .fetch_one(tx)
        .await?;
    Err(refused(if row > fence { vec![(key, row)] } else { Vec::new() }))
}

/// *Stale* if a row has a higher fence, *moved* if only its version is another.
fn refused(stale: Vec<(LockKey, i64)>) -> Error {
    if stale.is_empty() {
        Error::Conflict("the row moved between read and write".to_owned())
    } else {
        Error::Stale(stale)
    }
}

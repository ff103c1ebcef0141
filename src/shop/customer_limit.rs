//! One per customer, or three: how many of an item one customer may have.
//!
//! What a customer has are the units in their orders that are pending or paid; what is cancelled,
//! expired or refunded is free again. An order that would go beyond is refused as a whole, before
//! anything is paid. The limit is read with the price, and what the customer has is counted by one
//! statement more; an item without a limit costs none.
//!
//! # Guarantee
//! The limit is exact under every strategy, because the count begins when this transaction has the
//! item's row locked, in a **statement of its own**, and the lock stays until the commit:
//!
//! - `batched` has locked the row in order to read it, and counts for all customers of the batch at
//!   once; of several orders of one customer the later ones find the earlier ones counted.
//! - All others count when they have *written* the row. Who writes a row that another transaction
//!   has written waits for its commit, whatever it thinks of locks: so every other order for the
//!   item has committed by now and is seen by a statement that begins now, or it will write the row
//!   after us and see ours. (A count in the same statement as the write, or as `select … for no key
//!   update`, would have waited for the row with an old picture of the lines in hand. See
//!   [`super::stock::advisory`].)
//! - `serializable` sees the picture of its beginning all the same; but then its write of the row
//!   fails if anybody has committed one since, and it begins again.
//!
//! So the limit even holds under `none`, which sells units that do not exist: a lost update needs
//! two who have read before either has written, and here nobody reads before having written. That
//! is the price too: an order that is refused here has been written, and is rolled back.
//!
//! An order with several items counts for all of them when it has written all of their rows. An
//! order that is being cancelled counts until the cancelling has committed.
//!
//! # What is told first
//! *Sold out* comes before *limit reached*. It is true for everybody, the gate says it without a
//! lock (`combine::gate`), and in a sale most are refused for it, with nothing counted. So who is
//! told of the limit knows that there are enough, and that waiting for a restock is no use.
//!
//! # Changing the limit
//! [`set`] takes the item's lock as an order does, and raises the row's version: an order that has
//! read the old limit and not written yet begins again (`fenced`, `version`; `atomic` compares the
//! limit itself), or has kept [`set`] waiting. A lower limit takes nothing away from anybody. Each
//! line keeps the limit it was sold under, and the audit (`customer-limits`) replays the ledger and
//! holds every line to its own.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use uuid::Uuid;

use super::catalog::{self, Item};
use super::errand::{self, Errand, Held};
use super::idempotency::Claim;
use super::stock::{self, StockReading};
use super::{Answer, Conditions, Error, Outcome, Refusal, Shop, Sku, UserId};
use crate::lock::LockKey;
use crate::probe::Point;

/// The largest limit: more than that nobody can order at once anyway.
pub const LARGEST_LIMIT: i64 = super::orders::MOST_UNITS;

/// Why that can't be a limit.
#[must_use]
pub fn impossible(limit: Option<i64>) -> Option<Refusal> {
    let why =
        || Refusal::Invalid("limit_per_user".into(), format!("1 to {LARGEST_LIMIT}, or null"));
    limit.is_some_and(|limit| !(1..=LARGEST_LIMIT).contains(&limit)).then(why)
}

/// The refusal of so many to somebody who has so many.
#[must_use]
pub fn reached(sku: &Sku, limit: i64, already: i64, requested: i64) -> Refusal {
    Refusal::LimitReached { sku: sku.clone(), limit, already, requested }
}

/// Whether an order goes beyond a limit, to be asked when its lines and its items' rows are
/// written. No statement when no item has a limit.
///
/// # Errors
/// Postgres's.
pub(super) async fn exceeded(
    tx: &mut PgConnection,
    user: UserId,
    readings: &[StockReading],
    deltas: &[i64],
) -> Result<Option<Refusal>, Error> {
    let limited = readings.iter().zip(deltas);
    let limited: Vec<(&Sku, i64, i64)> = limited
        .filter_map(|(item, delta)| Some((&item.sku, item.limit_per_user?, -delta)))
        .collect();
    let asked: Vec<(&Sku, UserId)> = limited.iter().map(|(sku, ..)| (*sku, user)).collect();
    let held = count(tx, &asked).await?;
    // What is held has what is being ordered in it.
    let beyond = limited.into_iter().zip(held).find(|((_, limit, _), held)| held > limit);
    Ok(beyond
        .map(|((sku, limit, requested), held)| reached(sku, limit, held - requested, requested)))
}

/// What each of those customers has of the item, whose row is locked.
///
/// # Errors
/// Postgres's.
pub(super) async fn held_by_each(
    tx: &mut PgConnection,
    sku: &Sku,
    users: BTreeSet<UserId>,
) -> Result<HashMap<UserId, i64>, Error> {
    let asked: Vec<(&Sku, UserId)> = users.iter().map(|user| (sku, *user)).collect();
    let held = count(tx, &asked).await?;
    Ok(users.into_iter().zip(held).collect())
}

/// What a customer has of those of the items that have a limit, as it is now: to be shown.
///
/// # Errors
/// Postgres's.
pub async fn held_of(
    shop: &Shop,
    user: UserId,
    items: &[Item],
) -> Result<HashMap<Sku, i64>, Error> {
    let limited = items.iter().filter(|item| item.limit_per_user.is_some());
    let asked: Vec<(&Sku, UserId)> = limited.map(|item| (&item.sku, user)).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let held = count(&mut *shop.connection().await?, &asked).await?;
    Ok(asked.into_iter().map(|(sku, _)| sku.clone()).zip(held).collect())
}

/// Each of them a look into the index, which finds no line that does not count.
async fn count(db: &mut PgConnection, asked: &[(&Sku, UserId)]) -> Result<Vec<i64>, Error> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let (skus, users): (Vec<String>, Vec<Uuid>) =
        asked.iter().map(|(sku, user)| (sku.to_string(), user.0)).unzip();
    let held = sqlx::query_scalar!(
        r#"select (select coalesce(sum(quantity), 0)::bigint from order_lines
                    where sku = asked.sku and counts_for = asked.user_id) as "held!"
             from unnest($1::text[], $2::uuid[]) with ordinality as asked (sku, user_id, place)
            order by place"#,
        &skus,
        &users,
    )
    .fetch_all(db)
    .await?;
    Ok(held)
}

/// Sets an item's limit, or lifts it; answers the item.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn set(
    shop: &Shop,
    conditions: &Conditions,
    sku: Sku,
    limit: Option<i64>,
) -> Result<Outcome, Error> {
    match impossible(limit) {
        Some(refusal) => Ok(Outcome::Refused(refusal)),
        None => errand::run(shop, conditions, SetLimit { sku, limit }).await,
    }
}

struct SetLimit {
    sku: Sku,
    limit: Option<i64>,
}

impl Errand for SetLimit {
    fn keys(&self) -> Vec<LockKey> {
        vec![self.sku.lock_key()]
    }

    fn claim(&self) -> Option<&Claim> {
        None
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        // Read as orders read it: that is where a strategy may take its lock.
        let readings = stock::read_stock(tx, held.strategy, &[self.sku.to_string()]).await?;
        let key = self.sku.lock_key();
        let read = readings.iter().map(|reading| held.seen(&key, reading.stock));
        held.probe.at(Point::Read, read).await;
        let item = sqlx::query_as!(
            catalog::ItemRow,
            "update items set limit_per_user = $2::bigint, version = version + 1 where sku = $1
             returning sku, name, price_cents, stock, limit_per_user",
            self.sku.as_str(),
            self.limit,
        )
        .fetch_optional(tx)
        .await?;
        match item {
            Some(row) => Ok(Ok(Answer::json(200, &Item::try_from(row)?)?)),
            None => Ok(Err(Refusal::NotFound(format!("there is no item {}", self.sku)))),
        }
    }
}

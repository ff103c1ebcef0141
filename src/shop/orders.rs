//! Orders: placing, reading, cancelling.
//!
//! Placing takes units off the shelf at once and holds them for [`ORDER_HOLD`]; paying keeps them,
//! cancelling puts them back. The order, its lines, the stock and its ledger entries are one
//! transaction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::errand::{self, Errand, Held};
use super::idempotency::{self, Claim, ORDERS_PATH};
use super::stock::{self, Moved, Origin};
use super::{
    Answer, Conditions, Error, Key, ORDER_HOLD, OrderId, Outcome, Refusal, Shop, Sku, UserId,
    catalog,
};
use crate::lock::LockKey;
use crate::probe::{Point, Seen};

/// The most lines an order may have.
pub const MOST_LINES: usize = 50;
/// The most units of one line.
pub const MOST_UNITS: i64 = 1_000;

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLine {
    /// Of which item.
    pub sku: Sku,
    /// How many: 1 to 1,000.
    #[schema(minimum = 1, maximum = 1000)]
    pub quantity: i64,
}

/// A value before a change, the change, and the value after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Before.
    pub before: i64,
    /// What was added; negative when something was taken.
    pub delta: i64,
    /// After.
    pub after: i64,
}

impl From<Moved> for Change {
    fn from(moved: Moved) -> Self {
        Self { before: moved.before, delta: moved.delta, after: moved.after }
    }
}

/// One line of an order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Of which item.
    pub sku: Sku,
    /// How many.
    pub quantity: i64,
    /// At what price each.
    pub unit_price_cents: i64,
    /// What ordering it did to the stock.
    pub stock: Change,
}

/// An order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// `pending`, `paid`, `cancelled` or `refunded`.
    #[schema(example = "pending")]
    pub status: String,
    /// What it costs, in cents.
    pub total_cents: i64,
    /// Its lines, by sku.
    pub lines: Vec<Line>,
    /// Until when it can be paid.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// When it was placed.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was paid, if it was.
    #[serde(
        with = "time::serde::rfc3339::option",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub paid_at: Option<OffsetDateTime>,
}

/// An order after it was moved, and what that moved.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Returned {
    /// The order as it is now.
    pub order: Order,
    /// What came back on the shelf, by sku.
    pub stock: BTreeMap<String, Change>,
    /// What came back on the account, if anything did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub balance: Option<Change>,
}

/// Places an order: once per key, whatever happens.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn place(
    shop: &Shop,
    conditions: &Conditions,
    user: UserId,
    key: Key,
    lines: &[WantedLine],
) -> Result<Outcome, Error> {
    let place = match Place::new(user, key, lines) {
        Ok(place) => place,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    if conditions.may_break(shop)
        && let Some(sku) = catalog::first_not_lab(shop, &place.skus()).await?
    {
        return Ok(Outcome::Refused(Refusal::Forbidden(format!(
            "{} may lose sales, so it is kept to lab items; {sku} is none",
            conditions.strategy.name,
        ))));
    }
    errand::run(shop, conditions, place).await
}

/// Checks and answers an order as [`place`] does, and places nothing: what the path costs without
/// the work.
///
/// # Errors
/// None today; the shape is [`place`]'s.
pub fn check(user: UserId, key: Key, lines: &[WantedLine]) -> Result<Outcome, Error> {
    let place = match Place::new(user, key, lines) {
        Ok(place) => place,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let now = OffsetDateTime::now_utc();
    let lines = place.lines.iter().map(|(sku, quantity)| Line {
        sku: sku.clone(),
        quantity: *quantity,
        unit_price_cents: 0,
        stock: Change { before: 0, delta: 0, after: 0 },
    });
    let order = Order {
        id: place.order,
        status: "pending".to_owned(),
        total_cents: 0,
        lines: lines.collect(),
        expires_at: now + ORDER_HOLD,
        created_at: now,
        paid_at: None,
    };
    Ok(Outcome::Done(Answer::json(201, &order)?))
}

struct Place {
    claim: Claim,
    order: OrderId,
    /// Sorted, each item once.
    lines: BTreeMap<Sku, i64>,
}

impl Place {
    fn new(user: UserId, key: Key, wanted: &[WantedLine]) -> Result<Self, Refusal> {
        if wanted.is_empty() || wanted.len() > MOST_LINES {
            return Err(Refusal::Invalid("lines", format!("1 to {MOST_LINES} lines")));
        }
        let mut lines = BTreeMap::new();
        for line in wanted {
            if !(1..=MOST_UNITS).contains(&line.quantity) {
                return Err(Refusal::Invalid("lines.quantity", format!("1 to {MOST_UNITS}")));
            }
            *lines.entry(line.sku.clone()).or_insert(0) += line.quantity;
        }
        let mut hash = Sha256::new();
        for (sku, quantity) in &lines {
            hash.update(format!("{sku} {quantity}\n"));
        }
        let claim =
            Claim { user, path: ORDERS_PATH.to_owned(), key, fingerprint: hash.finalize().into() };
        Ok(Self { claim, order: OrderId(Uuid::now_v7()), lines })
    }

    fn skus(&self) -> Vec<Sku> {
        self.lines.keys().cloned().collect()
    }
}

impl Errand for Place {
    fn keys(&self) -> Vec<LockKey> {
        self.lines.keys().map(Sku::lock_key).collect()
    }

    fn claim(&self) -> Option<&Claim> {
        Some(&self.claim)
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let skus: Vec<String> = self.lines.keys().map(Sku::to_string).collect();
        let readings = stock::read_stock(tx, held.strategy, &skus).await?;
        if let Some(sku) = self.lines.keys().find(|sku| !readings.iter().any(|r| r.sku == **sku)) {
            return Ok(Err(Refusal::NotFound(format!("there is no item {sku}"))));
        }
        let read = readings.iter().map(|r| Seen::value(r.sku.lock_key().as_str(), r.stock));
        held.probe.at(Point::Read, read).await;

        let mut total_cents = 0_i64;
        for (reading, quantity) in readings.iter().zip(self.lines.values()) {
            let line_cents = reading.price_cents.checked_mul(*quantity);
            match line_cents.and_then(|cents| total_cents.checked_add(cents)) {
                Some(sum) => total_cents = sum,
                None => return Ok(Err(Refusal::Invalid("lines", "it costs too much".to_owned()))),
            }
        }
        let (created_at, expires_at) = match self.insert(tx, total_cents).await? {
            Ok(times) => times,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.insert_lines(tx, &skus, &readings).await?;

        let deltas: Vec<i64> = self.lines.values().map(|quantity| -quantity).collect();
        let origin =
            Origin { reason: "order", order: Some(self.order), request_id: held.request_id };
        let written =
            stock::write_stock(tx, held.strategy, &held.exclusion, &readings, &deltas, origin);
        let moved = match written.await? {
            Ok(moved) => moved,
            Err(short) => {
                return Ok(Err(Refusal::SoldOut {
                    sku: readings[short.at].sku.clone(),
                    requested: -deltas[short.at],
                    available: short.available,
                }));
            }
        };
        let lines: Vec<Line> = readings
            .iter()
            .zip(self.lines.values())
            .zip(&moved)
            .map(|((reading, quantity), moved)| Line {
                sku: reading.sku.clone(),
                quantity: *quantity,
                unit_price_cents: reading.price_cents,
                stock: (*moved).into(),
            })
            .collect();
        let wrote = lines.iter().map(|l| Seen::value(l.sku.lock_key().as_str(), l.stock.after));
        held.probe.at(Point::Write, wrote).await;
        let order = Order {
            id: self.order,
            status: "pending".to_owned(),
            total_cents,
            lines,
            expires_at,
            created_at,
            paid_at: None,
        };
        Ok(Ok(Answer::json(201, &order)?))
    }
}

impl Place {
    async fn insert(
        &self,
        tx: &mut PgConnection,
        total_cents: i64,
    ) -> Result<Result<(OffsetDateTime, OffsetDateTime), Refusal>, Error> {
        // The token is unique for ever, its answer is kept for a day: an order without an answer is
        // an old one. (A conflict does not kill the transaction; a violation would.)
        let row = sqlx::query!(
            "insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             values ($1, $2, 'pending', $3, $4, now(), now() + make_interval(secs => $5))
             on conflict on constraint orders_token_key do nothing
             returning created_at, expires_at",
            self.order.0,
            self.claim.user.0,
            total_cents,
            self.claim.key.as_str(),
            ORDER_HOLD.as_secs_f64(),
        )
        .fetch_optional(&mut *tx)
        .await?;
        match row {
            Some(row) => Ok(Ok((row.created_at, row.expires_at))),
            None => {
                let order_id = idempotency::order_of_token(tx, &self.claim).await?;
                Ok(Err(Refusal::KeyUsed { order_id }))
            }
        }
    }

    async fn insert_lines(
        &self,
        tx: &mut PgConnection,
        skus: &[String],
        readings: &[stock::StockReading],
    ) -> Result<(), Error> {
        let quantities: Vec<i64> = self.lines.values().copied().collect();
        let prices: Vec<i64> = readings.iter().map(|reading| reading.price_cents).collect();
        sqlx::query!(
            "insert into order_lines (order_id, sku, quantity, unit_price_cents)
             select $1, sku, quantity, price
               from unnest($2::text[], $3::bigint[], $4::bigint[]) as new (sku, quantity, price)",
            self.order.0,
            skus,
            &quantities,
            &prices,
        )
        .execute(tx)
        .await?;
        Ok(())
    }
}

/// Takes back an order that was not paid: its units go on the shelf again, once.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn cancel(
    shop: &Shop,
    conditions: &Conditions,
    user: UserId,
    order: OrderId,
) -> Result<Outcome, Error> {
    let Some(found) = find(&mut *shop.connection().await?, user, order).await? else {
        return Ok(Outcome::Refused(no_such_order(order)));
    };
    errand::run(shop, conditions, Cancel { user, found }).await
}

struct Cancel {
    user: UserId,
    found: Order,
}

impl Errand for Cancel {
    fn keys(&self) -> Vec<LockKey> {
        self.found.lines.iter().map(|line| line.sku.lock_key()).collect()
    }

    fn claim(&self) -> Option<&Claim> {
        None
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        if let Err(refusal) = move_on(tx, &self.found, "pending", "cancelled", "cancel").await? {
            return Ok(Err(refusal));
        }
        let stock = put_back(tx, held, &self.found, "cancel").await?;
        let Some(order) = find(tx, self.user, self.found.id).await? else {
            return Ok(Err(no_such_order(self.found.id)));
        };
        Ok(Ok(Answer::json(200, &Returned { order, stock, balance: None })?))
    }
}

/// Moves an order from one status to the next, if it is in the first. Holds its row afterwards.
pub(super) async fn move_on(
    tx: &mut PgConnection,
    order: &Order,
    from: &str,
    to: &str,
    action: &'static str,
) -> Result<Result<(), Refusal>, Error> {
    let moved = sqlx::query!(
        "update orders set status = $3, paid_at = case when $3 = 'paid' then now() else paid_at end
          where id = $1 and status = $2",
        order.id.0,
        from,
        to,
    )
    .execute(&mut *tx)
    .await?;
    if moved.rows_affected() == 1 {
        return Ok(Ok(()));
    }
    let status = sqlx::query_scalar!("select status from orders where id = $1", order.id.0)
        .fetch_one(tx)
        .await?;
    Ok(Err(Refusal::OrderState { status, action }))
}

/// Puts the units of an order back on the shelf.
pub(super) async fn put_back(
    tx: &mut PgConnection,
    held: &Held<'_>,
    order: &Order,
    reason: &'static str,
) -> Result<BTreeMap<String, Change>, Error> {
    let skus: Vec<String> = order.lines.iter().map(|line| line.sku.to_string()).collect();
    let readings = stock::read_stock(tx, held.strategy, &skus).await?;
    let read = readings.iter().map(|r| Seen::value(r.sku.lock_key().as_str(), r.stock));
    held.probe.at(Point::Read, read).await;
    let deltas: Vec<i64> = order.lines.iter().map(|line| line.quantity).collect();
    let origin = Origin { reason, order: Some(order.id), request_id: held.request_id };
    let written =
        stock::write_stock(tx, held.strategy, &held.exclusion, &readings, &deltas, origin);
    let moved =
        written.await?.map_err(|short| Error::Bug(format!("adding fell short at {}", short.at)))?;
    let wrote = readings
        .iter()
        .zip(&moved)
        .map(|(r, moved)| Seen::value(r.sku.lock_key().as_str(), moved.after));
    held.probe.at(Point::Write, wrote).await;
    Ok(skus.into_iter().zip(moved.into_iter().map(Change::from)).collect())
}

/// Whether an order can still be paid, judged by Postgres's clock now (`now()` would be the start
/// of the transaction).
pub(super) async fn is_expired(tx: &mut PgConnection, order: OrderId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"select expires_at <= clock_timestamp() as "expired!" from orders where id = $1"#,
        order.0
    )
    .fetch_one(tx)
    .await?)
}

/// The refusal for an order that is not there, or not the caller's: the two look the same.
pub(super) fn no_such_order(order: OrderId) -> Refusal {
    Refusal::NotFound(format!("you have no order {order}"))
}

/// One of the user's orders.
///
/// # Errors
/// Postgres's.
pub async fn order(shop: &Shop, user: UserId, id: OrderId) -> Result<Option<Order>, Error> {
    find(&mut *shop.connection().await?, user, id).await
}

pub(super) async fn find(
    db: &mut PgConnection,
    user: UserId,
    id: OrderId,
) -> Result<Option<Order>, Error> {
    Ok(select(db, user, Some(id), None, 1).await?.pop())
}

/// The user's orders, newest first, older than `after`.
///
/// # Errors
/// Postgres's.
pub async fn orders(
    shop: &Shop,
    user: UserId,
    after: Option<OrderId>,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    select(&mut *shop.connection().await?, user, None, after, limit).await
}

async fn select(
    db: &mut PgConnection,
    user: UserId,
    only: Option<OrderId>,
    after: Option<OrderId>,
    limit: i64,
) -> Result<Vec<Order>, Error> {
    let rows = sqlx::query!(
        "select id, status, total_cents, expires_at, created_at, paid_at from orders
          where user_id = $1 and ($2::uuid is null or id = $2) and ($3::uuid is null or id < $3)
          order by id desc limit $4",
        user.0,
        only.map(|order| order.0),
        after.map(|order| order.0),
        limit,
    )
    .fetch_all(&mut *db)
    .await?;
    let mut orders: Vec<Order> = rows
        .into_iter()
        .map(|row| Order {
            id: OrderId(row.id),
            status: row.status,
            total_cents: row.total_cents,
            lines: Vec::new(),
            expires_at: row.expires_at,
            created_at: row.created_at,
            paid_at: row.paid_at,
        })
        .collect();
    fill_lines(db, &mut orders).await?;
    Ok(orders)
}

async fn fill_lines(db: &mut PgConnection, orders: &mut [Order]) -> Result<(), Error> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.id.0).collect();
    let lines = sqlx::query!(
        "select l.order_id, l.sku, l.quantity, l.unit_price_cents, e.before, e.delta, e.after
           from order_lines l
           join stock_ledger e
             on e.order_id = l.order_id and e.sku = l.sku and e.reason = 'order'
          where l.order_id = any($1)
          order by l.order_id, l.sku",
        &ids,
    )
    .fetch_all(db)
    .await?;
    for row in lines {
        let Some(order) = orders.iter_mut().find(|order| order.id.0 == row.order_id) else {
            continue;
        };
        order.lines.push(Line {
            sku: catalog::known(row.sku)?,
            quantity: row.quantity,
            unit_price_cents: row.unit_price_cents,
            stock: Change { before: row.before, delta: row.delta, after: row.after },
        });
    }
    Ok(())
}

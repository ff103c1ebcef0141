//! Placing an order.
//!
//! It takes units off the shelf at once and holds them for a while ([`Shop::hold`]); paying keeps
//! them, cancelling puts them back, and so does [`super::unpaid`] when the time is over. The order,
//! its lines, the stock, its ledger entries and the stored answer are one transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Change, Line, MOST_LINES, MOST_UNITS, Order, WantedLine, together};
use crate::lock::LockKey;
use crate::probe::Point;
use crate::shop::errand::{self, Errand, Held};
use crate::shop::idempotency::{self, Claim, ORDERS_PATH};
use crate::shop::stock::fenced::{Sale, Sold};
use crate::shop::stock::{self, Origin, StockReading, Strategy, Write};
use crate::shop::{
    Answer, Conditions, Error, Key, OrderId, Outcome, Refusal, Shop, Sku, USUAL_HOLD, UserId,
    catalog, customer_limit,
};

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
    let place = match Place::new(user, key, lines, conditions.hold) {
        Ok(place) => place,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    // Who wants several items, or a way of waiting of its own, takes its turn like a batch does.
    match place.only_sku().cloned() {
        Some(sku) if conditions.suits_a_batch() => {
            together::place(shop, conditions, sku, place).await
        }
        _ => errand::run(shop, conditions, place).await,
    }
}

/// Checks and answers an order as [`place`] does, and places nothing: what the path costs without
/// the work.
///
/// # Errors
/// None today; the shape is [`place`]'s.
pub fn check(user: UserId, key: Key, lines: &[WantedLine]) -> Result<Outcome, Error> {
    let place = match Place::new(user, key, lines, USUAL_HOLD) {
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
        expires_at: now + place.hold,
        created_at: now,
        paid_at: None,
        expired: false,
    };
    Ok(Outcome::Done(Answer::json(201, &order)?))
}

/// An order that is to be placed.
#[derive(Debug)]
pub struct Place {
    pub(super) claim: Claim,
    pub(super) order: OrderId,
    /// Sorted, each item once.
    pub(super) lines: BTreeMap<Sku, i64>,
    /// How long it keeps its units unpaid.
    hold: Duration,
}

impl Place {
    fn new(user: UserId, key: Key, wanted: &[WantedLine], hold: Duration) -> Result<Self, Refusal> {
        if wanted.is_empty() || wanted.len() > MOST_LINES {
            return Err(Refusal::Invalid("lines".into(), format!("1 to {MOST_LINES} lines")));
        }
        let mut lines = BTreeMap::new();
        for (place, line) in wanted.iter().enumerate() {
            if !(1..=MOST_UNITS).contains(&line.quantity) {
                let field = format!("lines[{place}].quantity");
                return Err(Refusal::Invalid(field.into(), format!("1 to {MOST_UNITS}")));
            }
            *lines.entry(line.sku.clone()).or_insert(0) += line.quantity;
        }
        let mut hash = Sha256::new();
        for (sku, quantity) in &lines {
            hash.update(format!("{sku} {quantity}\n"));
        }
        let claim =
            Claim { user, path: ORDERS_PATH.to_owned(), key, fingerprint: hash.finalize().into() };
        Ok(Self { claim, order: OrderId(Uuid::now_v7()), lines, hold })
    }

    /// The item, if it is only one.
    fn only_sku(&self) -> Option<&Sku> {
        self.lines.keys().next().filter(|_| self.lines.len() == 1)
    }

    pub(super) fn skus(&self) -> Vec<Sku> {
        self.lines.keys().cloned().collect()
    }
}

impl Place {
    /// It may stay unpaid: whoever gives such orders back is told.
    pub(super) fn is_placed(&self, shop: &Shop) {
        shop.unpaid.tell(self.order, self.hold);
    }
}

impl Errand for Place {
    fn keys(&self) -> Vec<LockKey> {
        self.lines.keys().map(Sku::lock_key).collect()
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order)
    }

    fn claim(&self) -> Option<&Claim> {
        Some(&self.claim)
    }

    async fn admit(
        &self,
        shop: &Shop,
        conditions: &Conditions,
    ) -> Result<Result<(), Refusal>, Error> {
        catalog::admit_to_lab(shop, conditions, &self.skus()).await
    }

    fn done(&self, shop: &Shop) {
        self.is_placed(shop);
    }

    fn stores_its_answer(&self, strategy: &Strategy) -> bool {
        strategy.write == Write::Fenced && self.lines.len() == 1
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
        let read = readings.iter().map(|r| held.seen(&r.sku.lock_key(), r.stock));
        held.probe.at(Point::Read, read).await;

        let mut total_cents = 0_i64;
        for (reading, quantity) in readings.iter().zip(self.lines.values()) {
            let line_cents = reading.price_cents.checked_mul(*quantity);
            match line_cents.and_then(|cents| total_cents.checked_add(cents)) {
                Some(sum) => total_cents = sum,
                None => {
                    return Ok(Err(Refusal::Invalid(
                        "lines".into(),
                        "it costs too much".to_owned(),
                    )));
                }
            }
        }
        let deltas: Vec<i64> = self.lines.values().map(|quantity| -quantity).collect();
        let written = match readings.as_slice() {
            // Too little on the shelf goes the other way, which tells a used key before *sold out*.
            [reading]
                if self.stores_its_answer(held.strategy) && reading.stock + deltas[0] >= 0 =>
            {
                self.write_at_once(tx, held, reading, total_cents).await?
            }
            _ => self.write(tx, held, &readings, &deltas, total_cents).await?,
        };
        let (order, answer) = match written {
            Ok(written) => written,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // Sold out is told first: that is so for everybody, and is known without counting.
        let user = self.claim.user;
        if let Some(refusal) = customer_limit::exceeded(tx, user, &readings, &deltas).await? {
            return Ok(Err(refusal));
        }
        let wrote = order.lines.iter().map(|l| held.seen(&l.sku.lock_key(), l.stock.after));
        held.probe.at(Point::Write, wrote).await;
        Ok(Ok(answer))
    }
}

/// An order that was written, and what its buyer is told.
type Written = (Order, Answer);

impl Place {
    /// The order, its lines, the rows and the ledger, one after the other.
    async fn write(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
        readings: &[StockReading],
        deltas: &[i64],
        total_cents: i64,
    ) -> Result<Result<Written, Refusal>, Error> {
        let (created_at, expires_at) = match self.insert(tx, readings, total_cents).await? {
            Ok(times) => times,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let origin =
            Origin { reason: "order", order: Some(self.order), request_id: held.request_id };
        let written =
            stock::write_stock(tx, held.strategy, &held.exclusion, readings, deltas, origin);
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
        let changes = moved.into_iter().map(Change::from);
        let order = self.pending(readings, changes, total_cents, (created_at, expires_at));
        let answer = Answer::json(201, &order)?;
        Ok(Ok((order, answer)))
    }

    /// The same and its answer, in one statement; there must be enough on the shelf.
    async fn write_at_once(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
        reading: &StockReading,
        total_cents: i64,
    ) -> Result<Result<Written, Refusal>, Error> {
        let created_at = held
            .claimed_at
            .ok_or_else(|| Error::Bug("an order is placed without its claim".to_owned()))?;
        let expires_at = created_at + self.hold;
        let quantity: i64 = self.lines.values().sum();
        let (before, after) = (reading.stock, reading.stock - quantity);
        let change = Change { before, delta: -quantity, after };
        let readings = std::slice::from_ref(reading);
        let order = self.pending(readings, [change], total_cents, (created_at, expires_at));
        let answer = Answer::json(201, &order)?;
        let sale = Sale {
            claim: &self.claim,
            answer: &answer,
            quantity,
            total_cents,
            created_at,
            expires_at,
            order: self.order,
            request_id: held.request_id,
        };
        match stock::fenced::sell(tx, &held.exclusion, reading, sale).await? {
            Sold::Done => Ok(Ok((order, answer))),
            Sold::TokenUsed => Ok(Err(self.token_used(tx).await?)),
        }
    }

    /// The order as it is then, with what changed line by line.
    fn pending(
        &self,
        readings: &[StockReading],
        changes: impl IntoIterator<Item = Change>,
        total_cents: i64,
        (created_at, expires_at): (OffsetDateTime, OffsetDateTime),
    ) -> Order {
        let lines = readings.iter().zip(self.lines.values()).zip(changes);
        let line = |((reading, quantity), stock): ((&StockReading, &i64), Change)| Line {
            sku: reading.sku.clone(),
            quantity: *quantity,
            unit_price_cents: reading.price_cents,
            stock,
        };
        Order {
            id: self.order,
            status: "pending".to_owned(),
            total_cents,
            lines: lines.map(line).collect(),
            expires_at,
            created_at,
            paid_at: None,
            expired: false,
        }
    }

    async fn token_used(&self, tx: &mut PgConnection) -> Result<Refusal, Error> {
        let order_id = idempotency::order_of_token(tx, &self.claim).await?;
        Ok(Refusal::KeyUsed { order_id })
    }

    /// The order and its lines: one round trip, for its item is locked meanwhile.
    async fn insert(
        &self,
        tx: &mut PgConnection,
        readings: &[StockReading],
        total_cents: i64,
    ) -> Result<Result<(OffsetDateTime, OffsetDateTime), Refusal>, Error> {
        let skus: Vec<String> = readings.iter().map(|reading| reading.sku.to_string()).collect();
        let quantities: Vec<i64> = self.lines.values().copied().collect();
        let prices: Vec<i64> = readings.iter().map(|reading| reading.price_cents).collect();
        let limits: Vec<Option<i64>> =
            readings.iter().map(|reading| reading.limit_per_user).collect();
        // The token is unique for ever, its answer is kept for a day: an order without an answer is
        // an old one. (A conflict does not kill the transaction; a violation would.)
        let row = sqlx::query!(
            r#"with placed as (
                insert into orders
                    (id, user_id, status, total_cents, token, created_at, expires_at)
                values ($1, $2, 'pending', $3::bigint, $4, now(), now() + make_interval(secs => $5))
                on conflict on constraint orders_token_key do nothing
                returning id, created_at, expires_at
            ), lined as (
                insert into order_lines
                    (order_id, sku, quantity, unit_price_cents, counts_for, limit_per_user)
                select placed.id, new.sku, new.quantity, new.price, $2, new.most
                  from placed, unnest($6::text[], $7::bigint[], $8::bigint[], $9::bigint[])
                               as new (sku, quantity, price, most)
            )
            select created_at as "created_at!", expires_at as "expires_at!" from placed"#,
            self.order.0,
            self.claim.user.0,
            total_cents,
            self.claim.key.as_str(),
            self.hold.as_secs_f64(),
            &skus,
            &quantities,
            &prices,
            &limits as &[Option<i64>],
        )
        .fetch_optional(&mut *tx)
        .await?;
        match row {
            Some(row) => Ok(Ok((row.created_at, row.expires_at))),
            None => Ok(Err(self.token_used(tx).await?)),
        }
    }
}

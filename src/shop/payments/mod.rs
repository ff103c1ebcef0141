//! Money: paying an order, refunding it, topping an account up.
//!
//! The same journey as placing, with the user as key and the balance as value. An order's status
//! moves by compare-and-set in the same transaction, so it is paid once and refunded once whatever
//! the locks do.

mod together;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::combine;
use super::errand::{self, Errand, Held};
use super::idempotency::{Claim, TOP_UPS_PATH};
use super::ledger::Entry;
use super::orders::{self, Change, Order, Returned, moves};
use super::stock::{self, Moved, Origin};
use super::{
    Answer, Conditions, Error, Key, LARGEST, OrderId, Outcome, Refusal, Shop, Sku, UserId, catalog,
    ledger,
};
use crate::lock::{LockKey, Priority};
use crate::probe::Point;

/// More than this is on no account.
const LARGEST_BALANCE: i64 = 1_000_000_000_000_000;

/// An order that was paid, and what that did to the balance.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Paid {
    /// The order as it is now.
    pub order: Order,
    /// The account.
    pub balance: Change,
}

/// Pays a pending order: once per key, and once per order.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn pay(
    shop: &Shop,
    conditions: &Conditions,
    user: UserId,
    order: OrderId,
    key: Key,
) -> Result<Outcome, Error> {
    let Some(found) = orders::order(shop, user, order).await? else {
        return Ok(Outcome::Refused(orders::no_such_order(order)));
    };
    let claim = Claim {
        user,
        path: format!("/api/orders/{order}/pay"),
        key,
        fingerprint: Sha256::digest(b"").into(),
    };
    let pay = Pay { claim, found };
    if conditions.suits_a_batch() {
        return match pay.admit(shop, conditions).await? {
            Ok(()) => combine::run(shop, conditions, pay).await,
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        };
    }
    errand::run(shop, conditions, pay).await
}

/// An order that is to be paid.
#[derive(Debug)]
pub struct Pay {
    claim: Claim,
    found: Order,
}

impl Errand for Pay {
    fn keys(&self) -> Vec<LockKey> {
        vec![self.claim.user.lock_key()]
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.found.id)
    }

    fn claim(&self) -> Option<&Claim> {
        Some(&self.claim)
    }

    /// An account on which money may come out wrong is marked before it does, and apart: inside the
    /// transaction, the mark would keep the first two payments apart.
    async fn admit(
        &self,
        shop: &Shop,
        conditions: &Conditions,
    ) -> Result<Result<(), Refusal>, Error> {
        let skus: Vec<Sku> = self.found.lines.iter().map(|line| line.sku.clone()).collect();
        let admitted = catalog::admit_to_lab(shop, conditions, &skus).await?;
        if admitted.is_ok() && conditions.may_break(shop) {
            ledger::mark_lab(shop, self.claim.user).await?;
        }
        Ok(admitted)
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        if let Err(refusal) = moves::move_on(tx, &self.found, "pending", "paid", "pay").await? {
            return Ok(Err(refusal));
        }
        if moves::is_expired(tx, self.found.id).await? {
            return Ok(Err(Refusal::OrderExpired));
        }
        let total_cents = self.found.total_cents;
        let origin =
            Origin { reason: "payment", order: Some(self.found.id), request_id: held.request_id };
        let moved = match move_money(tx, held, self.claim.user, -total_cents, origin).await? {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(order) = orders::find(tx, self.claim.user, self.found.id).await? else {
            return Ok(Err(orders::no_such_order(self.found.id)));
        };
        Ok(Ok(Answer::json(200, &Paid { order, balance: moved.into() })?))
    }
}

/// Refunds a paid order: the money comes back, and the units.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn refund(
    shop: &Shop,
    conditions: &Conditions,
    user: UserId,
    order: OrderId,
) -> Result<Outcome, Error> {
    let Some(found) = orders::order(shop, user, order).await? else {
        return Ok(Outcome::Refused(orders::no_such_order(order)));
    };
    errand::run(shop, conditions, Refund { user, found }).await
}

struct Refund {
    user: UserId,
    found: Order,
}

impl Errand for Refund {
    fn keys(&self) -> Vec<LockKey> {
        let items = self.found.lines.iter().map(|line| line.sku.lock_key());
        items.chain([self.user.lock_key()]).collect()
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.found.id)
    }

    fn claim(&self) -> Option<&Claim> {
        None
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        if let Err(refusal) = moves::move_on(tx, &self.found, "paid", "refunded", "refund").await? {
            return Ok(Err(refusal));
        }
        let stock: BTreeMap<String, Change> =
            moves::put_back(tx, held, self.found.id, &self.found.units(), "refund").await?;
        let origin =
            Origin { reason: "refund", order: Some(self.found.id), request_id: held.request_id };
        let moved = match move_money(tx, held, self.user, self.found.total_cents, origin).await? {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(order) = orders::find(tx, self.user, self.found.id).await? else {
            return Ok(Err(orders::no_such_order(self.found.id)));
        };
        let returned = Returned { order, stock, balance: Some(moved.into()) };
        Ok(Ok(Answer::json(200, &returned)?))
    }
}

/// Puts money on the user's own account, once per key.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn top_up(
    shop: &Shop,
    conditions: &Conditions,
    user: UserId,
    key: Key,
    amount_cents: i64,
) -> Result<Outcome, Error> {
    if !(1..=LARGEST).contains(&amount_cents) {
        let why = format!("1 to {LARGEST}");
        return Ok(Outcome::Refused(Refusal::Invalid("amount_cents".into(), why)));
    }
    let claim = Claim {
        user,
        path: TOP_UPS_PATH.to_owned(),
        key,
        fingerprint: Sha256::digest(amount_cents.to_string()).into(),
    };
    errand::run(shop, conditions, TopUp { claim, amount_cents }).await
}

struct TopUp {
    claim: Claim,
    amount_cents: i64,
}

impl Errand for TopUp {
    fn keys(&self) -> Vec<LockKey> {
        vec![self.claim.user.lock_key()]
    }

    fn claim(&self) -> Option<&Claim> {
        Some(&self.claim)
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let user = self.claim.user;
        if !record_top_up(tx, user, self.claim.key.as_str(), self.amount_cents).await? {
            return Ok(Err(Refusal::KeyUsed { order_id: None }));
        }
        let origin = Origin { reason: "top-up", order: None, request_id: held.request_id };
        match move_money(tx, held, user, self.amount_cents, origin).await? {
            Ok(moved) => {
                let entry: Entry = ledger::balance_entry(tx, user, moved.seq).await?;
                Ok(Ok(Answer::json(201, &entry)?))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }
}

/// Writes down where money came from; `false` when that token was used before.
pub(super) async fn record_top_up(
    tx: &mut PgConnection,
    user: UserId,
    token: &str,
    amount_cents: i64,
) -> Result<bool, Error> {
    let inserted = sqlx::query!(
        "insert into top_ups (id, user_id, token, amount_cents) values ($1, $2, $3, $4)
         on conflict on constraint top_ups_token_key do nothing",
        Uuid::now_v7(),
        user.0,
        token,
        amount_cents,
    )
    .execute(tx)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

/// Reads the balance, passes the points, writes it back with its ledger entry.
async fn move_money(
    tx: &mut PgConnection,
    held: &Held<'_>,
    user: UserId,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Refusal>, Error> {
    let key = user.lock_key();
    let Some(reading) = stock::read_balance(tx, held.strategy, user).await? else {
        return Ok(Err(Refusal::NotFound("you have no account".to_owned())));
    };
    held.probe.at(Point::Read, [held.seen(&key, reading.balance_cents)]).await;
    if reading.balance_cents.checked_add(delta).is_none_or(|after| after > LARGEST_BALANCE) {
        let why = format!("no account holds more than {LARGEST_BALANCE}");
        return Ok(Err(Refusal::Invalid("amount_cents".into(), why)));
    }
    let written = stock::write_balance(tx, held.strategy, &held.exclusion, reading, delta, origin);
    match written.await? {
        Ok(moved) => {
            held.probe.at(Point::Write, [held.seen(&key, moved.after)]).await;
            Ok(Ok(moved))
        }
        Err(short) => Ok(Err(Refusal::InsufficientFunds {
            needed_cents: -delta,
            balance_cents: short.available,
        })),
    }
}

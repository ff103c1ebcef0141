//! Putting units on the shelf, or taking broken ones off it: the admin's hand on the stock.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::errand::{self, Errand, Held};
use super::idempotency::Claim;
use super::stock::{self, Origin};
use super::{Answer, Conditions, Error, LARGEST, Outcome, Refusal, Shop, Sku, catalog, ledger};
use crate::lock::{LockKey, Priority};
use crate::probe::Point;

/// Words that the ledger uses for what the shop itself does.
const RESERVED: [&str; 5] = ["opening", "order", "cancel", "refund", "expiry"];

/// What changes on the shelf, and why.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Restocking {
    /// How many come (or, below zero, go).
    pub delta: i64,
    /// Why: 1 to 64 characters.
    #[schema(example = "restock")]
    pub reason: String,
}

/// Changes an item's stock by hand.
///
/// # Errors
/// [`Error`]; see [`errand::run`].
pub async fn restock(
    shop: &Shop,
    conditions: &Conditions,
    sku: Sku,
    what: Restocking,
) -> Result<Outcome, Error> {
    if what.delta == 0 || what.delta.unsigned_abs() > LARGEST.unsigned_abs() {
        let why = format!("it must be a whole number from −{LARGEST} to {LARGEST}, and not 0");
        return Ok(Outcome::Refused(Refusal::Invalid("delta".into(), why)));
    }
    let reason = what.reason.trim();
    if !(1..=64).contains(&reason.chars().count()) || reason.chars().any(char::is_control) {
        let why = "1 to 64 characters on one line".to_owned();
        return Ok(Outcome::Refused(Refusal::Invalid("reason".into(), why)));
    }
    if RESERVED.contains(&reason) {
        let why = format!("“{reason}” is what the shop's own entries say; use another word");
        return Ok(Outcome::Refused(Refusal::Invalid("reason".into(), why)));
    }
    let errand = Restock { sku, delta: what.delta, reason: reason.to_owned() };
    errand::run(shop, conditions, errand).await
}

struct Restock {
    sku: Sku,
    delta: i64,
    reason: String,
}

impl Errand for Restock {
    fn keys(&self) -> Vec<LockKey> {
        vec![self.sku.lock_key()]
    }

    fn claim(&self) -> Option<&Claim> {
        None
    }

    /// At the end of a line of buyers it would come too late for all of them. Taking units off has
    /// no hurry.
    fn priority(&self) -> Priority {
        if self.delta > 0 { Priority::High } else { Priority::Normal }
    }

    async fn admit(
        &self,
        shop: &Shop,
        conditions: &Conditions,
    ) -> Result<Result<(), Refusal>, Error> {
        catalog::admit_to_lab(shop, conditions, std::slice::from_ref(&self.sku)).await
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let readings = stock::read_stock(tx, held.strategy, &[self.sku.to_string()]).await?;
        let Some(reading) = readings.first() else {
            return Ok(Err(Refusal::NotFound(format!("there is no item {}", self.sku))));
        };
        let key = self.sku.lock_key();
        held.probe.at(Point::Read, [held.seen(&key, reading.stock)]).await;
        if reading.stock + self.delta > LARGEST {
            let why = format!("there are {} already; {LARGEST} is the most", reading.stock);
            return Ok(Err(Refusal::Invalid("delta".into(), why)));
        }
        let origin = Origin { reason: &self.reason, order: None, request_id: held.request_id };
        let deltas = [self.delta];
        let written =
            stock::write_stock(tx, held.strategy, &held.exclusion, &readings, &deltas, origin);
        match written.await? {
            Ok(moved) => {
                held.probe.at(Point::Write, [held.seen(&key, moved[0].after)]).await;
                let entry = ledger::stock_entry(tx, &self.sku, moved[0].seq).await?;
                Ok(Ok(Answer::json(200, &entry)?))
            }
            Err(short) => {
                let why = format!("only {} are there", short.available);
                Ok(Err(Refusal::Invalid("delta".into(), why)))
            }
        }
    }
}

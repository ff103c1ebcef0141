//! What happens to an order after it was placed: cancelling, and the steps that paying and
//! refunding share with it. A status moves by compare-and-set, so of two requests that want to move
//! an order one does.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::{Change, Order, Returned, find, no_such_order, unpaid};
use crate::lock::{LockKey, Priority};
use crate::probe::Point;
use crate::shop::errand::{self, Errand, Held};
use crate::shop::idempotency::Claim;
use crate::shop::stock::{self, Origin};
use crate::shop::{Answer, Conditions, Error, OrderId, Outcome, Refusal, Shop, Sku, UserId};

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
        if let Err(refusal) = move_on(tx, &self.found, "pending", "cancelled", "cancel").await? {
            return Ok(Err(refusal));
        }
        let stock = put_back(tx, held, self.found.id, &self.found.units(), "cancel").await?;
        let Some(order) = find(tx, self.user, self.found.id).await? else {
            return Ok(Err(no_such_order(self.found.id)));
        };
        Ok(Ok(Answer::json(200, &Returned { order, stock, balance: None })?))
    }
}

/// Moves an order from one status to the next, if it is in the first. Holds its row afterwards.
pub(in crate::shop) async fn move_on(
    tx: &mut PgConnection,
    order: &Order,
    from: &str,
    to: &str,
    action: &'static str,
) -> Result<Result<(), Refusal>, Error> {
    let moved = sqlx::query!(
        "update orders
            set status = $3::text,
                paid_at = case when $3 = 'paid' then now() else paid_at end
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
        .fetch_one(&mut *tx)
        .await?;
    let lapsed = status == "cancelled"
        && unpaid::lapsed_among(tx, vec![order.id.0]).await?.contains(&order.id.0);
    Ok(Err(no_longer(status, lapsed, action)))
}

/// Why an order that is in that status can't be moved. Who comes too late to pay is told so,
/// whether the order has been given back by then or not.
pub(in crate::shop) fn no_longer(status: String, lapsed: bool, action: &'static str) -> Refusal {
    if lapsed && action == "pay" {
        Refusal::OrderExpired
    } else {
        Refusal::OrderState { status, action }
    }
}

/// Puts the units of an order back on the shelf: of each item so many, sorted.
pub(in crate::shop) async fn put_back(
    tx: &mut PgConnection,
    held: &Held<'_>,
    order: OrderId,
    units: &[(Sku, i64)],
    reason: &'static str,
) -> Result<BTreeMap<String, Change>, Error> {
    let skus: Vec<String> = units.iter().map(|(sku, _)| sku.to_string()).collect();
    let readings = stock::read_stock(tx, held.strategy, &skus).await?;
    let read = readings.iter().map(|r| held.seen(&r.sku.lock_key(), r.stock));
    held.probe.at(Point::Read, read).await;
    let deltas: Vec<i64> = units.iter().map(|(_, quantity)| *quantity).collect();
    let origin = Origin { reason, order: Some(order), request_id: held.request_id };
    let written =
        stock::write_stock(tx, held.strategy, &held.exclusion, &readings, &deltas, origin);
    let moved =
        written.await?.map_err(|short| Error::Bug(format!("adding fell short at {}", short.at)))?;
    let wrote =
        readings.iter().zip(&moved).map(|(r, moved)| held.seen(&r.sku.lock_key(), moved.after));
    held.probe.at(Point::Write, wrote).await;
    Ok(skus.into_iter().zip(moved.into_iter().map(Change::from)).collect())
}

/// Whether an order can still be paid, judged by Postgres's clock now (`now()` would be the start
/// of the transaction).
pub(in crate::shop) async fn is_expired(
    tx: &mut PgConnection,
    order: OrderId,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"select expires_at <= clock_timestamp() as "expired!" from orders where id = $1"#,
        order.0
    )
    .fetch_one(tx)
    .await?)
}

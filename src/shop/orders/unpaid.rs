//! Orders that were not paid in time: their units go back on the shelf, once.
//!
//! Guarantees: an order is given back at most once, whoever tries and how often, because its status
//! moves from `pending` by compare-and-set in the transaction that puts its units back; and not
//! before its time, because Postgres's clock is asked in that very statement. Money that arrives in
//! the same instant wins or loses as a whole: both lock the order's row.
//!
//! Does not find out by itself what is due: that is `jobs::unpaid`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::moves;
use crate::lock::{LockKey, Priority};
use crate::shop::errand::{self, Errand, Held};
use crate::shop::idempotency::Claim;
use crate::shop::{
    Answer, Conditions, Error, OrderId, Outcome, Refusal, Shop, Sku, catalog, stock,
};

/// Orders that wait to be told of. More come in a quarter of a second only from a shop that would
/// fill the queue in a minute; who finds no room is found by the sweep.
const MOST_UNTOLD: usize = 10_000;

/// Tells the delay queue of orders that were placed. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Teller(mpsc::Sender<Placed>);

/// An order that may stay unpaid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub order: OrderId,
    /// When it is due.
    pub due_at: Instant,
}

impl Teller {
    /// One, and the end at which it is heard.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Placed>) {
        let (teller, heard) = mpsc::channel(MOST_UNTOLD);
        (Self(teller), heard)
    }

    /// Says that an order was placed, which is due so long after now. A hint: it is lost when
    /// nobody listens, or too many talk.
    pub(super) fn tell(&self, order: OrderId, due_in: Duration) {
        let due_at = Instant::now() + due_in;
        if self.0.try_send(Placed { order, due_at }).is_err() {
            metrics::counter!("holdfast_unpaid_untold_total").increment(1);
        }
    }
}

/// An order as whoever wants to give it back finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is due.
    Due {
        /// Its units, sorted.
        units: Vec<(Sku, i64)>,
        /// For how long it has been.
        late: Duration,
    },
    /// It is unpaid, and has so long; or is to be left alone so long, because it has failed.
    NotYet(Duration),
    /// It is unpaid and due, and was parked after it had failed too often.
    Parked,
}

/// Those of `orders` that are unpaid, by Postgres's clock now. The others have gone their way.
///
/// # Errors
/// Postgres's.
pub async fn look(shop: &Shop, orders: &[OrderId]) -> Result<BTreeMap<OrderId, Found>, Error> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.0).collect();
    let db = &mut *shop.connection().await?;
    let rows = sqlx::query!(
        r#"select o.id, l.sku, l.quantity,
                  f.order_id is not null and f.next_at is null as "parked!",
                  extract(epoch from now() - o.expires_at)::float8 as "late_s!",
                  extract(epoch from greatest(o.expires_at, f.next_at) - now())::float8 as "left_s!"
             from orders o
             join order_lines l on l.order_id = o.id
             left join unpaid_failures f on f.order_id = o.id
            where o.id = any($1) and o.status = 'pending'
            order by o.id, l.sku"#,
        &ids,
    )
    .fetch_all(db)
    .await?;
    let mut found = BTreeMap::new();
    for row in rows {
        let entry = found.entry(OrderId(row.id)).or_insert_with(|| {
            if row.left_s > 0.0 {
                Found::NotYet(Duration::from_secs_f64(row.left_s))
            } else if row.parked {
                Found::Parked
            } else {
                let late = Duration::from_secs_f64(row.late_s.max(0.0));
                Found::Due { units: Vec::new(), late }
            }
        });
        if let Found::Due { units, .. } = entry {
            units.push((catalog::known(row.sku)?, row.quantity));
        }
    }
    Ok(found)
}

/// Gives orders back that are due, all in one transaction under the locks of all their items.
/// Those that are not due, not pending, or whose row is locked (somebody pays just now) are left as
/// they are. The ids of those that were given back.
///
/// # Errors
/// [`Error`]; see [`errand::run`]. A refusal is a lock that was not had.
pub async fn give_back(
    shop: &Shop,
    conditions: &Conditions,
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
) -> Result<Result<BTreeSet<OrderId>, Refusal>, Error> {
    match errand::run(shop, conditions, GiveBack { orders }).await? {
        Outcome::Done(answer) | Outcome::Replayed(answer) => {
            Ok(Ok(answer.read::<GivenBack>()?.orders))
        }
        Outcome::Refused(refusal) => Ok(Err(refusal)),
    }
}

struct GiveBack {
    orders: Vec<(OrderId, Vec<(Sku, i64)>)>,
}

#[derive(Serialize, Deserialize)]
struct GivenBack {
    orders: BTreeSet<OrderId>,
}

impl Errand for GiveBack {
    fn keys(&self) -> Vec<LockKey> {
        self.skus().iter().map(Sku::lock_key).collect()
    }

    fn order(&self) -> Option<OrderId> {
        self.orders.first().map(|(order, _)| *order).filter(|_| self.orders.len() == 1)
    }

    fn claim(&self) -> Option<&Claim> {
        None
    }

    /// It brings units back that others wait for.
    fn priority(&self) -> Priority {
        Priority::High
    }

    async fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let skus = self.skus();
        // A single item's write says itself that its row is stale, and before it nothing is lost.
        if skus.len() > 1 {
            stock::look_at_fences(tx, held.strategy, &held.exclusion, &skus).await?;
        }
        let due = cancel_due(tx, self.orders.iter().map(|(order, _)| order.0).collect()).await?;
        if held.strategy.lock.is_none() {
            self.take_items(tx, held, &due).await?;
        }
        for (order, units) in self.orders.iter().filter(|(order, _)| due.contains(order)) {
            moves::put_back(tx, held, *order, units, "expiry").await?;
        }
        Ok(Ok(Answer::json(200, &GivenBack { orders: due })?))
    }
}

impl GiveBack {
    /// The items of all of them, sorted.
    fn skus(&self) -> Vec<Sku> {
        let units = self.orders.iter().flat_map(|(_, units)| units);
        let skus: BTreeSet<&Sku> = units.map(|(sku, _)| sku).collect();
        skus.into_iter().cloned().collect()
    }

    /// Where Postgres keeps others out: takes the items of all of them, sorted, before the first is
    /// written. Order by order, two who give back, or buy, could each wait for what the other has.
    async fn take_items(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
        due: &BTreeSet<OrderId>,
    ) -> Result<(), Error> {
        let units = self.orders.iter().filter(|(order, _)| due.contains(order));
        let skus: BTreeSet<&Sku> =
            units.flat_map(|(_, units)| units.iter().map(|(sku, _)| sku)).collect();
        let skus: Vec<String> = skus.into_iter().map(Sku::to_string).collect();
        stock::read_stock(tx, held.strategy, &skus).await?;
        stock::row_lock::read_stock(tx, &skus).await?;
        Ok(())
    }
}

/// Moves those on that are due. Nobody waits here for a row that a payment has locked: the items'
/// locks are held by now, and everybody would wait with us.
async fn cancel_due(tx: &mut PgConnection, ids: Vec<Uuid>) -> Result<BTreeSet<OrderId>, Error> {
    let due = sqlx::query_scalar!(
        "select id from orders
          where id = any($1) and status = 'pending' and expires_at <= clock_timestamp()
          order by id for no key update skip locked",
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    let moved = sqlx::query!("update orders set status = 'cancelled' where id = any($1)", &due)
        .execute(tx)
        .await?;
    if moved.rows_affected() != due.len() as u64 {
        return Err(Error::Bug("a locked order was not moved".to_owned()));
    }
    Ok(due.into_iter().map(OrderId).collect())
}

/// Those of the cancelled orders that were cancelled because they were not paid in time. A
/// statement of its own, after the one that waited for their rows: that one's snapshot is older
/// than what it waited for.
pub(in crate::shop) async fn lapsed_among(
    tx: &mut PgConnection,
    cancelled: Vec<Uuid>,
) -> Result<BTreeSet<Uuid>, Error> {
    if cancelled.is_empty() {
        return Ok(BTreeSet::new());
    }
    let lapsed = sqlx::query_scalar!(
        r#"select distinct order_id as "order_id!" from stock_ledger
            where order_id = any($1) and reason = 'expiry'"#,
        &cancelled,
    )
    .fetch_all(tx)
    .await?;
    Ok(lapsed.into_iter().collect())
}

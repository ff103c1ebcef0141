//! Expiry of unpaid orders: notifications of placed and settled orders, and the state of due ones.
//!
//! [`super::command::expire_orders`] is the command that expires them; `jobs::order_expiry`
//! schedules it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::failure::Error;
use super::{OrderId, Sku};
use crate::db::Pool;
use crate::metrics::EXPIRY_ENQUEUE_FAILURES;

/// Capacity of the channel to the delay queue. Order expiry finds in Postgres the
/// orders that did not fit.
const MAX_NOTIFICATIONS: usize = 10_000;

/// Notifies the delay queue of placed and settled orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ExpiryNotifier(mpsc::Sender<OrderEvent>);

/// A committed change of an order that the delay queue follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderEvent {
    /// Due if it is still unpaid at this time.
    Placed { order: OrderId, due_at: Instant },
    /// Paid or cancelled by its user, at this time.
    Settled { order: OrderId, at: Instant },
}

impl ExpiryNotifier {
    pub fn new() -> (Self, mpsc::Receiver<OrderEvent>) {
        let (sender, receiver) = mpsc::channel(MAX_NOTIFICATIONS);
        (Self(sender), receiver)
    }

    /// Notifies of events. Best effort: if the channel is closed or has no room for all of them,
    /// order expiry finds placed orders in Postgres, and settled ones leave the queue when they are
    /// due.
    pub fn notify(&self, events: Vec<OrderEvent>) {
        let Ok(permits) = self.0.try_reserve_many(events.len()) else {
            let placed = |event: &&OrderEvent| matches!(event, OrderEvent::Placed { .. });
            let placed = events.iter().filter(placed).count();
            metrics::counter!(EXPIRY_ENQUEUE_FAILURES).increment(placed as u64);
            return;
        };
        permits.zip(events).for_each(|(permit, event)| permit.send(event));
    }
}

/// State of a pending order with regard to its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpiryState {
    Due {
        /// Its items and quantities, sorted by sku.
        units: Vec<(Sku, i64)>,
        late: Duration,
    },
    /// Not due, or not to be retried, before this time has passed.
    NotYet(Duration),
    /// Due, but parked after too many failures.
    Parked,
}

/// Returns the pending orders among `orders`, with times by Postgres's clock.
pub async fn read_states(
    pool: &Pool,
    orders: &[OrderId],
) -> Result<BTreeMap<OrderId, ExpiryState>, Error> {
    let db = &mut *pool.acquire().await?;
    let rows = sqlx::query!(
        r#"select o.id as "id: OrderId", l.sku as "sku: Sku", l.quantity,
                  f.order_id is not null and f.next_at is null as "parked!",
                  extract(epoch from now() - o.expires_at)::float8 as "late_s!",
                  extract(epoch from greatest(o.expires_at, f.next_at) - now())::float8 as "left_s!"
             from orders o
             join order_lines l on l.order_id = o.id
             left join unpaid_failures f on f.order_id = o.id
            where o.id = any($1) and o.status = 'pending'
            order by o.id, l.sku"#,
        orders as &[OrderId],
    )
    .fetch_all(db)
    .await?;
    let mut found = BTreeMap::new();
    for row in rows {
        let entry = found.entry(row.id).or_insert_with(|| {
            if row.left_s > 0.0 {
                ExpiryState::NotYet(Duration::from_secs_f64(row.left_s))
            } else if row.parked {
                ExpiryState::Parked
            } else {
                let late = Duration::from_secs_f64(row.late_s.max(0.0));
                ExpiryState::Due { units: Vec::new(), late }
            }
        });
        if let ExpiryState::Due { units, .. } = entry {
            units.push((row.sku, row.quantity));
        }
    }
    Ok(found)
}

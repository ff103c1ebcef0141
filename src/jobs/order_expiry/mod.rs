//! Expires unpaid orders: a delay queue in Redis says when, every replica has a worker.
//!
//! Guarantees (Postgres is authoritative): an order that is not paid in time expires once, within a
//! second or two of its due time while Redis, Postgres and one replica are available, even if
//! processes are killed and Redis loses its data. (Items of a killed lock holder wait for its lease
//! to expire.) *At least once* is due to the queue ([`queue`]), *at most once* to the order's
//! status ([`crate::shop::command::expire_orders`]). A failed expiry is retried with a growing
//! backoff, then parked ([`failures`]); it does not delay other orders.
//!
//! Does not guarantee order. Without Redis, a strategy that locks in Redis delays expiry. Orders
//! that are not in the queue are found in Postgres, by the worker or by [`requeue`]. Tests:
//! `tests/it/order_expiry*.rs`.

mod claim_renewer;
mod enqueue;
mod expire;
pub mod failures;
mod group;
mod lab_requests;
pub mod queue;
pub mod requeue;
mod worker;

use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::probe::PauseBoard;
use crate::shop::expiry::OrderEvent;
use crate::shop::{Error, Shop};
use failures::ExpiryFailure;
use lab_requests::LabRequests;
use queue::DelayQueue;
use worker::ExpiryWorker;

pub use lab_requests::{LAB_REQUEST_TIMEOUT, LabRequest};
pub use queue::queue_of;

/// Pause before a worker that panicked is replaced: it may panic again.
const RESTART_DELAY: Duration = Duration::from_secs(5);
const MAX_LISTED_FAILURES: i64 = 50;

/// The queue of unpaid orders of one shop, and this replica's worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OrderExpiry {
    queue: DelayQueue,
    lab: LabRequests,
}

/// The status of order expiry.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExpiryStatus {
    /// Orders in the delay queue, including those paid in the last seconds; null if Redis does not
    /// respond.
    pub queued: Option<usize>,
    /// Orders that are due and have not expired yet.
    pub due: i64,
    /// Failed expiries: parked ones first, then the latest; 50 at most.
    pub failures: Vec<ExpiryFailure>,
}

impl OrderExpiry {
    pub fn new(shop: &Shop) -> Self {
        Self { queue: DelayQueue::of_shop(shop), lab: LabRequests::default() }
    }

    pub fn queue(&self) -> &DelayQueue {
        &self.queue
    }

    pub async fn status(&self, shop: &Shop) -> Result<ExpiryStatus, Error> {
        let due = sqlx::query_scalar!(
            r#"select count(*) as "count!" from orders
                where status = 'pending' and expires_at <= now()"#
        )
        .fetch_one(&mut *shop.connection().await?)
        .await?;
        let queued = self.queue.lengths().await.ok().map(|(all, _)| all);
        Ok(ExpiryStatus { queued, due, failures: failures::list(shop, MAX_LISTED_FAILURES).await? })
    }

    /// Adds the orders that this process places to the queue, and removes those that it settles,
    /// until `stop` is cancelled.
    pub fn start_enqueuing(
        &self,
        shop: &Shop,
        events: mpsc::Receiver<OrderEvent>,
        stop: &CancellationToken,
    ) {
        let enqueuing = enqueue::enqueue(self.queue.clone(), events);
        shop.tasks.runtime.spawn(stop.clone().run_until_cancelled_owned(enqueuing));
    }

    /// Expires due orders until `stop` is cancelled. A worker that panics is replaced.
    pub fn start_worker(
        &self,
        shop: &Shop,
        replica: &str,
        board: &PauseBoard,
        stop: &CancellationToken,
    ) {
        let (expiry, shop, board) = (self.clone(), shop.clone(), board.clone());
        let (replica, stop, runtime) =
            (replica.to_owned(), stop.clone(), shop.tasks.runtime.clone());
        runtime.spawn(async move {
            while !stop.is_cancelled() {
                let OrderExpiry { queue, lab } = expiry.clone();
                let worker = ExpiryWorker::new(&shop, queue, lab, &replica, &board);
                let work = stop.clone().run_until_cancelled_owned(worker.run());
                if let Err(error) = shop.tasks.runtime.spawn(work).await {
                    tracing::error!(%error, "the order expiry worker panicked");
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        });
    }

    /// Replaces the lab's request to this replica's worker; `None` withdraws it.
    pub fn set_lab_request(&self, request: Option<LabRequest>) {
        self.lab.set(request);
    }
}

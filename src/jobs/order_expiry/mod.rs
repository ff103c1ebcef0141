//! Expires unpaid orders: a delay queue in Redis says when, every replica has a worker.
//!
//! Guarantees (Postgres is authoritative): an order that is not paid in time expires once, within a
//! second or two of its due time while Redis, Postgres and one replica are available, even if
//! processes are killed and Redis loses its data. (Items of a killed lock holder wait for its lease
//! to expire.) *At least once* is due to the queue ([`queue`]), *at most once* to the order's
//! status ([`crate::shop::command::expire_orders`]). A failed expiry is retried with a growing
//! backoff, then parked ([`failures`]); it does not delay other orders.
//!
//! Placed orders are queued in the background. If that fails (a killed process, a flushed Redis, a
//! full queue), a worker finds them in Postgres a quarter of a second after their due time, and
//! then queues the orders that are due next.
//!
//! Does not guarantee order. Without Redis, a strategy that locks in Redis delays expiry. Tests:
//! `tests/it/order_expiry*.rs`.

mod claim_renewer;
mod enqueue;
mod expire;
pub mod failures;
mod group;
pub mod queue;
mod queue_status;
pub mod reconcile_queue;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::probe::{PauseBoard, Point};
use crate::shop::expiry::PlacedOrder;
use crate::shop::{Shop, Strategy};
use holdfast_lock::Redis;
use queue::DelayQueue;

pub use queue_status::ExpiryStatus;

/// Upper bound of the time for which a request of the lab applies: its sender may be gone.
pub const LAB_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause before a worker that panicked is replaced: it may panic again.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// The queue of unpaid orders of one shop, and this replica's worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OrderExpiry {
    queue: DelayQueue,
    /// The lab's request to the worker, and when it ends.
    lab: Arc<Mutex<Option<(LabRequest, Instant)>>>,
}

/// A request of the lab to a worker.
#[derive(Debug, Clone, Copy)]
pub enum LabRequest {
    /// Do nothing for this time; [`LAB_REQUEST_TIMEOUT`] at most.
    Rest(Duration),
    /// Pause once, at the next orders to process.
    Pause {
        at: Point,
        /// TTL of the lease; the usual TTL if `None`.
        ttl: Option<Duration>,
        /// Strategy to use; the server's own if `None`.
        strategy: Option<&'static Strategy>,
    },
}

/// Returns the queue of the shop with this key prefix.
pub fn queue_of(redis: Redis, prefix: &str) -> DelayQueue {
    DelayQueue::new(redis, format!("{prefix}expiry:"))
}

impl OrderExpiry {
    pub fn new(shop: &Shop) -> Self {
        let queue =
            queue_of(shop.locks.redis().clone(), &shop.locks.leases().settings().key_prefix);
        Self { queue, lab: Arc::default() }
    }

    pub fn queue(&self) -> &DelayQueue {
        &self.queue
    }

    /// Adds orders placed by this process to the queue, until `stop` is cancelled.
    pub fn start_enqueuing(
        &self,
        shop: &Shop,
        placed: mpsc::Receiver<PlacedOrder>,
        stop: &CancellationToken,
    ) {
        let enqueuing = enqueue::enqueue(self.queue.clone(), placed);
        shop.runtime.spawn(stop.clone().run_until_cancelled_owned(enqueuing));
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
        let (replica, stop, runtime) = (replica.to_owned(), stop.clone(), shop.runtime.clone());
        runtime.spawn(async move {
            while !stop.is_cancelled() {
                let worker = worker::ExpiryWorker::new(&shop, &expiry, &replica, &board);
                let work = stop.clone().run_until_cancelled_owned(worker.run());
                if let Err(error) = shop.runtime.spawn(work).await {
                    tracing::error!(%error, "the worker for unpaid orders ended");
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        });
    }

    /// Replaces the lab's request to this replica's worker; `None` withdraws it.
    pub fn set_lab_request(&self, request: Option<LabRequest>) {
        let length = match request {
            Some(LabRequest::Rest(length)) => length.min(LAB_REQUEST_TIMEOUT),
            _ => LAB_REQUEST_TIMEOUT,
        };
        *self.lab.lock() = request.map(|request| (request, Instant::now() + length));
    }

    fn is_resting(&self) -> bool {
        matches!(*self.lab.lock(), Some((LabRequest::Rest(_), until)) if Instant::now() < until)
    }

    /// Takes the lab's pause, if `accepts` returns true for its point and it has not ended.
    fn take_pause(&self, accepts: impl Fn(Point) -> bool) -> Option<LabRequest> {
        let mut lab = self.lab.lock();
        match *lab {
            Some((request @ LabRequest::Pause { at, .. }, until)) if accepts(at) => {
                *lab = None;
                (Instant::now() < until).then_some(request)
            }
            _ => None,
        }
    }
}

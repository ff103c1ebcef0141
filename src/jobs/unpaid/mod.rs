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

pub mod failures;
mod feed;
mod give;
mod group;
mod hand;
pub mod queue;
mod standing;
pub mod sweep;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock::Redis;
use crate::probe::{Board, Point};
use crate::shop::expiry::Placed;
use crate::shop::{Shop, Strategy};
use queue::DelayQueue;

pub use standing::UnpaidStanding;

/// Upper bound of the time for which a request of the lab applies: its sender may be gone.
pub const LONGEST_WISH: Duration = Duration::from_secs(30);

/// Pause before a worker that panicked is replaced: it may panic again.
const AFTER_A_PANIC: Duration = Duration::from_secs(5);

/// The queue of unpaid orders of one shop, and this replica's worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Unpaid {
    queue: DelayQueue,
    /// The lab's request to the worker, and when it ends.
    lab: Arc<Mutex<Option<(Wish, Instant)>>>,
}

#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// Do nothing for this time; [`LONGEST_WISH`] at most.
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

impl Unpaid {
    pub fn of(shop: &Shop) -> Self {
        let queue = queue_of(shop.locks.redis().clone(), &shop.locks.settings().prefix);
        Self { queue, lab: Arc::default() }
    }

    pub fn queue(&self) -> &DelayQueue {
        &self.queue
    }

    /// Adds orders placed by this process to the queue, until `stop` is cancelled.
    pub fn listen(&self, shop: &Shop, heard: mpsc::Receiver<Placed>, stop: &CancellationToken) {
        let feed = feed::feed(self.queue.clone(), heard);
        shop.runtime.spawn(stop.clone().run_until_cancelled_owned(feed));
    }

    /// Expires due orders until `stop` is cancelled. A worker that panics is replaced.
    pub fn work(&self, shop: &Shop, replica: &str, board: &Board, stop: &CancellationToken) {
        let (unpaid, shop, board) = (self.clone(), shop.clone(), board.clone());
        let (replica, stop, runtime) = (replica.to_owned(), stop.clone(), shop.runtime.clone());
        runtime.spawn(async move {
            while !stop.is_cancelled() {
                let worker = worker::Worker::new(&shop, &unpaid, &replica, &board);
                let work = stop.clone().run_until_cancelled_owned(worker.work());
                if let Err(error) = shop.runtime.spawn(work).await {
                    tracing::error!(%error, "the worker for unpaid orders ended");
                    tokio::time::sleep(AFTER_A_PANIC).await;
                }
            }
        });
    }

    /// Replaces the lab's request to this replica's worker; `None` withdraws it.
    pub fn wish(&self, wish: Option<Wish>) {
        let length = match wish {
            Some(Wish::Rest(length)) => length.min(LONGEST_WISH),
            _ => LONGEST_WISH,
        };
        *self.lab.lock() = wish.map(|wish| (wish, Instant::now() + length));
    }

    fn rests(&self) -> bool {
        matches!(*self.lab.lock(), Some((Wish::Rest(_), until)) if Instant::now() < until)
    }

    /// Takes the lab's pause, if `among` accepts its point and it has not ended.
    fn take_pause(&self, among: impl Fn(Point) -> bool) -> Option<Wish> {
        let mut wished = self.lab.lock();
        match *wished {
            Some((wish @ Wish::Pause { at, .. }, until)) if among(at) => {
                *wished = None;
                (Instant::now() < until).then_some(wish)
            }
            _ => None,
        }
    }
}

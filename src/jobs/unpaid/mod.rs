//! Unpaid orders expire: a delay queue says when, every replica has a worker, Postgres knows all.
//!
//! Guarantees: what was not paid in time is given back once, within a second or two of its time as
//! long as Redis, Postgres and one replica are there, whoever is killed and whatever Redis forgets.
//! (But an item whose lock's holder was killed is nobody's until the lock's lease is over.)
//! *At least once* is the queue's ([`queue`]); *at most once* is the order's status
//! ([`crate::shop::command::expire_orders`]). An order that fails is tried again with growing
//! pauses, then parked ([`failures`]); it never keeps others from their turn.
//!
//! How an order gets here: whoever placed it tells the feed, which tells the queue; or nobody
//! did (the process was killed, Redis was emptied, the queue was full), and the worker finds it in
//! Postgres, a quarter of a second after its time; and then tells the queue what is due next.
//!
//! Does not guarantee: order. And with Redis away nothing is given back under a strategy that locks
//! in Redis; it is made up for afterwards.

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

/// What the lab wants of a worker is heeded for so long: whoever wanted it may be gone.
pub const LONGEST_WISH: Duration = Duration::from_secs(30);

/// A worker that panicked may do so again.
const AFTER_A_PANIC: Duration = Duration::from_secs(5);

/// The queue of unpaid orders of one shop, and this replica's worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Unpaid {
    queue: DelayQueue,
    /// What the lab wants of the worker.
    lab: Arc<Mutex<Option<(Wish, Instant)>>>,
}

#[derive(Debug, Clone, Copy)]
pub enum Wish {
    /// To do nothing for so long; [`LONGEST_WISH`] at most.
    Rest(Duration),
    /// To be held once, the next time it has something to do.
    Pause {
        at: Point,
        /// Under a lease of so long; its usual one if not said.
        ttl: Option<Duration>,
        /// Under this strategy; the server's own if not said.
        strategy: Option<&'static Strategy>,
    },
}

/// The queue of the shop whose keys begin so.
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

    /// Tells the queue of orders that are placed here, until it is told to stop.
    pub fn listen(&self, shop: &Shop, heard: mpsc::Receiver<Placed>, stop: &CancellationToken) {
        let feed = feed::feed(self.queue.clone(), heard);
        shop.runtime.spawn(stop.clone().run_until_cancelled_owned(feed));
    }

    /// Expires what is due until it is told to stop. A worker that panics is replaced.
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

    /// What the lab wants of this replica's worker from now on; nothing ends what it wanted before.
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

    /// Where the worker is to be held now, if it is at one of those points.
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

//! The domain: what a shop does, without HTTP and without pages.
//!
//! Every change is an *errand* ([`errand`]) of one shape: claim the token, take the locks, one
//! transaction, commit, give the locks back. What an errand changes is in the module of its name.

pub mod ids;
pub mod outcome;

pub mod catalog;
pub mod customer_limit;
pub mod users;

pub mod stock;

mod early;
pub mod errand;
mod figures;
mod held;
pub mod idempotency;
mod taken;

pub mod combine;

pub mod orders;
pub mod payments;
pub mod restock;

pub mod audit;
pub mod ledger;
pub mod seed;

use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::db::{Pool, Transaction};
use crate::lock::{Locks, Manner, Wait};
use crate::probe::Probe;

pub use ids::{Cents, Key, OrderId, Sku, UserId};
pub use outcome::{Answer, Error, Field, Outcome, Refusal};
pub use stock::Strategy;

/// One request takes at most this, whatever it waits for.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(8);
/// What it asks of the shop takes a little less, so that there is an answer to give in time.
const WORK_LIMIT: Duration = Duration::from_millis(7_500);
/// How long an unpaid order keeps its units when nobody says.
pub const USUAL_HOLD: Duration = Duration::from_mins(15);
/// The largest stock, price or amount.
pub const LARGEST: i64 = 1_000_000_000;

/// The shop of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shop {
    /// Postgres.
    pub pool: Pool,
    /// The locks, and Redis under them.
    pub locks: Locks,
    /// What keeps two changes of one value apart, unless a request says otherwise.
    pub strategy: &'static Strategy,
    /// Where transactions run: not on the worker that serves the request.
    pub runtime: Handle,
    /// The transactions that run, to be waited for before the process ends.
    pub running: TaskTracker,
    /// Who waits to be carried out with others.
    pub combiner: combine::Combiner,
    /// How long an unpaid order keeps its units.
    pub hold: Duration,
    /// Who is told of orders that may stay unpaid.
    pub unpaid: orders::unpaid::Teller,
}

impl Shop {
    /// A connection to Postgres.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Overloaded`], within 1.5 s.
    pub async fn connection(&self) -> Result<PoolConnection<Postgres>, Error> {
        Ok(self.pool.acquire().await?)
    }

    /// A transaction.
    ///
    /// # Errors
    /// As [`Shop::connection`].
    pub async fn begin(&self) -> Result<Transaction, Error> {
        Ok(self.pool.begin().await?)
    }
}

/// Under which conditions one request is served: the server's own, or the lab's.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// What keeps it apart from others.
    pub strategy: &'static Strategy,
    /// What it does when its lock is taken, if it says so.
    pub wait: Option<Wait>,
    /// How it joins a queue, where its strategy has one.
    pub manner: Manner,
    /// The lease's time, if it says so.
    pub ttl: Option<Duration>,
    /// What happens at the named points.
    pub probe: Probe,
    /// How long the order it places keeps its units unpaid.
    pub hold: Duration,
    /// When its time is up.
    pub deadline: Instant,
    /// Its name in ledgers and logs.
    pub request_id: Uuid,
}

impl Conditions {
    /// The server's own, from now on.
    #[must_use]
    pub fn usual(shop: &Shop, request_id: Uuid) -> Self {
        Self {
            strategy: shop.strategy,
            wait: None,
            manner: Manner::default(),
            ttl: None,
            probe: Probe::Off,
            hold: shop.hold,
            deadline: Instant::now() + WORK_LIMIT,
            request_id,
        }
    }

    /// Whether nothing was wished for that a batch could not give each of its members.
    pub(crate) fn suits_a_batch(&self) -> bool {
        self.strategy.batches && self.wait.is_none() && self.ttl.is_none()
    }

    /// Whether what is changed may come out wrong by design: then only lab items may be touched.
    ///
    /// A strategy holds among requests of the same strategy. Two different ones hold beside each
    /// other only where Postgres itself keeps both apart.
    #[must_use]
    pub fn may_break(&self, shop: &Shop) -> bool {
        !self.strategy.holds_beside(shop.strategy) || self.ttl.is_some()
    }

    /// Whether it may be done to lab items only: what is changed may come out wrong, or units would
    /// be kept from others for longer than an order may.
    #[must_use]
    pub fn is_for_the_lab(&self, shop: &Shop) -> bool {
        self.may_break(shop) || self.hold > shop.hold
    }
}

//! What every command is executed with: the shop of one process, and the options of one request.

use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::command::Command;
use super::engine::Engine;
use super::expiry::ExpiryNotifier;
use super::failure::Error;
use super::strategy::Strategy;
use crate::db::{Pool, Transaction};
use crate::lock::{LockKey, Locks, Manner, Wait};
use crate::probe::Probe;

/// Commands get a little less than a request, so that there is time to respond.
const COMMAND_LIMIT: Duration = Duration::from_millis(7_500);

/// The shop of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shop {
    pub pool: Pool,
    /// The locks, and Redis under them.
    pub locks: Locks,
    /// What keeps two changes of one value apart, unless a request says otherwise.
    pub strategy: &'static Strategy,
    /// Where commands run: not on the worker that serves the request.
    pub runtime: Handle,
    /// Commands that run, to be waited for before the process ends.
    pub running: TaskTracker,
    /// Queues of commands, and what is known of keys and items without asking.
    pub engine: Engine,
    /// How long an unpaid order keeps its units.
    pub hold: Duration,
    /// Notified of orders that may stay unpaid.
    pub expiry: ExpiryNotifier,
}

impl Shop {
    /// A connection to Postgres; [`Error::Unavailable`] or [`Error::Overloaded`] within 1.5 s.
    pub async fn connection(&self) -> Result<PoolConnection<Postgres>, Error> {
        Ok(self.pool.acquire().await?)
    }

    pub async fn begin(&self) -> Result<Transaction, Error> {
        Ok(self.pool.begin().await?)
    }
}

/// How one request is served: by the server's own settings, or by the lab's headers.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub strategy: &'static Strategy,
    /// How it waits for its lock, if it says so.
    pub wait: Option<Wait>,
    pub manner: Manner,
    /// The TTL of its lease, if it says so.
    pub ttl: Option<Duration>,
    pub probe: Probe,
    /// How long the order it places keeps its units unpaid.
    pub hold: Duration,
    /// The time by which it must have been executed.
    pub deadline: Instant,
    pub request_id: Uuid,
}

impl RequestOptions {
    /// The server's own, from now on.
    pub fn of(shop: &Shop, request_id: Uuid) -> Self {
        Self {
            strategy: shop.strategy,
            wait: None,
            manner: Manner::default(),
            ttl: None,
            probe: Probe::Off,
            hold: shop.hold,
            deadline: Instant::now() + COMMAND_LIMIT,
            request_id,
        }
    }

    /// The key in whose queue a leader executes the command. `None`: it is executed by itself, or
    /// the request asks for what a batch can't do for each of its commands.
    pub(super) fn batch_key(&self, command: &dyn Command) -> Option<LockKey> {
        let batches = self.strategy.batches && self.wait.is_none() && self.ttl.is_none();
        command.batch_key().filter(|_| batches)
    }

    /// Whether what is changed may come out wrong by design: then only lab items may be changed.
    ///
    /// A strategy holds among requests of the same strategy. Two different ones hold beside each
    /// other only where Postgres itself keeps both apart.
    pub fn may_break(&self, shop: &Shop) -> bool {
        !self.strategy.holds_beside(shop.strategy) || self.ttl.is_some()
    }

    /// Whether it is restricted to lab items: what is changed may come out wrong, or units would be
    /// kept from others for longer than an order may.
    pub fn is_for_the_lab(&self, shop: &Shop) -> bool {
        self.may_break(shop) || self.hold > shop.hold
    }
}

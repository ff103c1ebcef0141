//! The context of every command: the shop of one process, and the options of one request.

use std::time::Duration;

use holdfast_lock::{LockKey, Wait};
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
use crate::ladder::{QueueOptions, ShopLocks};
use crate::probe::Probe;

/// Timeout of a command: less than that of a request, which leaves time to respond.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(7_500);

/// The shop of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shop {
    pub pool: Pool,
    /// The locks, with their connection to Redis.
    pub locks: ShopLocks,
    /// The strategy of requests that do not select another one.
    pub strategy: &'static Strategy,
    /// The runtime of commands, which outlives the workers that serve requests.
    pub runtime: Handle,
    /// Running commands; the process waits for them before it ends.
    pub running: TaskTracker,
    /// State of the engine, e.g. the queues of commands.
    pub engine: Engine,
    /// Time for which an unpaid order keeps its units.
    pub hold: Duration,
    /// Notified of placed orders, which may stay unpaid.
    pub expiry: ExpiryNotifier,
}

impl Shop {
    /// Acquires a connection to Postgres; fails with [`Error::Unavailable`] or
    /// [`Error::Overloaded`] within 1.5 s.
    pub async fn connection(&self) -> Result<PoolConnection<Postgres>, Error> {
        Ok(self.pool.acquire().await?)
    }

    pub async fn begin(&self) -> Result<Transaction, Error> {
        Ok(self.pool.begin().await?)
    }
}

/// The options of one request: the server's own settings, or those of the lab's headers.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub strategy: &'static Strategy,
    /// The way of waiting for its lock, if the request sets it.
    pub wait: Option<Wait>,
    pub queue_options: QueueOptions,
    /// The TTL of its lease, if the request sets it.
    pub ttl: Option<Duration>,
    pub probe: Probe,
    /// Time for which the order that it places keeps its units unpaid.
    pub hold: Duration,
    /// The deadline of its execution.
    pub deadline: Instant,
    pub request_id: Uuid,
}

impl RequestOptions {
    /// Returns the server's own options, with a deadline from now.
    pub fn new(shop: &Shop, request_id: Uuid) -> Self {
        Self {
            strategy: shop.strategy,
            wait: None,
            queue_options: QueueOptions::default(),
            ttl: None,
            probe: Probe::Off,
            hold: shop.hold,
            deadline: Instant::now() + COMMAND_TIMEOUT,
            request_id,
        }
    }

    /// Returns the key of the queue that the command joins. `None` if it is executed alone: it is
    /// not batched, or the request has options that a batch can't apply to a single command.
    pub(super) fn batch_key(&self, command: &dyn Command) -> Option<LockKey> {
        let batches = self.strategy.batches && self.wait.is_none() && self.ttl.is_none();
        command.batch_key().filter(|_| batches)
    }

    /// Returns whether the changes may be wrong by design; then only lab items may be changed.
    ///
    /// A strategy is correct among requests of the same strategy. Two different strategies are
    /// correct together only if Postgres isolates both.
    pub fn may_lose_updates(&self, shop: &Shop) -> bool {
        !self.strategy.is_compatible_with(shop.strategy) || self.ttl.is_some()
    }

    /// Returns whether it is restricted to lab items: its changes may be wrong, or would keep units
    /// from others for longer than an order may.
    pub fn requires_lab_items(&self, shop: &Shop) -> bool {
        self.may_lose_updates(shop) || self.hold > shop.hold
    }
}

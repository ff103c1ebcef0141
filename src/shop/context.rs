//! The shop of one process: the context of every command.

use std::time::Duration;

use holdfast_lock::{LockKey, Wait};
use tokio::time::Instant;
use uuid::Uuid;

use super::audit::Audits;
use super::command::Command;
use super::engine::Engine;
use super::failure::Error;
use super::strategy::Strategy;
use crate::budget::Budget;
use crate::db::{Connection, Pool};
use crate::locks::{QueueOptions, ShopLocks};
use crate::probe::Probe;
use crate::tasks::Tasks;

/// Timeout of a command: less than that of a request, which leaves time to respond.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(7_500);

/// Two orders of a lesson are paused at the same time, and one is left for another user.
const MIN_LAB_CONNECTIONS: u32 = 3;

#[derive(Debug, Clone)]
pub struct Shop {
    pub pool: Pool,
    pub locks: ShopLocks,
    pub strategy: &'static Strategy,
    pub tasks: Tasks,
    pub engine: Engine,
    pub audits: Audits,
    pub payment_window: Duration,
    pub max_unpaid_orders: Option<u32>,
    /// Limits the connections that requests on lab items hold at once: a paused one, and those that
    /// wait for its rows, leave the others to the shop.
    pub lab_connections: Budget,
}

impl Shop {
    /// Creates the shop of this process, without a limit of unpaid orders. Must be called on the
    /// main runtime.
    pub fn new(
        pool: Pool,
        locks: ShopLocks,
        strategy: &'static Strategy,
        payment_window: Duration,
    ) -> Self {
        let tasks = Tasks::on_current_runtime();
        let engine = Engine::new(&pool, &tasks);
        let audits = Audits::new(&pool, &locks, &tasks);
        let max_unpaid_orders = None;
        let lab_connections =
            lab_connections((pool.max_connections() / 4).max(MIN_LAB_CONNECTIONS));
        Self {
            pool,
            locks,
            strategy,
            tasks,
            engine,
            audits,
            payment_window,
            max_unpaid_orders,
            lab_connections,
        }
    }

    /// Acquires a connection to Postgres; fails within 1.5 s.
    pub async fn connection(&self) -> Result<Connection, Error> {
        Ok(self.pool.acquire().await?)
    }
}

/// Creates a limit for [`Shop::lab_connections`]: one user leaves a quarter to the others.
pub fn lab_connections(count: u32) -> Budget {
    let of_others = (count / 4).max(1);
    let per_user = count.saturating_sub(of_others).max(1);
    let number = |count| usize::try_from(count).unwrap_or(usize::MAX);
    Budget::new(number(count), number(per_user))
}

/// The options of one request: the server's own settings, or those of the lab's headers.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub strategy: &'static Strategy,
    pub wait: Option<Wait>,
    pub queue_options: QueueOptions,
    pub ttl: Option<Duration>,
    pub probe: Probe,
    /// True if a user who is no admin set options by lab headers: then only lab items may be
    /// changed.
    pub lab_items_only: bool,
    /// True if it concerns lab items: its connections are those of [`Shop::lab_connections`].
    pub in_lab: bool,
    pub payment_window: Duration,
    pub deadline: Instant,
    pub request_id: Uuid,
}

impl RequestOptions {
    pub fn new(shop: &Shop, request_id: Uuid) -> Self {
        Self {
            strategy: shop.strategy,
            wait: None,
            queue_options: QueueOptions::default(),
            ttl: None,
            probe: Probe::Off,
            lab_items_only: false,
            in_lab: false,
            payment_window: shop.payment_window,
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
}

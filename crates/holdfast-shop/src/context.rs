//! The shop of one process: the context of every command.

use std::time::Duration;

use super::audit::Audits;
use super::engine::Engine;
use super::failure::Error;
use super::strategy::Strategy;
use super::strategy::data_path::ShopParts;
use super::strategy::registry::data_paths;
use crate::budget::Budget;
use crate::db::{Connection, Pool};
use crate::locks::ShopLocks;
use crate::query::next_return::NextReturns;
use crate::tasks::Tasks;

/// Timeout of a command: less than that of a request, which leaves time to respond.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_millis(7_500);

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
    pub next_returns: NextReturns,
    pub payment_window: Duration,
    pub max_unpaid_orders: Option<u32>,
    /// Limits the connections that requests on lab items hold at once: a paused one, and those that
    /// wait for its rows, leave the others to the shop.
    pub lab_connections: Budget,
}

impl Shop {
    /// Creates the shop of this process, without a limit of unpaid orders.
    pub fn new(
        pool: Pool,
        locks: ShopLocks,
        strategy: &'static Strategy,
        payment_window: Duration,
    ) -> Self {
        let tasks = Tasks::default();
        let parts = ShopParts { pool: pool.clone(), locks: locks.clone(), tasks: tasks.clone() };
        let data_paths = data_paths(&parts);
        let lab_share = (pool.max_connections() / 4).max(MIN_LAB_CONNECTIONS);

        Self {
            audits: Audits::new(&pool, &locks, &tasks, &data_paths),
            engine: Engine::new(&pool, &tasks, data_paths),
            next_returns: NextReturns::default(),
            pool,
            locks,
            strategy,
            tasks,
            payment_window,
            max_unpaid_orders: None,
            lab_connections: lab_connections(lab_share),
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
    Budget::new(count as usize, per_user as usize)
}

//! Data paths: how a strategy gets units that are not in the items' rows, and writes what became of
//! them.
//!
//! A [`Strategy`] of the ladder is a value that the engine interprets. One with a data path of its
//! own has a folder with all that the engine asks for: statements, scripts, tasks. It asks at each
//! step of a command, and names no strategy.
//!
//! [`super::registry::data_paths`] lists them.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use holdfast_lock::LockKey;
use sqlx::PgConnection;

use super::Strategy;
use crate::Sku;
use crate::audit::ItemAudit;
use crate::command::Command;
use crate::command::place_order::PlaceOrder;
use crate::command::state::ShopState;
use crate::db::Pool;
use crate::failure::{Error, Execution, Failure, Rejection};
use crate::locks::ShopLocks;
use crate::store::read::ReadSnapshot;
use crate::store::{BatchWrite, WriteResult};
use crate::tasks::Tasks;

/// The parts of a shop that a data path may use.
#[derive(Debug, Clone)]
pub struct ShopParts {
    pub pool: Pool,
    pub locks: ShopLocks,
    pub tasks: Tasks,
}

/// The data paths of one shop.
#[derive(Debug, Clone, Default)]
pub struct DataPaths(Arc<[(&'static str, Box<dyn DataPath>)]>);

impl DataPaths {
    pub fn new(paths: impl IntoIterator<Item = (&'static str, Box<dyn DataPath>)>) -> Self {
        Self(paths.into_iter().collect())
    }

    /// Returns the data path of a strategy, if it has one of its own.
    pub fn of(&self, strategy: &Strategy) -> Option<&dyn DataPath> {
        // Most have none.
        strategy.data_path?;
        let mut paths = self.0.iter();
        paths.find(|(name, _)| *name == strategy.name).map(|(_, path)| &**path)
    }

    /// Returns what a strategy says of the items that are made for it alone, if it has any.
    pub fn own_items(&self, strategy: &Strategy) -> Option<&dyn OwnItems> {
        self.of(strategy)?.own_items()
    }

    /// Returns the strategy under which a command reads and writes rows.
    pub fn strategy_of_rows(
        &self,
        strategy: &'static Strategy,
        command: &dyn Command,
    ) -> &'static Strategy {
        let path = self.of(strategy);
        path.and_then(|path| path.strategy_of_rows(command)).unwrap_or(strategy)
    }

    /// Adds to the audit of an item what Postgres does not know.
    pub async fn audit(&self, sku: &Sku, mut audit: ItemAudit) -> ItemAudit {
        for (_, path) in &*self.0 {
            audit = path.audit(sku, audit).await;
        }
        audit
    }
}

/// The steps that a strategy executes in its own way, in the order in which the engine asks for
/// them; the default of each is what every other strategy does.
#[async_trait]
pub trait DataPath: Debug + Send + Sync {
    /// Returns what it says of its items, if each is made for it and sold under no other strategy.
    fn own_items(&self) -> Option<&dyn OwnItems> {
        None
    }

    /// Takes what the command needs before its read. Returns `None` if that is nothing.
    ///
    /// # Cancel safety
    /// Dropping the future returns what was taken.
    fn take(&self, _: &dyn Command) -> Option<BoxFuture<'static, Result<Box<dyn Taken>, Failure>>> {
        None
    }

    /// Returns the strategy under which a command reads and writes rows, if it is another one.
    fn strategy_of_rows(&self, _: &dyn Command) -> Option<&'static Strategy> {
        None
    }

    /// Returns whether the read locks the items' rows, if it locks rows at all.
    fn locks_items(&self) -> bool {
        true
    }

    /// Reads, in the transaction of the rows' read, what is not in them, and adds it to `snapshot`.
    /// Not called for a strategy without a transaction.
    async fn read(
        &self,
        _: &mut PgConnection,
        _: Vec<&dyn Command>,
        _: &mut ReadSnapshot,
    ) -> sqlx::Result<()> {
        Ok(())
    }

    /// Writes the changes of one command, all or nothing.
    ///
    /// # Errors
    /// Those of [`crate::store::place::place`] and [`crate::store::transition::transition`].
    async fn write(
        &self,
        db: &mut PgConnection,
        batch: &BatchWrite,
    ) -> Result<WriteResult, Failure>;

    /// Keeps a write that arrives later from taking effect, and waits for one that is under way.
    /// Returns `false` if nothing can: it may still arrive.
    async fn invalidate(&self, db: &mut PgConnection, batch: &BatchWrite) -> Result<bool, Error>;

    /// Adds to the audit of an item what Postgres does not know.
    async fn audit(&self, _: &Sku, audit: ItemAudit) -> ItemAudit {
        audit
    }
}

/// The units that left a data path's store for one command. On drop before the command begins,
/// they return.
#[async_trait]
pub trait Taken: Debug + Send + Sync {
    /// Returns the value of `key` before, if something was taken of it.
    fn value_before(&self, key: &LockKey) -> Option<i64>;

    /// Sets in `state` what the command is to be decided on.
    fn adjust(&self, state: &mut ShopState);

    /// From here on, a drop keeps it: a panic could follow the write.
    fn keep_on_drop(&mut self);

    /// Ends it with the result of its command.
    async fn end(self: Box<Self>, result: &Result<Execution, Failure>);
}

/// Items that are made for one strategy. The engine executes all commands on them under it.
pub trait OwnItems: Send + Sync {
    /// Returns the rejection of a request that does not fit its items.
    fn reject(&self, mismatch: Mismatch<'_>) -> Rejection;

    /// Rejects an order that it can't place.
    fn admit(&self, order: &PlaceOrder) -> Result<(), Rejection>;

    /// Rejects a refund if payments are not isolated from it under the strategy of the shop.
    fn admit_refund(&self, of_shop: &Strategy) -> Result<(), Rejection>;

    /// Returns the upper bound of the orders that expire in one transaction.
    fn max_expired(&self) -> usize;
}

/// Why a request does not fit its items.
#[derive(Debug, Clone, Copy)]
pub enum Mismatch<'a> {
    /// Its strategy does not sell them.
    OtherItems,
    /// Its strategy is not theirs, whose promises are others.
    OtherStrategy,
    /// Not all are of one strategy: this one is not.
    Mixed(&'a Sku),
    /// It changes an item's own row.
    Row,
}

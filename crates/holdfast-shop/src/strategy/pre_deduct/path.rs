//! The data path of `pre-deduct`: units leave a counter before the read, the order is inserted
//! without its items' rows, and a task settles it behind the commit.

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::counter::StockCounter;
use super::deduction::{Deduction, places_order};
use super::settler::Settler;
use super::statements::place;
use crate::Sku;
use crate::audit::ItemAudit;
use crate::command::Command;
use crate::failure::{Error, Failure};
use crate::store::{BatchWrite, WriteResult};
use crate::strategy::data_path::{DataPath, ShopParts, Taken};
use crate::strategy::{Strategy, row_lock};

#[derive(Debug)]
pub struct PreDeduct {
    parts: ShopParts,
    settler: Settler,
}

impl PreDeduct {
    pub fn new(parts: &ShopParts) -> Self {
        Self { parts: parts.clone(), settler: Settler::new(&parts.pool, &parts.tasks) }
    }
}

#[async_trait]
impl DataPath for PreDeduct {
    fn take(
        &self,
        command: &dyn Command,
    ) -> Option<BoxFuture<'static, Result<Box<dyn Taken>, Failure>>> {
        let taking = Deduction::take(&self.parts, &self.settler, command);
        Some(taking.map(|taken| Ok(Box::new(taken?) as Box<dyn Taken>)).boxed())
    }

    /// Only an order leaves the item's row to the settlement.
    fn strategy_of_rows(&self, command: &dyn Command) -> Option<&'static Strategy> {
        (!places_order(command)).then_some(&row_lock::STRATEGY)
    }

    async fn write(
        &self,
        db: &mut PgConnection,
        batch: &BatchWrite,
    ) -> Result<WriteResult, Failure> {
        Ok(place(db, batch).await?)
    }

    /// Nothing can be raised of an order that requires no row.
    async fn invalidate(&self, _: &mut PgConnection, _: &BatchWrite) -> Result<bool, Error> {
        Ok(false)
    }

    async fn audit(&self, sku: &Sku, audit: ItemAudit) -> ItemAudit {
        if !sku.is_throw_away() {
            return audit;
        }
        // Without Redis, the books are audited all the same.
        let counter = StockCounter::new(&self.parts.locks, sku).get().await.unwrap_or_default();
        with_counter(audit, counter)
    }
}

/// Compares the item with its counter.
fn with_counter(audit: ItemAudit, counter: Option<i64>) -> ItemAudit {
    let free = audit.stock - audit.unsettled;
    let undersold = counter.map_or(0, |counter| (free - counter).max(0));
    ItemAudit { counter, undersold, ..audit }
}

//! The data path of `units`: free units are locked at the read, and sold by the write.

use async_trait::async_trait;
use holdfast_base::messages::message;
use sqlx::PgConnection;

use super::statements::{invalidate, lock, write};
use crate::Sku;
use crate::command::Command;
use crate::command::place_order::PlaceOrder;
use crate::failure::{Error, Failure, Rejection};
use crate::store::read::ReadSnapshot;
use crate::store::{BatchWrite, WriteResult};
use crate::strategy::data_path::{DataPath, Mismatch, OwnItems};
use crate::strategy::{Family, Strategy};

/// Upper bound of the units of an order: each is a row to lock and an entry to write, in one
/// statement, which has a timeout.
const MAX_UNITS_PER_ORDER: i64 = 1_000;

/// Orders that expire in one transaction: 5,000 units at most.
const MAX_EXPIRED: usize = 5;

#[derive(Debug)]
pub struct Units;

#[async_trait]
impl DataPath for Units {
    fn own_items(&self) -> Option<&dyn OwnItems> {
        Some(self)
    }

    /// No command changes the row of an item in units: orders and the account are locked, and free
    /// units in place of the items.
    fn locks_items(&self) -> bool {
        false
    }

    async fn read(
        &self,
        db: &mut PgConnection,
        commands: Vec<&dyn Command>,
        snapshot: &mut ReadSnapshot,
    ) -> sqlx::Result<()> {
        // A payment or a top-up has no items.
        if snapshot.state.items.is_empty() {
            return Ok(());
        }
        lock(db, &wanted_units(&commands), &mut snapshot.state).await
    }

    async fn write(
        &self,
        db: &mut PgConnection,
        batch: &BatchWrite,
    ) -> Result<WriteResult, Failure> {
        write(db, batch).await
    }

    async fn invalidate(&self, db: &mut PgConnection, batch: &BatchWrite) -> Result<bool, Error> {
        invalidate(db, batch).await?;
        Ok(true)
    }
}

impl OwnItems for Units {
    fn reject(&self, mismatch: Mismatch<'_>) -> Rejection {
        match mismatch {
            Mismatch::OtherItems => Rejection::Forbidden(message!("problem-not-in-units")),
            Mismatch::OtherStrategy => Rejection::Forbidden(message!("problem-sold-in-units")),
            Mismatch::Mixed(sku) => {
                Rejection::invalid("lines", message!("problem-partly-in-units", sku))
            }
            Mismatch::Row => Rejection::Forbidden(message!("problem-units-kept")),
        }
    }

    fn admit(&self, order: &PlaceOrder) -> Result<(), Rejection> {
        if order.units() > MAX_UNITS_PER_ORDER {
            let why = message!("problem-too-many-units", most = MAX_UNITS_PER_ORDER);
            return Err(Rejection::invalid("lines", why));
        }
        Ok(())
    }

    fn admit_refund(&self, of_shop: &Strategy) -> Result<(), Rejection> {
        if of_shop.family() == Family::Postgres {
            return Ok(());
        }
        // The row lock on the account, beside payments that exclude each other elsewhere.
        let why = message!("problem-refund-in-units", strategy = of_shop.name);
        Err(Rejection::Forbidden(why))
    }

    fn max_expired(&self) -> usize {
        MAX_EXPIRED
    }
}

/// Returns how many units of each item the commands take.
fn wanted_units(commands: &[&dyn Command]) -> Vec<(Sku, i64)> {
    let updates = commands.iter().filter_map(|command| command.conditional_update());
    let changes = updates.flat_map(|update| update.stock);
    changes.filter(|(_, delta)| *delta < 0).map(|(sku, delta)| (sku, -delta)).collect()
}

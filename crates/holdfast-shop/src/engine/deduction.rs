//! Units that left the counters of `pre-deduct` for one command.
//!
//! Units leave a counter before the write, and come to one after its commit; so the counters never
//! have more than the rows while Redis keeps them. A replica that dies between the two, and a write
//! whose outcome stays unknown, leave the counter with too little (an undersell), until it is
//! reconciled with the ledger ([`super::reconcile`]).

use tokio::sync::oneshot;

use crate::command::Command;
use crate::db::Pool;
use crate::failure::{Error, Execution, Failure, Rejection};
use crate::locks::counter::{Deducted, StockCounter};
use crate::store::deducted::row_stock;
use crate::tasks::Tasks;
use crate::{Shop, Sku};

/// How often a counter is loaded for one command: Redis may lose it each time.
const MAX_LOADS: usize = 3;

/// On drop before the command begins, the units return to their counters.
#[derive(Debug)]
pub(super) struct Deduction {
    taken: Vec<TakenUnits>,
    is_kept: bool,
    tasks: Tasks,
}

#[derive(Debug)]
pub(super) struct TakenUnits {
    pub(super) sku: Sku,
    units: i64,
    /// The value of the counter before.
    pub(super) before: i64,
    counter: StockCounter,
}

impl Deduction {
    /// Takes the units that the command removes from stock.
    ///
    /// # Cancel safety
    /// Dropping the future returns what was taken.
    pub(super) async fn take(shop: &Shop, command: &dyn Command) -> Result<Self, Failure> {
        let deltas = deltas(command);
        let wanted = deltas.into_iter().filter(|(_, delta)| *delta < 0).collect();
        let taking = take_all(shop.clone(), wanted);
        let (reply, taken) = oneshot::channel();
        // In a task: a script that was sent is executed, and its units must not be forgotten.
        shop.tasks.spawn(async move {
            if let Err(Ok(unsent)) = reply.send(taking.await) {
                unsent.return_all().await;
            }
        });
        let taken = taken.await;
        taken.unwrap_or_else(|_| Err(Error::task_ended("the task of a counter").into()))
    }

    pub(super) fn units(&self) -> &[TakenUnits] {
        &self.taken
    }

    /// Ends the deduction with the result of its command: keeps the units if they are sold or may
    /// be, and returns them otherwise.
    pub(super) async fn end(mut self, result: &Result<Execution, Failure>) {
        let returns = match result {
            Ok(executed) => executed.replayed,
            Err(Failure::Error(Error::Unavailable { outcome_unknown, .. })) => !outcome_unknown,
            Err(_) => true,
        };

        if returns {
            self.return_all().await;
        } else {
            self.taken.clear();
        }
    }

    /// From here on, a drop keeps the units: a panic could follow the write.
    pub(super) fn keep_on_drop(&mut self) {
        self.is_kept = true;
    }

    async fn return_all(mut self) {
        return_units(std::mem::take(&mut self.taken)).await;
    }
}

impl Drop for Deduction {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() && !self.is_kept {
            self.tasks.spawn(return_units(taken));
        }
    }
}

/// Adds the units that a command has put back into stock to their counters.
pub(super) async fn add_returned(shop: &Shop, command: &dyn Command) {
    for (sku, delta) in deltas(command).into_iter().filter(|(_, delta)| *delta > 0) {
        if let Err(error) = StockCounter::new(&shop.locks, &sku).add(delta).await {
            tracing::warn!(%error, %sku, delta, "units did not return to the counter");
        }
    }
}

fn deltas(command: &dyn Command) -> Vec<(Sku, i64)> {
    command.conditional_update().map(|update| update.stock).unwrap_or_default()
}

async fn take_all(shop: Shop, wanted: Vec<(Sku, i64)>) -> Result<Deduction, Failure> {
    let tasks = shop.tasks.clone();
    let mut deduction = Deduction { taken: Vec::new(), is_kept: false, tasks };
    for (sku, delta) in wanted {
        let counter = StockCounter::new(&shop.locks, &sku);
        let units = -delta;
        match take_units(&shop.pool, &counter, &sku, units).await {
            Ok(before) => deduction.taken.push(TakenUnits { sku, units, before, counter }),
            Err(failure) => {
                // All or none, and before the response: the client may order the others at once.
                return_units(std::mem::take(&mut deduction.taken)).await;
                return Err(failure);
            }
        }
    }
    Ok(deduction)
}

/// Takes units from a counter, which is loaded if there is none. Returns what it had before.
async fn take_units(
    pool: &Pool,
    counter: &StockCounter,
    sku: &Sku,
    units: i64,
) -> Result<i64, Failure> {
    for _ in 0..=MAX_LOADS {
        match counter.deduct(units).await.map_err(holdfast_lock::Error::from)? {
            Deducted::Taken { before } => return Ok(before),
            Deducted::TooFew { available } => {
                let sku = sku.clone();
                return Err(Rejection::SoldOut { sku, requested: units, available }.into());
            }
            Deducted::NoCounter => {}
        }

        // Too much, if Redis lost the counter while orders were between it and Postgres: nothing
        // here knows of them. This is what the strategy is there to show.
        let row = row_stock(&mut *pool.acquire().await?, sku).await?;
        let row = row.ok_or_else(|| Rejection::no_item(sku))?;
        counter.load(row.free().max(0)).await.map_err(holdfast_lock::Error::from)?;
    }
    Err(Error::unavailable_counter().into())
}

async fn return_units(taken: Vec<TakenUnits>) {
    for TakenUnits { sku, units, counter, .. } in taken {
        if let Err(error) = counter.add(units).await {
            tracing::warn!(%error, %sku, units, "units did not return to the counter");
        }
    }
}

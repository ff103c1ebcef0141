//! Units that left the counters of `pre-deduct` for one command, or that will come to them.
//!
//! Units leave a counter before the write, and come to one after its commit; so the counters never
//! have more than the rows while Redis keeps them. A counter to which units will come is loaded
//! before the write: loaded after the commit, it would get them twice. A replica that dies between
//! the two, and a write whose outcome stays unknown, leave the counter with too little (an
//! undersell), until it is reconciled with the ledger ([`super::reconcile`]).

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use holdfast_lock::LockKey;
use holdfast_lock::redis::Error as RedisError;
use tokio::sync::oneshot;

use super::counter::{Deducted, StockCounter};
use super::settler::Settler;
use super::statements::row_stock;
use crate::Sku;
use crate::command::state::ShopState;
use crate::command::{Command, ConditionalUpdate};
use crate::failure::{Component, Error, Execution, Failure, Rejection};
use crate::idempotency::Operation;
use crate::strategy::data_path::{ShopParts, Taken};

/// Number of times that a counter is loaded for one command: Redis may lose it each time.
const MAX_LOADS: usize = 3;

/// On drop before the command begins, the units return to their counters.
#[derive(Debug)]
pub struct Deduction {
    counted: CountedUnits,
    /// All items of the command.
    items: Vec<Sku>,
    places_order: bool,
    is_kept: bool,
    parts: ShopParts,
    settler: Settler,
}

#[derive(Debug, Default)]
struct CountedUnits {
    taken: Vec<TakenUnits>,
    announced: Vec<AnnouncedUnits>,
}

#[derive(Debug)]
struct TakenUnits {
    sku: Sku,
    units: i64,
    /// The value of the counter before.
    before: i64,
    counter: StockCounter,
}

/// Units that come to a row with the command's write, and to the counter behind it.
#[derive(Debug)]
struct AnnouncedUnits {
    sku: Sku,
    units: i64,
    counter: StockCounter,
}

/// Returns whether units leave the counter for an order, whose entries follow behind it.
pub(super) fn places_order(command: &dyn Command) -> bool {
    matches!(command.idempotency().operation, Operation::PlaceOrder)
}

impl Deduction {
    /// Takes the units that the command removes from stock, and announces those that it adds. Units
    /// that an order returns come to the row only: it may be one without any.
    ///
    /// # Cancel safety
    /// Dropping the future returns what was taken.
    pub fn take(
        parts: &ShopParts,
        settler: &Settler,
        command: &dyn Command,
    ) -> BoxFuture<'static, Result<Self, Failure>> {
        let tasks = parts.tasks.clone();
        let update = command.conditional_update().unwrap_or_default();
        let deduction = Self {
            counted: CountedUnits::default(),
            items: command.reads().items,
            places_order: places_order(command),
            is_kept: false,
            parts: parts.clone(),
            settler: settler.clone(),
        };

        let taking = async move {
            let (reply, taken) = oneshot::channel();
            // In a task: a script that was sent is executed, and its units must not be forgotten.
            tasks.spawn(async move {
                if let Err(Ok(unsent)) = reply.send(take_all(deduction, update).await) {
                    unsent.return_all().await;
                }
            });
            let taken = taken.await;
            taken.unwrap_or_else(|_| Err(Error::task_ended(Component::CommandTask).into()))
        };
        taking.boxed()
    }

    /// Keeps the units if they are sold or may be, and returns them otherwise. Adds the announced
    /// ones once they are in the row.
    async fn end_counted(&mut self, result: &Result<Execution, Failure>) {
        match result {
            Ok(Execution { replayed: false, .. }) => {
                let CountedUnits { taken: _, announced } = std::mem::take(&mut self.counted);
                end_announcements(announced, |units| units).await;
            }
            Err(Failure::Error(Error::Unavailable { outcome_unknown: true, .. })) => {
                // Announcements expire: the write may be under way.
                self.counted = CountedUnits::default();
            }
            Ok(_) | Err(_) => std::mem::take(&mut self.counted).return_all().await,
        }
    }

    async fn return_all(mut self) {
        std::mem::take(&mut self.counted).return_all().await;
    }
}

#[async_trait]
impl Taken for Deduction {
    fn value_before(&self, key: &LockKey) -> Option<i64> {
        let mut taken = self.counted.taken.iter();
        taken.find(|taken| taken.sku.lock_key() == *key).map(|taken| taken.before)
    }

    /// The row lags behind the orders: the counter decides them. Other commands change the row.
    fn adjust(&self, state: &mut ShopState) {
        for taken in self.counted.taken.iter().filter(|_| self.places_order) {
            if let Some(item) = state.items.get_mut(&taken.sku) {
                item.stock = taken.before;
            }
        }
    }

    fn keep_on_drop(&mut self) {
        self.is_kept = true;
    }

    async fn end(mut self: Box<Self>, result: &Result<Execution, Failure>) {
        self.end_counted(result).await;
        // Also after an error: the write may be done.
        for sku in std::mem::take(&mut self.items) {
            self.settler.request(sku);
        }
    }
}

impl Drop for Deduction {
    fn drop(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        if !counted.is_empty() && !self.is_kept {
            self.parts.tasks.spawn(counted.return_all());
        }
    }
}

impl CountedUnits {
    fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.announced.is_empty()
    }

    async fn return_all(self) {
        for TakenUnits { sku, units, counter, .. } in self.taken {
            if let Err(error) = counter.add(units).await {
                tracing::warn!(%error, %sku, units, "units did not return to the counter");
            }
        }
        end_announcements(self.announced, |_| 0).await;
    }
}

/// Adds what has come to the row of the announced units.
async fn end_announcements(announced: Vec<AnnouncedUnits>, came: impl Fn(i64) -> i64) {
    for AnnouncedUnits { sku, units, counter } in announced {
        let units = came(units);
        if let Err(error) = counter.add_announced(units).await {
            tracing::warn!(%error, %sku, units, "units did not come to the counter");
        }
    }
}

async fn take_all(
    mut deduction: Deduction,
    update: ConditionalUpdate,
) -> Result<Deduction, Failure> {
    for (sku, delta) in update.stock {
        let counting = count(&deduction.parts, &mut deduction.counted, sku, delta, update.restocks);
        if let Err(failure) = counting.await {
            // All or none, and before the response: the client may order the others at once.
            deduction.return_all().await;
            return Err(failure);
        }
    }
    Ok(deduction)
}

async fn count(
    parts: &ShopParts,
    counted: &mut CountedUnits,
    sku: Sku,
    delta: i64,
    restocks: bool,
) -> Result<(), Failure> {
    let counter = StockCounter::new(&parts.locks, &sku);
    if delta < 0 {
        let units = -delta;
        match with_counter(parts, &counter, &sku, || counter.deduct(units)).await? {
            Deducted::Taken { before } => {
                counted.taken.push(TakenUnits { sku, units, before, counter });
            }
            Deducted::TooFew { available } => {
                return Err(Rejection::SoldOut { sku, requested: units, available }.into());
            }
        }
    } else if restocks {
        with_counter(parts, &counter, &sku, || counter.announce()).await?;
        counted.announced.push(AnnouncedUnits { sku, units: delta, counter });
    }
    Ok(())
}

/// Calls Redis until there is a counter, which is loaded if there is none.
async fn with_counter<T, F>(
    parts: &ShopParts,
    counter: &StockCounter,
    sku: &Sku,
    call: impl Fn() -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<Option<T>, RedisError>>,
{
    for loads in 0..=MAX_LOADS {
        if let Some(done) = call().await.map_err(holdfast_lock::Error::from)? {
            return Ok(done);
        }
        if loads == MAX_LOADS {
            break;
        }

        // Too much, if Redis lost the counter while orders were between it and Postgres: nothing
        // here knows of them. This is what the strategy is there to show.
        let row = row_stock(&mut *parts.pool.acquire().await?, sku).await?;
        let row = row.ok_or_else(|| Rejection::no_item(sku))?;
        counter.load(row.free().max(0)).await.map_err(holdfast_lock::Error::from)?;
    }
    let cause = "it lost the item's counter again".to_owned();
    Err(Error::Unavailable { what: Component::Redis, cause, outcome_unknown: false }.into())
}

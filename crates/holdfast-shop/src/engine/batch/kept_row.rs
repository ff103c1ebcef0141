//! What a leader knows of its item without a read: the row as its last batch under this lease
//! wrote it. The next batch is decided on it, which saves a statement under the lease.
//!
//! It may be wrong: a writer that needs no lease (another strategy, an admin with psql) may have
//! changed the row since, and the lease may have ended. So nothing that was decided on it is
//! answered before its write, whose guard requires this version. The records of its keys are found
//! by the insert of its own: a duplicate violates the unique constraint. If the write is refused,
//! the batch reads; so it does if a command is rejected, because that one inserts no record and its
//! key may have one.
//! Tests: `tests/it/kept_row.rs`, `tests/model/strategy.rs`.

use time::OffsetDateTime;
use tokio::time::Instant;

use super::entry::BatchEntry;
use crate::Sku;
use crate::command::ReadSet;
use crate::command::state::{ShopState, StockSnapshot};
use crate::probe::Probe;
use crate::store::read::ReadSnapshot;
use holdfast_base::metrics::define_metrics;

define_metrics! {
    UNREAD_BATCHES: "holdfast_unread_batches_total", Counter ["outcome"] &[],
        "batched: batches decided without a read, by outcome: written, or refused and read";
}

/// The row that the last write of a lease left, if the next batch may be decided on it.
#[derive(Debug, Default)]
pub struct KeptRow {
    row: Option<(Sku, StockSnapshot)>,
    clock: Option<PostgresClock>,
}

/// A time of Postgres's clock, and when it was read.
#[derive(Debug, Clone, Copy)]
pub struct PostgresClock {
    time: OffsetDateTime,
    read_at: Instant,
}

impl PostgresClock {
    pub fn read_now(time: OffsetDateTime) -> Self {
        Self { time, read_at: Instant::now() }
    }

    /// Returns the time now, in whole microseconds, as Postgres stores it. It is late by the
    /// response's way.
    fn now(self) -> OffsetDateTime {
        let elapsed_us = self.read_at.elapsed().as_micros();
        self.time + time::Duration::microseconds(i64::try_from(elapsed_us).unwrap_or(i64::MAX))
    }
}

impl KeptRow {
    /// Takes what the commands would read, if it is all known.
    pub fn take(&mut self, entries: &[BatchEntry<'_>]) -> Option<ReadSnapshot> {
        let (sku, row) = self.row.take()?;
        let clock = self.clock?;
        if !entries.iter().all(|entry| is_enough(&sku, entry)) {
            return None;
        }

        let mut state = ShopState::at(clock.now());
        state.items.insert(sku, row);
        Some(ReadSnapshot { state, known_keys: Vec::new() })
    }

    /// Keeps what a write left of its only row, under a lease with that fence.
    pub fn keep(&mut self, after: ShopState, fence: Option<i64>, clock: PostgresClock) {
        let mut items = after.items.into_iter();
        let (Some((sku, row)), None, Some(fence)) = (items.next(), items.next(), fence) else {
            return;
        };

        // A limit needs the purchases of each buyer; what is sold out is answered after a read.
        if row.limit_per_user.is_none() && row.stock > 0 {
            self.row = Some((sku, StockSnapshot { fence, ..row }));
            self.clock = Some(clock);
        }
    }
}

/// Returns whether a command reads that item's row alone. What the lab watches is read.
fn is_enough(sku: &Sku, entry: &BatchEntry<'_>) -> bool {
    let ReadSet {
        items,
        account,
        orders,
        skip_locked_orders: _,
        buyer: _,
        descriptions,
        next_entry,
    } = entry.command.reads();
    matches!(items.as_slice(), [item] if item == sku)
        && account.is_none()
        && orders.is_empty()
        && !descriptions
        && !next_entry
        && matches!(entry.context.probe(), Probe::Off)
}

pub fn count_unread_batch(outcome: &'static str) {
    metrics::counter!(UNREAD_BATCHES, "outcome" => outcome).increment(1);
}

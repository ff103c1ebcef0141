//! The commands of a batch, and what is asked of all of them.

use std::future::Future;

use tokio::time::{Instant, timeout_at};
use tracing::Span;

use super::entry::{BatchEntry, EntryResult};
use crate::Shop;
use crate::failure::{Error, Failure};
use crate::store::BatchWrite;
use crate::strategy::Strategy;
use crate::strategy::data_path::DataPath;

/// Commands that are executed together, under the same locks, with one read and one write.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub shop: &'a Shop,
    pub strategy: &'static Strategy,
    pub entries: &'a [BatchEntry<'a>],
    /// True for the batch of a leader: no other write of its key is under way in this process, so
    /// its write may share a statement with those of other keys.
    pub has_leader: bool,
}

impl<'a> Batch<'a> {
    pub fn positions(&self) -> impl Iterator<Item = (usize, BatchEntry<'a>)> + use<'a> {
        self.entries.iter().copied().enumerate()
    }

    pub fn written(&self, write: &BatchWrite) -> impl Iterator<Item = (usize, BatchEntry<'a>)> {
        write.commands.iter().map(|command| (command.position, self.entries[command.position]))
    }

    /// Returns whether it changes lab items. A batch has one key, so all of its commands do or
    /// none.
    pub fn is_in_lab(&self) -> bool {
        self.entries.iter().any(|entry| entry.context.in_lab)
    }

    /// Returns the data path of its strategy, if that has one of its own.
    pub fn data_path(&self) -> Option<&'a dyn DataPath> {
        self.shop.engine.data_paths.of(self.strategy)
    }

    pub fn yields_connection(&self) -> bool {
        self.entries.iter().any(|entry| entry.context.probe().yields_connection())
    }

    pub fn fail_all(&self, failure: impl Into<Failure>) -> Vec<EntryResult> {
        let failure = failure.into();
        self.entries.iter().map(|_| Err(failure.clone())).collect()
    }

    pub async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        timeout_at(self.deadline(), work).await.map_err(|_| Error::deadline_passed())
    }

    /// The latest: a batch is executed as a whole, without those that were late when it was taken.
    pub fn deadline(&self) -> Instant {
        let deadlines = self.entries.iter().map(|entry| entry.context.deadline);
        deadlines.max().unwrap_or_else(Instant::now)
    }
}

/// Begins a step of a batch: a span below the stage of each command, until the result is dropped.
pub fn begin_step(batch: Batch<'_>, span_below: impl Fn(&Span) -> Span) -> Vec<Span> {
    let spans = batch.entries.iter().map(|entry| span_below(entry.stage));
    spans.filter(|span| !span.is_disabled()).collect()
}

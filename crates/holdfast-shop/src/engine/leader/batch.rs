//! A leader's batch: with a read, or on the row that its last one left
//! ([`kept_row`](crate::engine::batch::kept_row)).

use futures_util::future::join;

use super::Leader;
use crate::Shop;
use crate::engine::batch;
use crate::engine::batch::begin;
use crate::engine::batch::entries::Batch;
use crate::engine::batch::entry::{BatchEntry, EntryResult};
use crate::engine::batch::points::pass_point;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::engine::queue::QueueEntry;
use crate::probe::Point;
use crate::strategy::batched;

/// Number of batches that read after one that was refused, under the same lease or the next ones: a
/// client that repeats old keys makes few batches fail.
const READS_AFTER_REFUSAL: u32 = 8;

impl Leader {
    /// Decides and writes a batch, without a read if all is known.
    pub async fn run_batch(
        &mut self,
        locks: &mut AcquiredLocks,
        queued: Vec<QueueEntry>,
    ) -> (Vec<(QueueEntry, EntryResult)>, LockState) {
        let shop = self.shop.clone();
        let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
        let known = locks.kept_row.take(&entries).filter(|_| self.reads_due == 0);
        let Some(known) = known else {
            self.reads_due = self.reads_due.saturating_sub(1);
            drop(entries);
            return self.run_with_read(locks, queued).await;
        };

        // The write needs no locks of idempotency keys, as it inserts their records; they answer
        // the duplicates that follow.
        let executing = batch::run_unread(batch_of(&shop, &entries), locks, known);
        let (admitted, executed) = join(self.responses.acquire_key_locks(&queued), executing).await;
        drop(entries);
        if let Some((results, state)) = executed {
            return (queued.into_iter().zip(results).collect(), state);
        }

        self.reads_due = READS_AFTER_REFUSAL;
        // Without the duplicates, one of which may be why nothing was written.
        let queued = self.responses.retain_admitted(queued, admitted);
        if queued.is_empty() {
            return (Vec::new(), LockState::Held);
        }
        self.run_with_read(locks, queued).await
    }

    /// Reads while Redis sets the locks of its idempotency keys, takes out the duplicates, and
    /// completes the others.
    async fn run_with_read(
        &mut self,
        locks: &mut AcquiredLocks,
        queued: Vec<QueueEntry>,
    ) -> (Vec<(QueueEntry, EntryResult)>, LockState) {
        let shop = self.shop.clone();
        let reading = async {
            let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
            begin::begin(batch_of(&shop, &entries), locks).await
        };

        // The locks of keys that `prepare_waiting` has not requested. Concurrently, to shorten the
        // time under the item lease; a Redis that does not respond keeps the read's connection.
        // Idempotency locks only detect duplicates early: of two commands that both read an unused
        // key, one fails to insert its record.
        let (admitted, mut begun) = join(self.responses.acquire_key_locks(&queued), reading).await;

        if admitted.iter().any(Result::is_err) {
            let retained: Vec<bool> = admitted.iter().map(Result::is_ok).collect();
            let entries = queued.iter().map(QueueEntry::entry).enumerate();
            let dropped = entries.filter(|(at, _)| !retained[*at]);
            pass_point(dropped, Point::Release, locks, |_, _| None).await;
            if let Ok(begun) = &mut begun {
                begun.snapshot.retain_keys(&retained);
            }
        }
        let queued = self.responses.retain_admitted(queued, admitted);
        if queued.is_empty() {
            return (Vec::new(), begin::abandon(begun).await);
        }

        let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
        let (results, state) = batch::complete(batch_of(&shop, &entries), locks, begun).await;
        (queued.into_iter().zip(results).collect(), state)
    }
}

fn batch_of<'a>(shop: &'a Shop, entries: &'a [BatchEntry<'a>]) -> Batch<'a> {
    Batch { shop, strategy: &batched::STRATEGY, entries, has_leader: true }
}

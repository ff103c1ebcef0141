//! A leader's batch: with a read, or on the row that its last one left ([`super::kept_row`]).

use futures_util::future::join;

use super::batch;
use super::entry::{BatchEntry, EntryResult};
use super::leader::{Leader, batch_of};
use super::locks::{AcquiredLocks, LockState};
use super::queue::QueueEntry;

/// Number of batches that read after one that was refused, under the same lease or the next ones: a
/// client that repeats old keys makes few batches fail.
const READS_AFTER_REFUSAL: u32 = 8;

impl Leader {
    /// Executes a batch, without a read if all is known.
    pub(super) async fn execute(
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
            return self.execute_with_read(locks, queued).await;
        };

        // The write needs no locks of idempotency keys, as it inserts their records; they answer
        // the duplicates that follow.
        let executing = batch::execute_unread(batch_of(&shop, &entries), locks, known);
        let (admitted, executed) = join(self.acquire_key_locks(&queued), executing).await;
        drop(entries);
        if let Some((results, state)) = executed {
            return (queued.into_iter().zip(results).collect(), state);
        }

        self.reads_due = READS_AFTER_REFUSAL;
        // Without the duplicates, one of which may be why nothing was written.
        let queued = self.retain_admitted(queued, admitted);
        if queued.is_empty() {
            return (Vec::new(), LockState::Held);
        }
        self.execute_with_read(locks, queued).await
    }
}

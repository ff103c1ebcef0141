//! A leader's batch: with a read, or on the row that its last one left
//! ([`kept_row`](crate::engine::batch::kept_row)); and the locks of its idempotency keys, which
//! find the duplicates in it.

use futures_util::future::join;

use super::Leader;
use crate::Shop;
use crate::engine::batch;
use crate::engine::batch::begin;
use crate::engine::batch::entries::Batch;
use crate::engine::batch::entry::{BatchEntry, EntryResult};
use crate::engine::batch::points::pass_point;
use crate::engine::command_queue::QueueEntry;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::failure::Failure;
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
        mut queued: Vec<QueueEntry>,
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
        let (admitted, executed) = join(self.acquire_key_locks(&queued), executing).await;
        drop(entries);
        if let Some((results, state)) = executed {
            for entry in &mut queued {
                entry.key_lock_requested = true;
            }
            return (queued.into_iter().zip(results).collect(), state);
        }

        self.reads_due = READS_AFTER_REFUSAL;
        // Without the duplicates, one of which may be why nothing was written.
        let queued = self.retain_admitted(queued, admitted);
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
        let (admitted, mut begun) = join(self.acquire_key_locks(&queued), reading).await;

        if admitted.iter().any(Result::is_err) {
            let retained: Vec<bool> = admitted.iter().map(Result::is_ok).collect();
            let entries = queued.iter().map(QueueEntry::entry).enumerate();
            let dropped = entries.filter(|(at, _)| !retained[*at]);
            pass_point(dropped, Point::Release, locks, |_, _| None).await;
            if let Ok(begun) = &mut begun {
                begun.snapshot.retain_keys(&retained);
            }
        }
        let queued = self.retain_admitted(queued, admitted);
        if queued.is_empty() {
            return (Vec::new(), begin::abandon(begun).await);
        }

        let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
        let (results, state) = batch::complete(batch_of(&shop, &entries), locks, begun).await;
        (queued.into_iter().zip(results).collect(), state)
    }

    /// Requests the idempotency locks that were not requested yet, in one round trip. Returns one
    /// result per entry.
    pub async fn acquire_key_locks(&mut self, entries: &[QueueEntry]) -> Vec<Result<(), Failure>> {
        let missing = entries.iter().filter(|entry| !entry.key_lock_requested);
        let requests: Vec<_> = missing.map(|entry| entry.command.idempotency()).collect();
        let mut acquired = self.responses.key_locks.acquire(&requests).await.into_iter();

        let requested = entries.iter().map(|entry| entry.key_lock_requested);
        requested
            .map(|before| if before { Ok(()) } else { acquired.next().unwrap_or(Ok(())) })
            .collect()
    }

    /// Returns the entries that may go on; the duplicates of requests in flight get a response.
    pub fn retain_admitted(
        &self,
        entries: Vec<QueueEntry>,
        admitted: Vec<Result<(), Failure>>,
    ) -> Vec<QueueEntry> {
        let mut retained = Vec::with_capacity(entries.len());
        let mut rejected = Vec::new();
        for (mut entry, admitted) in entries.into_iter().zip(admitted) {
            entry.key_lock_requested = true;
            match admitted {
                Ok(()) => retained.push(entry),
                Err(failure) => rejected.push((entry, failure)),
            }
        }
        self.responses.replay_or_reject(rejected);
        retained
    }
}

fn batch_of<'a>(shop: &'a Shop, entries: &'a [BatchEntry<'a>]) -> Batch<'a> {
    Batch { shop, strategy: &batched::STRATEGY, entries, has_leader: true }
}

//! The queues of commands that wait to be executed in batches, one per key, and the leader of each:
//! a task that executes them under the lease of the key's item or account (below: the item lease).
//! Commands that arrive during a batch form the next one. No timer delays a batch.
//!
//! Guarantees: FIFO within a process; each command receives its own result; a full queue rejects
//! immediately with `overloaded`; the item lease is kept for a few batches at most while others
//! wait for it. Fails with `lock-lost` if the lease expired and a later holder wrote.
//! Tests: `tests/it/batched*.rs`.

mod batch;
pub mod responses;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, join, select};
use holdfast_lock::{FencedGuard, LockKey};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span, debug_span, error_span};

use crate::Shop;
use crate::engine::batch::entry::EntryResult;
use crate::engine::command_queue::limit::MAX_BATCH_SIZE;
use crate::engine::command_queue::{EnqueueResult, LeaderQueue, QueueEntry, TakenEntries};
use crate::engine::lease::forward::Forwarder;
use crate::engine::lease::locks::{AcquiredLocks, LockState};
use crate::failure::Error;
use holdfast_base::metrics::{COUNTS, define_metrics};
use responses::Responses;

/// Time for which the item lease is kept with an empty queue: a request that does not wait finds it
/// busy.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1);
/// Number of batches for which others wait for the item lease, with the one in which they asked.
const MAX_BATCHES_WHILE_WANTED: u32 = 4;
/// Time after which a leader starts no further batch under its lease, even if it knows no other
/// waiter.
const MAX_LOCK_TIME: Duration = Duration::from_secs(1);

define_metrics! {
    BATCH_REQUESTS: "holdfast_batch_requests", Histogram [] COUNTS,
        "batched: requests per batch";
    BATCH_QUEUE_FULL: "holdfast_batch_queue_full_total", Counter [] &[],
        "batched: requests that found their queue full: rejected, or replayed";
}

/// Adds a command to the queue of `key`, and starts the leader of a new queue. Returns whether
/// there was a place.
pub fn enqueue(shop: &Shop, key: &LockKey, entry: QueueEntry) -> bool {
    match shop.engine.queues.join(key, entry) {
        EnqueueResult::First => {
            shop.tasks.spawn(lead(shop.clone(), key.clone()));
            true
        }
        EnqueueResult::Behind => true,
        EnqueueResult::Full => {
            metrics::counter!(BATCH_QUEUE_FULL).increment(1);
            false
        }
    }
}

/// Executes batches until the queue is empty: acquires the item lease, takes the commands that wait
/// by then, executes them, and responds.
async fn lead(shop: Shop, key: LockKey) {
    let queue = shop.engine.queues.of_leader(key);
    let mut leader = Leader {
        responses: Responses::new(&shop),
        shop,
        queue,
        forwarder: None,
        expected_batch_size: 0,
        has_executed: false,
        batches_while_wanted: 0,
        reads_due: 0,
    };
    let mut last_end = Instant::now();
    let mut lease = leader.obtain_lease().await;
    loop {
        let Some(mut locks) = lease.take() else {
            leader.return_unbegun();
            // In one step: a command that joins after it starts a new leader.
            if leader.queue.close_if_empty() {
                return;
            }
            lease = leader.obtain_lease().await;
            continue;
        };

        // Not before the lease: what arrives while it is awaited is in this batch.
        let id = locks.lease().map(FencedGuard::lease_id);
        let TakenEntries { mut batch, dead } = leader.queue.take_under(id, MAX_BATCH_SIZE);
        if batch.is_empty() {
            leader.responses.reject(dead, Error::deadline_passed()).await;
            match leader.linger(&locks).await && leader.may_continue(&locks, 0) {
                true => lease = Some(locks),
                false => locks.release().await,
            }
            last_end = Instant::now();
            continue;
        }

        let span = begin_batch(&leader.queue.key, &mut batch);
        let (mut done, state) = leader.run_batch(&mut locks, batch).instrument(span).await;
        leader.record(&locks, done.len(), last_end.elapsed());
        last_end = Instant::now();
        done.extend(dead.into_iter().map(|entry| (entry, Err(Error::deadline_passed().into()))));

        match state {
            LockState::Held if leader.may_continue(&locks, leader.queue.waiting()) => {
                leader.responses.respond(done).await;
                lease = Some(locks);
            }
            LockState::Held => lease = leader.yield_lease(locks, done).await,
            LockState::Lost => {
                // Another's by now: no request waits for its release.
                drop(locks);
                leader.responses.respond(done).await;
            }
            LockState::LeaveToExpire(outage) => {
                locks.leave_to_expire();
                leader.responses.respond(done).await;
                leader.reject_all(outage).await;
            }
            LockState::HeldInOutage(outage) => {
                join(locks.release(), leader.responses.respond(done)).await;
                leader.reject_all(outage).await;
            }
        }
    }
}

/// Begins the span of a batch. It links to the requests in it, whose wait ends.
fn begin_batch(key: &LockKey, entries: &mut [QueueEntry]) -> Span {
    let ids: Vec<String> = entries.iter().map(|e| e.context.request_id.to_string()).collect();
    let requests = ids.join(" ");
    // A root, linked to the requests: a span has one parent, and the batch serves many.
    let span = error_span!(parent: None, "batch", %key, commands = entries.len(), %requests);

    for entry in entries {
        entry.stage = debug_span!(parent: &entry.request, "held");
        // Only an exporter keeps links, and it enables these spans.
        if !entry.stage.is_disabled() {
            span.follows_from(&entry.request);
            entry.stage.follows_from(&span);
        }
    }
    span
}

/// The leader of one queue.
pub struct Leader {
    pub shop: Shop,
    pub queue: LeaderQueue,
    pub responses: Responses,
    /// `None` until another replica has the lease of its queue's key.
    pub forwarder: Option<Forwarder>,
    /// Number of commands in and behind the last batch: an estimate of the next one.
    pub expected_batch_size: usize,
    /// True after the first batch under the current item lease.
    pub has_executed: bool,
    /// Number of batches under it at whose end others waited for it.
    pub batches_while_wanted: u32,
    /// Number of batches that are to be read, because one without a read was refused.
    pub reads_due: u32,
}

impl Leader {
    /// Returns the commands of other replicas that were not begun: the lease to which they were
    /// addressed has ended.
    fn return_unbegun(&self) {
        self.shop.engine.delegation.return_to_senders(self.queue.end_lease());
    }

    /// Rejects all queued commands because of an outage, without a key lookup, which would wait for
    /// Postgres again.
    pub async fn reject_all(&mut self, outage: Error) {
        let TakenEntries { batch, dead } = self.queue.take(usize::MAX);
        self.responses.reject(dead.into_iter().chain(batch), outage).await;
    }

    fn record(&mut self, locks: &AcquiredLocks, commands: usize, took: Duration) {
        if commands > 0 {
            metrics::histogram!(BATCH_REQUESTS).record(commands as f64);
        }
        self.has_executed = true;
        if locks.lease().is_some_and(FencedGuard::is_wanted) {
            self.batches_while_wanted += 1;
        }
        self.expected_batch_size = commands + self.queue.waiting();
        if self.expected_batch_size > 1 {
            // A batch of one says little about the throughput.
            self.queue.record_batch(commands, took);
        }
    }

    /// Returns whether the next batch may follow at once. While others wait for the lease, only a
    /// full batch may: a smaller one can grow while they hold it. So may one with commands of other
    /// replicas, which would have come in vain.
    fn may_continue(&self, locks: &AcquiredLocks, waiting: usize) -> bool {
        let Some(guard) = locks.lease().filter(|guard| guard.is_held()) else { return false };
        if locks.held_for() >= MAX_LOCK_TIME {
            return false;
        }
        if !guard.is_wanted() {
            return true;
        }
        let of_replicas = self.queue.has_entries_of_replicas();
        may_keep_others_waiting(self.batches_while_wanted, waiting, of_replicas)
    }

    /// Keeps the item lease for [`LINGER_TIMEOUT`] after a batch unless others wait for it, so that
    /// the next command of a sequential client needs no acquisition. Returns whether a command
    /// arrived.
    async fn linger(&self, locks: &AcquiredLocks) -> bool {
        if !self.has_executed || !self.may_continue(locks, 0) {
            return false;
        }

        let arrived = pin!(self.queue.arrived(1));
        let contended = pin!(async {
            if let Some(guard) = locks.lease() {
                guard.wait_until_wanted().await;
            }
        });
        matches!(timeout(LINGER_TIMEOUT, select(arrived, contended)).await, Ok(Either::Left(_)))
    }

    /// Releases the item lease. With more than one command in and behind the last batch, requests
    /// it again first, even if the queue is empty: in this order both are one call to Redis.
    ///
    /// Responds after the release, because waking many clients would delay the next holder.
    async fn yield_lease(
        &mut self,
        locks: AcquiredLocks,
        done: Vec<(QueueEntry, EntryResult)>,
    ) -> Option<AcquiredLocks> {
        // Who waits in another process is served first. If it has a leader, commands go to it.
        let is_left = self.shop.engine.delegation.is_running()
            && locks.lease().is_some_and(FencedGuard::is_wanted);
        let mut next = (self.expected_batch_size > 1 && !is_left).then(|| self.acquire());
        if let Some(next) = &mut next {
            // The first poll enqueues the request; it is granted after the release.
            let _ = poll_fn(|context| Poll::Ready(next.poll_unpin(context))).await;
        }

        if is_left {
            // Before the next holder resolves them.
            self.return_unbegun();
        }
        locks.release().await;
        self.responses.respond(done).await;
        self.return_unbegun();
        match next {
            Some(next) => self.wait_for_own(next).await,
            None => None,
        }
    }
}

/// Returns whether the next batch may follow while someone else wants the lease and has waited for
/// `batches` so far: a full one may, or one with commands of other replicas, up to a bound. Batches
/// from before anyone asked do not count.
fn may_keep_others_waiting(batches: u32, waiting: usize, of_replicas: bool) -> bool {
    (waiting >= MAX_BATCH_SIZE || of_replicas) && batches < MAX_BATCHES_WHILE_WANTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_wait_for_some_full_batches_only() {
        assert!(may_keep_others_waiting(0, MAX_BATCH_SIZE, false), "it was asked for just now");
        assert!(may_keep_others_waiting(1, MAX_BATCH_SIZE, false));
        assert!(!may_keep_others_waiting(1, MAX_BATCH_SIZE - 1, false));
        assert!(may_keep_others_waiting(1, 1, true), "another replica waits for its answer");
        assert!(may_keep_others_waiting(MAX_BATCHES_WHILE_WANTED - 1, MAX_BATCH_SIZE, false));
        assert!(!may_keep_others_waiting(MAX_BATCHES_WHILE_WANTED, MAX_BATCH_SIZE, true));
    }
}

//! The queues of commands that wait to be executed in batches, one per key, and the leader of each:
//! a task that executes them under the lease of the key's item or account (below: the item lease).
//! Commands that arrive during a batch form the next one. No timer delays a batch.
//!
//! Guarantees: FIFO within a process; each command receives its own result; a full queue rejects
//! immediately with `overloaded`; the item lease is kept for a few batches at most while others
//! wait for it. Fails with `lock-lost` if the lease expired and a later holder wrote.
//! Tests: `tests/it/batched*.rs`, `tests/queue.rs` beside this file.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, MaybeDone, join, maybe_done, select};
use holdfast_lock::{IdempotencyLocks, LockKey};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span, debug_span, error_span};

use super::batch::{self, Batch};
use super::begin;
use super::entry::{BatchEntry, EntryResult};
use super::in_flight::InFlightKey;
use super::locks::{AcquiredLocks, LockState};
use super::points::pass_point;
use super::queue_limit::{AdaptiveQueueLimit, MAX_BATCH_SIZE};
use crate::command::Command;
use crate::failure::{Error, Failure, Rejection};
use crate::probe::Point;
use crate::strategy::batched;
use crate::{RequestOptions, Shop};
use holdfast_base::metrics::{COUNTS, define_metrics};

/// Time for which the item lease is kept with an empty queue: a request that does not wait finds it
/// busy.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1);
/// Interval at which a leader that waits for its lease looks after the entries that wait with it.
const PREPARE_INTERVAL: Duration = Duration::from_millis(50);
const MAX_BATCHES_PER_LEASE: u32 = 4;
/// Time after which a leader starts no further batch under its lease, even if it knows no other
/// waiter.
const MAX_LOCK_TIME: Duration = Duration::from_secs(1);

define_metrics! {
    BATCH_REQUESTS: "holdfast_batch_requests", Histogram [] COUNTS,
        "batched: requests per batch";
    BATCH_QUEUE_FULL: "holdfast_batch_queue_full_total", Counter [] &[],
        "batched: requests that found their queue full: rejected, or replayed";
}

type PendingLocks = MaybeDone<BoxFuture<'static, Result<AcquiredLocks, Failure>>>;

/// A command that waits for its batch, or is in it.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) command: Arc<dyn Command>,
    pub(super) options: RequestOptions,
    pub(super) joined_at: Instant,
    pub(super) key_lock_requested: bool,
    /// True once the record of its key was looked up, which happens once.
    pub(super) looked_up: bool,
    pub(super) in_flight: InFlightKey,
    /// The request's span, and below it that of its stage: `wait` until its locks are acquired,
    /// then `held` until its response.
    pub(super) request: Span,
    pub(super) stage: Span,
    pub(super) reply: oneshot::Sender<EntryResult>,
}

impl QueueEntry {
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        now < self.options.deadline && !self.reply.is_closed()
    }

    pub(super) fn entry(&self) -> BatchEntry<'_> {
        BatchEntry { command: self.command.as_ref(), options: &self.options, stage: &self.stage }
    }
}

/// Adds a command to the queue of `key`, and starts the leader of a new queue. Returns whether
/// there was a place.
pub(super) fn enqueue(shop: &Shop, key: &LockKey, entry: QueueEntry) -> bool {
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
    let key_locks = IdempotencyLocks::new(shop.locks.leases());
    let queue = shop.engine.queues.of_leader(key);
    let mut leader = Leader { shop, queue, key_locks, expected_batch_size: 0, batches: 0 };
    let mut lease: Option<AcquiredLocks> = None;
    let mut last_end = Instant::now();
    loop {
        let Some(mut locks) = lease.take() else {
            // In one step: a command that joins after it starts a new leader.
            if leader.queue.close_if_empty() {
                return;
            }
            let acquiring = leader.acquire();
            lease = leader.wait_for(acquiring).await;
            continue;
        };

        // Not before the lease: what arrives while it is awaited is in this batch.
        let TakenEntries { mut batch, dead } = leader.queue.take(MAX_BATCH_SIZE);
        if batch.is_empty() {
            leader.reject(dead, Error::deadline_passed()).await;
            match leader.linger(&locks).await && leader.may_continue(&locks, 0) {
                true => lease = Some(locks),
                false => locks.release().await,
            }
            last_end = Instant::now();
            continue;
        }

        let span = begin_batch(&leader.queue.key, &mut batch);
        let (mut done, state) = leader.execute(&mut locks, batch).instrument(span).await;
        leader.record(done.len(), last_end.elapsed());
        last_end = Instant::now();
        done.extend(dead.into_iter().map(|entry| (entry, Err(Error::deadline_passed().into()))));

        match state {
            LockState::Held if leader.may_continue(&locks, leader.queue.waiting()) => {
                leader.respond(done).await;
                lease = Some(locks);
            }
            LockState::Held => lease = leader.yield_lease(locks, done).await,
            LockState::Lost => {
                // Another's by now: nobody waits for its release.
                drop(locks);
                leader.respond(done).await;
            }
            LockState::LeaveToExpire(outage) => {
                locks.leave_to_expire();
                leader.respond(done).await;
                leader.reject_all(outage).await;
            }
            LockState::HeldInOutage(outage) => {
                join(locks.release(), leader.respond(done)).await;
                leader.reject_all(outage).await;
            }
        }
    }
}

/// Begins the span of a batch. It links to the requests in it, whose wait ends.
fn begin_batch(key: &LockKey, entries: &mut [QueueEntry]) -> Span {
    let ids: Vec<String> = entries.iter().map(|e| e.options.request_id.to_string()).collect();
    let requests = ids.join(" ");
    // A root, linked to the requests: a span has one parent, and the batch serves many.
    let span = error_span!(parent: None, "batch", %key, commands = entries.len(), %requests);

    for entry in entries {
        span.follows_from(&entry.request);
        entry.stage = debug_span!(parent: &entry.request, "held");
        entry.stage.follows_from(&span);
    }
    span
}

/// The leader of one queue. `respond.rs` has what its commands get for a response.
pub(super) struct Leader {
    pub(super) shop: Shop,
    pub(super) queue: LeaderQueue,
    /// The locks of the commands' idempotency keys, in Redis.
    pub(super) key_locks: IdempotencyLocks,
    /// Number of commands in and behind the last batch: an estimate of the next one.
    expected_batch_size: usize,
    /// Number of batches under the current item lease.
    batches: u32,
}

impl Leader {
    fn acquire(&self) -> PendingLocks {
        let locks = self.shop.locks.clone();
        let key = self.queue.key.clone();
        maybe_done(Box::pin(async move { AcquiredLocks::acquire_lease(&locks, key).await }))
    }

    /// Waits for the item lease, and prepares the waiting entries. If it can't be acquired, rejects
    /// the entries that waited for it.
    async fn wait_for(&mut self, mut acquiring: PendingLocks) -> Option<AcquiredLocks> {
        let began = Instant::now();
        // Clients that wait for a response send no more than the last batch had: once as many are
        // here, their keys are locked in one round trip.
        let mut awaited =
            if self.expected_batch_size > 1 { self.expected_batch_size } else { usize::MAX };
        loop {
            let arrived = timeout(PREPARE_INTERVAL, self.queue.arrived(awaited));
            let look_up = match select(&mut acquiring, Box::pin(arrived)).await {
                Either::Left(_) => break,
                Either::Right((arrived, _)) => arrived.is_err(),
            };
            if look_up && self.queue.waiting() == 0 {
                // The queue is empty: drops the request, so that others need not wait for it.
                return None;
            }

            // If the item lease is granted during this, the borrowed entries are put back first.
            let preparing = pin!(self.prepare_waiting(look_up));
            if let Either::Left(((), preparing)) = select(&mut acquiring, preparing).await {
                preparing.await;
                break;
            }
            awaited = usize::MAX;
        }

        self.batches = 0;
        let failure = match Pin::new(&mut acquiring).take_output()? {
            Ok(locks) => return Some(locks),
            Err(failure) => failure,
        };

        let until = match &failure {
            // Commands that joined later have not waited for the full timeout, and wait on.
            Failure::Rejected(Rejection::LockTimeout { .. }) => began,
            _ => Instant::now(),
        };
        self.reject_waiting(failure, until).await;
        None
    }

    /// Executes a batch: reads while Redis sets the locks of its idempotency keys, takes out
    /// the duplicates, and completes the others.
    pub(super) async fn execute_with_read(
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

    /// Returns the entries that may go on; the duplicates of requests in flight get a response.
    pub(super) fn retain_admitted(
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
        self.replay_or_reject(rejected);
        retained
    }

    fn record(&mut self, commands: usize, took: Duration) {
        if commands > 0 {
            metrics::histogram!(BATCH_REQUESTS).record(commands as f64);
        }
        self.batches += 1;
        self.expected_batch_size = commands + self.queue.waiting();
        if self.expected_batch_size > 1 {
            // A batch of one says little about the throughput.
            self.queue.record_batch(commands, took);
        }
    }

    /// Returns whether the next batch may follow at once. While others wait for the lease, only a
    /// full batch may: a smaller one can grow while they hold it.
    fn may_continue(&self, locks: &AcquiredLocks, waiting: usize) -> bool {
        let Some(guard) = locks.lease().filter(|guard| guard.is_held()) else { return false };
        locks.held_for() < MAX_LOCK_TIME
            && (!guard.is_wanted() || may_keep_others_waiting(self.batches, waiting))
    }

    /// Keeps the item lease for [`LINGER_TIMEOUT`] after a batch unless others wait for it, so that
    /// the next command of a sequential client needs no acquisition. Returns whether a command
    /// arrived.
    async fn linger(&self, locks: &AcquiredLocks) -> bool {
        if self.batches == 0 || !self.may_continue(locks, 0) {
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
        let mut next = (self.expected_batch_size > 1).then(|| self.acquire());
        if let Some(next) = &mut next {
            // The first poll enqueues the request; it is granted after the release.
            let _ = poll_fn(|context| Poll::Ready(next.poll_unpin(context))).await;
        }

        locks.release().await;
        self.respond(done).await;
        match next {
            Some(next) => self.wait_for(next).await,
            None => None,
        }
    }
}

pub(super) fn batch_of<'a>(shop: &'a Shop, entries: &'a [BatchEntry<'a>]) -> Batch<'a> {
    Batch { shop, strategy: &batched::STRATEGY, entries, has_leader: true }
}

/// Returns whether the next batch may follow `batches` others while another process wants the
/// lease: a full one may, up to a bound.
fn may_keep_others_waiting(batches: u32, waiting: usize) -> bool {
    waiting >= MAX_BATCH_SIZE && batches < MAX_BATCHES_PER_LEASE
}

/// The queues of all keys. A key has a queue while a leader serves it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandQueues(Arc<Mutex<HashMap<LockKey, CommandQueue>>>);

#[derive(Debug, Default)]
struct CommandQueue {
    entries: VecDeque<QueueEntry>,
    /// Number of borrowed entries, which will be put back and count as waiting.
    borrowed: usize,
    limit: AdaptiveQueueLimit,
    /// A number of waiting entries, and the signal that the queue has reached it.
    arrived: (usize, Arc<Notify>),
}
impl CommandQueue {
    fn waiting(&self) -> usize {
        self.entries.len() + self.borrowed
    }
}

pub(super) enum EnqueueResult {
    /// A leader must be started.
    First,
    Behind,
    Full,
}

#[derive(Default)]
pub(super) struct TakenEntries {
    pub batch: Vec<QueueEntry>,
    /// Entries whose caller has gone or whose deadline has passed.
    pub dead: Vec<QueueEntry>,
}

impl CommandQueues {
    pub fn join(&self, key: &LockKey, entry: QueueEntry) -> EnqueueResult {
        let mut queues = self.0.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.waiting() >= queue.limit.max_length() => EnqueueResult::Full,
            Some(queue) => {
                queue.entries.push_back(entry);
                if queue.waiting() == queue.arrived.0 {
                    queue.arrived.1.notify_one();
                }
                EnqueueResult::Behind
            }
            None => {
                let queue =
                    CommandQueue { entries: VecDeque::from([entry]), ..CommandQueue::default() };
                queues.insert(key.clone(), queue);
                EnqueueResult::First
            }
        }
    }

    pub fn of_leader(&self, key: LockKey) -> LeaderQueue {
        LeaderQueue { queues: self.clone(), key }
    }
}

/// The queue of one key, as its leader uses it. If the leader panics, the entries are dropped,
/// and the next command starts a new leader.
pub(super) struct LeaderQueue {
    queues: CommandQueues,
    pub key: LockKey,
}

impl LeaderQueue {
    fn with<T>(&self, act: impl FnOnce(&mut CommandQueue) -> T) -> Option<T> {
        self.queues.0.lock().get_mut(&self.key).map(act)
    }

    pub fn take(&self, max: usize) -> TakenEntries {
        let mut taken = TakenEntries::default();
        let now = Instant::now();
        self.with(|queue| {
            while taken.batch.len() < max
                && let Some(entry) = queue.entries.pop_front()
            {
                // A dead one takes no place in the batch.
                if entry.is_alive(now) { taken.batch.push(entry) } else { taken.dead.push(entry) }
            }
        });
        taken
    }

    /// Takes all entries, until all or some are put back. They count as waiting.
    pub fn borrow(&self) -> Vec<QueueEntry> {
        let borrowed = self.with(|queue| {
            queue.borrowed = queue.entries.len();
            std::mem::take(&mut queue.entries).into()
        });
        borrowed.unwrap_or_default()
    }

    /// Puts entries back, in front of those that joined since.
    pub fn put_back(&self, entries: Vec<QueueEntry>) {
        self.with(|queue| {
            queue.borrowed = 0;
            for entry in entries.into_iter().rev() {
                queue.entries.push_front(entry);
            }
        });
    }

    pub fn record_batch(&self, commands: usize, took: Duration) {
        self.with(|queue| queue.limit.record_batch(commands, took));
    }

    pub fn waiting(&self) -> usize {
        self.with(|queue| queue.waiting()).unwrap_or(0)
    }

    pub async fn arrived(&self, count: usize) {
        let notified = self.with(|queue| {
            queue.arrived.0 = count;
            queue.arrived.1.clone()
        });
        let Some(notified) = notified else { return };
        // The signal may be an old one: they may have been taken since.
        while self.waiting() < count {
            notified.notified().await;
        }
    }

    pub fn close_if_empty(&self) -> bool {
        let mut queues = self.queues.0.lock();
        let empty = queues.get(&self.key).is_none_or(|queue| queue.waiting() == 0);
        if empty {
            queues.remove(&self.key);
        }
        empty
    }
}

impl Drop for LeaderQueue {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queues.0.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_wait_for_some_full_batches_only() {
        assert!(may_keep_others_waiting(1, MAX_BATCH_SIZE));
        assert!(!may_keep_others_waiting(1, MAX_BATCH_SIZE - 1));
        assert!(may_keep_others_waiting(MAX_BATCHES_PER_LEASE - 1, MAX_BATCH_SIZE));
        assert!(!may_keep_others_waiting(MAX_BATCHES_PER_LEASE, MAX_BATCH_SIZE));
    }
}

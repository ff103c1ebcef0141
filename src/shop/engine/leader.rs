//! Executes queued commands in batches, one leader task per key, under the lease of the key's item
//! or account (below: the item lease). Commands that arrive during a batch form the next one. No
//! timer delays a batch.
//!
//! Guarantees: FIFO within a process; each command receives its own result; a full queue rejects
//! immediately with `overloaded`; the item lease is kept for a few batches at most while others
//! wait for it. Fails with `lock-lost` if the lease expired and a later holder wrote.
//! Tests: `tests/it/batched*.rs`.

use std::fmt::{self, Display, Formatter};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, MaybeDone, join, maybe_done, select};
use holdfast_lock::{AcquireOutcome, AcquireRequest, LockKey, LockKind, Wait};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, Span, error_span};

use super::attempt;
use super::batch::{AttemptError, Batch, LockState, pass_point};
use super::entry::{BatchEntry, CommandSpan, EntryResult};
use super::locks::{AcquiredLocks, LeaderLock, LockWait, acquired};
use super::queue::{EnqueueResult, LeaderQueue, QueueEntry, TakenEntries};
use super::queue_limit::MAX_BATCH_SIZE;
use super::replay::LOOKUP_TIMEOUT;
use super::responder::Responder;
use crate::metrics::{COUNTS, define_metrics};
use crate::probe::{Point, ProbedValue};
use crate::shop::command::Command;
use crate::shop::failure::{Error, Execution, Failure, Rejection};
use crate::shop::strategy::batched;
use crate::shop::{RequestOptions, Shop};

/// Time for which the item lease is kept with an empty queue: a request that does not wait finds it
/// busy.
const LINGER_TIMEOUT: Duration = Duration::from_millis(1);
const PREPARE_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of the key lookup of waiting entries: an item lease that is granted meanwhile is idle.
const PREPARE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of the key lookup before a full queue rejects, which must be immediate.
const FULL_QUEUE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(50);

define_metrics! {
    BATCH_REQUESTS: "holdfast_batch_requests", Histogram [] COUNTS,
        "batched: requests per batch";
    BATCH_QUEUE_FULL: "holdfast_batch_queue_full_total", Counter [] &[],
        "batched: requests that found their queue full: rejected, or replayed";
}

type PendingAcquisition =
    MaybeDone<BoxFuture<'static, Result<AcquireOutcome, holdfast_lock::Error>>>;

pub(super) async fn enqueue(
    shop: &Shop,
    options: &RequestOptions,
    command: Arc<dyn Command>,
    key: LockKey,
) -> Result<Execution, Failure> {
    let replays = &shop.engine.replays;
    let in_flight = match shop.engine.in_flight.register(command.idempotency()) {
        Ok(in_flight) => in_flight,
        Err(rejection) => {
            let request = command.idempotency();
            return replays.find_or(request, LOOKUP_TIMEOUT, rejection.into()).await;
        }
    };
    options.probe.at(Point::Wait, [ProbedValue::key(key.as_str())]).await;
    let (reply, response) = oneshot::channel();
    let entry = QueueEntry {
        command: command.clone(),
        options: options.clone(),
        joined_at: Instant::now(),
        key_lock_requested: false,
        looked_up: false,
        in_flight,
        span: CommandSpan::waiting(),
        reply,
    };
    match shop.engine.queues.join(&key, entry) {
        EnqueueResult::First => {
            shop.tasks.spawn(run(shop.clone(), key));
        }
        EnqueueResult::Behind => {}
        EnqueueResult::Full => {
            metrics::counter!(BATCH_QUEUE_FULL).increment(1);
            let full = Error::Overloaded(format!("too many requests wait for {key}"));
            let request = command.idempotency();
            return replays.find_or(request, FULL_QUEUE_LOOKUP_TIMEOUT, full.into()).await;
        }
    }
    response.await.unwrap_or_else(|_| Err(Error::task_ended("the batch's task").into()))
}

async fn run(shop: Shop, key: LockKey) {
    let queue = shop.engine.queues.of_leader(key);
    let responder = Responder::new(&shop);
    let mut leader = BatchLeader { shop, queue, responder, expected_batch_size: 0 };
    let mut kept_lock: Option<LeaderLock> = None;
    let mut last_end = Instant::now();
    loop {
        let Some(mut lock) = kept_lock.take() else {
            if leader.queue.close_if_empty() {
                return;
            }
            let acquiring = leader.acquire();
            kept_lock = leader.wait_for(acquiring).await;
            continue;
        };
        let TakenEntries { mut batch, dead } = leader.queue.take(MAX_BATCH_SIZE);
        if batch.is_empty() {
            leader.responder.reject(dead, Error::deadline_passed()).await;
            match leader.linger(&lock).await && lock.may_continue(0) {
                true => kept_lock = Some(lock),
                false => lock.release().await,
            }
            last_end = Instant::now();
            continue;
        }
        let span = begin_batch(&leader.queue.key, &mut batch);
        let (mut done, state) = leader.execute(&mut lock.locks, batch).instrument(span).await;
        if !done.is_empty() {
            metrics::histogram!(BATCH_REQUESTS).record(done.len() as f64);
        }
        lock.batches += 1;
        leader.expected_batch_size = done.len() + leader.queue.waiting();
        if leader.expected_batch_size > 1 {
            // A batch of one says little about the throughput.
            leader.queue.record_batch(done.len(), last_end.elapsed());
        }
        last_end = Instant::now();
        done.extend(dead.into_iter().map(|entry| (entry, Err(Error::deadline_passed().into()))));
        match state {
            LockState::Held if lock.may_continue(leader.queue.waiting()) => {
                leader.responder.respond(done).await;
                kept_lock = Some(lock);
            }
            LockState::Held => kept_lock = leader.yield_lock(lock, done).await,
            LockState::Lost => {
                drop(lock);
                leader.responder.respond(done).await;
            }
            LockState::LeaveToExpire(outage) => {
                lock.leave_to_expire();
                leader.responder.respond(done).await;
                leader.reject_all(outage).await;
            }
            LockState::HeldInOutage(outage) => {
                join(lock.release(), leader.responder.respond(done)).await;
                leader.reject_all(outage).await;
            }
        }
    }
}

/// Begins the span of a batch. It links to the requests in it, whose wait ends.
fn begin_batch(key: &LockKey, entries: &mut [QueueEntry]) -> Span {
    let requests = RequestIds(entries);
    let span = error_span!(parent: None, "batch", %key, commands = entries.len(), %requests);
    for entry in entries {
        entry.span.begin_held(&span);
    }
    span
}

struct RequestIds<'a>(&'a [QueueEntry]);

impl Display for RequestIds<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { " " };
            write!(f, "{separator}{}", entry.options.request_id)?;
        }
        Ok(())
    }
}

struct BatchLeader {
    shop: Shop,
    queue: LeaderQueue,
    responder: Responder,
    /// Number of commands in and behind the last batch: an estimate of the next one.
    expected_batch_size: usize,
}

impl BatchLeader {
    async fn execute(
        &mut self,
        locks: &mut AcquiredLocks,
        queued: Vec<QueueEntry>,
    ) -> (Vec<(QueueEntry, EntryResult)>, LockState) {
        let (shop, strategy) = (self.shop.clone(), &batched::STRATEGY);
        let reading = async {
            let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
            let batch = Batch { shop: &shop, strategy, entries: &entries };
            pass_point(batch.positions(), Point::Held, locks, |_, _| None).await;
            attempt::begin(batch).await
        };
        // Concurrently, to shorten the time under the item lease. Idempotency locks only detect
        // duplicates early: of two commands that both read an unused key, one fails to insert its
        // record.
        let (acquired, begun) =
            join(self.responder.acquire_idempotency_locks(&queued), reading).await;
        let retained: Vec<bool> = acquired.iter().map(Result::is_ok).collect();
        let dropped =
            queued.iter().map(QueueEntry::entry).enumerate().filter(|(at, _)| !retained[*at]);
        pass_point(dropped, Point::Release, locks, |_, _| None).await;
        let queued = self.responder.retain_admitted(queued, acquired);
        if queued.is_empty() {
            return match begun {
                Ok(begun) => {
                    begun.session.end_without_commit().await;
                    (Vec::new(), LockState::Held)
                }
                Err(AttemptError::Failed(Failure::Error(error))) if error.is_outage() => {
                    (Vec::new(), LockState::HeldInOutage(error))
                }
                Err(_) => (Vec::new(), LockState::Held),
            };
        }
        let begun = begun.map(|mut begun| {
            begun.snapshot.retain_keys(&retained);
            begun
        });
        let entries: Vec<BatchEntry<'_>> = queued.iter().map(QueueEntry::entry).collect();
        let batch = Batch { shop: &shop, strategy, entries: &entries };
        let (results, state) = attempt::execute(batch, locks, Some(begun)).await;
        pass_point(batch.positions(), Point::Release, locks, |_, _| None).await;
        (queued.into_iter().zip(results).collect(), state)
    }

    /// Keeps the item lease for [`LINGER_TIMEOUT`] after a batch unless others wait for it, so that
    /// the next command of a sequential client needs no acquisition. Returns whether a command
    /// arrived.
    async fn linger(&self, lock: &LeaderLock) -> bool {
        if lock.batches == 0 || !lock.may_continue(0) {
            return false;
        }
        let arrived = pin!(self.queue.arrived(1));
        let contended = pin!(lock.contended());
        matches!(timeout(LINGER_TIMEOUT, select(arrived, contended)).await, Ok(Either::Left(_)))
    }

    /// Releases the item lease. With more than one command in and behind the last batch, requests
    /// it again first, even if the queue is empty: in this order both are one call to Redis.
    ///
    /// Responds after the release, because waking many clients would delay the next holder.
    async fn yield_lock(
        &mut self,
        lock: LeaderLock,
        done: Vec<(QueueEntry, EntryResult)>,
    ) -> Option<LeaderLock> {
        let mut next = (self.expected_batch_size > 1).then(|| self.acquire());
        if let Some(next) = &mut next {
            // The first poll enqueues the request; it is granted after the release.
            let _ = poll_fn(|context| Poll::Ready(next.poll_unpin(context))).await;
        }
        lock.release().await;
        self.responder.respond(done).await;
        match next {
            Some(next) => self.wait_for(next).await,
            None => None,
        }
    }

    fn acquire(&self) -> PendingAcquisition {
        let (locks, key) = (self.shop.locks.leases().clone(), self.queue.key.clone());
        maybe_done(Box::pin(async move {
            let request = AcquireRequest {
                kind: LockKind::Fenced,
                wait: Wait::Notify,
                ttl: None,
                deadline: Instant::now() + locks.settings().acquire_timeout,
                keys: &[key],
            };
            locks.acquire(request).await
        }))
    }

    /// Waits for the item lease, and prepares the waiting entries. If it can't be acquired, rejects
    /// the entries that waited for it.
    async fn wait_for(&mut self, mut acquiring: PendingAcquisition) -> Option<LeaderLock> {
        let began = Instant::now();
        let waiting = LockWait::begin(&batched::STRATEGY);
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
        let outcome = Pin::new(&mut acquiring).take_output()?;
        if outcome.is_ok() {
            waiting.record();
        }
        let failure: Failure = match outcome.map(acquired) {
            Ok(Ok(guards)) => return Some(LeaderLock::new(guards, self.queue.key.clone())),
            Ok(Err(rejection)) => rejection.into(),
            Err(error) => error.into(),
        };
        let until = match &failure {
            // Commands that joined later have not waited for the full timeout, and wait on.
            Failure::Rejected(Rejection::LockTimeout { .. }) => began,
            _ => Instant::now(),
        };
        self.reject_waiting(failure, until).await;
        None
    }

    /// Responds to dead entries, and acquires the idempotency locks of the others in advance. With
    /// `look_up`, looks up their keys too, so that a duplicate of a command that any replica has
    /// executed gets its response without waiting longer.
    ///
    /// During an outage of Postgres it rejects them: the item lease may have been left to expire,
    /// and a wait for Postgres would follow.
    async fn prepare_waiting(&mut self, look_up: bool) {
        if let Some(outage) = self.shop.pool.recent_failure() {
            return self.reject_all(outage.into()).await;
        }
        let now = Instant::now();
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.queue.borrow().into_iter().partition(|entry| entry.is_alive(now));
        self.responder.reject(dead, Error::deadline_passed()).await;
        let acquired = self.responder.acquire_idempotency_locks(&alive).await;
        let waiting = self.responder.retain_admitted(alive, acquired);
        let (known, fresh): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|entry| entry.looked_up || !look_up);
        let fresh = self.responder.replay(fresh, PREPARE_LOOKUP_TIMEOUT).await;
        self.queue.put_back(known.into_iter().chain(fresh).collect());
    }

    /// Rejects all queued commands because of an outage, without a key lookup, which would wait for
    /// Postgres again.
    async fn reject_all(&mut self, outage: Error) {
        let TakenEntries { batch, dead } = self.queue.take(usize::MAX);
        self.responder.reject(dead.into_iter().chain(batch), outage).await;
    }

    /// Rejects the commands that joined by `until`; replays those whose key has a record.
    async fn reject_waiting(&mut self, failure: Failure, until: Instant) {
        let (early, later): (Vec<_>, Vec<_>) =
            self.queue.borrow().into_iter().partition(|entry| entry.joined_at <= until);
        self.queue.put_back(later);
        let early = self.responder.replay(early, LOOKUP_TIMEOUT).await;
        self.responder.reject(early, failure).await;
    }
}

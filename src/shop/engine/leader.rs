//! Executes queued commands in batches, one leader task per key.
//!
//! The leader acquires the key's lock, takes up to [`MAX_BATCH_SIZE`] commands from the queue and
//! executes them with one read and one write. Commands that arrive during a batch form the next
//! one. No timer delays a batch; a single command is a batch of one.
//!
//! Guarantees: FIFO within a process; each command receives its own result; the queue is bounded to
//! 200 ms of work, and a full queue rejects immediately with `overloaded`; the lock is kept for a
//! few batches at most while others wait for it.
//! Fails with `lock-lost` if the lease expired and a later holder wrote.
//! Tests: `tests/it/batched*.rs`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, MaybeDone, join, join_all, maybe_done, select};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::attempt::{begin, execute_entries};
use super::batch::{Entry, EntryResult, LockState, Stop};
use super::direct::keeps_key_lock;
use super::locks::{AcquiredLocks, BatchLock};
use super::queue::{BatchEntry, CloseOnPanic, Joined, Queues, TakenEntries};
use super::queue_limit::MAX_BATCH_SIZE;
use super::replay::LOOKUP_TIMEOUT;
use super::write::pass;
use crate::lock::{self, Ask, KeyLock, KeyLocks, Kind, LockKey, Wait};
use crate::metrics::{BATCH_REQUESTS, QUEUE_FULL};
use crate::probe::{Point, Seen};
use crate::shop::command::Command;
use crate::shop::failure::{Error, Executed, Failure, Rejection};
use crate::shop::metrics::Waiting;
use crate::shop::store::key_records::{self, Replay};
use crate::shop::strategy::batched;
use crate::shop::{RequestOptions, Shop};

/// Time for which the lock is kept with an empty queue: a request that does not wait finds it busy.
const LINGER: Duration = Duration::from_millis(1);
/// Interval of tending the queue during a wait for the lock.
const TEND_EVERY: Duration = Duration::from_millis(50);
/// Timeout of the key lookup while tending: a lock that is granted during it stays idle.
const TEND_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of the key lookup before a full queue rejects, which must be immediate.
const FULL_QUEUE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(50);

/// A pending request for the lock.
type Acquiring = MaybeDone<BoxFuture<'static, AcquireResult>>;
type AcquireResult = Result<lock::Outcome, lock::Error>;

/// Enqueues a command under `key`, and waits for its result.
pub(super) async fn enqueue(
    shop: &Shop,
    options: &RequestOptions,
    command: Arc<dyn Command>,
    key: LockKey,
) -> Result<Executed, Failure> {
    let replays = &shop.engine.replays;
    let in_flight = match shop.engine.in_flight.register(command.idempotency()) {
        Ok(in_flight) => in_flight,
        Err(rejection) => {
            let request = command.idempotency();
            return replays.or(shop, request, LOOKUP_TIMEOUT, rejection.into()).await;
        }
    };
    options.probe.at(Point::Wait, [Seen::key(key.as_str())]).await;
    let (reply, response) = oneshot::channel();
    let entry = BatchEntry {
        command: command.clone(),
        options: options.clone(),
        joined_at: Instant::now(),
        has_key_lock: false,
        looked_up: false,
        in_flight,
        reply,
    };
    match shop.engine.queues.join(&key, entry) {
        Joined::First => {
            shop.running.spawn_on(run(shop.clone(), key), &shop.runtime);
        }
        Joined::Behind => {}
        Joined::Full => {
            metrics::counter!(QUEUE_FULL).increment(1);
            let full = Error::Overloaded(format!("too many requests wait for {key}"));
            let request = command.idempotency();
            return replays.or(shop, request, FULL_QUEUE_LOOKUP_TIMEOUT, full.into()).await;
        }
    }
    response.await.unwrap_or_else(|_| Err(Error::task_ended("the batch's task").into()))
}

/// Executes the batches of a queue until it is empty.
async fn run(shop: Shop, key: LockKey) {
    let queues = shop.engine.queues.clone();
    let _closing = CloseOnPanic::of(&queues, &key);
    let key_locks = shop.locks.key_locks();
    let mut leader = BatchLeader { shop, queues, key, key_locks, crowd: 0 };
    let mut held: Option<BatchLock> = None;
    let mut last = Instant::now();
    loop {
        let Some(mut lock) = held.take() else {
            if leader.queues.close_if_empty(&leader.key) {
                return;
            }
            let acquiring = leader.acquire();
            held = leader.wait_for(acquiring).await;
            continue;
        };
        let TakenEntries { batch, dead } = leader.queues.take(&leader.key, MAX_BATCH_SIZE);
        let dead: Vec<_> = dead.into_iter().map(deadline_passed).collect();
        if batch.is_empty() {
            leader.respond(dead).await;
            match leader.arrived_soon(&lock).await && lock.may_continue(0) {
                true => held = Some(lock),
                false => lock.release().await,
            }
            last = Instant::now();
            continue;
        }
        let (mut done, state) = leader.execute(&mut lock.locks, batch).await;
        if !done.is_empty() {
            metrics::histogram!(BATCH_REQUESTS).record(done.len() as f64);
        }
        lock.batches += 1;
        leader.crowd = done.len() + leader.queues.waiting(&leader.key);
        if leader.crowd > 1 {
            // A batch of one says little about the throughput.
            leader.queues.executed(&leader.key, done.len(), last.elapsed());
        }
        last = Instant::now();
        done.extend(dead);
        match state {
            LockState::Held if lock.may_continue(leader.queues.waiting(&leader.key)) => {
                leader.respond(done).await;
                held = Some(lock);
            }
            LockState::Held => held = leader.yield_lock(lock, done).await,
            LockState::Lost => {
                drop(lock);
                leader.respond(done).await;
            }
            LockState::MayStillWrite => {
                lock.leave_to_expire();
                leader.respond(done).await;
            }
            LockState::Unavailable(error) => {
                join(lock.release(), leader.respond(done)).await;
                // Without a key lookup, which would wait for Postgres again.
                let TakenEntries { batch, dead } = leader.queues.take(&leader.key, usize::MAX);
                leader.reject(dead.into_iter().chain(batch), &error.into()).await;
            }
        }
    }
}

/// The task that executes a key's batches.
struct BatchLeader {
    shop: Shop,
    queues: Queues,
    key: LockKey,
    key_locks: KeyLocks,
    /// Number of commands in and behind the last batch: an estimate of the next one.
    crowd: usize,
}

impl BatchLeader {
    /// Executes the commands whose key lock can be acquired, and returns their results.
    async fn execute(
        &mut self,
        locks: &mut AcquiredLocks,
        batch: Vec<BatchEntry>,
    ) -> (Vec<(BatchEntry, EntryResult)>, LockState) {
        let (shop, strategy) = (self.shop.clone(), &batched::STRATEGY);
        let reading = async {
            let entries: Vec<Entry<'_>> = batch.iter().map(BatchEntry::entry).collect();
            pass(entries.iter().copied().enumerate(), Point::Held, locks, |_, _| None).await;
            begin(&shop, strategy, &entries).await
        };
        // Concurrently, to shorten the time under the lock. Key locks only detect duplicates early:
        // of two commands that both read an unused key, one fails to insert its record.
        let (acquired, begun) = join(self.acquire_keys(&batch), reading).await;
        let retained: Vec<bool> = acquired.iter().map(Result::is_ok).collect();
        let dropped =
            batch.iter().map(BatchEntry::entry).enumerate().filter(|(at, _)| !retained[*at]);
        pass(dropped, Point::Release, locks, |_, _| None).await;
        let batch = self.retain_locked(batch, acquired);
        if batch.is_empty() {
            return match begun {
                Ok((session, _)) => {
                    session.abandon().await;
                    (Vec::new(), LockState::Held)
                }
                Err(Stop::Failed(error @ Error::Unavailable { .. })) => {
                    (Vec::new(), LockState::Unavailable(error))
                }
                Err(_) => (Vec::new(), LockState::Held),
            };
        }
        let begun = begun.map(|(session, mut snapshot)| {
            snapshot.retain_keys(&retained);
            (session, snapshot)
        });
        let entries: Vec<Entry<'_>> = batch.iter().map(BatchEntry::entry).collect();
        let (results, state) = execute_entries(&shop, strategy, locks, &entries, Some(begun)).await;
        pass(entries.iter().copied().enumerate(), Point::Release, locks, |_, _| None).await;
        (batch.into_iter().zip(results).collect(), state)
    }

    /// Keeps the lock for [`LINGER`] after a batch unless others want it, so that the next command
    /// of a sequential client needs no acquisition. Returns whether a command arrived.
    async fn arrived_soon(&self, lock: &BatchLock) -> bool {
        if lock.batches == 0 || !lock.may_continue(0) {
            return false;
        }
        let (arrived, wanted) = (pin!(self.queues.arrived(&self.key, 1)), pin!(lock.wanted()));
        matches!(timeout(LINGER, select(arrived, wanted)).await, Ok(Either::Left(_)))
    }

    /// Releases the lock. With more than one command in and behind the last batch, requests it
    /// again first, even if the queue is empty: in this order both are one call to Redis.
    ///
    /// Responds after the release, because waking many clients would delay the next holder.
    async fn yield_lock(
        &mut self,
        lock: BatchLock,
        done: Vec<(BatchEntry, EntryResult)>,
    ) -> Option<BatchLock> {
        let mut again = (self.crowd > 1).then(|| self.acquire());
        if let Some(again) = &mut again {
            // The first poll enqueues the request; it is granted after the release.
            let _ = poll_fn(|context| Poll::Ready(again.poll_unpin(context))).await;
        }
        lock.release().await;
        self.respond(done).await;
        match again {
            Some(again) => self.wait_for(again).await,
            None => None,
        }
    }

    /// Sends the results. Before a result that wrote nothing, releases the key lock, because the
    /// client may use the key again at once.
    async fn respond(&mut self, done: Vec<(BatchEntry, EntryResult)>) {
        let (kept, open): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(_, result)| keeps_key_lock(result));
        for (entry, result) in kept {
            self.key_locks.keep(&entry.command.idempotency().lock_name());
            entry.respond(result);
        }
        self.release_keys(open.iter().map(|(entry, _)| entry)).await;
        for (entry, result) in open {
            entry.respond(result);
        }
    }

    async fn reject(&mut self, entries: impl IntoIterator<Item = BatchEntry>, failure: &Failure) {
        let rejected = entries.into_iter().map(|entry| (entry, Err(failure.clone())));
        self.respond(rejected.collect()).await;
    }

    async fn release_keys(&mut self, entries: impl Iterator<Item = &BatchEntry>) {
        let locked = entries.filter(|entry| entry.has_key_lock);
        let names: Vec<String> =
            locked.map(|entry| entry.command.idempotency().lock_name()).collect();
        if !names.is_empty() {
            self.key_locks.release(&names).await;
        }
    }

    /// Requests the lock once it is polled.
    fn acquire(&self) -> Acquiring {
        let (locks, key) = (self.shop.locks.clone(), self.key.clone());
        maybe_done(Box::pin(async move {
            let ask = Ask {
                kind: Kind::Fenced,
                wait: Wait::Notify,
                ttl: None,
                deadline: Instant::now() + locks.settings().timeout,
                keys: &[key],
            };
            locks.acquire(ask).await
        }))
    }

    /// Waits for the lock, and tends the queue. If the lock can't be acquired, rejects the commands
    /// that waited for it.
    async fn wait_for(&mut self, mut acquiring: Acquiring) -> Option<BatchLock> {
        let began = Instant::now();
        let waiting = Waiting::begin(&batched::STRATEGY);
        let mut crowd = if self.crowd > 1 { self.crowd } else { usize::MAX };
        loop {
            let arrived = timeout(TEND_EVERY, self.queues.arrived(&self.key, crowd));
            let look_up = match select(&mut acquiring, Box::pin(arrived)).await {
                Either::Left(_) => break,
                Either::Right((arrived, _)) => arrived.is_err(),
            };
            if look_up && self.queues.waiting(&self.key) == 0 {
                // The queue is empty: drops the request, so that others need not wait for it.
                return None;
            }
            // If the lock is granted during this, the borrowed entries are put back first.
            let tending = pin!(self.tend(look_up));
            if let Either::Left(((), tending)) = select(&mut acquiring, tending).await {
                tending.await;
                break;
            }
            crowd = usize::MAX;
        }
        let outcome = Pin::new(&mut acquiring).take_output()?;
        waiting.answered();
        match outcome {
            Ok(lock::Outcome::Acquired(guards)) => Some(BatchLock::new(guards, self.key.clone())),
            Ok(lock::Outcome::Busy(holder)) => {
                self.turn_away(&Rejection::LockBusy(holder).into(), Instant::now()).await;
                None
            }
            Ok(lock::Outcome::TimedOut { waited, holder }) => {
                // Commands that joined later have not waited for the full timeout, and wait on.
                self.turn_away(&Rejection::LockTimeout { waited, holder }.into(), began).await;
                None
            }
            Err(error) => {
                self.turn_away(&Error::from(error).into(), Instant::now()).await;
                None
            }
        }
    }

    /// Responds to dead entries, and acquires the key locks of the others in advance. With
    /// `look_up`, looks up their keys too, so that a duplicate of a command that any replica has
    /// executed gets its response without waiting longer.
    async fn tend(&mut self, look_up: bool) {
        let now = Instant::now();
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.queues.borrow(&self.key).into_iter().partition(|entry| entry.is_alive(now));
        self.respond(dead.into_iter().map(deadline_passed).collect()).await;
        let acquired = self.acquire_keys(&alive).await;
        let waiting = self.retain_locked(alive, acquired);
        let (known, fresh): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|entry| entry.looked_up || !look_up);
        let fresh = self.replay(fresh, TEND_LOOKUP_TIMEOUT).await;
        self.queues.put_back(&self.key, known.into_iter().chain(fresh).collect());
    }

    /// Responds to the entries whose key has a record, and returns the others; all of them if
    /// Postgres does not respond in time. Once per entry, because it may delay the next batch.
    async fn replay(&mut self, entries: Vec<BatchEntry>, within: Duration) -> Vec<BatchEntry> {
        let found = look_up(&self.shop, &entries, within).await;
        let (mut done, mut rest) = (Vec::new(), Vec::new());
        for (mut entry, replay) in entries.into_iter().zip(found) {
            entry.looked_up = true;
            match replay {
                Some(replay) => done.push((entry, key_records::replayed(replay))),
                None => rest.push(entry),
            }
        }
        self.respond(done).await;
        rest
    }

    /// Acquires the key locks that are missing, in one round trip. Returns one result per entry.
    async fn acquire_keys(&mut self, entries: &[BatchEntry]) -> Vec<Result<(), Failure>> {
        let fresh = entries.iter().filter(|entry| !entry.has_key_lock);
        let requests = fresh.map(|entry| entry.command.idempotency());
        let wanted: Vec<(String, String)> =
            requests.map(|asked| (asked.lock_name(), asked.fingerprint_hex())).collect();
        if wanted.is_empty() {
            return vec![Ok(()); entries.len()];
        }
        let mut acquired = self.key_locks.acquire(&wanted).await.map(Vec::into_iter);
        let of = |entry: &BatchEntry| match &mut acquired {
            _ if entry.has_key_lock => Ok(()),
            Ok(locks) => match locks.next() {
                Some(KeyLock::Acquired) => Ok(()),
                Some(KeyLock::Mismatch) => Err(Rejection::KeyMismatch.into()),
                Some(KeyLock::InFlight) | None => Err(Rejection::KeyInFlight.into()),
            },
            Err(error) => Err(Error::from(error.clone()).into()),
        };
        entries.iter().map(of).collect()
    }

    /// Returns the entries with a key lock, and responds to the others.
    fn retain_locked(
        &self,
        entries: Vec<BatchEntry>,
        acquired: Vec<Result<(), Failure>>,
    ) -> Vec<BatchEntry> {
        let (mut ours, mut theirs) = (Vec::with_capacity(entries.len()), Vec::new());
        for (mut entry, acquired) in entries.into_iter().zip(acquired) {
            match acquired {
                Ok(()) => {
                    entry.has_key_lock = true;
                    ours.push(entry);
                }
                Err(failure) => theirs.push((entry, failure)),
            }
        }
        if !theirs.is_empty() {
            // In a task of its own: the entries with a key lock do not wait for it.
            let (there, runtime) = (self.shop.clone(), self.shop.runtime.clone());
            let responding = async move { respond_unlocked(&there, theirs).await };
            self.shop.running.spawn_on(responding, &runtime);
        }
        ours
    }

    /// Rejects the commands that joined by `until`; replays those whose key has a record.
    async fn turn_away(&mut self, failure: &Failure, until: Instant) {
        let (early, later): (Vec<_>, Vec<_>) =
            self.queues.borrow(&self.key).into_iter().partition(|entry| entry.joined_at <= until);
        self.queues.put_back(&self.key, later);
        let early = self.replay(early, LOOKUP_TIMEOUT).await;
        self.reject(early, failure).await;
    }
}

/// Looks up the keys; `None` also if Postgres does not respond in time.
async fn look_up(shop: &Shop, entries: &[BatchEntry], within: Duration) -> Vec<Option<Replay>> {
    let replays = &shop.engine.replays;
    let find = |entry: &BatchEntry| {
        let command = entry.command.clone();
        async move { replays.find(shop, command.idempotency(), within).await }
    };
    join_all(entries.iter().map(find)).await
}

fn deadline_passed(entry: BatchEntry) -> (BatchEntry, EntryResult) {
    (entry, Err(Error::deadline_passed().into()))
}

/// Responds to entries without a key lock: replays the key's record, or rejects.
async fn respond_unlocked(shop: &Shop, entries: Vec<(BatchEntry, Failure)>) {
    let (entries, failures): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
    let found = look_up(shop, &entries, LOOKUP_TIMEOUT).await;
    for ((entry, failure), replay) in entries.into_iter().zip(failures).zip(found) {
        entry.respond(match replay {
            Some(replay) => key_records::replayed(replay),
            None => Err(failure),
        });
    }
}

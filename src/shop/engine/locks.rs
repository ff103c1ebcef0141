//! The locks of one command or one batch: acquired before the read, released after the write. The
//! strategies `wrong-key` and `early-release` show what happens otherwise.

use std::time::Duration;

use holdfast_lock::{AcquireOutcome, FencedGuard, Guards, LockKey, Wait};
use tokio::time::Instant;

use super::queue_limit::MAX_BATCH_SIZE;
use crate::locks::{LockRequest, QueueOptions};
use crate::metrics::{SECONDS, define_metrics};
use crate::probe::{Point, ProbedValue};
use crate::shop::command::Command;
use crate::shop::failure::{Error, Failure, Rejection};
use crate::shop::strategy::{Strategy, batched};
use crate::shop::{RequestOptions, Shop};

const MAX_RAISES: u32 = 3;
const MAX_BATCHES_PER_LEASE: u32 = 4;
/// Time after which a leader starts no further batch under its lock, even if it knows no other
/// waiter.
const MAX_LOCK_TIME: Duration = Duration::from_secs(1);

define_metrics! {
    LOCK_WAIT: "holdfast_lock_wait_seconds", Histogram ["strategy"] SECONDS,
        "From the request for a command's locks (batched: a batch's) until acquired or denied";
    LOCK_HOLD: "holdfast_lock_hold_seconds", Histogram ["strategy"] SECONDS,
        "From the acquisition of a command's locks until they are released";
    LOCK_WAITING_REQUESTS: "holdfast_lock_waiting_requests", Gauge ["strategy"] &[],
        "Requests that wait for locks now; batched: leaders, each for all commands of its queue";
}

#[derive(Debug)]
pub(super) struct AcquiredLocks {
    pub(super) guards: Guards,
    /// The locked keys; without a lock, the keys that a lock would be on.
    keys: Vec<LockKey>,
    /// Declared after the guards, so that a drop releases the locks first.
    holding: Option<LockHold>,
    released: bool,
    raises: u32,
}

impl AcquiredLocks {
    pub(super) async fn acquire(
        shop: &Shop,
        options: &RequestOptions,
        command: &dyn Command,
    ) -> Result<Self, Failure> {
        let RequestOptions { strategy, ref probe, deadline, ttl, .. } = *options;
        let keys = strategy.lock_keys(command);
        let mut locks =
            Self { guards: Guards::default(), keys, holding: None, released: false, raises: 0 };
        probe.at(Point::Wait, locks.seen()).await;
        let Some(lock) = strategy.lock else { return Ok(locks) };
        let wait = options.wait.unwrap_or(lock.wait_modes().first().copied().unwrap_or(Wait::Try));
        let priority = options.queue_options.priority.unwrap_or(command.priority());
        let queue = QueueOptions { priority: Some(priority), ..options.queue_options };
        let keys = &locks.keys;
        let request = LockRequest { lock, wait, ttl, deadline, keys, queue, probe };
        let waiting = LockWait::begin(strategy);
        let outcome = shop.locks.acquire(request).await?;
        waiting.record();
        locks.guards = acquired(outcome)?;
        locks.holding = Some(LockHold::begin(strategy));
        probe.at(Point::Held, locks.seen()).await;
        Ok(locks)
    }

    fn seen(&self) -> impl Iterator<Item = ProbedValue> {
        self.keys.iter().map(|key| ProbedValue::key(key.as_str()).under(self.guards.fence(key)))
    }

    /// Raises the fences of the locks above those of the rows. A row has a higher fence because a
    /// later holder wrote, or because Redis lost its counter. Fails with [`Error::LockLost`] if
    /// Redis reports a lost lock, or after [`MAX_RAISES`].
    pub(super) async fn raise_fences(&mut self, stale: Vec<(LockKey, i64)>) -> Result<(), Error> {
        self.raises += 1;
        for (key, floor) in stale {
            if self.raises > MAX_RAISES || self.guards.raise_fence(&key, floor).await?.is_none() {
                return Err(Error::LockLost(key));
            }
        }
        Ok(())
    }

    /// Releases the locks; or leaves them to expire, because the write may still arrive.
    pub(super) async fn end(&mut self, options: &RequestOptions, leaves: bool) {
        // Before the release, which removes their fences.
        let seen: Vec<ProbedValue> =
            if options.probe.records() { self.seen().collect() } else { Vec::new() };
        let guards = std::mem::take(&mut self.guards);
        if leaves {
            guards.leave_to_expire();
        } else {
            let released = guards.release().await;
            tracing::trace!(?released, "locks released");
        }
        self.holding = None;
        if !std::mem::replace(&mut self.released, true) {
            options.probe.at(Point::Release, seen).await;
        }
    }
}

pub(super) fn acquired(outcome: AcquireOutcome) -> Result<Guards, Rejection> {
    match outcome {
        AcquireOutcome::Acquired(guards) => Ok(guards),
        AcquireOutcome::Busy(holder) => Err(Rejection::LockBusy(holder)),
        AcquireOutcome::TimedOut { waited, holder } => {
            Err(Rejection::LockTimeout { waited, holder })
        }
    }
}

#[derive(Debug)]
pub(super) struct LeaderLock {
    pub(super) locks: AcquiredLocks,
    since: Instant,
    pub(super) batches: u32,
}

impl LeaderLock {
    pub(super) fn new(guards: Guards, key: LockKey) -> Self {
        let holding = Some(LockHold::begin(&batched::STRATEGY));
        let locks = AcquiredLocks { guards, keys: vec![key], holding, released: false, raises: 0 };
        Self { locks, since: Instant::now(), batches: 0 }
    }

    fn guard(&self) -> Option<&FencedGuard> {
        self.locks.guards.get(self.locks.keys.first()?).and_then(holdfast_lock::Guard::as_fenced)
    }

    /// Returns whether the next batch may follow at once. While others wait for the lock, only a
    /// full batch may: a smaller one can grow while they hold the lock.
    pub(super) fn may_continue(&self, waiting: usize) -> bool {
        let Some(guard) = self.guard().filter(|guard| guard.is_held()) else { return false };
        self.since.elapsed() < MAX_LOCK_TIME
            && (!guard.is_wanted() || may_keep_others_waiting(self.batches, waiting))
    }

    pub(super) async fn contended(&self) {
        if let Some(guard) = self.guard() {
            guard.wait_until_wanted().await;
        }
    }

    /// Releases the lock. Its commands have passed the probe point.
    pub(super) async fn release(self) {
        let AcquiredLocks { guards, holding, .. } = self.locks;
        guards.release().await;
        drop(holding);
    }

    /// Leaves the lock to expire: the write may still arrive.
    pub(super) fn leave_to_expire(self) {
        self.locks.guards.leave_to_expire();
    }
}

/// Returns whether the next batch may follow `batches` others while another process wants the lock:
/// a full one may, up to a bound.
fn may_keep_others_waiting(batches: u32, waiting: usize) -> bool {
    waiting >= MAX_BATCH_SIZE && batches < MAX_BATCHES_PER_LEASE
}

/// A request that waits for its locks; counted until dropped. By strategy, never by key or user, so
/// that the number of series is bounded.
#[derive(Debug)]
pub(super) struct LockWait {
    strategy: &'static str,
    since: Instant,
}

impl LockWait {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        let strategy = strategy.name;
        metrics::gauge!(LOCK_WAITING_REQUESTS, "strategy" => strategy).increment(1.0);
        Self { strategy, since: Instant::now() }
    }

    /// Records the wait, once the lock module has granted or denied the locks. Cancelled requests
    /// and errors of Redis are not recorded.
    pub(super) fn record(self) {
        metrics::histogram!(LOCK_WAIT, "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        metrics::gauge!(LOCK_WAITING_REQUESTS, "strategy" => self.strategy).decrement(1.0);
    }
}

/// A request that holds its locks; measured until dropped, however it ends. If a lock is left to
/// expire, the time after the drop does not count, because no work is done under it.
#[derive(Debug)]
pub(super) struct LockHold {
    strategy: &'static str,
    since: Instant,
}

impl LockHold {
    pub(super) fn begin(strategy: &Strategy) -> Self {
        Self { strategy: strategy.name, since: Instant::now() }
    }
}

impl Drop for LockHold {
    fn drop(&mut self) {
        metrics::histogram!(LOCK_HOLD, "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
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

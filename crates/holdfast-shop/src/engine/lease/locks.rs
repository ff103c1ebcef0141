//! The locks of one command or one batch: acquired before the read, released after the write. The
//! strategies `wrong-key` and `early-release` show what happens otherwise.

use std::time::Duration;

use holdfast_lock::{
    AcquireOutcome, FencedGuard, Guard, Guards, Holder, LockKey, Released, Wait, clock,
};
use tokio::time::Instant;

use crate::command::Command;
use crate::engine::batch::entry::EntryResult;
use crate::engine::batch::kept_row::KeptRow;
use crate::failure::{Error, Failure, Rejection};
use crate::locks::{Lock, LockRequest, QueueOptions, ShopLocks};
use crate::probe::{Point, Probe, ProbedValue};
use crate::strategy::data_path::Taken;
use crate::strategy::{Strategy, batched};
use crate::{RequestContext, Shop};
use holdfast_base::metrics::{SECONDS, define_metrics};

const MAX_RAISES: u32 = 3;

/// The locks of a batch after it.
#[derive(Debug)]
pub enum LockState {
    Held,
    /// Lost: another holder wrote.
    Lost,
    /// To be left to expire: Postgres is unavailable, and the write may still arrive and would undo
    /// that of the next holder. Queued commands are rejected.
    LeaveToExpire(Error),
    /// Held, but Postgres is unavailable: queued commands are rejected without another timeout.
    HeldInOutage(Error),
}

define_metrics! {
    LOCK_WAIT: "holdfast_lock_wait_seconds", Histogram ["strategy"] SECONDS,
        "From the request for a command's locks (batched: a batch's) until acquired or denied";
    LOCK_HOLD: "holdfast_lock_hold_seconds", Histogram ["strategy"] SECONDS,
        "From the acquisition of a command's locks until they are released";
    LOCK_WAITING_REQUESTS: "holdfast_lock_waiting_requests", Gauge ["strategy"] &[],
        "Requests that wait for locks now; batched: leaders, each for all commands of its queue";
}

#[derive(Debug)]
pub struct AcquiredLocks {
    pub guards: Guards,
    /// The locked keys; without a lock, the keys that a lock would be on.
    keys: Vec<LockKey>,
    /// Declared after the guards, so that a drop releases the locks first.
    holding: Option<LockHold>,
    released: bool,
    raises: u32,
    /// Of a leader's lease: ends with it.
    pub kept_row: KeptRow,
    /// The units that the data path of its strategy took for the command.
    pub taken: Option<Box<dyn Taken>>,
}

impl AcquiredLocks {
    /// Acquires the locks of a single command, in the way of its strategy and its context.
    pub async fn acquire(
        shop: &Shop,
        context: &RequestContext,
        command: &dyn Command,
    ) -> Result<Self, Failure> {
        let RequestContext { strategy, deadline, ttl, .. } = *context;
        let probe = context.probe();
        let mut locks = Self::none(strategy.lock_keys(command));
        probe.at(Point::Wait, locks.seen()).await;
        let data_path = shop.engine.data_paths.of(strategy);
        if let Some(taking) = data_path.and_then(|path| path.take(command)) {
            let waiting = LockWait::begin(strategy);
            locks.taken = Some(taking.await?);
            waiting.record();
            locks.holding = Some(LockHold::begin(strategy));
            probe.at(Point::Deducted, locks.seen()).await;
            return Ok(locks);
        }
        // Without one, Postgres excludes others, or nothing does.
        let Some(lock) = strategy.lock else { return Ok(locks) };

        let lab = context.lab.as_deref();
        let wait = lab.and_then(|lab| lab.wait).unwrap_or(default_wait(lock));
        let retry = lab.and_then(|lab| lab.retry);
        let max_hold = lab.and_then(|lab| lab.max_hold);
        let queue = lab.map_or_else(QueueOptions::default, |lab| lab.queue);
        let priority = queue.priority.unwrap_or(command.priority());
        let queue = QueueOptions { priority: Some(priority), ..queue };
        let keys = &locks.keys;
        // It executes nothing but its own command.
        let takes_mail = false;
        let request = LockRequest {
            lock,
            wait,
            retry,
            ttl,
            max_hold,
            deadline,
            keys,
            queue,
            probe,
            takes_mail,
        };
        locks.guards = acquire_guards(&shop.locks, strategy, request).await?;
        locks.holding = Some(LockHold::begin(strategy));

        probe.at(Point::Held, locks.seen()).await;
        Ok(locks)
    }

    /// Acquires the lease of a leader, with the settings of the server: its commands have none of
    /// their own.
    pub async fn acquire_lease(
        shop_locks: &ShopLocks,
        key: LockKey,
        wait: Wait,
    ) -> Result<Self, Failure> {
        let mut locks = Self::none(vec![key]);
        let request = LockRequest {
            lock: Lock::Fenced,
            wait,
            retry: None,
            ttl: None,
            max_hold: None,
            deadline: Instant::now() + shop_locks.leases().settings().acquire_timeout,
            keys: &locks.keys,
            queue: QueueOptions::default(),
            // Of no request: the commands pass their points themselves, once they are taken.
            probe: &Probe::Off,
            takes_mail: true,
        };

        locks.guards = acquire_guards(shop_locks, &batched::STRATEGY, request).await?;
        locks.holding = Some(LockHold::begin(&batched::STRATEGY));
        Ok(locks)
    }

    fn none(keys: Vec<LockKey>) -> Self {
        Self {
            guards: Guards::default(),
            keys,
            holding: None,
            released: false,
            raises: 0,
            kept_row: KeptRow::default(),
            taken: None,
        }
    }

    /// Ends what was taken for the command, with its result.
    pub async fn end_taken(&mut self, result: &EntryResult) {
        if let Some(taken) = self.taken.take() {
            taken.end(result).await;
        }
    }

    fn seen(&self) -> impl Iterator<Item = ProbedValue> {
        self.keys.iter().map(|key| {
            let value = self.taken.as_ref().and_then(|taken| taken.value_before(key));
            let seen = ProbedValue { value, ..ProbedValue::key(key.as_str()) };
            seen.under(self.guards.fence(key))
        })
    }

    /// Raises the fences of the locks above those of the rows. A row has a higher fence because a
    /// later holder wrote, or because Redis lost its counter. Fails with [`Error::LockLost`] if
    /// Redis reports a lost lock, or after [`MAX_RAISES`].
    pub async fn raise_fences(&mut self, stale: Vec<(LockKey, i64)>) -> Result<(), Error> {
        self.raises += 1;
        for (key, floor) in stale {
            // Bounded, so that a Redis that keeps losing its counter does not keep the command.
            if self.raises > MAX_RAISES || self.guards.raise_fence(&key, floor).await?.is_none() {
                return Err(Error::LockLost(key));
            }
        }
        Ok(())
    }

    /// Returns the guard of a leader's lease.
    pub fn lease(&self) -> Option<&FencedGuard> {
        self.guards.get(self.keys.first()?).and_then(Guard::as_fenced)
    }

    pub fn held_for(&self) -> Duration {
        self.holding.as_ref().map_or(Duration::ZERO, |holding| holding.since.elapsed())
    }

    /// Releases the lease of a leader, whose commands have passed the probe point.
    pub async fn release(self) {
        let AcquiredLocks { guards, holding, .. } = self;
        guards.release().await;
        // Not sooner: until then, no other process can have the lock.
        drop(holding);
    }

    /// Leaves the lease of a leader to expire: the write may still arrive.
    pub fn leave_to_expire(self) {
        self.guards.leave_to_expire();
    }

    /// Releases the locks of a single command; or leaves them to expire, because the write may
    /// still arrive.
    pub async fn end(&mut self, context: &RequestContext, leaves: bool) {
        // Before the release, which removes their fences.
        let seen: Vec<ProbedValue> =
            if context.probe().records() { self.seen().collect() } else { Vec::new() };

        let guards = std::mem::take(&mut self.guards);
        let has_locks = !guards.is_empty();
        let began_us = clock::monotonic_us();
        if leaves {
            guards.leave_to_expire();
            if has_locks {
                context.probe().note("left", seen.iter().cloned());
            }
        } else {
            let released = guards.release().await;
            tracing::trace!(?released, "locks released");
            if released == Released::Lost {
                context.probe().note("lost", seen.iter().cloned());
            }
        }
        self.holding = None;
        // Once: `early-release` has passed the point before its commit.
        if !std::mem::replace(&mut self.released, true) {
            context.probe().at_since(Point::Release, began_us, seen).await;
        }
    }
}

/// Returns the wait mode of a request that names none.
fn default_wait(lock: Lock) -> Wait {
    lock.wait_modes().first().copied().unwrap_or(Wait::Try)
}

async fn acquire_guards(
    locks: &ShopLocks,
    strategy: &Strategy,
    request: LockRequest<'_>,
) -> Result<Guards, Failure> {
    let waiting = LockWait::begin(strategy);
    let outcome = locks.acquire(request).await?;
    waiting.record();
    match outcome {
        AcquireOutcome::Acquired(guards) => Ok(guards),
        AcquireOutcome::Busy(holder) => Err(Rejection::LockBusy(holder).into()),
        AcquireOutcome::TimedOut { waited, holder } => {
            Err(Rejection::LockTimeout { waited, holder }.into())
        }
        // An outcome that a later version of the locks adds: nothing is held.
        _ => Err(Rejection::LockBusy(Holder::default()).into()),
    }
}

/// A request that waits for its locks; counted until dropped. By strategy, never by key or user, so
/// that the number of series is bounded.
#[derive(Debug)]
pub struct LockWait {
    strategy: &'static str,
    since: Instant,
}

impl LockWait {
    pub fn begin(strategy: &Strategy) -> Self {
        let strategy = strategy.name;
        metrics::gauge!(LOCK_WAITING_REQUESTS, "strategy" => strategy).increment(1.0);
        Self { strategy, since: Instant::now() }
    }

    /// Records the wait, once the lock module has granted or denied the locks. Cancelled requests
    /// and errors of Redis are not recorded.
    pub fn record(self) {
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
pub struct LockHold {
    strategy: &'static str,
    since: Instant,
}

impl LockHold {
    pub fn begin(strategy: &Strategy) -> Self {
        Self { strategy: strategy.name, since: Instant::now() }
    }
}

impl Drop for LockHold {
    fn drop(&mut self) {
        metrics::histogram!(LOCK_HOLD, "strategy" => self.strategy)
            .record(self.since.elapsed().as_secs_f64());
    }
}

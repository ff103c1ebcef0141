//! The guard of a fenced lock, and the messages to its key's actor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::protocol::Grant;
use crate::clock;
#[cfg(test)]
use crate::seeded::{Bug, is_seeded};
use crate::time::timeout;
use crate::{Error, Holder, LeaseId, Released};

/// Interval at which a task that waits for the end of a lease reads the clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The lease of one acquisition in Redis, renewed by its actor and observed by its guards.
#[derive(Debug)]
pub(super) struct Lease {
    /// Names the acquisition in Redis: `<process>.<uuid>`, perhaps with a mark ([`LeaseId`]).
    pub(super) id: String,
    /// On the machine's monotonic clock, which counts suspended time.
    pub(super) deadline_us: AtomicU64,
    pub(super) lost: watch::Sender<bool>,
    /// True if a waiter of this or another process is known, or if the lock was lost.
    pub(super) wanted: watch::Sender<bool>,
}

impl Lease {
    pub(super) fn is_held(&self) -> bool {
        if *self.lost.borrow() {
            return false;
        }
        let in_time = clock::monotonic_us() < self.deadline_us.load(Ordering::Acquire);
        #[cfg(test)]
        if is_seeded(Bug::RenewalAfterLoss) {
            return in_time;
        }
        if !in_time {
            // A renewal that is under way must not revive what was reported as lost.
            self.lost.send_replace(true);
        }
        in_time
    }
}

/// An acquired fenced lock, whose lease may have expired since.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct FencedGuard {
    pub(super) fence: i64,
    pub(super) lease: Arc<Lease>,
    pub(super) actor: mpsc::UnboundedSender<ActorMessage>,
    pub(super) released: bool,
}

impl FencedGuard {
    /// Returns the fence (fencing token) of this acquisition: larger than all earlier ones of its
    /// key, while Redis keeps the counter, which expires a day after the last acquisition or
    /// renewal. The protected resource must compare it.
    #[must_use]
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns the id of the lease, which the value of the lock in Redis contains.
    #[doc(hidden)]
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        LeaseId::new(&*self.lease.id)
    }

    /// Returns whether the lease has not expired, as far as this machine knows. Does not call
    /// Redis.
    ///
    /// After `false` it never returns `true` again. `true` may be outdated when the caller reads
    /// it, and if Redis lost the lock, it is wrong until the next renewal.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns the time until the lease expires, by this machine's clock and without a call to
    /// Redis; zero if [`FencedGuard::is_held`] is false. A renewal makes it longer.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        let deadline_us = self.lease.deadline_us.load(Ordering::Acquire);
        Duration::from_micros(deadline_us.saturating_sub(clock::monotonic_us()))
    }

    /// Returns whether a waiter is known, in this or another process: a hint.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self.lease.wanted.borrow()
    }

    /// Waits until [`FencedGuard::is_wanted`], or until a renewal finds the lock lost.
    pub async fn wait_until_wanted(&self) {
        let _ = self.lease.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Waits until the lease expires by this machine's clock, or a renewal finds it lost; after a
    /// suspension of the machine up to 0.2 s longer.
    pub async fn wait_until_lost(&self) {
        let mut lost = self.lease.lost.subscribe();
        while self.is_held() {
            let deadline_us = self.lease.deadline_us.load(Ordering::Acquire);
            let left = Duration::from_micros(deadline_us.saturating_sub(clock::monotonic_us()));
            // Each renewal moves the deadline, and the timer does not count suspended time, so the
            // loop reads both again.
            let _ = timeout(left.min(CLOCK_CHECK_INTERVAL), lost.changed()).await;
        }
    }

    /// Replaces this guard's fence by one above `floor`, after a row had a higher fence because
    /// Redis lost its counter. The lock stays held. Returns `None` if Redis reports that it is
    /// lost. After an error of Redis, and if this future is dropped, this guard keeps its fence.
    pub async fn raise_fence(&mut self, floor: i64) -> Result<Option<i64>, Error> {
        let (responder, response) = oneshot::channel();
        let id = self.lease.id.clone();
        if self.actor.send(ActorMessage::RaiseFence { id, floor, responder }).is_err() {
            return Ok(None);
        }
        let fence = response.await.unwrap_or(Ok(None))?;
        if let Some(fence) = fence {
            self.fence = fence;
        }
        Ok(fence)
    }

    /// Returns what another task can ask while this guard is in use.
    #[cfg(test)]
    pub(crate) fn is_held_later(&self) -> impl Fn() -> bool + Send + 'static {
        let lease = self.lease.clone();
        move || lease.is_held()
    }

    /// Hands the lock off to the next waiter of this process, or releases it in Redis.
    ///
    /// After a local handoff, `Held` is by this process's clock; otherwise Redis confirmed it.
    /// After [`Released::Unknown`] the lock ends with its lease. If this future is dropped, even
    /// before the first poll, only the result is lost.
    pub async fn release(mut self) -> Released {
        self.released = true;
        let (responder, response) = oneshot::channel();
        let id = self.lease.id.clone();
        let sent = self.actor.send(ActorMessage::Released { id, responder: Some(responder) });
        if sent.is_ok()
            && let Ok(released) = response.await
        {
            return released;
        }

        // The actor outlives the guards of a lease, unless it panicked or the lease was lost. It
        // may have ended with this message unread.
        if self.lease.is_held() { Released::Unknown } else { Released::Lost }
    }

    /// Leaves the lock to expire: it is neither renewed nor released.
    pub fn leave_to_expire(mut self) {
        self.released = true;
        let id = self.lease.id.clone();
        let _ = self.actor.send(ActorMessage::LeftToExpire { id });
    }
}

impl Drop for FencedGuard {
    fn drop(&mut self) {
        if !self.released {
            let id = self.lease.id.clone();
            let _ = self.actor.send(ActorMessage::Released { id, responder: None });
        }
    }
}

/// The response to a waiter: the guard, or the holder if the lock was not acquired.
pub(super) type WaiterResponse = Result<Result<FencedGuard, Holder>, Error>;

#[derive(Debug)]
pub(super) struct Waiter {
    pub responder: oneshot::Sender<WaiterResponse>,
    pub joined_us: u64,
    pub only_try: bool,
    pub ttl: Duration,
    pub max_hold: Option<Duration>,
    pub takes_mail: bool,
}

/// The place that a message of Redis has in an inbox, until its actor has handled it.
type HintPlace = OwnedSemaphorePermit;

#[derive(Debug)]
pub(super) enum ActorMessage {
    Join(Waiter),
    Released {
        id: String,
        responder: Option<oneshot::Sender<Released>>,
    },
    LeftToExpire {
        id: String,
    },
    /// A guard needs a fence above `floor`.
    RaiseFence {
        id: String,
        floor: i64,
        responder: oneshot::Sender<Result<Option<i64>, Error>>,
    },
    /// A script granted the lock to this process.
    Granted {
        id: String,
        grant: Grant,
        _place: HintPlace,
    },
    /// Another process waits for the lock that this process holds.
    RemoteWaiter {
        _place: HintPlace,
    },
    /// A waiter may have left.
    WaiterLeft,
    /// The locks are closed: what is held is released under its guard.
    Close {
        responder: oneshot::Sender<Released>,
    },
}

//! The state of a key in this process: the lease that it holds, or its place in the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::guard::{Lease, Waiter};
use super::protocol::FENCES_PER_GRANT;
use crate::Released;
use crate::clock::{monotonic_us, us};
use crate::observer::Source;
use crate::time::Instant;

/// Maximum number of local handoffs while another process waits.
const MAX_LOCAL_HANDOFFS: u32 = 8;

pub(super) enum LocalState {
    Idle,
    /// Queued in Redis. Polls at `poll_at` regardless of messages: a waiter that does not poll is
    /// skipped.
    Queued {
        id: String,
        poll_at: Instant,
        polled_us: u64,
        /// The holder's fence at that poll. A grant with a larger fence was made after the poll and
        /// lasts at least for a grant's time from `polled_us`. `None` after Redis lost the place:
        /// then every grant is confirmed.
        fence: Option<i64>,
    },
    Held(HeldLease),
}

/// A lease of this process, also between two guards.
pub(super) struct HeldLease {
    pub(super) lease: Arc<Lease>,
    pub(super) ttl: Duration,
    pub(super) next_fence: i64,
    pub(super) fences_left: i64,
    /// Origin of the grant.
    pub(super) source: Source,
    /// True while a guard exists.
    pub(super) in_use: bool,
    /// When the last guard was handed out.
    pub(super) since_us: u64,
    /// For how long the last guard was held, until its end is observed.
    pub(super) ended_after: Option<Duration>,
    /// Receives the result of the last guard's release.
    pub(super) release_responder: Option<oneshot::Sender<Released>>,
    /// Duration of the current lease: that of a grant until it is confirmed, then `ttl`.
    pub(super) lease_duration: Duration,
    pub(super) renew_at_us: u64,
    pub(super) renewals_end_us: u64,
    pub(super) handoffs: u32,
    pub(super) remote_waiter: Option<RemoteWaiter>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RemoteWaiter {
    /// Time from which it is known to wait, on this machine's monotonic clock.
    since_us: u64,
    handoffs_end_us: u64,
}

impl RemoteWaiter {
    pub(super) fn since(since_us: u64, handoff_time: Duration) -> Self {
        Self { since_us, handoffs_end_us: monotonic_us().saturating_add(us(handoff_time)) }
    }
}

impl HeldLease {
    pub(super) fn next_fence_is_first(&self) -> bool {
        self.fences_left == FENCES_PER_GRANT
    }

    /// Returns for how long the last guard was held, or has been until now.
    pub(super) fn held_for(&self) -> Duration {
        let until_now = monotonic_us().saturating_sub(self.since_us);
        self.ended_after.unwrap_or(Duration::from_micros(until_now))
    }

    /// Returns whether the current guard has been held too long for a further renewal.
    pub(super) fn renewals_ended(&self) -> bool {
        self.renewals_end_us <= self.renew_at_us
    }

    /// Returns the time of the next renewal, or of the end of a lease that is not renewed.
    pub(super) fn next_check_us(&self) -> u64 {
        let deadline_us = self.lease.deadline_us.load(Ordering::Acquire);
        if self.renewals_ended() { deadline_us } else { self.renew_at_us }
    }

    pub(super) fn set_wanted(&self, has_local_waiters: bool) {
        let wanted = has_local_waiters || self.remote_waiter.is_some();
        self.lease.wanted.send_if_modified(|was| std::mem::replace(was, wanted) != wanted);
    }

    pub(super) fn note_remote_waiter(&mut self, since_us: u64, handoff_time: Duration) {
        self.remote_waiter.get_or_insert_with(|| RemoteWaiter::since(since_us, handoff_time));
    }

    pub(super) fn may_hand_off_to(&self, next: &Waiter) -> bool {
        self.fences_left > 0
            && self.remote_waiter.is_none_or(|remote_waiter| {
                self.handoffs < MAX_LOCAL_HANDOFFS
                    && next.joined_us < remote_waiter.since_us
                    && monotonic_us() < remote_waiter.handoffs_end_us
            })
    }

    /// Returns whether more than a third of the lease is left.
    pub(super) fn has_enough_left(&self) -> bool {
        let deadline_us = self.lease.deadline_us.load(Ordering::Acquire);
        self.lease.is_held() && monotonic_us() + us(self.lease_duration / 3) < deadline_us
    }
}

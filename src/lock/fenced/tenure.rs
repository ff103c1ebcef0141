//! One process's time with a lock: whose it is, until when, and to whom it may be passed on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Lease;
use super::message::Waiter;
use super::talk::BLOCK;
use crate::clock;
use crate::lock::Released;

/// How often the lock is passed on in this process while another process waits.
const PASSES_BEFORE_OTHERS: u32 = 8;

/// The lock, while this process has it; perhaps with nobody in particular at this moment.
pub(super) struct Tenure {
    pub(super) lease: Arc<Lease>,
    pub(super) ttl: Duration,
    pub(super) next_fence: i64,
    pub(super) fences_left: i64,
    /// A guard is out there.
    pub(super) in_use: bool,
    /// Who gave it back last, and waits to hear how the lock stood.
    pub(super) giver: Option<oneshot::Sender<Released>>,
    /// How long the lease is that runs now: a grant's time at first, if it was not confirmed yet.
    pub(super) span: Duration,
    pub(super) renew_at_us: u64,
    pub(super) passes: u32,
    pub(super) rival: Option<Rival>,
}

/// Another process that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rival {
    /// Since when, by our clock.
    since_us: u64,
    /// Until when the lock may still be passed on in this process.
    turn_ends_us: u64,
}

impl Rival {
    /// One we hear of now.
    pub(super) fn since(since_us: u64, turn: Duration) -> Self {
        Self { since_us, turn_ends_us: clock::monotonic_us() + us(turn) }
    }
}

impl Tenure {
    /// Nobody has had the lock since it was granted to this process.
    pub(super) fn next_fence_is_first(&self) -> bool {
        self.fences_left == BLOCK
    }

    /// Another process waits, as we hear now.
    pub(super) fn hear_of_rival(&mut self, since_us: u64, turn: Duration) {
        self.rival.get_or_insert_with(|| Rival::since(since_us, turn));
    }

    /// Whether the next one here may have it before another process that waits.
    pub(super) fn may_pass_to(&self, next: &Waiter) -> bool {
        self.fences_left > 0
            && self.rival.is_none_or(|rival| {
                self.passes < PASSES_BEFORE_OTHERS
                    && next.joined_us < rival.since_us
                    && clock::monotonic_us() < rival.turn_ends_us
            })
    }

    /// Whether the lease still has the time that a renewal would leave it.
    pub(super) fn has_enough_left(&self) -> bool {
        let deadline_us = self.lease.deadline_us.load(Ordering::Acquire);
        self.lease.is_held() && clock::monotonic_us() + us(self.span / 3) < deadline_us
    }
}

/// What a lease may be counted on for: less the drift of clocks, one part in a hundred and 2 ms.
pub(super) fn deadline_us(sent_us: u64, ttl: Duration) -> u64 {
    let ttl_us = us(ttl);
    sent_us + ttl_us.saturating_sub(ttl_us / 100 + 2_000)
}

pub(super) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

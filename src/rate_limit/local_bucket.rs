//! One replica's view of a bucket: its leased permits, and the time until which it is known to be
//! empty.

use std::sync::Arc;

use parking_lot::Mutex;

use super::bucket::{BucketGrant, TokenBucket};
use super::rate::Rate;

/// Divisor of the lease: an empty bucket is not asked again for at least this part of it. At a high
/// rate the next permit accrues so soon that each would cost a call.
const REJECTION_DIVISOR: u64 = 4;
/// Leased permits, in quarters of the expected number. The margin avoids calls for a shortfall.
const LEASE_QUARTERS: u128 = 5;
/// Divisor of the lease: the shortest time span to estimate a rate from, so that a short burst is
/// not extrapolated.
const MIN_SPAN_DIVISOR: u64 = 8;

/// The local state of a bucket; times are in µs of the machine's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LocalBucket {
    lease: u64,
    lease_until_us: u64,
    rejected_until_us: u64,
    /// Permits left at the last response of Redis, without the lease.
    left: u64,
    full_at_us: u64,
    /// Start of the span in which `passed` requests passed, to estimate how many will.
    since_us: u64,
    passed: u64,
    /// Bucket of this replica alone, for use while Redis is unavailable.
    degraded: TokenBucket,
}

/// The local state of a bucket, shared by all requests for it.
pub(super) type SharedLocalBucket = Arc<Mutex<LocalBucket>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitResult {
    Granted,
    Rejected {
        wait_us: u64,
    },
    /// Not known: Redis has to be asked, or does not respond.
    Unknown,
}

impl LocalBucket {
    /// Returns the decision that is known without a call; spends nothing.
    pub fn peek(&self, now_us: u64) -> PermitResult {
        if now_us < self.rejected_until_us {
            PermitResult::Rejected { wait_us: self.rejected_until_us - now_us }
        } else if self.lease > 0 && now_us < self.lease_until_us {
            PermitResult::Granted
        } else {
            PermitResult::Unknown
        }
    }

    /// Returns the same decision, and spends a permit if there is one.
    pub fn spend(&mut self, now_us: u64) -> PermitResult {
        let decision = self.peek(now_us);
        if decision == PermitResult::Granted {
            self.lease -= 1;
            self.passed += 1;
        }
        decision
    }

    /// Returns the number of permits to lease: as many as pass during a lease at the recent rate,
    /// none for an occasional client, and no more than the limit's rate adds in that time.
    pub fn lease_size(&self, rate: Rate, now_us: u64) -> u64 {
        let lease_us = rate.lease_us();
        let span_us =
            (now_us.saturating_sub(self.since_us)).max(lease_us / MIN_SPAN_DIVISOR).max(1);
        let expected = u128::from(self.passed) * u128::from(lease_us) * LEASE_QUARTERS
            / (4 * u128::from(span_us));
        u64::try_from(expected).unwrap_or(u64::MAX).min(rate.permits_in_us(lease_us))
    }

    /// Records a grant that was requested at `called_us` and received at `now_us`.
    pub fn record_grant(&mut self, rate: Rate, grant: BucketGrant, called_us: u64, now_us: u64) {
        self.lease = grant.leased;
        // The time of the grant is unknown, but it is not before the request.
        self.lease_until_us = called_us + rate.lease_us();
        self.update(rate, grant, now_us);
        self.since_us = called_us;
        self.passed = grant.granted;
    }

    /// Applies the whole limit in this replica alone, without Redis.
    pub fn take_degraded(&mut self, rate: Rate, now_us: u64) -> PermitResult {
        let grant = self.degraded.take(rate, now_us, 1, 0);
        self.update(rate, grant, now_us);
        match grant.granted {
            0 => PermitResult::Rejected { wait_us: grant.wait_us },
            _ => PermitResult::Granted,
        }
    }

    fn update(&mut self, rate: Rate, grant: BucketGrant, now_us: u64) {
        self.left = grant.left;
        self.full_at_us = now_us + grant.full_us;
        // With nothing left, the next request is rejected without a call.
        let next_us = (grant.full_us + rate.cost_us(1)).saturating_sub(rate.refill_us());
        let empty = grant.left == 0 && self.lease == 0;
        let wait_us = if empty { next_us } else { grant.wait_us };
        if wait_us > 0 {
            self.rejected_until_us = now_us + wait_us.max(rate.lease_us() / REJECTION_DIVISOR);
        }
    }

    /// Returns the number of permits left, as far as this replica knows.
    pub fn left(&self, now_us: u64) -> u64 {
        if now_us < self.rejected_until_us { 0 } else { self.left + self.lease }
    }

    /// Returns the time until the bucket is full, in µs, as far as this replica knows.
    pub fn full_us(&self, now_us: u64) -> u64 {
        self.full_at_us.saturating_sub(now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap_or_else(|_| unreachable!())
    }

    /// Simulates one replica with a constant request rate for a second. Returns the number of calls
    /// to Redis and of requests that passed.
    fn a_second_at(rate: Rate, every_us: u64) -> (u64, u64) {
        let (mut local, mut bucket) = (LocalBucket::default(), TokenBucket::default());
        let (mut calls, mut passed) = (0, 0);
        let begin = 5_000_000;
        for now in (begin..begin + 1_000_000).step_by(usize::try_from(every_us).unwrap_or(1)) {
            match local.spend(now) {
                PermitResult::Granted => passed += 1,
                PermitResult::Rejected { .. } => {}
                PermitResult::Unknown => {
                    calls += 1;
                    let grant = bucket.take(rate, now, 1, local.lease_size(rate, now));
                    local.record_grant(rate, grant, now, now);
                    passed += grant.granted;
                }
            }
        }
        (calls, passed)
    }

    #[test]
    fn busy_client_needs_few_redis_calls() {
        let (calls, passed) = a_second_at(rate("100000/s"), 100);
        assert_eq!(passed, 10_000);
        assert!(calls <= 20, "{calls}");
    }

    #[test]
    fn occasional_client_leases_no_permits() {
        assert_eq!(a_second_at(rate("50/s:200"), 300_000), (4, 4));
    }

    #[test]
    fn flood_is_limited_with_few_redis_calls() {
        for (text, most_calls) in [("50/s:200", 70), ("1000/s:1000", 70), ("10/m:10", 12)] {
            let rate = rate(text);
            let (calls, passed) = a_second_at(rate, 20);
            let max = rate.burst() + rate.permits_in_us(1_000_000);
            assert!(passed <= max, "{text}: {passed}");
            let usable = max - rate.permits_in_us(rate.lease_us());
            assert!(passed * 10 >= usable * 9, "{text}: only {passed} of {max}");
            assert!(calls <= most_calls, "{text}: {calls} calls");
        }
    }

    #[test]
    fn leased_permits_and_rejections_expire() {
        let rate = rate("100/s");
        let mut local = LocalBucket::default();
        let grant = BucketGrant { granted: 1, leased: 5, left: 90, ..BucketGrant::default() };
        local.record_grant(rate, grant, 1_000, 1_500);
        assert_eq!(local.spend(1_600), PermitResult::Granted);
        assert_eq!(local.left(1_600), 94);
        assert_eq!(local.peek(1_000 + rate.lease_us()), PermitResult::Unknown);
        let empty = BucketGrant { wait_us: 60_000, full_us: 1_050_000, ..BucketGrant::default() };
        local.record_grant(rate, empty, 200_000, 200_500);
        assert_eq!(local.peek(200_500), PermitResult::Rejected { wait_us: 60_000 });
        assert_eq!(local.left(200_500), 0);
        assert_eq!(local.peek(260_500), PermitResult::Unknown);
    }
}

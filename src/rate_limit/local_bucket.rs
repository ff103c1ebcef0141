//! One replica's view of a bucket: its leased permits, and the time until which it is known to be
//! empty.

use super::bucket::{BucketGrant, TokenBucket};
use super::rate::Rate;

/// Divisor of the lease: an empty bucket is not asked again for at least this part of it. At a high
/// rate the next permit accrues so soon that each would cost a call.
const REJECTION_DIVISOR: u64 = 4;

/// The local state of a bucket; times are in µs of the machine's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LocalBucket {
    lease: u64,
    lease_until_us: u64,
    /// Permits to lease with the next call.
    lease_size: u64,
    rejected_until_us: u64,
    /// Permits left at the last response of Redis, without the lease.
    left: u64,
    full_at_us: u64,
    /// Bucket of this replica alone, for use while Redis is unavailable.
    degraded: TokenBucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitResult {
    Granted,
    Rejected { wait_us: u64 },
}

impl LocalBucket {
    /// Returns the decision that is known without a call; spends nothing.
    pub fn peek(&self, now_us: u64) -> Option<PermitResult> {
        if now_us < self.rejected_until_us {
            Some(PermitResult::Rejected { wait_us: self.rejected_until_us - now_us })
        } else if self.lease > 0 && now_us < self.lease_until_us {
            Some(PermitResult::Granted)
        } else {
            None
        }
    }

    /// Returns the same decision, and spends a permit if there is one.
    pub fn spend(&mut self, now_us: u64) -> Option<PermitResult> {
        let decision = self.peek(now_us);
        if decision == Some(PermitResult::Granted) {
            self.lease -= 1;
        }
        decision
    }

    /// Returns the number of permits to lease: twice as many as last time if those were spent
    /// before their lease ended, otherwise half as many. It is none for an occasional client, and
    /// no more than the limit's rate adds in the time of a lease.
    pub fn next_lease(&mut self, rate: Rate, now_us: u64) -> u64 {
        let was_spent = now_us < self.lease_until_us;
        let size = if was_spent { (2 * self.lease_size).max(1) } else { self.lease_size / 2 };
        self.lease_size = size.min(rate.permits_in_us(rate.lease_us()));
        self.lease_size
    }

    /// Records a grant that was requested at `called_us` and received at `now_us`. The caller
    /// spends its permit.
    pub fn record_grant(
        &mut self,
        rate: Rate,
        grant: BucketGrant,
        called_us: u64,
        now_us: u64,
    ) -> PermitResult {
        self.lease = grant.leased;
        // The time of the grant is unknown, but it is not before the request.
        self.lease_until_us = called_us + rate.lease_us();
        self.record(rate, grant, now_us)
    }

    /// Applies the whole limit in this replica alone, without Redis.
    pub fn take_degraded(&mut self, rate: Rate, now_us: u64) -> PermitResult {
        let grant = self.degraded.take(rate, now_us, 1, 0);
        self.record(rate, grant, now_us)
    }

    fn record(&mut self, rate: Rate, grant: BucketGrant, now_us: u64) -> PermitResult {
        self.left = grant.left;
        self.full_at_us = now_us + grant.full_us;

        // With nothing left, the next request is rejected without a call.
        let next_us = (grant.full_us + rate.cost_us(1)).saturating_sub(rate.refill_us());
        let is_empty = grant.left == 0 && self.lease == 0;
        let wait_us = if is_empty { next_us } else { grant.wait_us };
        if wait_us > 0 {
            self.rejected_until_us = now_us + wait_us.max(rate.lease_us() / REJECTION_DIVISOR);
        }

        match grant.granted {
            0 => PermitResult::Rejected { wait_us: grant.wait_us },
            _ => PermitResult::Granted,
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

    /// Simulates one replica with a constant request rate for a second. Returns the number of calls
    /// to Redis and of requests that passed.
    fn a_second_at(rate: Rate, every_us: usize) -> (u64, u64) {
        let (mut local, mut bucket) = (LocalBucket::default(), TokenBucket::default());
        let (mut calls, mut passed) = (0, 0);
        for now in (5_000_000..6_000_000).step_by(every_us) {
            let decision = local.spend(now).unwrap_or_else(|| {
                calls += 1;
                let lease = local.next_lease(rate, now);
                local.record_grant(rate, bucket.take(rate, now, 1, lease), now, now)
            });
            passed += u64::from(decision == PermitResult::Granted);
        }
        (calls, passed)
    }

    #[test]
    fn busy_client_needs_few_redis_calls() {
        let (calls, passed) = a_second_at("100000/s".parse().unwrap(), 100);
        assert_eq!(passed, 10_000);
        assert!(calls <= 20, "{calls}");
    }

    #[test]
    fn occasional_client_leases_no_permits() {
        assert_eq!(a_second_at("50/s:200".parse().unwrap(), 300_000), (4, 4));
    }

    #[test]
    fn flood_is_limited_with_few_redis_calls() {
        for (text, most_calls) in [("50/s:200", 70), ("1000/s:1000", 70), ("10/m:10", 12)] {
            let rate: Rate = text.parse().unwrap();
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
        let rate: Rate = "100/s".parse().unwrap();
        let mut local = LocalBucket::default();
        let grant = BucketGrant { granted: 1, leased: 5, left: 90, ..BucketGrant::default() };
        assert_eq!(local.record_grant(rate, grant, 1_000, 1_500), PermitResult::Granted);
        assert_eq!(local.spend(1_600), Some(PermitResult::Granted));
        assert_eq!(local.left(1_600), 94);
        assert_eq!(local.peek(1_000 + rate.lease_us()), None);

        let empty = BucketGrant { wait_us: 60_000, full_us: 1_050_000, ..BucketGrant::default() };
        let rejected = PermitResult::Rejected { wait_us: 60_000 };
        assert_eq!(local.record_grant(rate, empty, 200_000, 200_500), rejected);
        assert_eq!(local.peek(200_500), Some(rejected));
        assert_eq!(local.left(200_500), 0);
        assert_eq!(local.peek(260_500), None);
    }
}

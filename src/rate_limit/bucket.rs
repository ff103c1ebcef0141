//! The arithmetic of a rate limit: GCRA, which is a token bucket stored as one timestamp.
//!
//! It equals `bucket.lua`, line by line. A replica uses it while Redis is unavailable, and a test
//! compares the two (`tests/it/rate_limits.rs`).
//!
//! A bucket is the time at which it is full again. A permit moves that time by the time in which
//! one permit accrues; a permit that would move it further ahead than the refill time of a burst is
//! rejected.
//!
//! Guarantees: in any time span `w`, at most `burst + rate × w` permits are *spent*. A leased
//! permit is spent up to [`Rate::lease_us`] after its grant, so it is charged as if granted at that
//! time.

use super::rate::Rate;

/// A bucket; a new one is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// Time at which it is full again, in µs.
    pub full_at_us: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketGrant {
    /// Permits for waiting requests.
    pub granted: u64,
    /// Leased permits, for later requests.
    pub leased: u64,
    pub left: u64,
    /// Wait for the next permit, in µs; 0 if all waiting requests got one.
    pub wait_us: u64,
    /// Time until the bucket is full, in µs.
    pub full_us: u64,
}

/// Returns the arguments of the script for a rate: permits, period, burst, refill time of a burst,
/// lifetime of a lease; times in µs.
pub fn script_arguments(rate: Rate) -> [u64; 5] {
    [rate.permits, rate.period_us, rate.burst(), rate.refill_us(), rate.lease_us()]
}

impl TokenBucket {
    /// Takes up to `requested` permits for waiting requests and, if all of them get one, up to
    /// `lease` as a lease.
    pub fn take(&mut self, rate: Rate, now_us: u64, requested: u64, lease: u64) -> BucketGrant {
        let max_full_at = now_us + rate.refill_us();
        let available =
            |from: u64| rate.permits_in_us(max_full_at.saturating_sub(from)).min(rate.burst());
        // After a clock is set back, a client is blocked for at most the refill time of a burst.
        let mut full_at = self.full_at_us.clamp(now_us, max_full_at);
        let mut grant =
            BucketGrant { granted: requested.min(available(full_at)), ..BucketGrant::default() };
        full_at += rate.cost_us(grant.granted);
        if grant.granted == requested {
            let from = full_at.max(now_us + rate.lease_us());
            grant.leased = lease.min(available(from));
            if grant.leased > 0 {
                full_at = from + rate.cost_us(grant.leased);
            }
        } else {
            grant.wait_us = full_at + rate.cost_us(1) - max_full_at;
        }
        grant.left = available(full_at);
        grant.full_us = full_at - now_us;
        self.full_at_us = full_at;
        grant
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn burst_is_granted_then_the_rate() {
        let rate = rate("50/s:200");
        let mut bucket = TokenBucket::default();
        let now = 1_000_000_000;
        let grant = bucket.take(rate, now, 500, 9);
        assert_eq!((grant.granted, grant.leased, grant.left), (200, 0, 0));
        assert_eq!((grant.wait_us, grant.full_us), (20_000, 4_000_000));
        assert_eq!(bucket.take(rate, now + 19_999, 1, 0).granted, 0);
        assert_eq!(bucket.take(rate, now + 20_000, 2, 0).granted, 1);
        assert_eq!(bucket.take(rate, now + 1_000_000, 99, 0).granted, 49);
    }

    #[test]
    fn backward_clock_does_not_block_clients() {
        let rate = rate("10/s");
        let mut bucket = TokenBucket { full_at_us: 9_000_000_000 };
        assert_eq!(bucket.take(rate, 1_000_000, 1, 0).wait_us, 100_000);
        assert_eq!(bucket.take(rate, 1_100_000, 1, 0).granted, 1);
    }

    /// Replicas ask at random, lease at random and spend their leases as late as allowed; no time
    /// span exceeds the guarantee.
    #[test]
    fn no_interval_exceeds_burst_plus_rate() {
        let mut dice = StdRng::seed_from_u64(42);
        for text in ["50/s:200", "1000/s:10", "7/s:3", "10/m:5", "333/s:1", "1000000/s:900"] {
            let rate = rate(text);
            let mut bucket = TokenBucket::default();
            let mut now = 1_000_000_000;
            // Time at which each permit was spent.
            let mut spent: Vec<u64> = Vec::new();
            for _ in 0..2_000 {
                now += dice.random_range(0..=rate.cost_us(3));
                let max = rate.burst() + 2;
                let (granted, leased) = (dice.random_range(0..=max), dice.random_range(0..=max));
                let grant = bucket.take(rate, now, granted, leased);
                spent.extend((0..grant.granted).map(|_| now));
                for _ in 0..grant.leased {
                    spent.push(now + dice.random_range(0..=rate.lease_us()));
                }
            }
            spent.sort_unstable();
            assert!(spent.len() > 500, "{text}: {}", spent.len());
            for (at, first) in spent.iter().enumerate().step_by(7) {
                for (n, last) in spent.iter().enumerate().skip(at).step_by(5) {
                    let seen = (n - at + 1) as u64;
                    let max = rate.burst() + rate.permits_in_us(last - first) + 1;
                    assert!(seen <= max, "{text}: {seen} in {} µs", last - first);
                }
            }
        }
    }
}

//! The arithmetic of a limit (GCRA, the token bucket kept as one moment in time): the same as
//! `bucket.lua`, line by line, for a replica that is alone, and for the test that holds the script
//! to it (`tests/it/limits.rs`).
//!
//! A bucket is the moment at which it will be full again. A permit moves it by the time that a
//! permit takes to come; what would move it further ahead than a whole burst takes is refused.
//!
//! Guarantees: in any span of time `w`, at most `burst + rate × w` permits are *spent*. A lease is
//! spent after it was granted, up to [`Rate::lease_us`] later; so it is charged as if it had been
//! granted at the end of that time.

use super::Rate;

/// One bucket; a new one is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When it is full again, in microseconds.
    pub full_at_us: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grant {
    /// Permits for those who stand at the door.
    pub at_once: u64,
    /// Permits for those who will come.
    pub ahead: u64,
    pub left: u64,
    /// How long until there is one; 0 when all who stood there had theirs.
    pub wait_us: u64,
    /// How long until the bucket is full.
    pub full_us: u64,
}

/// What the script is told of a rate: permits, period, burst, how long a burst takes to come back,
/// and how long a lease lasts; times in microseconds.
pub fn script_arguments(rate: Rate) -> [u64; 5] {
    [rate.permits(), rate.period_us(), rate.burst(), rate.refill_us(), rate.lease_us()]
}

impl Bucket {
    /// Takes permits for `at_once` who wait now, and up to `ahead` as a lease, if any are left.
    pub fn take(&mut self, rate: Rate, now_us: u64, at_once: u64, ahead: u64) -> Grant {
        let brim = now_us + rate.refill_us();
        let room = |from: u64| rate.in_us(brim.saturating_sub(from)).min(rate.burst());
        // A clock that was set back must not shut anybody out for longer than a burst takes.
        let mut full_at = self.full_at_us.clamp(now_us, brim);
        let mut grant = Grant { at_once: at_once.min(room(full_at)), ..Grant::default() };
        full_at += rate.cost_us(grant.at_once);
        if grant.at_once == at_once {
            let from = full_at.max(now_us + rate.lease_us());
            grant.ahead = ahead.min(room(from));
            if grant.ahead > 0 {
                full_at = from + rate.cost_us(grant.ahead);
            }
        } else {
            grant.wait_us = full_at + rate.cost_us(1) - brim;
        }
        grant.left = room(full_at);
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
        text.parse().unwrap_or_else(|_| unreachable!())
    }

    #[test]
    fn a_burst_is_had_at_once_and_the_rate_afterwards() {
        let rate = rate("50/s:200");
        let mut bucket = Bucket::default();
        let now = 1_000_000_000;
        let grant = bucket.take(rate, now, 500, 9);
        assert_eq!((grant.at_once, grant.ahead, grant.left), (200, 0, 0));
        assert_eq!((grant.wait_us, grant.full_us), (20_000, 4_000_000));
        assert_eq!(bucket.take(rate, now + 19_999, 1, 0).at_once, 0);
        assert_eq!(bucket.take(rate, now + 20_000, 2, 0).at_once, 1);
        assert_eq!(bucket.take(rate, now + 1_000_000, 99, 0).at_once, 49);
    }

    #[test]
    fn a_clock_that_is_set_back_shuts_nobody_out() {
        let rate = rate("10/s");
        let mut bucket = Bucket { full_at_us: 9_000_000_000 };
        assert_eq!(bucket.take(rate, 1_000_000, 1, 0).wait_us, 100_000);
        assert_eq!(bucket.take(rate, 1_100_000, 1, 0).at_once, 1);
    }

    /// Many replicas ask at random, lease at random and spend their leases as late as they may:
    /// no span of time sees more than the promise.
    #[test]
    fn no_span_of_time_sees_more_than_the_burst_and_the_rate() {
        let mut dice = StdRng::seed_from_u64(42);
        for text in ["50/s:200", "1000/s:10", "7/s:3", "10/m:5", "333/s:1", "1000000/s:900"] {
            let rate = rate(text);
            let mut bucket = Bucket::default();
            let mut now = 1_000_000_000;
            // When each permit was spent.
            let mut spent: Vec<u64> = Vec::new();
            for _ in 0..2_000 {
                now += dice.random_range(0..=rate.cost_us(3));
                let most = rate.burst() + 2;
                let (at_once, ahead) = (dice.random_range(0..=most), dice.random_range(0..=most));
                let grant = bucket.take(rate, now, at_once, ahead);
                spent.extend((0..grant.at_once).map(|_| now));
                for _ in 0..grant.ahead {
                    spent.push(now + dice.random_range(0..=rate.lease_us()));
                }
            }
            spent.sort_unstable();
            assert!(spent.len() > 500, "{text}: {}", spent.len());
            for (at, first) in spent.iter().enumerate().step_by(7) {
                for (n, last) in spent.iter().enumerate().skip(at).step_by(5) {
                    let seen = (n - at + 1) as u64;
                    let most = rate.burst() + rate.in_us(last - first) + 1;
                    assert!(seen <= most, "{text}: {seen} in {} µs", last - first);
                }
            }
        }
    }
}

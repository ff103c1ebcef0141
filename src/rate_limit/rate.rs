//! A rate, and the bucket of one client: GCRA, which is a token bucket stored as one timestamp.
//! Times are in µs of the machine's monotonic clock.

use std::str::FromStr;

/// Upper bound of permits, per period and of a burst. It keeps the script's products below 2^53, up
/// to which Lua's numbers are exact.
const MAX_PERMITS: u64 = 1_000_000;
/// Lifetime of a lease: a busy client costs five calls per second.
const MAX_LEASE_US: u64 = 200_000;
/// Divisor of a burst's refill time: a lease lasts at most this part of it.
const LEASES_PER_BURST: u64 = 4;
/// Divisor of the lease: an empty bucket is not asked again for at least this part of it. At a high
/// rate the next permit accrues so soon that each would cost a call.
const REJECTION_DIVISOR: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub name: &'static str,
    pub rate: Rate,
}

/// The periods of a rate: abbreviation, name, length in µs.
const PERIODS: [(&str, &str, u64); 3] =
    [("s", "second", 1_000_000), ("m", "minute", 60_000_000), ("h", "hour", 3_600_000_000)];

/// The rate of a token bucket: `burst` permits at once, then `permits` per `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub permits: u64,
    /// One of [`PERIODS`].
    pub(super) period_us: u64,
    pub burst: u64,
}

impl Rate {
    /// Returns the name of the period in which the permits accrue: `second`, `minute` or `hour`.
    pub fn period(self) -> &'static str {
        let period = PERIODS.iter().find(|(.., length_us)| *length_us == self.period_us);
        period.map_or("", |(_, name, _)| name)
    }

    /// Returns this rate with `factor` times the permits and the burst, up to the maximum.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        Self {
            permits: self.permits.saturating_mul(factor).min(MAX_PERMITS),
            burst: self.burst.saturating_mul(factor).min(MAX_PERMITS),
            ..self
        }
    }

    /// Returns the seconds in which a whole burst refills: the window of `RateLimit-Policy`.
    pub fn window_s(self) -> u64 {
        self.cost_us(self.burst).div_ceil(1_000_000)
    }

    /// Returns the time in which `permits` accrue, rounded up so that the rate is not exceeded.
    fn cost_us(self, permits: u64) -> u64 {
        (permits * self.period_us).div_ceil(self.permits)
    }

    /// Returns the number of permits that accrue in a time span of at most a burst's refill time.
    fn permits_in_us(self, span_us: u64) -> u64 {
        span_us * self.permits / self.period_us
    }

    fn lease_us(self) -> u64 {
        MAX_LEASE_US.min(self.cost_us(self.burst) / LEASES_PER_BURST)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses `50/s`, `600/m` or `1000/h`, each with an optional `:BURST`, which defaults to the
    /// permits.
    fn from_str(text: &str) -> Result<Self, String> {
        parse_rate(text).ok_or_else(|| {
            format!("“{text}” is not a rate: RATE/s, /m or /h, and :BURST, e.g. 50/s:200; or off")
        })
    }
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (rate, burst) = match text.split_once(':') {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let (permits, period) = rate.split_once('/')?;

    let (.., period_us) = *PERIODS.iter().find(|(short, ..)| *short == period)?;
    let permits = parse_permits(permits)?;
    let burst = burst.map_or(Some(permits), parse_permits)?;
    Some(Rate { permits, period_us, burst })
}

fn parse_permits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| (1..=MAX_PERMITS).contains(number))
}

/// A bucket as one replica knows it, and the permits that it leased from it.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    leased: u64,
    lease_until_us: u64,
    lease_size: u64,
    empty_until_us: u64,
    full_at_us: u64,
}

impl Bucket {
    pub fn wait_us(&self, now_us: u64) -> u64 {
        self.empty_until_us.saturating_sub(now_us)
    }

    pub fn has_lease(&self, now_us: u64) -> bool {
        self.leased > 0 && now_us < self.lease_until_us
    }

    /// Returns the number of permits to ask for: one, and twice as many for later requests as last
    /// time if those were spent before their lease ended, otherwise half as many. An occasional
    /// client leases none, a busy one no more than accrue in the time of a lease.
    pub fn next_request(&mut self, rate: Rate, now_us: u64) -> u64 {
        let was_spent = now_us < self.lease_until_us;
        let size = if was_spent { (2 * self.lease_size).max(1) } else { self.lease_size / 2 };
        self.lease_size = size.min(rate.permits_in_us(rate.lease_us()));
        1 + self.lease_size
    }

    /// Records what Redis granted, and in which time the bucket will be full.
    pub fn lease(&mut self, rate: Rate, now_us: u64, granted: u64, full_us: u64) {
        self.leased = granted;
        self.lease_until_us = now_us + rate.lease_us();
        self.full_at_us = now_us + full_us;
    }

    /// Takes permits of this replica's own bucket, as Redis would.
    pub fn take_alone(&mut self, rate: Rate, now_us: u64, requested: u64) {
        self.full_at_us = self.full_at_us.max(now_us);
        let granted = requested.min(self.available(rate, now_us));
        let full_us = self.full_us(now_us) + rate.cost_us(granted);
        self.lease(rate, now_us, granted, full_us);
    }

    /// Spends a leased permit; without one, the bucket is empty.
    pub fn spend(&mut self, rate: Rate, now_us: u64) -> bool {
        if self.leased == 0 {
            let next_us = self.full_us(now_us) + rate.cost_us(1);
            let wait_us = next_us.saturating_sub(rate.cost_us(rate.burst));
            self.empty_until_us = now_us + wait_us.max(rate.lease_us() / REJECTION_DIVISOR);
            return false;
        }
        self.leased -= 1;
        true
    }

    pub fn left(&self, rate: Rate, now_us: u64) -> u64 {
        if self.wait_us(now_us) > 0 { 0 } else { self.available(rate, now_us) + self.leased }
    }

    pub fn full_us(&self, now_us: u64) -> u64 {
        self.full_at_us.saturating_sub(now_us)
    }

    fn available(&self, rate: Rate, now_us: u64) -> u64 {
        let refill_us = rate.cost_us(rate.burst);
        rate.permits_in_us(refill_us.saturating_sub(self.full_us(now_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Rate};

    #[test]
    fn rate_is_parsed() {
        for (text, permits, period_us, burst) in [
            ("50/s", 50, 1_000_000, 50),
            ("50/s:200", 50, 1_000_000, 200),
            ("10/m:3", 10, 60_000_000, 3),
            ("7/h", 7, 3_600_000_000, 7),
        ] {
            assert_eq!(text.parse(), Ok(Rate { permits, period_us, burst }));
        }
        for wrong in ["", "50", "/s", "0/s", "-1/s", "50/d", "50/s:", "50/s:0", "1000001/s", "on"] {
            let message = wrong.parse::<Rate>().expect_err(wrong);
            assert!(message.contains("50/s:200"), "{message}");
        }
    }

    /// Simulates one replica with a constant request rate for a second. Returns the number of calls
    /// to Redis and of requests that passed.
    fn a_second_at(rate: Rate, every_us: usize) -> (u64, u64) {
        let (mut bucket, mut redis) = (Bucket::default(), Bucket::default());
        let (mut calls, mut passed) = (0, 0);
        for now in (5_000_000..6_000_000).step_by(every_us) {
            if bucket.wait_us(now) > 0 {
                continue;
            }
            if !bucket.has_lease(now) {
                calls += 1;
                redis.take_alone(rate, now, bucket.next_request(rate, now));
                bucket.lease(rate, now, redis.leased, redis.full_us(now));
            }
            passed += u64::from(bucket.spend(rate, now));
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
        for (text, most_calls) in [("50/s:200", 80), ("1000/s:1000", 80), ("10/m:10", 12)] {
            let rate: Rate = text.parse().unwrap();
            let (calls, passed) = a_second_at(rate, 20);
            let max = rate.burst + rate.permits_in_us(1_000_000);
            assert!(passed <= max, "{text}: {passed}");
            assert!(passed * 10 >= max * 9, "{text}: only {passed} of {max}");
            assert!(calls <= most_calls, "{text}: {calls} calls");
        }
    }
}

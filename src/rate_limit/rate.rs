//! A rate: permits per period, and a burst.

use std::fmt;
use std::str::FromStr;

/// Upper bound of permits, per period and of a burst. It keeps the script's products below 2^53, up
/// to which Lua's numbers are exact.
const MAX_PERMITS: u64 = 1_000_000;
/// Lifetime of a lease. Long enough that a busy client costs five calls per second, short enough
/// that permits leased by another replica are not missed.
const MAX_LEASE_US: u64 = 200_000;
/// Divisor of a burst's refill time: a lease lasts at most this part of it.
const LEASES_PER_BURST: u64 = 4;

/// A rate limit: its name in headers, and the rate per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Lower case and dashes.
    pub name: &'static str,
    pub rate: Rate,
}

/// The periods of a rate: abbreviation, name, length in µs.
const PERIODS: [(&str, &str, u64); 3] =
    [("s", "second", 1_000_000), ("m", "minute", 60_000_000), ("h", "hour", 3_600_000_000)];

/// The rate of a token bucket: `burst` permits at once, then `permits` per `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub(super) permits: u64,
    /// One of [`PERIODS`].
    pub(super) period_us: u64,
    burst: u64,
}

impl Rate {
    /// The rate of the bucket that is asked for a permit to learn whether Redis grants any: a
    /// permit is there at each of those calls.
    pub(super) const PROBE: Self = Self { permits: 1_000, period_us: 1_000_000, burst: 1_000 };

    /// Formats the rate for display: `50 a second`.
    pub fn in_words(self) -> String {
        format!("{} a {}", self.permits, self.period().1)
    }

    /// Returns the abbreviation and the name of the period.
    fn period(self) -> (&'static str, &'static str) {
        let period = PERIODS.iter().find(|(.., length_us)| *length_us == self.period_us);
        period.map_or(("", ""), |(short, name, _)| (short, name))
    }

    /// Returns this rate with `factor` times the permits and the burst, up to the maximum.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        let times = |permits: u64| permits.saturating_mul(factor).min(MAX_PERMITS);
        Self { permits: times(self.permits), burst: times(self.burst), ..self }
    }

    /// Returns the number of requests that may pass at once after a pause.
    pub fn burst(self) -> u64 {
        self.burst
    }

    /// Returns the time in which a whole burst refills, in µs.
    pub(super) fn refill_us(self) -> u64 {
        self.cost_us(self.burst)
    }

    /// Returns the same in whole seconds, at least one: the window of `RateLimit-Policy`.
    pub fn window_s(self) -> u64 {
        self.refill_us().div_ceil(1_000_000).max(1)
    }

    /// Returns the time in which `permits` accrue, in µs, rounded up so that the rate is not
    /// exceeded.
    pub(super) fn cost_us(self, permits: u64) -> u64 {
        (permits * self.period_us).div_ceil(self.permits)
    }

    /// Returns the number of permits that accrue in a time span.
    pub(super) fn permits_in_us(self, span_us: u64) -> u64 {
        let permits = u128::from(span_us) * u128::from(self.permits) / u128::from(self.period_us);
        u64::try_from(permits).unwrap_or(u64::MAX)
    }

    /// Returns the lifetime of a lease, in µs.
    pub(super) fn lease_us(self) -> u64 {
        MAX_LEASE_US.min(self.refill_us() / LEASES_PER_BURST)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses `50/s`, `600/m` or `1000/h`, each with an optional `:BURST`, which defaults to the
    /// permits.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!("“{text}” is not a rate: RATE/s, /m or /h, and :BURST, e.g. 50/s:200; or off")
        };
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|number| (1..=MAX_PERMITS).contains(number))
                .ok_or_else(invalid)
        };
        let (rate, burst) =
            text.split_once(':').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let (permits, period) = rate.split_once('/').ok_or_else(invalid)?;
        let period = PERIODS.iter().find(|(short, ..)| *short == period);
        let (.., period_us) = *period.ok_or_else(invalid)?;
        let permits = number(permits)?;
        let burst = burst.map_or(Ok(permits), number)?;
        Ok(Self { permits, period_us, burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.permits, self.period().0, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn rate_is_parsed_and_displayed() {
        for (text, shown) in
            [("50/s", "50/s:50"), ("50/s:200", "50/s:200"), ("10/m:3", "10/m:3"), ("7/h", "7/h:7")]
        {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()), Ok(shown.to_owned()));
        }
        for wrong in ["", "50", "/s", "0/s", "-1/s", "50/d", "50/s:", "50/s:0", "1000001/s", "on"] {
            let message = wrong.parse::<Rate>().expect_err(wrong);
            assert!(message.contains("50/s:200"), "{message}");
        }
    }

    #[test]
    fn window_is_the_time_to_refill_a_burst() {
        let window = |text: &str| text.parse::<Rate>().map(Rate::window_s);
        assert_eq!(window("50/s:200"), Ok(4));
        assert_eq!(window("50/s:10"), Ok(1));
        assert_eq!(window("10/m"), Ok(60));
    }
}

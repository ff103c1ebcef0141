//! How much is allowed: so many in such a time, and so many at once.

use std::fmt;
use std::str::FromStr;

/// More permits than that, in a period or at once, is no limit; and what the script multiplies
/// stays below 2^53 with it, which is as far as its numbers are exact.
const MOST: u64 = 1_000_000;
/// How long permits may lie at a replica before they are spent. Long enough that a busy client
/// costs five calls a second, short enough that nobody misses permits that lie elsewhere.
const LEASE_US: u64 = 200_000;
/// A lease is never longer than such a part of the time a whole burst takes.
const LEASES_PER_BURST: u64 = 4;

/// A rate with a burst, as a token bucket has them: `burst` at once, `permits` per `period` after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    permits: u64,
    period_us: u64,
    burst: u64,
}

impl Rate {
    /// For people: `50 a second`.
    pub fn in_words(self) -> String {
        let period = match self.period_us {
            1_000_000 => "second",
            60_000_000 => "minute",
            _ => "hour",
        };
        format!("{} a {period}", self.permits)
    }

    pub(super) fn permits(self) -> u64 {
        self.permits
    }

    pub(super) fn period_us(self) -> u64 {
        self.period_us
    }

    /// How many may come at once after a rest.
    pub fn burst(self) -> u64 {
        self.burst
    }

    /// How long it takes until a whole burst is there again, in microseconds.
    pub(super) fn refill_us(self) -> u64 {
        self.cost_us(self.burst)
    }

    /// The same in whole seconds, at least one: the window of `RateLimit-Policy`.
    pub fn window_s(self) -> u64 {
        self.refill_us().div_ceil(1_000_000).max(1)
    }

    /// How long so many permits take to come. Rounded up: never more than the rate.
    pub(super) fn cost_us(self, permits: u64) -> u64 {
        (permits * self.period_us).div_ceil(self.permits)
    }

    /// How many permits come in so long.
    pub(super) fn in_us(self, span_us: u64) -> u64 {
        let many = u128::from(span_us) * u128::from(self.permits) / u128::from(self.period_us);
        u64::try_from(many).unwrap_or(u64::MAX)
    }

    /// How long a lease of permits may be spent.
    pub(super) fn lease_us(self) -> u64 {
        LEASE_US.min(self.refill_us() / LEASES_PER_BURST)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// `50/s`, `600/m`, `1000/h`, each with `:BURST` behind it if more or fewer may come at once.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("“{text}” is no rate: RATE/s, /m or /h, and :BURST, e.g. 50/s:200; or off");
        let number = |text: &str| {
            text.parse().ok().filter(|number| (1..=MOST).contains(number)).ok_or_else(wrong)
        };
        let (rate, burst) =
            text.split_once(':').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let (permits, period) = rate.split_once('/').ok_or_else(wrong)?;
        let period_us = match period {
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return Err(wrong()),
        };
        let permits = number(permits)?;
        let burst = burst.map_or(Ok(permits), number)?;
        Ok(Self { permits, period_us, burst })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period_us {
            1_000_000 => "s",
            60_000_000 => "m",
            _ => "h",
        };
        write!(f, "{}/{period}:{}", self.permits, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for (text, shown) in
            [("50/s", "50/s:50"), ("50/s:200", "50/s:200"), ("10/m:3", "10/m:3"), ("7/h", "7/h:7")]
        {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()), Ok(shown.to_owned()));
        }
        for wrong in [
            "",
            "50",
            "50/",
            "/s",
            "0/s",
            "-1/s",
            "50/d",
            "50/s:",
            "50/s:0",
            "1e3/s",
            "50/s:1:2",
            "1000001/s",
            "on",
        ] {
            let told = wrong.parse::<Rate>().expect_err(wrong);
            assert!(told.contains("50/s:200"), "{told}");
        }
    }

    #[test]
    fn a_window_is_how_long_a_burst_takes_to_come_back() {
        let window = |text: &str| text.parse::<Rate>().map(Rate::window_s);
        assert_eq!(window("50/s:200"), Ok(4));
        assert_eq!(window("50/s:10"), Ok(1));
        assert_eq!(window("10/m"), Ok(60));
    }
}

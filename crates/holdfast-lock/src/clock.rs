//! The machine's monotonic clock: it never jumps, includes the time a machine was suspended (where
//! the system supports it) and is the same for all processes of one machine.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::RngExt as _;

use crate::time::Instant;

/// Longer than any process runs. Longer durations, as [`Duration::MAX`] for *without end*, cannot
/// be added to a time.
const ENDLESS: Duration = Duration::from_hours(24 * 365 * 100);

/// Returns 50 % to 150 % of `pause`, so that waiters that started together spread out.
#[must_use]
pub fn jittered(pause: Duration) -> Duration {
    pause.min(ENDLESS).mul_f64(random(0.5..1.5))
}

/// Returns a random number; in a test with a clock of its own, one that its seed determines.
pub(crate) fn random(range: Range<f64>) -> f64 {
    #[cfg(test)]
    if let Some(number) = crate::time::virtual_clock::random(range.clone()) {
        return number;
    }
    rand::rng().random_range(range)
}

/// Returns the time that long after `start`; of a duration without end, a time in a century.
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
    start + duration.min(ENDLESS)
}

/// Returns the microseconds since the machine started, including suspended time on Linux.
#[must_use]
pub fn monotonic_us() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

    #[cfg(test)]
    if let Some(now_us) = crate::time::virtual_clock::now_us() {
        return now_us;
    }
    let now = rustix::time::clock_gettime(CLOCK);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the deadline of a lease that was requested at `sent_us`: its TTL, less 1 % and 2 ms for
/// clock drift.
pub(crate) fn lease_deadline_us(sent_us: u64, ttl: Duration) -> u64 {
    let ttl_us = us(ttl);
    sent_us + ttl_us.saturating_sub(ttl_us / 100 + 2_000)
}

/// Returns the time at which the renewals of a lock that is acquired now end.
pub(crate) fn renewals_end_us(max_hold: Option<Duration>) -> u64 {
    max_hold.map_or(u64::MAX, |max| monotonic_us().saturating_add(us(max)))
}

/// Returns the wall-clock time in milliseconds of Unix time, for display in a lock's value. No
/// decision of a lock depends on it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "for display; no decision depends on it")]
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_monotonic() {
        let readings: Vec<u64> = (0..1_000).map(|_| monotonic_us()).collect();
        assert!(readings.is_sorted());
        assert!(readings[0] > 0);
    }
}

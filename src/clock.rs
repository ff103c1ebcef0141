//! The machine's own clock, for spans of time.
//!
//! It never jumps, counts the time a machine was suspended (where the system can), and is the same
//! for all processes of one machine, so that traces of two replicas can be laid side by side. It
//! says nothing about the time of day: what is compared with a row is judged by Postgres.

/// Microseconds since the machine started, suspended time included.
#[must_use]
pub fn monotonic_us() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

    let now = rustix::time::clock_gettime(CLOCK);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_never_goes_back() {
        let readings: Vec<u64> = (0..1_000).map(|_| super::monotonic_us()).collect();
        assert!(readings.is_sorted());
        assert!(readings[0] > 0);
    }
}

//! Growing pauses between attempts.

use std::time::Duration;

/// Exponential backoff: each pause is twice as long as the one before, up to `longest`. A quarter
/// of each is jitter, so that attempts that failed together do not repeat together.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    /// Returns the pause after an attempt; the first attempt is 1.
    #[must_use]
    pub fn after(self, attempt: u32) -> Duration {
        self.after_by(attempt, rand::random())
    }

    fn after_by(self, attempt: u32, jitter: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let pause = self.first.saturating_mul(1 << doublings).min(self.longest);
        pause.mul_f64(0.75 + 0.25 * jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let (first, longest) = (Duration::from_secs(2), Duration::from_mins(5));
        let backoff = Backoff { first, longest };
        let pauses: Vec<Duration> = (1..=40).map(|n| backoff.after_by(n, 1.0)).collect();
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses[1], pauses[39]), (first, 2 * first, longest));
        assert_eq!(backoff.after_by(1, 0.0), first.mul_f64(0.75));
        let by_chance = backoff.after(3);
        assert!(by_chance >= 3 * first && by_chance <= 4 * first, "{by_chance:?}");
    }
}

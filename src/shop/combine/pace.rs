//! How many may wait in one line, so that none of them waits long in vain.
//!
//! A line that takes everybody serves nobody in time once more come than are served: each waits
//! behind all who came before, until its client has gone. So a line takes only as many as it
//! serves within [`LONGEST_WAIT`], by the pace of its last batches; who comes then is told so at
//! once and may come again. Nothing is promised about how long it really takes: a batch that
//! stands still (a holder elsewhere that is paused) is noticed when it is over.

use std::time::Duration;

use super::{MOST_AT_ONCE, MOST_WAITING};

/// Longer than a few batches take, shorter than a person notices.
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// So many may wait however slow the last batch was: it may have been the only slow one, and two
/// batches are what keeps the line busy.
const ALWAYS: usize = 2 * MOST_AT_ONCE;
/// How much the last batch counts against those before it.
const WEIGHT: f64 = 0.2;

/// How fast a line is served.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Seconds per member, once a batch was served.
    each_s: Option<f64>,
}

impl Pace {
    /// A batch of so many took so long, from the end of the one before it.
    pub fn served(&mut self, members: usize, took: Duration) {
        if members > 0 {
            let each_s = took.as_secs_f64() / members as f64;
            let before = self.each_s.unwrap_or(each_s);
            self.each_s = Some(before + WEIGHT * (each_s - before));
        }
    }

    /// How many may wait.
    pub fn room(&self) -> usize {
        match self.each_s {
            None => MOST_WAITING,
            Some(each_s) => {
                // A float that is too large for it becomes the largest there is.
                let in_time = (LONGEST_WAIT.as_secs_f64() / each_s) as usize;
                in_time.clamp(ALWAYS, MOST_WAITING)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_long_as_is_served_in_time() {
        let mut pace = Pace::default();
        assert_eq!(pace.room(), MOST_WAITING);
        for _ in 0..50 {
            pace.served(100, Duration::from_millis(20));
        }
        assert!((990..=1_010).contains(&pace.room()), "{}", pace.room());
        pace.served(0, Duration::from_secs(9));
        assert!((990..=1_010).contains(&pace.room()), "nobody was served");
    }

    #[test]
    fn two_batches_always_fit_and_never_more_than_a_line() {
        let mut pace = Pace::default();
        pace.served(1, Duration::from_secs(3));
        assert_eq!(pace.room(), ALWAYS);
        let mut pace = Pace::default();
        pace.served(256, Duration::ZERO);
        assert_eq!(pace.room(), MOST_WAITING);
    }
}

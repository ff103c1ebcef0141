//! How many commands may wait in a queue, so that none of them waits long in vain.
//!
//! A queue that admits all executes none in time once more commands come than are executed: each
//! waits behind all before it, until its client has gone. So a queue admits only what it executes
//! within [`MAX_WAIT`], by the pace of its last batches; the rest are rejected at once. A batch
//! that stands still (a holder in another process that is paused) counts when it is over.

use std::time::Duration;

/// Upper bound of a queue, independent of its throughput.
pub(super) const MAX_QUEUE_LENGTH: usize = 4_096;
/// The largest batch.
pub(super) const MAX_BATCH_SIZE: usize = 256;

/// Longer than a few batches take, shorter than a person notices.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// Always admitted, however slow the last batch was: it may have been the only slow one, and two
/// batches keep the leader busy.
const MIN_LENGTH: usize = 2 * MAX_BATCH_SIZE;
/// Weight of the last batch in the moving average.
const WEIGHT: f64 = 0.2;

/// The length limit of one queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AdaptiveQueueLimit {
    /// Seconds per command, once a batch was executed.
    each_s: Option<f64>,
}

impl AdaptiveQueueLimit {
    /// Notes a batch, and the time since the end of the one before it.
    pub fn executed(&mut self, commands: usize, took: Duration) {
        if commands > 0 {
            let each_s = took.as_secs_f64() / commands as f64;
            let before = self.each_s.unwrap_or(each_s);
            self.each_s = Some(before + WEIGHT * (each_s - before));
        }
    }

    /// Returns how many may wait.
    pub fn max_length(&self) -> usize {
        match self.each_s {
            None => MAX_QUEUE_LENGTH,
            Some(each_s) => {
                // A float that is too large for it becomes the largest there is.
                let in_time = (MAX_WAIT.as_secs_f64() / each_s) as usize;
                in_time.clamp(MIN_LENGTH, MAX_QUEUE_LENGTH)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_admits_what_it_executes_in_time() {
        let mut limit = AdaptiveQueueLimit::default();
        assert_eq!(limit.max_length(), MAX_QUEUE_LENGTH);
        for _ in 0..50 {
            limit.executed(100, Duration::from_millis(20));
        }
        assert!((990..=1_010).contains(&limit.max_length()), "{}", limit.max_length());
        limit.executed(0, Duration::from_secs(9));
        assert!((990..=1_010).contains(&limit.max_length()), "an empty batch counts for nothing");
    }

    #[test]
    fn two_batches_always_fit() {
        let mut limit = AdaptiveQueueLimit::default();
        limit.executed(1, Duration::from_secs(3));
        assert_eq!(limit.max_length(), MIN_LENGTH);
        let mut limit = AdaptiveQueueLimit::default();
        limit.executed(256, Duration::ZERO);
        assert_eq!(limit.max_length(), MAX_QUEUE_LENGTH);
    }
}

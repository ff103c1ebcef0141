//! Limits a queue to the commands that it can execute in time.
//!
//! Under overload, an unlimited queue executes no command in time: each waits behind all earlier
//! ones until its client disconnects. So a queue admits the commands that it can execute within
//! [`MAX_QUEUE_TIME`], at the throughput of its last batches, but at least [`MIN_LENGTH`], and
//! rejects the others at once. A batch that is stalled, e.g. by a paused holder in another process,
//! counts when it ends.

use std::time::Duration;

pub const MAX_QUEUE_LENGTH: usize = 4_096;
pub const MAX_BATCH_SIZE: usize = 256;

/// Bound of the expected wait: longer than a few batches, shorter than a person notices.
const MAX_QUEUE_TIME: Duration = Duration::from_millis(200);
/// Lower bound of the limit, however slow the last batch was: it may be an exception, and two
/// batches keep the leader busy.
const MIN_LENGTH: usize = 2 * MAX_BATCH_SIZE;
const WEIGHT: f64 = 0.2;

#[derive(Debug, Clone, Copy, Default)]
pub struct AdaptiveQueueLimit {
    /// Moving average of the seconds per command; `None` before the first batch.
    seconds_per_command: Option<f64>,
}

impl AdaptiveQueueLimit {
    pub fn record_batch(&mut self, commands: usize, took: Duration) {
        if commands > 0 {
            let seconds_per_command = took.as_secs_f64() / commands as f64;
            let before = self.seconds_per_command.unwrap_or(seconds_per_command);
            self.seconds_per_command = Some(before + WEIGHT * (seconds_per_command - before));
        }
    }

    pub fn max_length(&self) -> usize {
        match self.seconds_per_command {
            None => MAX_QUEUE_LENGTH,
            Some(seconds_per_command) => {
                // The cast saturates, also for infinity.
                let in_time = (MAX_QUEUE_TIME.as_secs_f64() / seconds_per_command) as usize;
                in_time.clamp(MIN_LENGTH, MAX_QUEUE_LENGTH)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_limit_follows_throughput() {
        let mut limit = AdaptiveQueueLimit::default();
        assert_eq!(limit.max_length(), MAX_QUEUE_LENGTH);
        for _ in 0..50 {
            limit.record_batch(100, Duration::from_millis(20));
        }
        assert!((990..=1_010).contains(&limit.max_length()), "{}", limit.max_length());
        limit.record_batch(0, Duration::from_secs(9));
        assert!((990..=1_010).contains(&limit.max_length()), "an empty batch counts for nothing");
    }

    #[test]
    fn two_batches_always_fit() {
        let mut limit = AdaptiveQueueLimit::default();
        limit.record_batch(1, Duration::from_secs(3));
        assert_eq!(limit.max_length(), MIN_LENGTH);
        let mut limit = AdaptiveQueueLimit::default();
        limit.record_batch(256, Duration::ZERO);
        assert_eq!(limit.max_length(), MAX_QUEUE_LENGTH);
    }
}

//! When a replica that forwards commands sends its next message to the holder of their lease.
//!
//! A message for each order would cost more than the order's share of a batch. Clients that got an
//! answer order again: a message is complete with as many orders as the last answers had. It is
//! sent incomplete after half the time for which answers are awaited. At the holder, an order that
//! comes earlier would wait too, for the end of the batch that runs.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::command_queue::limit::MAX_BATCH_SIZE;

/// Longest time for which a message is held: no client notices it.
const MAX_HOLD: Duration = Duration::from_millis(5);
const WEIGHT: f64 = 0.2;

#[derive(Debug)]
pub struct Pace {
    /// Number of waiting orders with which the next message is complete.
    complete_size: usize,
    held_until: Instant,
    answered_at: Instant,
    /// Moving average of the time for which answers are awaited: after the message, or after the
    /// answers before them.
    answer_time: Option<Duration>,
}

impl Pace {
    /// The first message is sent at once.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { complete_size: 0, held_until: now, answered_at: now, answer_time: None }
    }

    pub fn note_sent(&mut self, now: Instant) {
        self.hold(MAX_BATCH_SIZE, now);
    }

    /// Notes that `answers` orders have their answer, the oldest of them sent at `sent_at`, while
    /// `waiting` others waited.
    pub fn note_answers(&mut self, answers: usize, waiting: usize, sent_at: Instant, now: Instant) {
        let awaited = now.saturating_duration_since(sent_at.max(self.answered_at));
        let before = self.answer_time.unwrap_or(awaited);
        self.answer_time = Some(before.mul_f64(1.0 - WEIGHT) + awaited.mul_f64(WEIGHT));
        self.answered_at = now;
        self.hold((waiting + answers).min(MAX_BATCH_SIZE), now);
    }

    fn hold(&mut self, complete_size: usize, now: Instant) {
        self.complete_size = complete_size;
        self.held_until = now + MAX_HOLD.min(self.answer_time.unwrap_or_default() / 2);
    }

    /// Returns the size with which the next message is complete, and the time until which it waits
    /// for that; `None` if it does not wait.
    pub fn held(&self, waiting: usize, now: Instant) -> Option<(usize, Instant)> {
        let is_held = waiting < self.complete_size && now < self.held_until;
        is_held.then_some((self.complete_size, self.held_until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sequential_client_is_not_held() {
        let mut pace = Pace::new();
        let mut now = Instant::now();
        for _ in 0..3 {
            assert_eq!(pace.held(1, now), None);
            pace.note_sent(now);
            now += 4 * MS;
            pace.note_answers(1, 0, now - 4 * MS, now);
            assert!(pace.held(0, now).is_some(), "its next order is expected");
        }
    }

    #[test]
    fn message_is_complete_with_as_many_orders_as_the_answers() {
        let mut pace = Pace::new();
        let sent_at = Instant::now();
        let now = sent_at + 4 * MS;
        pace.note_answers(30, 2, sent_at, now);
        assert_eq!(pace.held(31, now), Some((32, now + 2 * MS)));
        assert_eq!(pace.held(32, now), None);
        assert_eq!(pace.held(31, now + 2 * MS), None, "half of the time of an answer");

        // More come while it is on its way: they wait for the next answers, or for that time.
        pace.note_sent(now);
        assert_eq!(pace.held(9, now), Some((MAX_BATCH_SIZE, now + 2 * MS)));
        assert_eq!(pace.held(MAX_BATCH_SIZE, now), None);
    }

    #[test]
    fn time_without_orders_is_no_time_of_an_answer() {
        let mut pace = Pace::new();
        let mut now = Instant::now();
        for _ in 0..3 {
            now += 1_000 * MS;
            pace.note_answers(1, 0, now - 2 * MS, now);
            assert_eq!(pace.held(0, now), Some((1, now + MS)));
        }
        for _ in 0..50 {
            now += 100 * MS;
            pace.note_answers(1, 0, now - 100 * MS, now);
        }
        assert_eq!(pace.held(0, now), Some((1, now + MAX_HOLD)));
    }
}

//! When a replica that forwards commands sends its next message to the holder of their lease.
//!
//! A message for each few orders would cost both replicas more than the orders do in a batch. So
//! one message with orders is under way at a time. The clients that got its answers order again,
//! and the next message waits for them: the holder is in its next batch then, and a message that
//! comes before the end of that one has lost nothing. It waits a bounded time, because clients may
//! not come back. A single client that orders one after the other waits for nothing.
//!
//! A message that was sent as soon as the answers are here, with what waited by then, would leave
//! out the clients that were answered: they would have a place in every fourth batch, those of the
//! holder in every second one.

use std::time::Duration;

use tokio::time::Instant;

use super::queue_limit::MAX_BATCH_SIZE;

/// Number of orders under way with which others wait for their answers: with fewer, messages cost
/// little, and clients would notice the wait.
const MIN_GROUP: usize = 8;
/// Longest time for which a message is held.
const MAX_HOLD: Duration = Duration::from_millis(25);
const WEIGHT: f64 = 0.2;

#[derive(Debug)]
pub(super) struct Pace {
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

    /// Notes that a message was sent, with which so many orders are under way.
    pub fn note_sent(&mut self, under_way: usize, now: Instant) {
        self.hold(MAX_BATCH_SIZE, under_way, now);
    }

    /// Notes that so many orders have their answer, the oldest of them sent at `sent_at`, while
    /// others wait here, or are under way.
    pub fn note_answers(
        &mut self,
        answers: usize,
        (waiting, under_way): (usize, usize),
        sent_at: Instant,
        now: Instant,
    ) {
        let awaited = now.saturating_duration_since(sent_at.max(self.answered_at));
        let before = self.answer_time.unwrap_or(awaited);
        self.answer_time = Some(before.mul_f64(1.0 - WEIGHT) + awaited.mul_f64(WEIGHT));
        self.answered_at = now;
        self.hold(waiting + answers, under_way, now);
    }

    fn hold(&mut self, complete_size: usize, under_way: usize, now: Instant) {
        let time = self.answer_time.unwrap_or_default();
        // Until the answers are here; or else for a fraction of the holder's batch.
        let is_group_under_way = under_way >= MIN_GROUP;
        let hold = if is_group_under_way { time * 3 / 2 } else { time / 2 };
        let size = if is_group_under_way { MAX_BATCH_SIZE } else { complete_size };
        self.complete_size = size.min(MAX_BATCH_SIZE);
        self.held_until = now + hold.min(MAX_HOLD);
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
            pace.note_sent(1, now);
            now += 4 * MS;
            pace.note_answers(1, (0, 0), now - 4 * MS, now);
            assert!(pace.held(0, now).is_some(), "its next order is expected");
        }
    }

    #[test]
    fn message_is_complete_with_as_many_orders_as_the_answers() {
        let mut pace = Pace::new();
        let sent_at = Instant::now();
        let now = sent_at + 4 * MS;
        pace.note_answers(30, (2, 0), sent_at, now);
        assert_eq!(pace.held(31, now), Some((32, now + 2 * MS)));
        assert_eq!(pace.held(32, now), None);
        assert_eq!(pace.held(31, now + 2 * MS), None, "half of the time of an answer");
    }

    #[test]
    fn orders_wait_for_the_answers_of_those_under_way() {
        let mut pace = Pace::new();
        let sent_at = Instant::now();
        let now = sent_at + 4 * MS;
        pace.note_answers(30, (0, 0), sent_at, now);
        pace.note_sent(30, now);
        assert_eq!(pace.held(9, now), Some((MAX_BATCH_SIZE, now + 6 * MS)));
        assert_eq!(pace.held(MAX_BATCH_SIZE, now), None, "it is full");
        assert_eq!(pace.held(9, now + 6 * MS), None, "the holder may be gone");

        // Two groups become one.
        pace.note_answers(20, (9, 10), now, now + 4 * MS);
        assert_eq!(pace.held(29, now + 4 * MS).map(|held| held.0), Some(MAX_BATCH_SIZE));
        pace.note_answers(10, (29, 0), now, now + 5 * MS);
        assert_eq!(pace.held(38, now + 5 * MS).map(|held| held.0), Some(39));
    }

    #[test]
    fn time_without_orders_is_no_time_of_an_answer() {
        let mut pace = Pace::new();
        let mut now = Instant::now();
        for _ in 0..3 {
            now += 1_000 * MS;
            pace.note_answers(1, (0, 0), now - 2 * MS, now);
            assert_eq!(pace.held(0, now), Some((1, now + MS)));
        }
        for _ in 0..50 {
            now += 100 * MS;
            pace.note_answers(1, (0, 0), now - 100 * MS, now);
        }
        assert_eq!(pace.held(0, now), Some((1, now + MAX_HOLD)));
    }
}

//! A priority queue for the waiting requests of one key of the [`super::queue_lock`].
//!
//! Guarantees: [`Priority::High`] precedes [`Priority::Normal`]; each priority is FIFO; and there
//! is no starvation: while a normal entry waits, at most [`MAX_HIGH_IN_A_ROW`] of high priority
//! precede it in a row.
//!
//! A B-tree by priority and number, not a heap (Java's `PriorityBlockingQueue`): a heap returns
//! entries of one priority in any order, and finds an entry that leaves only by a scan.

use std::collections::BTreeMap;

/// Upper bound of consecutive high-priority entries while a normal one waits: one of nine served is
/// then a normal entry.
pub const MAX_HIGH_IN_A_ROW: u32 = 8;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Priority {
    /// For changes that return stock or money: served first, they save the requests behind them a
    /// rejection.
    High,
    #[default]
    Normal,
}

impl Priority {
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(Priority, u64);

#[derive(Debug)]
pub struct PriorityQueue<T> {
    waiting: BTreeMap<Number, T>,
    joined: u64,
    /// Number of consecutive high-priority entries that preceded a waiting normal one.
    high_in_a_row: u32,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), joined: 0, high_in_a_row: 0 }
    }
}

impl<T> PriorityQueue<T> {
    /// Adds an entry behind those of its priority. The number is for [`PriorityQueue::leave`].
    pub fn join(&mut self, priority: Priority, entry: T) -> Number {
        let number = Number(priority, self.joined);
        self.joined += 1;
        self.waiting.insert(number, entry);
        number
    }

    /// Removes an entry from any position; returns `None` if it is no longer in the queue.
    pub fn leave(&mut self, number: Number) -> Option<T> {
        self.waiting.remove(&number)
    }

    pub fn pop(&mut self) -> Option<T> {
        let first = *self.waiting.first_key_value()?.0;
        let normal = self.waiting.range(Number(Priority::Normal, 0)..).next().map(|(at, _)| *at);
        let next = match normal {
            Some(normal) if first != normal && self.high_in_a_row >= MAX_HIGH_IN_A_ROW => normal,
            _ => first,
        };

        let overtook = next.0 == Priority::High && normal.is_some();
        self.high_in_a_row = if overtook { self.high_in_a_row + 1 } else { 0 };
        self.waiting.remove(&next)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn normal_priority_never_starves() {
        let mut queue = PriorityQueue::default();
        queue.join(Priority::Normal, 1_000);
        queue.join(Priority::Normal, 1_001);
        for who in 0..MAX_HIGH_IN_A_ROW {
            queue.join(Priority::High, who);
        }
        let mut turns = Vec::new();
        // Each served high-priority entry is followed by a new one.
        for more in 0..3 * MAX_HIGH_IN_A_ROW {
            turns.extend(queue.pop());
            queue.join(Priority::High, 100 + more);
        }
        let place = |who| turns.iter().position(|turn| *turn == who).unwrap();
        assert_eq!(place(1_000), MAX_HIGH_IN_A_ROW as usize);
        assert_eq!(place(1_001), 2 * MAX_HIGH_IN_A_ROW as usize + 1);
    }

    /// A reference implementation: slow and simple.
    #[derive(Default)]
    struct Plain {
        waiting: Vec<(Priority, u32)>,
        in_a_row: u32,
    }

    impl Plain {
        fn next(&mut self) -> Option<u32> {
            let at = |wanted| self.waiting.iter().position(|(priority, _)| *priority == wanted);
            let turn = match (at(Priority::High), at(Priority::Normal)) {
                (Some(_), Some(normal)) if self.in_a_row == MAX_HIGH_IN_A_ROW => normal,
                (Some(high), Some(_)) => {
                    self.in_a_row += 1;
                    return Some(self.waiting.remove(high).1);
                }
                (high, normal) => high.or(normal)?,
            };
            self.in_a_row = 0;
            Some(self.waiting.remove(turn).1)
        }
    }

    #[test]
    fn queue_matches_simple_model() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut queue, mut plain) = (PriorityQueue::default(), Plain::default());
            let mut numbers = Vec::new();
            for who in 0..300 {
                match rng.random_range(0..5) {
                    0 | 1 => {
                        let high = rng.random_bool(0.7);
                        let priority = if high { Priority::High } else { Priority::Normal };
                        numbers.push((queue.join(priority, who), who));
                        plain.waiting.push((priority, who));
                    }
                    2 if !numbers.is_empty() => {
                        let (number, who) = numbers.swap_remove(rng.random_range(0..numbers.len()));
                        let there = plain.waiting.iter().any(|(_, waits)| *waits == who);
                        assert_eq!(queue.leave(number).is_some(), there, "seed {seed}");
                        plain.waiting.retain(|(_, waits)| *waits != who);
                    }
                    _ => assert_eq!(queue.pop(), plain.next(), "seed {seed}"),
                }
                assert_eq!(queue.len(), plain.waiting.len());
            }
        }
    }
}

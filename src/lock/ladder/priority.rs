//! A queue in order of priority, for those who wait in one line of the [`super::queue`].
//!
//! Guarantees: [`Priority::High`] goes before [`Priority::Normal`]; within one priority it is first
//! come, first served; whoever has gone leaves no hole, wherever in the line they stood; and nobody
//! starves: while somebody normal waits, at most [`MOST_IN_A_ROW`] of high priority go first.
//!
//! Does not guarantee a bound (the room before it does), and keeps nobody apart: it is a plain
//! value, which its owner puts behind a mutex.
//!
//! Breaks when everybody is important: with nothing but high priorities it is a queue again.
//!
//! Java calls it `PriorityBlockingQueue`, and both that and `std::collections::BinaryHeap` are
//! heaps. A heap gives the first one quickly, but it is not stable (two of one priority come out
//! in any order), and has no way to take one out of the middle but to look at all. A B-tree by
//! priority and number has both, for the same logarithm.

use std::collections::BTreeMap;

/// How many of high priority may follow each other while others wait. Restocks are rare, so this
/// is for the day when they are not: of nine turns one is always somebody's who just came.
pub const MOST_IN_A_ROW: u32 = 8;

/// Who goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// What puts something back: done first, it spares those behind it a refusal.
    High,
    /// Everybody else.
    #[default]
    Normal,
}

impl Priority {
    /// The priority of that name, as in the header `Holdfast-Priority`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "high" => Some(Priority::High),
            "normal" => Some(Priority::Normal),
            _ => None,
        }
    }
}

/// One's number in the line: smaller ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(Priority, u64);

/// Those who wait, the first one first.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    waiting: BTreeMap<Number, T>,
    /// How many have come so far. (At a million a second it lasts for half a million years.)
    came: u64,
    /// How many of high priority went before somebody normal, one after the other.
    in_a_row: u32,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), came: 0, in_a_row: 0 }
    }
}

impl<T> PriorityQueue<T> {
    /// Joins at the end of those with this priority. The number is for [`PriorityQueue::leave`].
    pub fn join(&mut self, priority: Priority, who: T) -> Number {
        let number = Number(priority, self.came);
        self.came += 1;
        self.waiting.insert(number, who);
        number
    }

    /// Leaves, wherever one stands; `None` for somebody who has had their turn, or left before.
    pub fn leave(&mut self, number: Number) -> Option<T> {
        self.waiting.remove(&number)
    }

    /// Takes out whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let first = *self.waiting.first_key_value()?.0;
        let normal = self.waiting.range(Number(Priority::Normal, 0)..).next().map(|(at, _)| *at);
        let turn = match normal {
            Some(normal) if first != normal && self.in_a_row >= MOST_IN_A_ROW => normal,
            _ => first,
        };
        let overtook = turn.0 == Priority::High && normal.is_some();
        self.in_a_row = if overtook { self.in_a_row + 1 } else { 0 };
        self.waiting.remove(&turn)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    fn drained(queue: &mut PriorityQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn high_goes_before_normal_and_each_in_the_order_they_came() {
        let mut queue = PriorityQueue::default();
        for who in 0..6 {
            queue.join(if who % 3 == 2 { Priority::High } else { Priority::Normal }, who);
        }
        assert_eq!(drained(&mut queue), [2, 5, 0, 1, 3, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_leaves_the_middle_leaves_no_hole_and_can_not_leave_twice() {
        let mut queue = PriorityQueue::default();
        let numbers: Vec<Number> = (0..4).map(|who| queue.join(Priority::Normal, who)).collect();
        assert_eq!(queue.leave(numbers[1]), Some(1));
        assert_eq!(queue.leave(numbers[1]), None);
        assert_eq!((queue.len(), drained(&mut queue)), (3, vec![0, 2, 3]));
        assert_eq!(queue.leave(numbers[0]), None, "they have had their turn");
    }

    #[test]
    fn nobody_starves_however_many_are_important() {
        let mut queue = PriorityQueue::default();
        queue.join(Priority::Normal, 1_000);
        queue.join(Priority::Normal, 1_001);
        for who in 0..MOST_IN_A_ROW {
            queue.join(Priority::High, who);
        }
        let mut turns = Vec::new();
        // For everybody important who goes, another one comes.
        for more in 0..3 * MOST_IN_A_ROW {
            turns.extend(queue.pop());
            queue.join(Priority::High, 100 + more);
        }
        let place = |who| turns.iter().position(|turn| *turn == who).unwrap();
        assert_eq!(place(1_000), MOST_IN_A_ROW as usize);
        assert_eq!(place(1_001), 2 * MOST_IN_A_ROW as usize + 1);
    }

    /// The same, as slowly and plainly as it can be said.
    #[derive(Default)]
    struct Plain {
        waiting: Vec<(Priority, u32)>,
        in_a_row: u32,
    }

    impl Plain {
        fn next(&mut self) -> Option<u32> {
            let at = |wanted| self.waiting.iter().position(|(priority, _)| *priority == wanted);
            let turn = match (at(Priority::High), at(Priority::Normal)) {
                (Some(_), Some(normal)) if self.in_a_row == MOST_IN_A_ROW => normal,
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
    fn whatever_happens_it_does_as_the_plain_one_does() {
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

//! The invariants, and the violations that the checker finds.

use std::cmp::Ordering;
use std::fmt;

use super::ObservedRequest;

/// A property of every sound history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I1: a value below zero, or more taken than ever existed.
    Negative,
    /// I2: opening and deltas do not add up to the value.
    Sum,
    /// I3: an entry does not begin where the one before it ended, or does not add up.
    Break,
    /// I3: two entries were computed from the same version.
    Fork,
    /// I4: acknowledged, but not in the ledger.
    Lost,
    /// I4: in the ledger with values other than acknowledged, requested or ordered.
    Differs,
    /// I5: rejected, but in the ledger.
    Rejected,
    /// I6: executed more than once.
    Twice,
    /// I7: the order of the ledger contradicts real time.
    RealTime,
    /// I8: a fence lower than an earlier one in the chain.
    Fence,
    /// I9: *sold out*, but not at any moment of the request.
    SoldOut,
    /// I10: an entry without its order, or an order without its entry or payment.
    Unmatched,
    /// I10: the money put in is not the sum of balances and spending.
    Money,
}

impl Invariant {
    /// Returns the number and the name.
    fn number_and_name(self) -> (u8, &'static str) {
        match self {
            Invariant::Negative => (1, "negative"),
            Invariant::Sum => (2, "sum"),
            Invariant::Break => (3, "break"),
            Invariant::Fork => (3, "fork"),
            Invariant::Lost => (4, "lost"),
            Invariant::Differs => (4, "differs"),
            Invariant::Rejected => (5, "refused"),
            Invariant::Twice => (6, "twice"),
            Invariant::RealTime => (7, "real-time"),
            Invariant::Fence => (8, "fence"),
            Invariant::SoldOut => (9, "sold-out"),
            Invariant::Unmatched => (10, "unmatched"),
            Invariant::Money => (10, "money"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    /// The entries concerned, by `seq`.
    pub entries: Vec<i64>,
    /// The requests concerned, by their index in the observations.
    pub requests: Vec<usize>,
    /// The request, the entry, and the expected state, in words.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name) = self.invariant.number_and_name();
        write!(f, "I{number} {name}: {}", self.text)
    }
}

/// Violations found so far, and the number of steps.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub observations: &'a [ObservedRequest],
    pub violations: Vec<Violation>,
    pub steps: u64,
}

impl<'a> Findings<'a> {
    pub fn new(observations: &'a [ObservedRequest]) -> Self {
        Self { observations, violations: Vec::new(), steps: 0 }
    }

    pub fn add(
        &mut self,
        invariant: Invariant,
        entries: Vec<i64>,
        requests: Vec<usize>,
        text: String,
    ) {
        self.violations.push(Violation { invariant, entries, requests, text });
    }

    pub fn step(&mut self) {
        self.steps += 1;
    }

    /// Sorts, and counts the comparisons.
    pub fn sort<T>(&mut self, list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
        list.sort_by(|a, b| {
            self.steps += 1;
            compare(a, b)
        });
    }

    /// Returns the first index in `0..length` for which `holds`, which must hold for all after it.
    pub fn first(&mut self, length: usize, holds: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, length);
        while low < high {
            self.steps += 1;
            let middle = usize::midpoint(low, high);
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Returns the index, key and id of a request, for messages.
    pub fn name_of(&self, index: usize) -> String {
        let seen = &self.observations[index];
        let id = seen.request.map(|id| format!(", id {id}")).unwrap_or_default();
        format!("request #{index} (key {}{id})", seen.key)
    }
}

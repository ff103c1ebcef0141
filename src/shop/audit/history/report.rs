//! Violations that the checker finds, in words.

use std::cmp::Ordering;
use std::fmt;

use super::Observation;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// I1: a value below zero, or more taken than ever existed.
    Negative,
    /// I2: opening and deltas do not add up to the value.
    Sum,
    /// I3: an entry does not begin where the one before it ended, or does not add up.
    Break,
    /// I3: two entries were computed from the same version.
    Fork,
    /// I4: acknowledged, but not in the books.
    Lost,
    /// I4: in the books with values other than acknowledged, requested or ordered.
    Differs,
    /// I5: rejected, but in the books.
    Refused,
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

impl Rule {
    /// Returns the number of the invariant, and the name of the rule.
    fn told(self) -> (u8, &'static str) {
        match self {
            Rule::Negative => (1, "negative"),
            Rule::Sum => (2, "sum"),
            Rule::Break => (3, "break"),
            Rule::Fork => (3, "fork"),
            Rule::Lost => (4, "lost"),
            Rule::Differs => (4, "differs"),
            Rule::Refused => (5, "refused"),
            Rule::Twice => (6, "twice"),
            Rule::RealTime => (7, "real-time"),
            Rule::Fence => (8, "fence"),
            Rule::SoldOut => (9, "sold-out"),
            Rule::Unmatched => (10, "unmatched"),
            Rule::Money => (10, "money"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// The entries concerned, by `seq`.
    pub entries: Vec<i64>,
    /// The requests concerned, by their index in the observations.
    pub requests: Vec<usize>,
    /// The request, the entry, and the expected state, in words.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name) = self.rule.told();
        write!(f, "I{number} {name}: {}", self.text)
    }
}

/// Violations found so far, and the number of steps.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub violations: Vec<Violation>,
    pub steps: u64,
}

impl Findings {
    pub fn add(&mut self, rule: Rule, entries: Vec<i64>, requests: Vec<usize>, text: String) {
        self.violations.push(Violation { rule, entries, requests, text });
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
}

pub(super) fn named(observations: &[Observation], place: usize) -> String {
    let request = observations[place].request.map(|id| format!(", id {id}")).unwrap_or_default();
    format!("request #{place} (key {}{request})", observations[place].key)
}

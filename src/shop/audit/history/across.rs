//! I7 across values: one order of all transactions, not one per value.
//!
//! An order of two items is one transaction with an entry in two chains, so an entry before it in
//! either chain precedes it in both. This precedence must leave a time for every transaction: none
//! may precede itself, and none may take effect after its response.

use std::collections::{HashMap, HashSet, VecDeque};

use super::chain::{Chain, Window};
use super::report::{Findings, Rule, named};
use super::{Entry, Ledger, Observation};
use crate::shop::OrderId;

/// A ledger, its entries' windows, and its chains.
pub(super) type Part<'a, 'b> = (&'a Ledger, &'b [Window], &'b mut [Chain<'a>]);

/// Graph of the transactions of all chains: an order's entries of one reason, or a single entry.
#[derive(Default)]
struct Web<'a> {
    /// An entry of each, for messages.
    entry: Vec<&'a Entry>,
    window: Vec<Window>,
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// Transaction of each entry, by part and index.
    of_entry: Vec<Vec<usize>>,
}

/// Checks all chains, and narrows their bounds to what the other chains imply.
pub(super) fn check(
    parts: &mut [Part<'_, '_>],
    observations: &[Observation],
    findings: &mut Findings,
) {
    let web = Web::of(parts, findings);
    let sorted = web.sorted(findings);
    if sorted.len() < web.entry.len() {
        web.crossed(&sorted, findings);
    }
    // For each transaction, the one that determines its earliest time; and its latest time.
    let mut decides: Vec<usize> = (0..web.entry.len()).collect();
    let mut latest: Vec<u64> = web.window.iter().map(|window| window.to).collect();
    for node in &sorted {
        for before in &web.before[*node] {
            findings.step();
            if web.window[decides[*before]].from > web.window[decides[*node]].from {
                decides[*node] = decides[*before];
            }
        }
    }
    for node in sorted.iter().rev() {
        for after in &web.after[*node] {
            findings.step();
            latest[*node] = latest[*node].min(latest[*after]);
        }
    }
    let mut told: Vec<bool> = vec![false; web.entry.len()];
    for (part, (ledger, _, chains)) in parts.iter_mut().enumerate() {
        for chain in chains.iter_mut() {
            for (rank, place) in chain.entries.iter().enumerate() {
                findings.step();
                let node = web.of_entry[part][*place];
                let from = web.window[decides[node]].from;
                // A violation within one chain is reported already.
                let late =
                    from > web.window[node].to && chain.earliest[rank] <= web.window[node].to;
                if late && !std::mem::replace(&mut told[node], true) {
                    web.late(&ledger.entries[*place], decides[node], node, observations, findings);
                }
                let before = rank.checked_sub(1).map_or(0, |before| chain.earliest[before]);
                chain.earliest[rank] = chain.earliest[rank].max(from).max(before);
            }
            let mut after = u64::MAX;
            for (rank, place) in chain.entries.iter().enumerate().rev() {
                after = after.min(chain.latest[rank]).min(latest[web.of_entry[part][*place]]);
                chain.latest[rank] = after;
            }
        }
    }
}

impl<'a> Web<'a> {
    fn of(parts: &[Part<'a, '_>], findings: &mut Findings) -> Self {
        let mut web = Self::default();
        let mut deeds: HashMap<(OrderId, &str), usize> = HashMap::new();
        let mut once: HashSet<(usize, &str)> = HashSet::new();
        for (ledger, windows, chains) in parts {
            let mut of_entry = Vec::with_capacity(windows.len());
            for (entry, window) in ledger.entries.iter().zip(*windows) {
                findings.step();
                let fresh = web.entry.len();
                let mut node = entry.order.map_or(fresh, |order| {
                    *deeds.entry((order, entry.reason.as_str())).or_insert(fresh)
                });
                // A duplicate is reported already; it must not also precede itself.
                if !once.insert((node, &entry.key)) {
                    node = fresh;
                }
                if node == fresh {
                    web.entry.push(entry);
                    web.window.push(*window);
                    web.after.push(Vec::new());
                    web.before.push(Vec::new());
                }
                of_entry.push(node);
            }
            for chain in chains.iter() {
                for pair in chain.entries.windows(2) {
                    findings.step();
                    let [before, after] = [pair[0], pair[1]].map(|place| of_entry[place]);
                    if before != after {
                        web.after[before].push(after);
                        web.before[after].push(before);
                    }
                }
            }
            web.of_entry.push(of_entry);
        }
        web
    }

    /// Returns the transactions in topological order, without those that a cycle precedes.
    fn sorted(&self, findings: &mut Findings) -> Vec<usize> {
        let mut open: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut ready: VecDeque<usize> = (0..open.len()).filter(|node| open[*node] == 0).collect();
        let mut sorted = Vec::with_capacity(open.len());
        while let Some(node) = ready.pop_front() {
            sorted.push(node);
            for after in &self.after[node] {
                findings.step();
                open[*after] -= 1;
                if open[*after] == 0 {
                    ready.push_back(*after);
                }
            }
        }
        sorted
    }

    /// Reports one cycle of the transactions that could not be sorted.
    fn crossed(&self, sorted: &[usize], findings: &mut Findings) {
        let mut left = vec![true; self.entry.len()];
        for node in sorted {
            left[*node] = false;
        }
        // Every remaining transaction has a remaining predecessor, so the path back meets itself.
        let Some(mut node) = left.iter().position(|left| *left) else { return };
        let mut at: HashMap<usize, usize> = HashMap::new();
        let mut path = Vec::new();
        while !at.contains_key(&node) {
            findings.step();
            at.insert(node, path.len());
            path.push(node);
            let before = self.before[node].iter().find(|before| left[**before]);
            node = *before.unwrap_or(&node);
        }
        let circle: Vec<&Entry> =
            path[at[&node]..].iter().rev().map(|node| self.entry[*node]).collect();
        let names: Vec<String> = circle.iter().take(5).map(|entry| who(entry)).collect();
        let text = format!(
            "{} changes of several values each come before themselves: {}, and so on; they should \
             stand in one order in all chains",
            circle.len(),
            names.join(", then ")
        );
        findings.add(Rule::RealTime, circle.iter().map(|e| e.seq).collect(), vec![], text);
    }

    fn late(
        &self,
        entry: &Entry,
        decides: usize,
        node: usize,
        observations: &[Observation],
        findings: &mut Findings,
    ) {
        let requests: Vec<usize> =
            self.window[decides].asked.into_iter().chain(self.window[node].answered).collect();
        let names: Vec<String> = requests.iter().map(|r| named(observations, *r)).collect();
        let text = format!(
            "{} comes after {}, by way of other values' chains; but the latter was sent at {} µs, \
             when the former had been answered at {} µs ({})",
            who(entry),
            who(self.entry[decides]),
            self.window[decides].from,
            self.window[node].to,
            names.join(", ")
        );
        let seqs = vec![self.entry[decides].seq, entry.seq];
        findings.add(Rule::RealTime, seqs, requests, text);
    }
}

fn who(entry: &Entry) -> String {
    format!("{} entry {} ({})", entry.key, entry.seq, entry.reason)
}

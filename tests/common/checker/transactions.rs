//! I7 across values: one order of all transactions, not one per value.
//!
//! An order of two items is one transaction with an entry in two chains, so an entry before it in
//! either chain precedes it in both. This precedence must leave a time for every transaction: none
//! may precede itself, and none may take effect after its response.

use std::collections::{HashMap, HashSet, VecDeque};

use super::RecordedEntry;
use super::chain::{CheckedLedger, TimeBounds};
use super::report::{Findings, Invariant};
use holdfast::shop::OrderId;

/// Graph of the transactions of all chains: an order's entries of one reason, or a single entry.
#[derive(Default)]
struct TransactionGraph<'a> {
    /// An entry of each, for messages.
    entry: Vec<&'a RecordedEntry>,
    bounds: Vec<TimeBounds>,
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// Transaction of each entry, by ledger and index.
    node_of_entry: Vec<Vec<usize>>,
}

/// Checks all chains, and narrows their bounds to what the other chains imply.
pub(super) fn check(ledgers: &mut [CheckedLedger<'_>], findings: &mut Findings<'_>) {
    let graph = TransactionGraph::new(ledgers, findings);
    let sorted = graph.topological_order(findings);
    if sorted.len() < graph.entry.len() {
        graph.report_cycle(&sorted, findings);
    }
    // For each transaction, the one that determines its earliest time; and its latest time.
    let mut earliest: Vec<usize> = (0..graph.entry.len()).collect();
    let mut latest: Vec<u64> = graph.bounds.iter().map(|bounds| bounds.to).collect();
    for node in &sorted {
        for before in &graph.before[*node] {
            findings.step();
            if graph.bounds[earliest[*before]].from > graph.bounds[earliest[*node]].from {
                earliest[*node] = earliest[*before];
            }
        }
    }
    for node in sorted.iter().rev() {
        for after in &graph.after[*node] {
            findings.step();
            latest[*node] = latest[*node].min(latest[*after]);
        }
    }
    let mut reported: Vec<bool> = vec![false; graph.entry.len()];
    for (number, CheckedLedger { ledger, chains, .. }) in ledgers.iter_mut().enumerate() {
        for chain in chains {
            for (rank, place) in chain.entries.iter().enumerate() {
                findings.step();
                let node = graph.node_of_entry[number][*place];
                let from = graph.bounds[earliest[node]].from;
                // A violation within one chain is reported already.
                let late =
                    from > graph.bounds[node].to && chain.earliest[rank] <= graph.bounds[node].to;
                if late && !std::mem::replace(&mut reported[node], true) {
                    graph.report_late(&ledger.entries[*place], earliest[node], node, findings);
                }
                let before = rank.checked_sub(1).map_or(0, |before| chain.earliest[before]);
                chain.earliest[rank] = chain.earliest[rank].max(from).max(before);
            }
            let mut after = u64::MAX;
            for (rank, place) in chain.entries.iter().enumerate().rev() {
                after =
                    after.min(chain.latest[rank]).min(latest[graph.node_of_entry[number][*place]]);
                chain.latest[rank] = after;
            }
        }
    }
}

impl<'a> TransactionGraph<'a> {
    fn new(ledgers: &[CheckedLedger<'a>], findings: &mut Findings<'_>) -> Self {
        let mut graph = Self::default();
        let mut nodes: HashMap<(OrderId, &str), usize> = HashMap::new();
        let mut keys: HashSet<(usize, &str)> = HashSet::new();
        for CheckedLedger { ledger, bounds, chains, .. } in ledgers {
            let mut node_of_entry = Vec::with_capacity(bounds.len());
            for (entry, bounds) in ledger.entries.iter().zip(bounds) {
                findings.step();
                let next = graph.entry.len();
                let mut node = entry.order.map_or(next, |order| {
                    *nodes.entry((order, entry.reason.as_str())).or_insert(next)
                });
                // A duplicate is reported already; it must not also precede itself.
                if !keys.insert((node, &entry.key)) {
                    node = next;
                }
                if node == next {
                    graph.entry.push(entry);
                    graph.bounds.push(*bounds);
                    graph.after.push(Vec::new());
                    graph.before.push(Vec::new());
                }
                node_of_entry.push(node);
            }
            for chain in chains {
                for pair in chain.entries.windows(2) {
                    findings.step();
                    let [before, after] = [pair[0], pair[1]].map(|place| node_of_entry[place]);
                    if before != after {
                        graph.after[before].push(after);
                        graph.before[after].push(before);
                    }
                }
            }
            graph.node_of_entry.push(node_of_entry);
        }
        graph
    }

    /// Returns the transactions in topological order, without those that a cycle precedes.
    fn topological_order(&self, findings: &mut Findings<'_>) -> Vec<usize> {
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
    fn report_cycle(&self, sorted: &[usize], findings: &mut Findings<'_>) {
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
        let cycle: Vec<&RecordedEntry> =
            path[at[&node]..].iter().rev().map(|node| self.entry[*node]).collect();
        let names: Vec<String> = cycle.iter().take(5).map(|entry| describe(entry)).collect();
        let text = format!(
            "{} changes of several values precede themselves: {}, and so on; they should have one \
             order in all chains",
            cycle.len(),
            names.join(", then ")
        );
        findings.add(Invariant::RealTime, cycle.iter().map(|e| e.seq).collect(), vec![], text);
    }

    fn report_late(
        &self,
        entry: &RecordedEntry,
        predecessor: usize,
        node: usize,
        findings: &mut Findings<'_>,
    ) {
        let (writer, acknowledged) =
            (self.bounds[predecessor].writer, self.bounds[node].acknowledged);
        let requests: Vec<usize> = writer.into_iter().chain(acknowledged).collect();
        let names: Vec<String> = requests.iter().map(|index| findings.name_of(*index)).collect();
        let text = format!(
            "{} follows {} by the chains of other values; but the latter was sent at {} µs, and the \
             former had its response at {} µs ({})",
            describe(entry),
            describe(self.entry[predecessor]),
            self.bounds[predecessor].from,
            self.bounds[node].to,
            names.join(", ")
        );
        let seqs = vec![self.entry[predecessor].seq, entry.seq];
        findings.add(Invariant::RealTime, seqs, requests, text);
    }
}

fn describe(entry: &RecordedEntry) -> String {
    format!("{} entry {} ({})", entry.key, entry.seq, entry.reason)
}

//! Checks each value's chain of entries, that all writes have one order, and that every *sold out*
//! fits into it.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_shop::OrderId;

use crate::operations::{Bounds, MatchedEntries};
use crate::{Findings, Invariant, ObservedOutcome, ObservedRequest, RecordedEntry, RecordedState};

/// The entries of a value as indices, ordered by version.
type Chains<'a> = BTreeMap<&'a str, Vec<usize>>;

pub(super) fn check(
    state: &RecordedState,
    seen: &[ObservedRequest],
    matched: &MatchedEntries,
    findings: &mut Findings,
) {
    let mut chains: Chains<'_> = state.values.keys().map(|key| (key.as_str(), vec![])).collect();
    for (at, entry) in state.entries.iter().enumerate() {
        match chains.get_mut(entry.key.as_str()) {
            Some(chain) => chain.push(at),
            None => findings.add(Invariant::Sum, format!("{entry}: there is no such value")),
        }
    }
    for (key, chain) in &mut chains {
        chain.sort_by_key(|at| (state.entries[*at].version, state.entries[*at].seq));
        check_links(state, key, chain, findings);
    }
    let bounds = one_order(state, &chains, &matched.bounds, findings);

    let mut sold_out: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, seen) in seen.iter().enumerate() {
        if let ObservedOutcome::Insufficient { key, .. } = &seen.outcome {
            sold_out.entry(key).or_default().push(at);
        }
    }
    for (key, mut requests) in sold_out {
        requests.sort_by_key(|at| seen[*at].invoked_us);
        let Some(entries) = chains.get(key) else {
            findings.add(Invariant::SoldOut, format!("{key} is sold out, and does not exist"));
            continue;
        };
        let chain = Chain { state, entries, bounds: &bounds };
        chain.check_sold_out(seen, &requests, &matched.later_entry, findings);
    }
}

/// Each entry begins where the one before it ended, with another version and no smaller fence.
fn check_links(state: &RecordedState, key: &str, chain: &[usize], findings: &mut Findings) {
    let (mut value, mut fence, mut sum) = (0, 0, 0);
    let mut previous: Option<&RecordedEntry> = None;
    for at in chain {
        let entry = &state.entries[*at];
        if entry.before != value || entry.before + entry.delta != entry.after {
            findings.add(Invariant::Break, format!("{entry}: it should begin with {value}"));
        }
        if previous.is_some_and(|before| before.version == entry.version) {
            findings.add(Invariant::Fork, format!("{entry}: the one before it read that version"));
        }
        sum += entry.delta;
        if entry.after < 0 || sum < 0 {
            findings.add(Invariant::Negative, format!("{entry}: more than ever existed"));
        }
        if entry.fence.is_some_and(|own| own < fence) {
            findings.add(Invariant::Fence, format!("{entry}: an earlier one has fence {fence}"));
        }
        fence = fence.max(entry.fence.unwrap_or(fence));
        value = entry.after;
        previous = Some(entry);
    }
    let now = state.values[key];
    if now < 0 {
        findings.add(Invariant::Negative, format!("{key} is {now}"));
    }
    if now != sum {
        findings.add(Invariant::Sum, format!("{key} is {now}, and {sum} by its ledger"));
    }
}

/// The writes as a graph. An order of two items is one write with an entry in two chains: an entry
/// before it in either chain precedes it in both.
struct Writes {
    of_entry: Vec<usize>,
    bounds: Vec<Bounds>,
    /// The entry of each write that is named in messages.
    entry: Vec<usize>,
    after: Vec<Vec<usize>>,
}

impl Writes {
    fn new(state: &RecordedState, chains: &Chains<'_>, bounds: &[Bounds]) -> Self {
        let mut writes = Self { of_entry: vec![], bounds: vec![], entry: vec![], after: vec![] };
        let mut of_order: HashMap<(OrderId, &str), usize> = HashMap::new();
        let mut known: HashSet<(usize, &str)> = HashSet::new();
        for (at, entry) in state.entries.iter().enumerate() {
            let next = writes.bounds.len();
            let mut write = entry.order.map_or(next, |order| {
                *of_order.entry((order, entry.reason.as_str())).or_insert(next)
            });
            // A doubled entry is reported already; it must not also precede itself.
            if !known.insert((write, &entry.key)) {
                write = next;
            }
            if write == next {
                writes.bounds.push(bounds[at]);
                writes.entry.push(at);
                writes.after.push(Vec::new());
            }
            writes.of_entry.push(write);
        }
        for chain in chains.values() {
            for pair in chain.windows(2) {
                writes.after[writes.of_entry[pair[0]]].push(writes.of_entry[pair[1]]);
            }
        }
        writes
    }

    /// Each after all that precede it; without those that precede themselves.
    fn sorted(&self) -> Vec<usize> {
        let mut open = vec![0; self.after.len()];
        for after in self.after.iter().flatten() {
            open[*after] += 1;
        }
        let mut sorted: Vec<usize> = (0..open.len()).filter(|write| open[*write] == 0).collect();
        let mut at = 0;
        while at < sorted.len() {
            for after in &self.after[sorted[at]] {
                open[*after] -= 1;
                if open[*after] == 0 {
                    sorted.push(*after);
                }
            }
            at += 1;
        }
        sorted
    }
}

/// The order of the chains leaves a time for every write. Returns the bounds of each entry,
/// narrowed by the writes before and after it.
fn one_order(
    state: &RecordedState,
    chains: &Chains<'_>,
    bounds: &[Bounds],
    findings: &mut Findings,
) -> Vec<Bounds> {
    let writes = Writes::new(state, chains, bounds);
    let sorted = writes.sorted();
    if let Some(left) = (0..writes.after.len()).find(|write| !sorted.contains(write)) {
        let entry = &state.entries[writes.entry[left]];
        findings.add(Invariant::RealTime, format!("{entry}: by another chain it precedes itself"));
    }

    let mut narrowed = writes.bounds.clone();
    for write in &sorted {
        if narrowed[*write].from > writes.bounds[*write].to {
            let entry = &state.entries[writes.entry[*write]];
            let text = format!("{entry}: one before it was sent after the response to this one");
            findings.add(Invariant::RealTime, text);
        }
        for after in &writes.after[*write] {
            narrowed[*after].from = narrowed[*after].from.max(narrowed[*write].from);
        }
    }
    for write in sorted.iter().rev() {
        for after in &writes.after[*write] {
            narrowed[*write].to = narrowed[*write].to.min(narrowed[*after].to);
        }
    }
    writes.of_entry.iter().map(|write| narrowed[*write]).collect()
}

/// A value before its first entry (position 0) and after each.
struct Chain<'a> {
    state: &'a RecordedState,
    entries: &'a [usize],
    bounds: &'a [Bounds],
}

impl Chain<'_> {
    /// Each rejection saw a position that its time allows, at or after the positions that earlier
    /// ones saw. `requests`: by their start.
    fn check_sold_out(
        &self,
        seen: &[ObservedRequest],
        requests: &[usize],
        later_entry: &HashMap<usize, usize>,
        findings: &mut Findings,
    ) {
        let mut positions: Vec<(u64, usize)> = Vec::new();
        for at in requests {
            let request = &seen[*at];
            let ObservedOutcome::Insufficient { key, requested, available } = &request.outcome
            else {
                continue;
            };
            let (low, mut high) = self.span(request);
            let later = later_entry.get(at);
            if let Some(later) = self.entries.iter().position(|entry| Some(entry) == later) {
                high = high.min(later);
            }
            let before = positions.iter().filter(|(ended, _)| *ended < request.invoked_us);
            let low = before.map(|(_, position)| *position).fold(low, usize::max);
            let found = (low..=high).find(|position| self.value(*position) == *available);
            match found.filter(|_| available < requested) {
                Some(position) => positions.push((request.completed_us, position)),
                None => findings.add(
                    Invariant::SoldOut,
                    format!(
                        "request #{at} (key {}) requested {requested} of {key} and was rejected with \
                         {available}, which it cannot have read",
                        request.key
                    ),
                ),
            }
        }
    }

    /// The first and the last position that a request can have seen.
    fn span(&self, request: &ObservedRequest) -> (usize, usize) {
        let bounds = |at: &usize| self.bounds[*at];
        let low = self.entries.partition_point(|at| bounds(at).to < request.invoked_us);
        let high = self.entries.partition_point(|at| bounds(at).from <= request.completed_us);
        // No request reads an item before it exists.
        let opened = self.entries.first().is_some_and(|at| self.entry(*at).reason == "opening");
        (low.max(usize::from(opened)), high)
    }

    fn value(&self, position: usize) -> i64 {
        position.checked_sub(1).map_or(0, |rank| self.entry(self.entries[rank]).after)
    }

    fn entry(&self, at: usize) -> &RecordedEntry {
        &self.state.entries[at]
    }
}

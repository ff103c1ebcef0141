//! I9: a *sold out* was true at some moment of its request.
//!
//! Position `p` of a chain is the state after its first `p` entries. A *sold out* saw one position:
//! after every entry whose response was received before this request was sent, before every entry
//! whose request was sent after this response, and not before the position of a *sold out* that was
//! received before this request was sent. Assigning to each the first position that fits, in the
//! order of sending, leaves the most room for the others: if that fails, every assignment fails.

use std::collections::{BTreeMap, HashMap};

use super::chain::{CheckedLedger, EntryChain};
use super::report::{Findings, Invariant};
use super::{ObservedOutcome, ObservedRequest, spec};

/// Checks every *sold out* of a value in this ledger.
pub(super) fn check(checked: &CheckedLedger<'_>, findings: &mut Findings<'_>) {
    let mut by_key: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in &checked.insufficient {
        findings.step();
        if let ObservedOutcome::Insufficient { key, .. } = &findings.observations[*place].outcome {
            by_key.entry(key).or_default().push(*place);
        }
    }
    for chain in &checked.chains {
        if let Some(places) = by_key.remove(chain.key) {
            SoldOutCheck::new(checked, chain, findings).check(&places, findings);
        }
    }
    for (key, places) in by_key {
        let name = findings.name_of(places[0]);
        let text = format!("{name} was rejected for {key}, which does not exist");
        findings.add(Invariant::SoldOut, vec![], places, text);
    }
}

/// The value at each position.
struct SoldOutCheck<'a> {
    chain: &'a EntryChain<'a>,
    later_entry: &'a HashMap<usize, usize>,
    seqs: Vec<i64>,
    /// The positions of each value, ascending.
    positions: HashMap<i64, Vec<usize>>,
    /// Index of each entry in the chain, by its index in the ledger.
    ranks: HashMap<usize, usize>,
    /// The first position that a request can see: after the opening entry, if there is one.
    first: usize,
}

impl<'a> SoldOutCheck<'a> {
    fn new(
        checked: &'a CheckedLedger<'a>,
        chain: &'a EntryChain<'a>,
        findings: &mut Findings<'_>,
    ) -> Self {
        let entries = chain.entries.iter().map(|place| &checked.ledger.entries[*place]);
        let values = [chain.value.opening].into_iter().chain(entries.clone().map(|e| e.after));
        let mut positions: HashMap<i64, Vec<usize>> = HashMap::new();
        for (position, value) in values.enumerate() {
            findings.step();
            positions.entry(value).or_default().push(position);
        }
        let ranks = chain.entries.iter().enumerate().map(|(rank, place)| (*place, rank)).collect();
        let opened = entries.clone().next().is_some_and(|entry| entry.reason == "opening");
        let seqs = entries.map(|entry| entry.seq).collect();
        let later_entry = &checked.later_entry;
        Self { chain, later_entry, seqs, positions, ranks, first: usize::from(opened) }
    }

    fn check(&self, places: &[usize], findings: &mut Findings<'_>) {
        let observations = findings.observations;
        let mut by_start = places.to_vec();
        let start = |place: &usize| observations[*place].invoked_us;
        findings.sort(&mut by_start, |a, b| start(a).cmp(&start(b)));
        let mut by_end = places.to_vec();
        let end = |place: &usize| observations[*place].completed_us;
        findings.sort(&mut by_end, |a, b| end(a).cmp(&end(b)));
        let mut by_end = by_end.into_iter().peekable();
        let mut positions: HashMap<usize, usize> = HashMap::new();
        // The highest position seen by a request that has its response by now, and that request.
        let mut floor: Option<(usize, usize)> = None;
        for place in by_start {
            let seen = &observations[place];
            let ObservedOutcome::Insufficient { requested, available, .. } = seen.outcome else {
                continue;
            };
            while let Some(before) = by_end.next_if(|place| end(place) < seen.invoked_us) {
                findings.step();
                if let Some(position) = positions.get(&before) {
                    floor = floor.max(Some((*position, before)));
                }
            }
            let is_insufficient =
                spec::is_insufficient(&seen.operation, self.chain.key, requested, available);
            let (low, high) = self.bounds(seen, self.later_entry.get(&place), findings);
            let from = low.max(floor.map_or(0, |(position, _)| position));
            let position = self.first_position(available, from, high, findings);
            match position.filter(|_| is_insufficient) {
                Some(position) => drop(positions.insert(place, position)),
                None => {
                    self.report_impossible(place, is_insufficient, (low, high), floor, findings);
                }
            }
        }
    }

    /// Returns the first and the last position that a request can have seen.
    fn bounds(
        &self,
        seen: &ObservedRequest,
        later_entry: Option<&usize>,
        findings: &mut Findings<'_>,
    ) -> (usize, usize) {
        let (earliest, latest) = (&self.chain.earliest, &self.chain.latest);
        let low = findings.first(latest.len(), |at| latest[at] >= seen.invoked_us);
        let high = findings.first(earliest.len(), |at| earliest[at] > seen.completed_us);
        let before =
            later_entry.and_then(|place| self.ranks.get(place)).copied().unwrap_or(usize::MAX);
        (low.max(self.first), high.min(before))
    }

    /// Returns the first position from `low` to `high` at which the value is `available`.
    fn first_position(
        &self,
        available: i64,
        low: usize,
        high: usize,
        findings: &mut Findings<'_>,
    ) -> Option<usize> {
        let same = self.positions.get(&available)?;
        let next = findings.first(same.len(), |at| same[at] >= low);
        same.get(next).copied().filter(|position| *position <= high)
    }

    fn report_impossible(
        &self,
        place: usize,
        is_insufficient: bool,
        (low, high): (usize, usize),
        floor: Option<(usize, usize)>,
        findings: &mut Findings<'_>,
    ) {
        let seen = &findings.observations[place];
        let ObservedOutcome::Insufficient { requested, available, .. } = seen.outcome else {
            return;
        };
        let key = self.chain.key;
        let claim_text = format!(
            "{} requested {requested} of {key} and was rejected with {available} available",
            findings.name_of(place)
        );
        let after = |position: usize| match position.checked_sub(1) {
            None => "its opening".to_owned(),
            Some(rank) => format!("entry {}", self.seqs[rank]),
        };
        let mut requests = vec![place];
        let text = if !is_insufficient {
            format!("{claim_text}: that is enough, and it should not have been rejected")
        } else if low > high {
            format!(
                "{claim_text}: it should have seen {} and all before it, and nothing after {}",
                after(low),
                after(high)
            )
        } else {
            let span = format!("from {} to {}", after(low), after(high));
            let position = self.first_position(available, low, high, findings);
            match floor.filter(|_| position.is_some()) {
                Some((position, before)) => {
                    requests.push(before);
                    format!(
                        "{claim_text}: that was so {span}, but not since {}, which {} had seen before this \
                         request was sent",
                        after(position),
                        findings.name_of(before)
                    )
                }
                None => format!("{claim_text}: at no moment of the request, {span}, was that so"),
            }
        };
        let edges = [low.min(high), high].into_iter();
        let mut seqs: Vec<i64> =
            edges.filter_map(|p| self.seqs.get(p.checked_sub(1)?).copied()).collect();
        seqs.dedup();
        findings.add(Invariant::SoldOut, seqs, requests, text);
    }
}

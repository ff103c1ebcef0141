//! Checks each value's chain of entries, ordered by `(version, seq)`: I1, I2, I3, I7 and I8.

use std::collections::{BTreeMap, HashMap};

use super::report::{Findings, Invariant};
use super::{RecordedEntry, RecordedLedger, RecordedValue};

/// A ledger with the results of the rules so far.
#[derive(Debug)]
pub(super) struct CheckedLedger<'a> {
    pub ledger: &'a RecordedLedger,
    /// One per entry.
    pub bounds: Vec<TimeBounds>,
    /// Requests rejected as sold out, or for insufficient funds.
    pub insufficient: Vec<usize>,
    /// For those whose operation another attempt executed later: the index of the entry that was
    /// not written yet.
    pub later_entry: HashMap<usize, usize>,
    /// One per value.
    pub chains: Vec<EntryChain<'a>>,
}

/// Bounds on the time when an entry took effect, and the requests that imply them.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeBounds {
    /// Earliest time: when `writer` was sent.
    pub from: u64,
    /// The request that is taken to have written the entry.
    pub writer: Option<usize>,
    /// Latest time: when `acknowledged` got its response.
    pub to: u64,
    /// The request that acknowledged the entry.
    pub acknowledged: Option<usize>,
}

impl TimeBounds {
    /// No bounds.
    pub const UNBOUNDED: Self = Self { from: 0, writer: None, to: u64::MAX, acknowledged: None };
}

/// The entries of one key.
#[derive(Debug)]
pub(super) struct EntryChain<'a> {
    pub key: &'a str,
    pub value: RecordedValue,
    /// Their indices in the ledger's entries, ordered by `(version, seq)`.
    pub entries: Vec<usize>,
    /// Earliest time at which each entry can have taken effect after all before it; ascending.
    pub earliest: Vec<u64>,
    /// Latest time at which each entry took effect, given all entries after it; ascending.
    pub latest: Vec<u64>,
}

/// Checks all chains of a ledger.
pub(super) fn check<'a>(
    checked: &CheckedLedger<'a>,
    findings: &mut Findings<'_>,
) -> Vec<EntryChain<'a>> {
    let CheckedLedger { ledger, bounds, .. } = checked;
    let mut places_by_key: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, entry) in ledger.entries.iter().enumerate() {
        findings.step();
        places_by_key.entry(&entry.key).or_default().push(place);
    }
    let mut chains = Vec::with_capacity(ledger.values.len());
    for (key, value) in &ledger.values {
        let mut entries = places_by_key.remove(key.as_str()).unwrap_or_default();
        let order = |place: &usize| (ledger.entries[*place].version, ledger.entries[*place].seq);
        findings.sort(&mut entries, |a, b| order(a).cmp(&order(b)));
        let latest = entries.iter().map(|place| bounds[*place].to).collect();
        let mut chain = EntryChain { key, value: *value, entries, earliest: Vec::new(), latest };
        check_links(ledger, &chain, findings);
        check_fences(ledger, &chain, findings);
        check_real_time(checked, &mut chain, findings);
        chains.push(chain);
    }
    for (key, places) in places_by_key {
        let seqs = places.iter().map(|place| ledger.entries[*place].seq).collect();
        let text = format!("{key} has entries, and there is no such value");
        findings.add(Invariant::Sum, seqs, vec![], text);
    }
    chains
}

/// Checks I1, I2 and I3.
fn check_links(ledger: &RecordedLedger, chain: &EntryChain<'_>, findings: &mut Findings<'_>) {
    let key = chain.key;
    let mut running = chain.value.opening;
    let mut oversold = false;
    let mut previous: Option<&RecordedEntry> = None;
    for place in &chain.entries {
        findings.step();
        let entry = &ledger.entries[*place];
        let RecordedEntry { seq, before, delta, after, version, .. } = entry;
        let described =
            format!("{key} entry {seq} ({before} {delta:+} → {after}, version {version})");
        let (should, last) = previous.map_or((chain.value.opening, None), |p| (p.after, Some(p)));
        if *before != should {
            let after_what = last.map_or("it opened".to_owned(), |p| format!("entry {}", p.seq));
            let text = format!("{described}: {after_what} with {should}, so it should begin there");
            findings.add(Invariant::Break, seqs_of(last, *seq), vec![], text);
        }
        if before.checked_add(*delta) != Some(*after) {
            let text = format!("{described}: it does not add up");
            findings.add(Invariant::Break, vec![*seq], vec![], text);
        }
        if let Some(p) = last.filter(|p| p.version == *version) {
            let text = format!(
                "{described}: entry {} read the same version, and this one should have read a \
                 later one",
                p.seq
            );
            findings.add(Invariant::Fork, seqs_of(last, *seq), vec![], text);
        }
        running = running.saturating_add(*delta);
        if *before < 0 || *after < 0 {
            let text = format!("{described}: below zero");
            findings.add(Invariant::Negative, vec![*seq], vec![], text);
        } else if running < 0 && !oversold {
            oversold = true;
            let text = format!("{described}: {} more were sold than ever existed", -running);
            findings.add(Invariant::Negative, vec![*seq], vec![], text);
        }
        previous = Some(entry);
    }
    let now = chain.value.now;
    if now < 0 {
        findings.add(Invariant::Negative, vec![], vec![], format!("{key} is {now}: below zero"));
    }
    if now != running {
        let opening = chain.value.opening;
        let text = format!("{key} is {now}; it opened with {opening}, and by its ledger {running}");
        findings.add(Invariant::Sum, vec![], vec![], text);
    }
}

fn seqs_of(previous: Option<&RecordedEntry>, seq: i64) -> Vec<i64> {
    previous.map(|entry| entry.seq).into_iter().chain([seq]).collect()
}

/// Checks I8; skips entries without a fence.
fn check_fences(ledger: &RecordedLedger, chain: &EntryChain<'_>, findings: &mut Findings<'_>) {
    let mut highest: Option<(i64, i64)> = None;
    for place in &chain.entries {
        findings.step();
        let entry = &ledger.entries[*place];
        let Some(fence) = entry.fence else { continue };
        match highest {
            Some((seq, before)) if before > fence => {
                let text = format!(
                    "{} entry {} has fence {fence}, and entry {seq} before it {before}: its write \
                     was stale and should have been rejected",
                    chain.key, entry.seq
                );
                findings.add(Invariant::Fence, vec![seq, entry.seq], vec![], text);
            }
            _ => highest = Some((entry.seq, fence)),
        }
    }
}

/// Checks I7 within the chain, and computes the earliest times. [`super::transactions`] computes
/// the latest ones, and the bounds that other chains imply.
fn check_real_time(
    checked: &CheckedLedger<'_>,
    chain: &mut EntryChain<'_>,
    findings: &mut Findings<'_>,
) {
    let bounds: Vec<TimeBounds> =
        chain.entries.iter().map(|place| checked.bounds[*place]).collect();
    let mut latest_start: Option<usize> = None;
    for (at, bound) in bounds.iter().enumerate() {
        findings.step();
        if let Some(before) = latest_start.filter(|before| bounds[*before].from > bound.to) {
            let seqs = [before, at].map(|at| checked.ledger.entries[chain.entries[at]].seq);
            let requests: Vec<usize> =
                bounds[before].writer.into_iter().chain(bound.acknowledged).collect();
            let names: Vec<String> =
                requests.iter().map(|index| findings.name_of(*index)).collect();
            let text = format!(
                "{} entry {} precedes entry {}, but {} was sent at {} µs, and the other had its \
                 response at {} µs ({}): it should follow it",
                chain.key,
                seqs[0],
                seqs[1],
                names.first().map_or("its request", String::as_str),
                bounds[before].from,
                bound.to,
                names.last().map_or("by its request", String::as_str),
            );
            findings.add(Invariant::RealTime, seqs.to_vec(), requests, text);
        }
        if latest_start.is_none_or(|before| bounds[before].from < bound.from) {
            latest_start = Some(at);
        }
        chain.earliest.push(latest_start.map_or(0, |before| bounds[before].from));
    }
}

//! Checks each value's chain of entries, ordered by `(version, seq)`: I1, I2, I3, I7 and I8.

use super::report::{Findings, Rule, named};
use super::{Entry, Ledger, Observation, Value};

/// Bounds on the time when an entry took effect, and the requests that imply them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Earliest time: when `asked` was sent.
    pub from: u64,
    /// The request that is taken to have written the entry.
    pub asked: Option<usize>,
    /// Latest time: when `answered` was answered.
    pub to: u64,
    /// The request that acknowledged the entry.
    pub answered: Option<usize>,
}

impl Window {
    /// No bounds.
    pub const ANY: Self = Self { from: 0, asked: None, to: u64::MAX, answered: None };
}

/// The entries of one key.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    pub key: &'a str,
    pub value: Value,
    /// Their indices in the ledger's list, ordered by `(version, seq)`.
    pub entries: Vec<usize>,
    /// Earliest time at which each entry can have taken effect after all before it; ascending.
    pub earliest: Vec<u64>,
    /// Latest time at which each entry took effect, given all entries after it; ascending.
    pub latest: Vec<u64>,
}

/// Checks all chains of a ledger; `windows` has one element per entry.
pub(super) fn check<'a>(
    ledger: &'a Ledger,
    windows: &[Window],
    observations: &[Observation],
    findings: &mut Findings,
) -> Vec<Chain<'a>> {
    let mut places: Vec<usize> = (0..ledger.entries.len()).collect();
    let order = |place: usize| {
        let Entry { key, version, seq, .. } = &ledger.entries[place];
        (key, *version, *seq)
    };
    findings.sort(&mut places, |a, b| order(*a).cmp(&order(*b)));
    let mut groups = places
        .chunk_by(|a, b| ledger.entries[*a].key == ledger.entries[*b].key)
        .map(|group| (&ledger.entries[group[0]].key, group))
        .peekable();
    let mut chains = Vec::with_capacity(ledger.values.len());
    for (key, value) in &ledger.values {
        while let Some((stray, group)) = groups.next_if(|(other, _)| *other < key) {
            stray_entries(ledger, stray, group, findings);
        }
        let group = groups.next_if(|(other, _)| *other == key).map_or(&[][..], |(_, group)| group);
        let of_chain: Vec<Window> = group.iter().map(|place| windows[*place]).collect();
        let mut chain = Chain {
            key,
            value: *value,
            entries: group.to_vec(),
            earliest: Vec::new(),
            latest: group.iter().map(|place| windows[*place].to).collect(),
        };
        links(ledger, &chain, findings);
        fences(ledger, &chain, findings);
        real_time(ledger, &mut chain, &of_chain, observations, findings);
        chains.push(chain);
    }
    for (stray, group) in groups {
        stray_entries(ledger, stray, group, findings);
    }
    chains
}

fn stray_entries(ledger: &Ledger, key: &str, group: &[usize], findings: &mut Findings) {
    let seqs = group.iter().map(|place| ledger.entries[*place].seq).collect();
    findings.add(Rule::Sum, seqs, vec![], format!("{key} has entries, and there is no such value"));
}

/// Checks I1, I2 and I3.
fn links(ledger: &Ledger, chain: &Chain<'_>, findings: &mut Findings) {
    let key = chain.key;
    let mut running = chain.value.opening;
    let mut oversold = false;
    let mut previous: Option<&Entry> = None;
    for place in &chain.entries {
        findings.step();
        let entry = &ledger.entries[*place];
        let Entry { seq, before, delta, after, version, .. } = entry;
        let told = format!("{key} entry {seq} ({before} {delta:+} → {after}, version {version})");
        let (should, last) = previous.map_or((chain.value.opening, None), |p| (p.after, Some(p)));
        if *before != should {
            let after_what = last.map_or("it opened".to_owned(), |p| format!("entry {}", p.seq));
            let text = format!("{told}: {after_what} with {should}, so it should begin there");
            findings.add(Rule::Break, both(last, *seq), vec![], text);
        }
        if before.checked_add(*delta) != Some(*after) {
            let text = format!("{told}: it does not add up");
            findings.add(Rule::Break, vec![*seq], vec![], text);
        }
        if let Some(p) = last.filter(|p| p.version == *version) {
            let text = format!(
                "{told}: entry {} read the same version, and this one should have read a later one",
                p.seq
            );
            findings.add(Rule::Fork, both(last, *seq), vec![], text);
        }
        running = running.saturating_add(*delta);
        if *before < 0 || *after < 0 {
            findings.add(Rule::Negative, vec![*seq], vec![], format!("{told}: below zero"));
        } else if running < 0 && !oversold {
            oversold = true;
            let text = format!("{told}: {} more were given away than there ever were", -running);
            findings.add(Rule::Negative, vec![*seq], vec![], text);
        }
        previous = Some(entry);
    }
    let now = chain.value.now;
    if now < 0 {
        findings.add(Rule::Negative, vec![], vec![], format!("{key} is {now}: below zero"));
    }
    if now != running {
        let opening = chain.value.opening;
        let text = format!("{key} is {now}; it opened with {opening}, and by its ledger {running}");
        findings.add(Rule::Sum, vec![], vec![], text);
    }
}

fn both(previous: Option<&Entry>, seq: i64) -> Vec<i64> {
    previous.map(|entry| entry.seq).into_iter().chain([seq]).collect()
}

/// Checks I8; skips entries without a fence.
fn fences(ledger: &Ledger, chain: &Chain<'_>, findings: &mut Findings) {
    let mut highest: Option<(i64, i64)> = None;
    for place in &chain.entries {
        findings.step();
        let entry = &ledger.entries[*place];
        let Some(fence) = entry.fence else { continue };
        match highest {
            Some((seq, before)) if before > fence => {
                let text = format!(
                    "{} entry {} has fence {fence}, and entry {seq} before it {before}: whoever \
                     wrote it came too late and should have been turned away",
                    chain.key, entry.seq
                );
                findings.add(Rule::Fence, vec![seq, entry.seq], vec![], text);
            }
            _ => highest = Some((entry.seq, fence)),
        }
    }
}

/// Checks I7 within the chain, and computes the earliest times. [`super::across`] computes the
/// latest ones, and the bounds that other chains imply.
fn real_time(
    ledger: &Ledger,
    chain: &mut Chain<'_>,
    windows: &[Window],
    observations: &[Observation],
    findings: &mut Findings,
) {
    let mut youngest: Option<usize> = None;
    for (at, window) in windows.iter().enumerate() {
        findings.step();
        if let Some(before) = youngest.filter(|before| windows[*before].from > window.to) {
            let seqs = [before, at].map(|at| ledger.entries[chain.entries[at]].seq);
            let requests: Vec<usize> =
                windows[before].asked.into_iter().chain(window.answered).collect();
            let names: Vec<String> =
                requests.iter().map(|place| named(observations, *place)).collect();
            let text = format!(
                "{} entry {} comes before entry {}, but {} was sent at {} µs, when the other had \
                 been answered at {} µs ({}): it should come after it",
                chain.key,
                seqs[0],
                seqs[1],
                names.first().map_or("its request", String::as_str),
                windows[before].from,
                window.to,
                names.last().map_or("by its request", String::as_str),
            );
            findings.add(Rule::RealTime, seqs.to_vec(), requests, text);
        }
        if youngest.is_none_or(|before| windows[before].from < window.from) {
            youngest = Some(at);
        }
        chain.earliest.push(youngest.map_or(0, |before| windows[before].from));
    }
}

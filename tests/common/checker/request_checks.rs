//! Checks each operation: requested, acknowledged, written (I4, I5, I6, and I10 for orders).

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::chain::{CheckedLedger, TimeBounds};
use super::report::{Findings, Invariant};
use super::spec::OrderOperation;
use super::{
    ObservedChange, ObservedOperation, ObservedOutcome, ObservedRequest, RecordedEntry,
    RecordedLedger, RecordedOrder,
};
use holdfast::shop::OrderId;
use holdfast::shop::failure::Rejection;

/// Checks the operations of one kind in one ledger.
pub(super) struct RequestChecks<'a> {
    /// The bounds and later entries that the checks compute, for all operations so far.
    pub checked: CheckedLedger<'a>,
    /// The entries of this kind.
    entries: HashMap<OrderId, Vec<usize>>,
}

/// The entries of one operation, by their index in the ledger; one per key if all is well.
type EntriesByKey<'a> = BTreeMap<&'a str, Vec<usize>>;

impl<'a> RequestChecks<'a> {
    pub fn new(
        ledger: &'a RecordedLedger,
        reason: &str,
        orders: &HashMap<OrderId, &RecordedOrder>,
        findings: &mut Findings<'_>,
    ) -> Self {
        let mut entries: HashMap<OrderId, Vec<usize>> = HashMap::new();
        for (place, entry) in ledger.entries.iter().enumerate() {
            findings.step();
            if entry.reason != reason {
                continue;
            }
            match entry.order.filter(|order| orders.contains_key(order)) {
                Some(order) => entries.entry(order).or_default().push(place),
                None => {
                    let text =
                        format!("{}: there should be an order that it belongs to", describe(entry));
                    findings.add(Invariant::Unmatched, vec![entry.seq], vec![], text);
                }
            }
        }
        let checked = CheckedLedger {
            ledger,
            bounds: vec![TimeBounds::UNBOUNDED; ledger.entries.len()],
            insufficient: Vec::new(),
            later_entry: HashMap::new(),
            chains: Vec::new(),
        };
        Self { checked, entries }
    }

    /// Checks one operation with all its attempts.
    pub fn check(
        &mut self,
        operation: OrderOperation<'_>,
        attempts: &[usize],
        findings: &mut Findings<'_>,
    ) {
        let (order, what) = (operation.order().id, operation.reason());
        let mut entries = EntriesByKey::new();
        for place in self.entries.remove(&order).unwrap_or_default() {
            findings.step();
            entries.entry(&self.checked.ledger.entries[place].key).or_default().push(place);
        }
        let observations = findings.observations;
        let acknowledged = attempts
            .iter()
            .any(|a| matches!(observations[*a].outcome, ObservedOutcome::Done { .. }));
        self.check_entries(operation, &entries, acknowledged, findings);
        let mut fresh = Vec::new();
        for attempt in attempts {
            findings.step();
            if let ObservedOutcome::Done { order: acknowledged, changes, replayed } =
                &observations[*attempt].outcome
            {
                if *acknowledged == order {
                    self.check_response(*attempt, changes, &entries, findings);
                } else {
                    let name = findings.name_of(*attempt);
                    let text = format!(
                        "{name} got order {acknowledged} as its response; order {order} is recorded"
                    );
                    findings.add(Invariant::Lost, vec![], vec![*attempt], text);
                }
                fresh.extend((!replayed).then_some(*attempt));
            }
        }
        if let [first, second, ..] = fresh[..] {
            let [a, b] = [first, second].map(|place| findings.name_of(place));
            let text = format!(
                "both {a} and {b} got a response of the first {what} of order {order}: one of them \
                 should be a replay"
            );
            findings.add(Invariant::Twice, vec![], fresh.clone(), text);
        }
        self.check_rejected(order, what, &entries, attempts, findings);
        self.bound_times(&entries, attempts, findings);
        // An executed key is replayed before any rejection, so a *sold out* with this key precedes
        // the entry.
        for attempt in attempts {
            if let ObservedOutcome::Insufficient { key, .. } = &observations[*attempt].outcome {
                let later = entries.get(key.as_str()).and_then(|places| places.first());
                self.checked.later_entry.extend(later.map(|place| (*attempt, *place)));
            }
        }
    }

    /// Checks that each key that should have changed has one entry with its delta, which the rules
    /// of the shop allow with `before`; and that no other key has an entry.
    fn check_entries(
        &self,
        operation: OrderOperation<'_>,
        entries: &EntriesByKey<'_>,
        acknowledged: bool,
        findings: &mut Findings<'_>,
    ) {
        let (order, what) = (operation.order().id, operation.reason());
        let deltas: BTreeMap<String, i64> = operation.deltas().into_iter().collect();
        for (key, delta) in &deltas {
            findings.step();
            let own = entries.get(key.as_str()).map_or(&[][..], Vec::as_slice);
            let seqs = || own.iter().map(|place| self.entry(*place).seq).collect();
            match own {
                [] if acknowledged => {} // `check_response` reports it, with the request.
                [] => {
                    let text = format!("order {order} should have one {what} entry of {key}");
                    findings.add(Invariant::Unmatched, vec![], vec![], text);
                }
                [only] => {
                    let entry = self.entry(*only);
                    if entry.delta != *delta {
                        let text = format!("{}: its delta should be {delta:+}", describe(entry));
                        findings.add(Invariant::Differs, seqs(), vec![], text);
                    }
                    match operation.apply_rules(key, entry.before) {
                        Ok(change) if change.as_ref().is_none_or(|by| by.delta != *delta) => {
                            let text =
                                format!("{}: the rules make {change:?} of it", describe(entry));
                            findings.add(Invariant::Differs, seqs(), vec![], text);
                        }
                        Err(Rejection::SoldOut { .. } | Rejection::InsufficientFunds { .. }) => {
                            let text = format!("{}: it should have been rejected", describe(entry));
                            findings.add(Invariant::Negative, seqs(), vec![], text);
                        }
                        // The rules do not judge values out of range; only the delta counts.
                        Ok(_) | Err(_) => {}
                    }
                }
                _ => {
                    let seqs: Vec<i64> = seqs();
                    let text = format!(
                        "order {order} should have one {what} entry of {key}, and has {}: {seqs:?}",
                        own.len()
                    );
                    findings.add(Invariant::Twice, seqs, vec![], text);
                }
            }
        }
        let stray = entries.iter().filter(|(key, _)| !deltas.contains_key(**key));
        for place in stray.flat_map(|(_, places)| places) {
            findings.step();
            let entry = self.entry(*place);
            let text = format!("{}: its order has nothing of the kind", describe(entry));
            findings.add(Invariant::Unmatched, vec![entry.seq], vec![], text);
        }
    }

    fn entry(&self, place: usize) -> &'a RecordedEntry {
        &self.checked.ledger.entries[place]
    }

    /// Checks I4: request, response and entries agree.
    fn check_response(
        &self,
        attempt: usize,
        changes: &[ObservedChange],
        entries: &EntriesByKey<'_>,
        findings: &mut Findings<'_>,
    ) {
        let observation = &findings.observations[attempt];
        let name = findings.name_of(attempt);
        let mut stated: Vec<&ObservedChange> = changes.iter().collect();
        findings.sort(&mut stated, |a, b| a.key.cmp(&b.key));
        if let ObservedOperation::Place(lines) = &observation.operation {
            let mut requested = lines.clone();
            findings.sort(&mut requested, |a, b| a.0.cmp(&b.0));
            requested.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 += if same { next.1 } else { 0 };
                same
            });
            let sold: Vec<(&str, i64)> =
                stated.iter().map(|change| (change.key.as_str(), -change.delta)).collect();
            if !requested.iter().map(|(key, quantity)| (key.as_str(), *quantity)).eq(sold.clone()) {
                let text = format!("{name} requested {requested:?}; its response has {sold:?}");
                findings.add(Invariant::Differs, vec![], vec![attempt], text);
            }
        }
        for change in stated {
            findings.step();
            let ObservedChange { key, before, delta, after } = change;
            let response = format!("the response to {name} has {key} {before} {delta:+} → {after}");
            let place = entries.get(key.as_str()).and_then(|places| places.first());
            match place.map(|place| self.entry(*place)) {
                None => {
                    let text =
                        format!("{response}: there should be such an entry, and there is none");
                    findings.add(Invariant::Lost, vec![], vec![attempt], text);
                }
                Some(entry) => {
                    if (entry.before, entry.delta, entry.after) != (*before, *delta, *after) {
                        let text = format!("{response}; the ledger has {}", describe(entry));
                        findings.add(Invariant::Differs, vec![entry.seq], vec![attempt], text);
                    }
                }
            }
        }
    }

    /// Checks I5: an entry exists only if an attempt may have written it.
    fn check_rejected(
        &self,
        order: OrderId,
        what: &str,
        entries: &EntriesByKey<'_>,
        attempts: &[usize],
        findings: &mut Findings<'_>,
    ) {
        let observations = findings.observations;
        let rejected = attempts.iter().copied().filter(|a| !may_have_executed(&observations[*a]));
        let rejected: Vec<usize> = rejected.collect();
        if rejected.is_empty() || entries.is_empty() {
            return;
        }
        if rejected.len() == attempts.len() {
            let seqs: Vec<i64> =
                entries.values().flatten().map(|place| self.entry(*place).seq).collect();
            let name = findings.name_of(rejected[0]);
            let text = format!(
                "{name} was rejected, and so was every attempt of it; the {what} of order {order} \
                 should have no entry, and has {seqs:?}"
            );
            findings.add(Invariant::Rejected, seqs, rejected, text);
            return;
        }
        let by_request: HashMap<Uuid, usize> =
            rejected.iter().filter_map(|a| Some((observations[*a].request?, *a))).collect();
        for place in entries.values().flatten() {
            findings.step();
            let entry = self.entry(*place);
            if let Some(attempt) = by_request.get(&entry.request) {
                let name = findings.name_of(*attempt);
                let text =
                    format!("{name} was rejected and wrote {} all the same", describe(entry));
                findings.add(Invariant::Rejected, vec![entry.seq], vec![*attempt], text);
            }
        }
    }

    /// Bounds the time of the entries, by the attempts that may have written them and by those that
    /// were acknowledged.
    fn bound_times(
        &mut self,
        entries: &EntriesByKey<'_>,
        attempts: &[usize],
        findings: &mut Findings<'_>,
    ) {
        let observations = findings.observations;
        let seen = |place: &usize| &observations[*place];
        let mut by_request: HashMap<Uuid, usize> = HashMap::new();
        // By preference: acknowledged as the first execution, unknown outcome, replay.
        let (mut fresh, mut unknown, mut replay) = (None, None, None);
        let mut acknowledged: Option<usize> = None;
        let keep_earliest = |kept: &mut Option<usize>, place: usize| {
            if kept.is_none_or(|kept| seen(&kept).invoked_us > seen(&place).invoked_us) {
                *kept = Some(place);
            }
        };
        for place in attempts.iter().copied().filter(|place| may_have_executed(seen(place))) {
            findings.step();
            if let Some(request) = seen(&place).request {
                by_request.insert(request, place);
            }
            let ObservedOutcome::Done { replayed, .. } = seen(&place).outcome else {
                keep_earliest(&mut unknown, place);
                continue;
            };
            keep_earliest(if replayed { &mut replay } else { &mut fresh }, place);
            if acknowledged.is_none_or(|kept| seen(&kept).completed_us > seen(&place).completed_us)
            {
                acknowledged = Some(place);
            }
        }
        let likely = fresh.or(unknown).or(replay);
        for place in entries.values().flatten() {
            findings.step();
            let writer = by_request.get(&self.entry(*place).request).copied().or(likely);
            self.checked.bounds[*place] = TimeBounds {
                from: writer.map_or(0, |a| seen(&a).invoked_us),
                writer,
                to: acknowledged.map_or(u64::MAX, |a| seen(&a).completed_us),
                acknowledged,
            };
        }
    }
}

fn may_have_executed(seen: &ObservedRequest) -> bool {
    matches!(seen.outcome, ObservedOutcome::Done { .. } | ObservedOutcome::Unknown)
}

fn describe(entry: &RecordedEntry) -> String {
    let RecordedEntry { seq, key, before, delta, after, reason, .. } = entry;
    let order = entry.order.map_or_else(|| "no order".to_owned(), |order| format!("order {order}"));
    format!("{key} entry {seq} ({before} {delta:+} → {after}, {reason}, {order})")
}

//! Checks each operation: requested, acknowledged, written (I4, I5, I6, and I10 for orders).

use std::collections::HashMap;

use uuid::Uuid;

use super::chain::TimeBounds;
use super::report::{Findings, Invariant, request_name};
use super::spec::OrderOperation;
use super::{
    ObservedChange, ObservedOperation, ObservedOutcome, ObservedRequest, RecordedEntry,
    RecordedLedger, RecordedOrder,
};
use crate::shop::OrderId;
use crate::shop::failure::Rejection;

/// Checks the operations of one kind in one ledger.
pub(super) struct RequestChecks<'a> {
    ledger: &'a RecordedLedger,
    observations: &'a [ObservedRequest],
    /// The entries of this kind.
    entries: HashMap<OrderId, Vec<usize>>,
    /// One per entry of the ledger.
    pub bounds: Vec<TimeBounds>,
    /// See [`LedgerRequests::later_entry`](super::request_rules::LedgerRequests::later_entry).
    pub later_entry: HashMap<usize, usize>,
}

impl<'a> RequestChecks<'a> {
    pub fn new(
        ledger: &'a RecordedLedger,
        reason: &str,
        observations: &'a [ObservedRequest],
        orders: &HashMap<OrderId, &RecordedOrder>,
        findings: &mut Findings,
    ) -> Self {
        let mut entries: HashMap<OrderId, Vec<usize>> = HashMap::new();
        for (place, entry) in ledger.entries.iter().enumerate() {
            findings.step();
            let its_order = entry.order.filter(|order| orders.contains_key(order));
            match its_order {
                Some(order) if entry.reason == reason => {
                    entries.entry(order).or_default().push(place);
                }
                None if entry.reason == reason => {
                    let text =
                        format!("{}: there should be an order that it belongs to", describe(entry));
                    findings.add(Invariant::Unmatched, vec![entry.seq], vec![], text);
                }
                _ => {}
            }
        }
        let bounds = vec![TimeBounds::UNBOUNDED; ledger.entries.len()];
        Self { ledger, observations, entries, bounds, later_entry: HashMap::new() }
    }

    /// Checks one operation with all its attempts.
    pub fn check(
        &mut self,
        operation: OrderOperation<'_>,
        attempts: &[usize],
        findings: &mut Findings,
    ) {
        let (order, what) = (operation.order().id, operation.reason());
        let mut entries = self.entries.remove(&order).unwrap_or_default();
        let ledger = self.ledger;
        let key_of = |place: &usize| &ledger.entries[*place].key;
        findings.sort(&mut entries, |a, b| key_of(a).cmp(key_of(b)));
        let acknowledged = attempts
            .iter()
            .any(|a| matches!(self.observations[*a].outcome, ObservedOutcome::Done { .. }));
        self.check_entries(operation, &entries, acknowledged, findings);
        let mut fresh = Vec::new();
        for attempt in attempts {
            findings.step();
            if let ObservedOutcome::Done { order: acknowledged, changes, replayed } =
                &self.observations[*attempt].outcome
            {
                if *acknowledged == order {
                    self.check_response(*attempt, changes, &entries, findings);
                } else {
                    let name = request_name(self.observations, *attempt);
                    let text = format!(
                        "{name} got order {acknowledged} as its response; order {order} is recorded"
                    );
                    findings.add(Invariant::Lost, vec![], vec![*attempt], text);
                }
                fresh.extend((!replayed).then_some(*attempt));
            }
        }
        if let [first, second, ..] = fresh[..] {
            let [a, b] = [first, second].map(|place| request_name(self.observations, place));
            let text = format!(
                "both {a} and {b} got a response of the first {what} of order {order}: one of them \
                 should be a replay"
            );
            findings.add(Invariant::Twice, vec![], fresh.clone(), text);
        }
        self.check_rejected(order, what, &entries, attempts, findings);
        self.bound_times(&entries, attempts, findings);
        self.find_later_entries(&entries, attempts, findings);
    }

    /// Checks that each key that should have changed has one entry with its delta, which the rules
    /// of the shop allow with `before`; and that no other key has an entry.
    fn check_entries(
        &self,
        operation: OrderOperation<'_>,
        entries: &[usize],
        acknowledged: bool,
        findings: &mut Findings,
    ) {
        let (order, what) = (operation.order().id, operation.reason());
        let mut deltas = operation.deltas();
        findings.sort(&mut deltas, |a, b| a.0.cmp(&b.0));
        let mut rest = entries;
        for (key, delta) in &deltas {
            let before = self.first_of(rest, key, findings);
            let (stray, from_key) = rest.split_at(before);
            self.report_stray(stray, findings);
            let end =
                findings.first(from_key.len(), |at| self.ledger.entries[from_key[at]].key != *key);
            let (own, after) = from_key.split_at(end);
            rest = after;
            findings.step();
            let seqs = || own.iter().map(|place| self.ledger.entries[*place].seq).collect();
            match own {
                [] if acknowledged => {} // `check_response` reports it, with the request.
                [] => {
                    let text = format!("order {order} should have one {what} entry of {key}");
                    findings.add(Invariant::Unmatched, vec![], vec![], text);
                }
                [only] => {
                    let entry = &self.ledger.entries[*only];
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
        self.report_stray(rest, findings);
    }

    fn report_stray(&self, places: &[usize], findings: &mut Findings) {
        for place in places {
            findings.step();
            let entry = &self.ledger.entries[*place];
            let text = format!("{}: its order has nothing of the kind", describe(entry));
            findings.add(Invariant::Unmatched, vec![entry.seq], vec![], text);
        }
    }

    /// Checks I4: request, response and entries agree.
    fn check_response(
        &self,
        attempt: usize,
        changes: &[ObservedChange],
        entries: &[usize],
        findings: &mut Findings,
    ) {
        let observation = &self.observations[attempt];
        let name = request_name(self.observations, attempt);
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
            let from = self.first_of(entries, key, findings);
            let entry = entries.get(from).map(|place| &self.ledger.entries[*place]);
            match entry.filter(|entry| entry.key == *key) {
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
        entries: &[usize],
        attempts: &[usize],
        findings: &mut Findings,
    ) {
        let rejected: Vec<usize> = attempts
            .iter()
            .copied()
            .filter(|a| !may_have_executed(&self.observations[*a]))
            .collect();
        if rejected.is_empty() || entries.is_empty() {
            return;
        }
        if rejected.len() == attempts.len() {
            let seqs: Vec<i64> =
                entries.iter().map(|place| self.ledger.entries[*place].seq).collect();
            let name = request_name(self.observations, rejected[0]);
            let text = format!(
                "{name} was rejected, and so was every attempt of it; the {what} of order {order} \
                 should have no entry, and has {seqs:?}"
            );
            findings.add(Invariant::Rejected, seqs, rejected, text);
            return;
        }
        let by_request: HashMap<Uuid, usize> =
            rejected.iter().filter_map(|a| Some((self.observations[*a].request?, *a))).collect();
        for place in entries {
            findings.step();
            let entry = &self.ledger.entries[*place];
            if let Some(attempt) = by_request.get(&entry.request) {
                let name = request_name(self.observations, *attempt);
                let text =
                    format!("{name} was rejected and wrote {} all the same", describe(entry));
                findings.add(Invariant::Rejected, vec![entry.seq], vec![*attempt], text);
            }
        }
    }

    /// Bounds the time of the entries, by the attempts that may have written them and by those that
    /// were acknowledged.
    fn bound_times(&mut self, entries: &[usize], attempts: &[usize], findings: &mut Findings) {
        let seen = |place: &usize| &self.observations[*place];
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
        for place in entries {
            findings.step();
            let writer = by_request.get(&self.ledger.entries[*place].request).copied().or(likely);
            self.bounds[*place] = TimeBounds {
                from: writer.map_or(0, |a| seen(&a).invoked_us),
                writer,
                to: acknowledged.map_or(u64::MAX, |a| seen(&a).completed_us),
                acknowledged,
            };
        }
    }

    /// Returns the index of the first of these entries (sorted by key) whose key is at least `key`.
    fn first_of(&self, entries: &[usize], key: &str, findings: &mut Findings) -> usize {
        findings.first(entries.len(), |at| self.ledger.entries[entries[at]].key.as_str() >= key)
    }

    /// Finds the entry that each *sold out* preceded: an executed key is replayed before any
    /// rejection, so a *sold out* with this key precedes the entry.
    fn find_later_entries(
        &mut self,
        entries: &[usize],
        attempts: &[usize],
        findings: &mut Findings,
    ) {
        for attempt in attempts {
            if let ObservedOutcome::Insufficient { key, .. } = &self.observations[*attempt].outcome
            {
                let from = self.first_of(entries, key, findings);
                let later = entries.get(from).filter(|p| self.ledger.entries[**p].key == *key);
                self.later_entry.extend(later.map(|place| (*attempt, *place)));
            }
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

//! Checks each operation: requested, acknowledged, written (I4, I5, I6, and I10 for orders).

use std::collections::HashMap;

use uuid::Uuid;

use super::chain::Window;
use super::report::{Findings, Rule, named};
use super::spec::Deed;
use super::{Asked, Change, Entry, Ledger, Observation, Order, Outcome};
use crate::shop::OrderId;
use crate::shop::failure::Rejection;

/// Checks the operations of one kind in one ledger.
pub(super) struct Clerk<'a> {
    ledger: &'a Ledger,
    observations: &'a [Observation],
    /// The entries of this kind.
    entries: HashMap<OrderId, Vec<usize>>,
    /// One per entry of the ledger.
    pub windows: Vec<Window>,
    /// See [`Side::own`](super::deeds::Side::own).
    pub own: HashMap<usize, usize>,
}

impl<'a> Clerk<'a> {
    pub fn new(
        ledger: &'a Ledger,
        reason: &str,
        observations: &'a [Observation],
        orders: &HashMap<OrderId, &Order>,
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
                    let told = told(entry);
                    let text = format!("{told}: there should be an order that it belongs to");
                    findings.add(Rule::Unmatched, vec![entry.seq], vec![], text);
                }
                _ => {}
            }
        }
        let windows = vec![Window::ANY; ledger.entries.len()];
        Self { ledger, observations, entries, windows, own: HashMap::new() }
    }

    /// Checks one operation with all its attempts.
    pub fn settle(&mut self, deed: Deed<'_>, attempts: &[usize], findings: &mut Findings) {
        let (order, what) = (deed.order().id, deed.reason());
        let mut entries = self.entries.remove(&order).unwrap_or_default();
        let ledger = self.ledger;
        let key_of = |place: &usize| &ledger.entries[*place].key;
        findings.sort(&mut entries, |a, b| key_of(a).cmp(key_of(b)));
        let acknowledged =
            attempts.iter().any(|a| matches!(self.observations[*a].outcome, Outcome::Done { .. }));
        self.once_each(deed, &entries, acknowledged, findings);
        let mut fresh = Vec::new();
        for attempt in attempts {
            findings.step();
            if let Outcome::Done { order: told, changes, replayed } =
                &self.observations[*attempt].outcome
            {
                if *told == order {
                    self.as_answered(*attempt, changes, &entries, findings);
                } else {
                    let name = named(self.observations, *attempt);
                    let text = format!(
                        "{name} was answered with order {told}; the books have {order} for it"
                    );
                    findings.add(Rule::Lost, vec![], vec![*attempt], text);
                }
                fresh.extend((!replayed).then_some(*attempt));
            }
        }
        if let [first, second, ..] = fresh[..] {
            let [a, b] = [first, second].map(|place| named(self.observations, place));
            let text = format!(
                "{a} and {b} were both answered as the one that did the {what} of order {order}: \
                 one of them should be a replay"
            );
            findings.add(Rule::Twice, vec![], fresh.clone(), text);
        }
        self.refused(order, what, &entries, attempts, findings);
        self.limit(&entries, attempts, findings);
        self.in_vain(&entries, attempts, findings);
    }

    /// Checks that each key that should have changed has one entry with its delta, which the rules
    /// of the shop allow with `before`; and that no other key has an entry.
    fn once_each(
        &self,
        deed: Deed<'_>,
        entries: &[usize],
        acknowledged: bool,
        findings: &mut Findings,
    ) {
        let (order, what) = (deed.order().id, deed.reason());
        let mut deltas = deed.deltas();
        findings.sort(&mut deltas, |a, b| a.0.cmp(&b.0));
        let mut rest = entries;
        for (key, delta) in &deltas {
            let before = self.first_of(rest, key, findings);
            let (stray, from_key) = rest.split_at(before);
            self.stray(stray, findings);
            let end =
                findings.first(from_key.len(), |at| self.ledger.entries[from_key[at]].key != *key);
            let (own, after) = from_key.split_at(end);
            rest = after;
            findings.step();
            let seqs = || own.iter().map(|place| self.ledger.entries[*place].seq).collect();
            match own {
                [] if acknowledged => {} // `as_answered` reports it, with the request.
                [] => {
                    let text = format!("order {order} should have one {what} entry of {key}");
                    findings.add(Rule::Unmatched, vec![], vec![], text);
                }
                [only] => {
                    let entry = &self.ledger.entries[*only];
                    if entry.delta != *delta {
                        let text = format!("{}: its delta should be {delta:+}", told(entry));
                        findings.add(Rule::Differs, seqs(), vec![], text);
                    }
                    match deed.execute(key, entry.before) {
                        Ok(change) if change.as_ref().is_none_or(|by| by.delta != *delta) => {
                            let text = format!("{}: the rules make {change:?} of it", told(entry));
                            findings.add(Rule::Differs, seqs(), vec![], text);
                        }
                        Err(Rejection::SoldOut { .. } | Rejection::InsufficientFunds { .. }) => {
                            let text = format!("{}: it should have been rejected", told(entry));
                            findings.add(Rule::Negative, seqs(), vec![], text);
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
                    findings.add(Rule::Twice, seqs, vec![], text);
                }
            }
        }
        self.stray(rest, findings);
    }

    fn stray(&self, places: &[usize], findings: &mut Findings) {
        for place in places {
            findings.step();
            let entry = &self.ledger.entries[*place];
            let text = format!("{}: its order has nothing of the kind", told(entry));
            findings.add(Rule::Unmatched, vec![entry.seq], vec![], text);
        }
    }

    /// Checks I4: request, response and entries agree.
    fn as_answered(
        &self,
        attempt: usize,
        changes: &[Change],
        entries: &[usize],
        findings: &mut Findings,
    ) {
        let observation = &self.observations[attempt];
        let name = named(self.observations, attempt);
        let mut answered: Vec<&Change> = changes.iter().collect();
        findings.sort(&mut answered, |a, b| a.key.cmp(&b.key));
        if let Asked::Place(lines) = &observation.asked {
            let mut asked = lines.clone();
            findings.sort(&mut asked, |a, b| a.0.cmp(&b.0));
            asked.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 += if same { next.1 } else { 0 };
                same
            });
            let given: Vec<(&str, i64)> =
                answered.iter().map(|change| (change.key.as_str(), -change.delta)).collect();
            if !asked.iter().map(|(key, quantity)| (key.as_str(), *quantity)).eq(given.clone()) {
                let text = format!("{name} asked for {asked:?} and was answered with {given:?}");
                findings.add(Rule::Differs, vec![], vec![attempt], text);
            }
        }
        for change in answered {
            findings.step();
            let Change { key, before, delta, after } = change;
            let said = format!("{name} was answered {key} {before} {delta:+} → {after}");
            let from = self.first_of(entries, key, findings);
            let entry = entries.get(from).map(|place| &self.ledger.entries[*place]);
            match entry.filter(|entry| entry.key == *key) {
                None => {
                    let text = format!("{said}: there should be such an entry, and there is none");
                    findings.add(Rule::Lost, vec![], vec![attempt], text);
                }
                Some(entry) => {
                    if (entry.before, entry.delta, entry.after) != (*before, *delta, *after) {
                        let text = format!("{said}; the ledger has {}", told(entry));
                        findings.add(Rule::Differs, vec![entry.seq], vec![attempt], text);
                    }
                }
            }
        }
    }

    /// Checks I5: an entry exists only if an attempt may have written it.
    fn refused(
        &self,
        order: OrderId,
        what: &str,
        entries: &[usize],
        attempts: &[usize],
        findings: &mut Findings,
    ) {
        let in_vain: Vec<usize> =
            attempts.iter().copied().filter(|a| !may_have_done(&self.observations[*a])).collect();
        if in_vain.is_empty() || entries.is_empty() {
            return;
        }
        if in_vain.len() == attempts.len() {
            let seqs: Vec<i64> =
                entries.iter().map(|place| self.ledger.entries[*place].seq).collect();
            let name = named(self.observations, in_vain[0]);
            let text = format!(
                "{name} was refused, and so was every attempt of it; the {what} of order {order} \
                 should have no entry, and has {seqs:?}"
            );
            findings.add(Rule::Refused, seqs, in_vain, text);
            return;
        }
        let by_request: HashMap<Uuid, usize> =
            in_vain.iter().filter_map(|a| Some((self.observations[*a].request?, *a))).collect();
        for place in entries {
            findings.step();
            let entry = &self.ledger.entries[*place];
            if let Some(attempt) = by_request.get(&entry.request) {
                let name = named(self.observations, *attempt);
                let text = format!("{name} was refused and wrote {} all the same", told(entry));
                findings.add(Rule::Refused, vec![entry.seq], vec![*attempt], text);
            }
        }
    }

    /// Bounds the time of the entries, by the attempts that may have written them and by those that
    /// were acknowledged.
    fn limit(&mut self, entries: &[usize], attempts: &[usize], findings: &mut Findings) {
        let seen = |place: &usize| &self.observations[*place];
        let mut by_request: HashMap<Uuid, usize> = HashMap::new();
        // By preference: acknowledged as the first execution, unknown outcome, replay.
        let (mut fresh, mut unknown, mut told) = (None, None, None);
        let mut answered: Option<usize> = None;
        let sent_first = |kept: &mut Option<usize>, place: usize| {
            if kept.is_none_or(|kept| seen(&kept).invoked_us > seen(&place).invoked_us) {
                *kept = Some(place);
            }
        };
        for place in attempts.iter().copied().filter(|place| may_have_done(seen(place))) {
            findings.step();
            if let Some(request) = seen(&place).request {
                by_request.insert(request, place);
            }
            let Outcome::Done { replayed, .. } = seen(&place).outcome else {
                sent_first(&mut unknown, place);
                continue;
            };
            sent_first(if replayed { &mut told } else { &mut fresh }, place);
            if answered.is_none_or(|kept| seen(&kept).completed_us > seen(&place).completed_us) {
                answered = Some(place);
            }
        }
        let anybody = fresh.or(unknown).or(told);
        for place in entries {
            findings.step();
            let asked = by_request.get(&self.ledger.entries[*place].request).copied().or(anybody);
            self.windows[*place] = Window {
                from: asked.map_or(0, |a| seen(&a).invoked_us),
                asked,
                to: answered.map_or(u64::MAX, |a| seen(&a).completed_us),
                answered,
            };
        }
    }

    /// Returns the index of the first of these entries (sorted by key) whose key is at least `key`.
    fn first_of(&self, entries: &[usize], key: &str, findings: &mut Findings) -> usize {
        findings.first(entries.len(), |at| self.ledger.entries[entries[at]].key.as_str() >= key)
    }

    /// Finds the entry that each *sold out* preceded: an executed key is replayed before any
    /// rejection, so a *sold out* with this key was answered before the entry was written.
    fn in_vain(&mut self, entries: &[usize], attempts: &[usize], findings: &mut Findings) {
        for attempt in attempts {
            if let Outcome::Short { key, .. } = &self.observations[*attempt].outcome {
                let from = self.first_of(entries, key, findings);
                let own = entries.get(from).filter(|p| self.ledger.entries[**p].key == *key);
                self.own.extend(own.map(|place| (*attempt, *place)));
            }
        }
    }
}

fn may_have_done(seen: &Observation) -> bool {
    matches!(seen.outcome, Outcome::Done { .. } | Outcome::Unknown)
}

fn told(entry: &Entry) -> String {
    let Entry { seq, key, before, delta, after, reason, .. } = entry;
    let order = entry.order.map_or_else(|| "no order".to_owned(), |order| format!("order {order}"));
    format!("{key} entry {seq} ({before} {delta:+} → {after}, {reason}, {order})")
}

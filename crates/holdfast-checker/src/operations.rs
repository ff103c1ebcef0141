//! Compares requests and responses with the orders and entries that they should have made.
//!
//! An [`OrderOperation`] is executed at most once: placing the order of an idempotency key, paying
//! it, refunding it. It has the entries that it wrote and the attempts that clients made at it.

use std::collections::{BTreeMap, HashMap};

use holdfast_shop::{OrderId, UserId};

use crate::{
    Findings, Invariant, ObservedChange, ObservedOperation, ObservedOutcome, ObservedRequest,
    RecordedEntry, RecordedOrder, RecordedState,
};

/// When an entry was written: after its request was sent, and before the first response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub from: u64,
    pub to: u64,
}

impl Bounds {
    const NONE: Self = Self { from: 0, to: u64::MAX };
}

/// The entries as the requests describe them.
pub(super) struct MatchedEntries {
    /// One per entry.
    pub bounds: Vec<Bounds>,
    /// For *sold out*s of operations that another attempt executed: an entry that it wrote. An
    /// executed operation is replayed, so the rejection was before the entry.
    pub later_entry: HashMap<usize, usize>,
}

struct OrderOperation<'a> {
    order: &'a RecordedOrder,
    reason: &'static str,
    /// The change of each key, given the status of the order.
    deltas: BTreeMap<String, i64>,
    /// Indices of the observed requests.
    attempts: Vec<usize>,
}

/// The entries of an operation by key, as indices; one per key if all is well.
type EntriesByKey<'a> = BTreeMap<&'a str, Vec<usize>>;

pub(super) fn check(
    state: &RecordedState,
    seen: &[ObservedRequest],
    findings: &mut Findings,
) -> MatchedEntries {
    let mut entries: HashMap<(OrderId, &str), Vec<usize>> = HashMap::new();
    for (at, entry) in state.entries.iter().enumerate() {
        if let Some(order) = entry.order {
            entries.entry((order, &entry.reason)).or_default().push(at);
        }
    }
    let bounds = vec![Bounds::NONE; state.entries.len()];
    let matched = MatchedEntries { bounds, later_entry: HashMap::new() };
    let mut check = OperationCheck { state, seen, matched, findings };
    for operation in check.operations() {
        let mut own = EntriesByKey::new();
        let key = (operation.order.id, operation.reason);
        for at in entries.get(&key).into_iter().flatten() {
            let key = state.entries[*at].key.as_str();
            // A refund has entries of items as well as that of the account.
            let is_item = operation.order.lines.iter().any(|(sku, _)| sku == key);
            if operation.reason != "refund" || !is_item {
                own.entry(key).or_default().push(*at);
            }
        }
        check.operation(&operation, &own);
    }
    check.entries_without_order();
    check.matched
}

struct OperationCheck<'a, 'f> {
    state: &'a RecordedState,
    seen: &'a [ObservedRequest],
    matched: MatchedEntries,
    findings: &'f mut Findings,
}

impl<'a> OperationCheck<'a, '_> {
    /// All operations on recorded orders. Other attempts must not be acknowledged.
    fn operations(&mut self) -> Vec<OrderOperation<'a>> {
        let mut placing: HashMap<(UserId, &str), Vec<usize>> = HashMap::new();
        let mut paying: HashMap<OrderId, Vec<usize>> = HashMap::new();
        for (at, seen) in self.seen.iter().enumerate() {
            match seen.operation {
                ObservedOperation::Place(_) => {
                    placing.entry((seen.user, &seen.key)).or_default().push(at);
                }
                ObservedOperation::Pay(order) => paying.entry(order).or_default().push(at),
            }
        }

        let mut tokens: HashMap<(UserId, &str), OrderId> = HashMap::new();
        let mut operations = Vec::new();
        for order in &self.state.orders {
            let token = (order.user, order.token.as_str());
            if let Some(first) = tokens.insert(token, order.id) {
                let text = format!("key {} placed two orders: {first} and {}", token.1, order.id);
                self.findings.add(Invariant::Twice, text);
            }
            let attempts = placing.remove(&token).unwrap_or_default();
            let deltas = sums(order.lines.iter().map(|(sku, units)| (sku.clone(), -units)));
            operations.push(OrderOperation { order, reason: "order", deltas, attempts });

            let account = order.user.0.to_string();
            if !self.state.values.contains_key(&account) {
                continue;
            }
            let attempts = paying.remove(&order.id).unwrap_or_default();
            let change = |happened: bool, cents: i64| {
                happened.then(|| (account.clone(), cents)).into_iter().collect()
            };
            let was_refunded = order.status == "refunded";
            let was_paid = was_refunded || order.status == "paid";
            let deltas = change(was_paid, -order.total_cents);
            operations.push(OrderOperation { order, reason: "payment", deltas, attempts });
            let deltas = change(was_refunded, order.total_cents);
            operations.push(OrderOperation {
                order,
                reason: "refund",
                deltas,
                attempts: Vec::new(),
            });
        }

        for attempt in placing.into_values().chain(paying.into_values()).flatten() {
            if let ObservedOutcome::Done { order, .. } = &self.seen[attempt].outcome {
                let text =
                    format!("{} got order {order}, which does not exist", self.name(attempt));
                self.findings.add(Invariant::Lost, text);
            }
        }
        operations
    }

    fn operation(&mut self, operation: &OrderOperation<'_>, entries: &EntriesByKey<'_>) {
        self.deltas(operation, entries);

        let mut fresh = Vec::new();
        for attempt in &operation.attempts {
            if let ObservedOutcome::Done { order, changes, replayed } = &self.seen[*attempt].outcome
            {
                self.response(operation, *attempt, *order, changes, entries);
                fresh.extend((!replayed).then_some(*attempt));
            }
        }
        if let [first, second, ..] = fresh[..] {
            let (first, second) = (self.name(first), self.name(second));
            let text = format!("both {first} and {second} got a first response: one is a replay");
            self.findings.add(Invariant::Twice, text);
        }

        self.rejections(&operation.attempts, entries);
        self.bounds(&operation.attempts, entries);
        for attempt in &operation.attempts {
            if let ObservedOutcome::Insufficient { key, .. } = &self.seen[*attempt].outcome {
                let entry = entries.get(key.as_str()).and_then(|own| own.first());
                self.matched.later_entry.extend(entry.map(|entry| (*attempt, *entry)));
            }
        }
    }

    /// Each key that should have changed has one entry with that delta, and no other key has one.
    fn deltas(&mut self, operation: &OrderOperation<'_>, entries: &EntriesByKey<'_>) {
        let OrderOperation { order, reason, deltas, attempts } = operation;
        let is_done = |attempt: &usize| may_be_done(&self.seen[*attempt].outcome) == Some(true);
        let acknowledged = attempts.iter().any(is_done);
        for (key, delta) in deltas {
            let what = format!("order {} should have one {reason} entry of {key}", order.id);
            match entries.get(key.as_str()).map_or(&[][..], Vec::as_slice) {
                // Compared with the responses it is a lost one.
                [] if acknowledged => {}
                [] => self.findings.add(Invariant::Unmatched, what),
                [only] if self.state.entries[*only].delta == *delta => {}
                [only] => {
                    let text = format!("{}: it should be {delta:+}", self.entry(*only));
                    self.findings.add(Invariant::Differs, text);
                }
                more => {
                    let text = format!("{what}, and has {}", more.len());
                    self.findings.add(Invariant::Twice, text);
                }
            }
        }
        for (_, stray) in entries.iter().filter(|(key, _)| !deltas.contains_key(**key)) {
            let text = format!("{}: its order has no such entry", self.entry(stray[0]));
            self.findings.add(Invariant::Unmatched, text);
        }
    }

    /// Request, response and entries agree.
    fn response(
        &mut self,
        operation: &OrderOperation<'_>,
        attempt: usize,
        order: OrderId,
        changes: &[ObservedChange],
        entries: &EntriesByKey<'_>,
    ) {
        let name = self.name(attempt);
        if order != operation.order.id {
            let text = format!("{name} got order {order}; {} is recorded", operation.order.id);
            self.findings.add(Invariant::Lost, text);
            return;
        }
        if let ObservedOperation::Place(lines) = &self.seen[attempt].operation {
            let requested = sums(lines.iter().cloned());
            let sold = sums(changes.iter().map(|change| (change.key.clone(), -change.delta)));
            if requested != sold {
                let text = format!("{name} requested {requested:?} and got {sold:?}");
                self.findings.add(Invariant::Differs, text);
            }
        }
        for change in changes {
            let Some(own) = entries.get(change.key.as_str()) else {
                let text = format!("{name} got {change:?}, of which there is no entry");
                self.findings.add(Invariant::Lost, text);
                continue;
            };
            let RecordedEntry { before, delta, after, .. } = self.state.entries[own[0]];
            if (before, delta, after) != (change.before, change.delta, change.after) {
                let text = format!("{name} got {change:?}; recorded is {}", self.entry(own[0]));
                self.findings.add(Invariant::Differs, text);
            }
        }
    }

    /// An entry exists only if an attempt may have written it.
    fn rejections(&mut self, attempts: &[usize], entries: &EntriesByKey<'_>) {
        let is_rejected = |attempt: &usize| may_be_done(&self.seen[*attempt].outcome).is_none();
        let rejected: Vec<usize> = attempts.iter().copied().filter(is_rejected).collect();
        for entry in entries.values().flatten() {
            let request = Some(self.state.entries[*entry].request);
            let by_itself = rejected.iter().find(|attempt| self.seen[**attempt].request == request);
            let all_rejected = rejected.len() == attempts.len();
            let writer = by_itself.or(rejected.first().filter(|_| all_rejected));
            if let Some(writer) = writer {
                let (name, entry) = (self.name(*writer), self.entry(*entry));
                let text = format!("{name} was rejected, and there is {entry}");
                self.findings.add(Invariant::Rejected, text);
            }
        }
    }

    /// Bounds the time of the entries, by the attempt that wrote them and the first response.
    fn bounds(&mut self, attempts: &[usize], entries: &EntriesByKey<'_>) {
        let seen = self.seen;
        let attempts: Vec<&ObservedRequest> = attempts.iter().map(|at| &seen[*at]).collect();
        // By preference: a first response, an unknown outcome, a replay.
        let likely = attempts.iter().filter_map(|attempt| {
            let preference = match attempt.outcome {
                ObservedOutcome::Done { replayed, .. } => u8::from(replayed) * 2,
                ObservedOutcome::Unknown => 1,
                ObservedOutcome::Insufficient { .. } | ObservedOutcome::Rejected => return None,
            };
            Some((preference, attempt.invoked_us))
        });
        let likely = likely.min().map_or(0, |(_, from)| from);
        let done = attempts.iter().filter(|it| may_be_done(&it.outcome) == Some(true));
        let to = done.map(|attempt| attempt.completed_us).min().unwrap_or(u64::MAX);
        for entry in entries.values().flatten() {
            let request = Some(self.state.entries[*entry].request);
            let writer = attempts
                .iter()
                .find(|it| it.request == request && may_be_done(&it.outcome).is_some());
            let from = writer.map_or(likely, |writer| writer.invoked_us);
            self.matched.bounds[*entry] = Bounds { from, to };
        }
    }

    fn entries_without_order(&mut self) {
        let orders: HashMap<OrderId, &RecordedOrder> =
            self.state.orders.iter().map(|order| (order.id, order)).collect();
        for (at, entry) in self.state.entries.iter().enumerate() {
            let needs_order = ["order", "payment", "refund"].contains(&entry.reason.as_str());
            let has_order = entry.order.is_some_and(|order| orders.contains_key(&order));
            if needs_order && !has_order {
                let text = format!("{}: there should be an order for it", self.entry(at));
                self.findings.add(Invariant::Unmatched, text);
            }
        }
    }

    fn name(&self, attempt: usize) -> String {
        format!("request #{attempt} (key {})", self.seen[attempt].key)
    }

    fn entry(&self, at: usize) -> String {
        self.state.entries[at].to_string()
    }
}

/// `None` if the request was rejected, otherwise whether it is known to be done.
fn may_be_done(outcome: &ObservedOutcome) -> Option<bool> {
    match outcome {
        ObservedOutcome::Done { .. } => Some(true),
        ObservedOutcome::Unknown => Some(false),
        ObservedOutcome::Insufficient { .. } | ObservedOutcome::Rejected => None,
    }
}

fn sums(amounts: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (key, amount) in amounts {
        *sums.entry(key).or_default() += amount;
    }
    sums
}

//! Builds histories of a shop in memory, which tests then forge.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_checker::*;
use holdfast_shop::{OrderId, UserId};
use uuid::Uuid;

pub const TEA: &str = "tea";
pub const CUP: &str = "cup";
pub const USER: UserId = UserId(Uuid::from_u128(1));

/// Builds a history: commands are executed one after the other, while clients may observe other
/// times.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub recorded: RecordedState,
    pub seen: Vec<ObservedRequest>,
    versions: BTreeMap<String, i64>,
}

impl History {
    pub fn new(values: &[(&str, i64)]) -> Self {
        let mut history = Self::default();
        for (key, value) in values {
            history.recorded.values.insert((*key).to_owned(), 0);
            history.change(key, *value, "opening", None, Uuid::nil());
        }
        history
    }

    pub fn change(
        &mut self,
        key: &str,
        delta: i64,
        reason: &str,
        order: Option<OrderId>,
        request: Uuid,
    ) -> ObservedChange {
        let value = self.recorded.values.get_mut(key).unwrap();
        let before = *value;
        let after = before + delta;
        *value = after;
        let next = self.versions.entry(key.to_owned()).or_insert(0);
        let version = *next;
        *next += 1;
        self.recorded.entries.push(RecordedEntry {
            // Numbers are not in the order of versions: flipping the last bit swaps neighbours.
            seq: (self.recorded.entries.len() ^ 1).try_into().unwrap(),
            key: key.to_owned(),
            before,
            delta,
            after,
            version,
            fence: (reason != "restock").then_some(64 * version),
            order,
            reason: reason.to_owned(),
            request,
        });
        ObservedChange { key: key.to_owned(), before, delta, after }
    }

    /// The id of the next observed request.
    pub fn request(&self) -> Uuid {
        Uuid::from_u128(1_000 + self.seen.len() as u128)
    }

    pub fn observe(
        &mut self,
        key: &str,
        operation: ObservedOperation,
        times: (u64, u64),
        outcome: ObservedOutcome,
    ) -> usize {
        self.seen.push(ObservedRequest {
            user: USER,
            key: key.to_owned(),
            request: Some(self.request()),
            operation,
            invoked_us: times.0,
            completed_us: times.1,
            outcome,
        });
        self.seen.len() - 1
    }

    /// Executes an order, or rejects it as sold out. Returns the index of the request in `seen`.
    pub fn place(&mut self, key: &str, lines: &[(&str, i64)], times: (u64, u64)) -> usize {
        let lines: Vec<(String, i64)> =
            lines.iter().map(|(sku, units)| ((*sku).to_owned(), *units)).collect();
        let operation = ObservedOperation::Place(lines.clone());
        for (sku, units) in &lines {
            let available = self.recorded.values[sku];
            if available < *units {
                let outcome = insufficient(sku, *units, available);
                return self.observe(key, operation, times, outcome);
            }
        }
        let order = self.record_order(key, &lines);
        let request = self.request();
        let changes = lines
            .iter()
            .map(|(sku, units)| self.change(sku, -units, "order", Some(order), request))
            .collect();
        self.observe(key, operation, times, done(order, changes))
    }

    pub fn record_order(&mut self, token: &str, lines: &[(String, i64)]) -> OrderId {
        let id = OrderId(Uuid::from_u128(self.recorded.orders.len() as u128));
        self.recorded.orders.push(RecordedOrder {
            id,
            user: USER,
            token: token.to_owned(),
            status: "pending".to_owned(),
            total_cents: 100,
            lines: lines.to_vec(),
        });
        id
    }

    pub fn order_of(&self, place: usize) -> OrderId {
        self.seen[place].outcome.order().unwrap()
    }

    pub fn order(&mut self, place: usize) -> &mut RecordedOrder {
        let id = self.order_of(place);
        self.recorded.orders.iter_mut().find(|order| order.id == id).unwrap()
    }

    /// Repeats a request, which is replayed.
    pub fn again(&mut self, place: usize, times: (u64, u64)) -> usize {
        let ObservedRequest { key, operation, mut outcome, .. } = self.seen[place].clone();
        if let ObservedOutcome::Done { replayed, .. } = &mut outcome {
            *replayed = true;
        }
        self.observe(&key, operation, times, outcome)
    }

    pub fn pay(&mut self, place: usize, times: (u64, u64)) -> usize {
        let id = self.order_of(place);
        self.order(place).status = "paid".to_owned();
        let change = self.change(&account(), -100, "payment", Some(id), self.request());
        self.observe("payment", ObservedOperation::Pay(id), times, done(id, vec![change]))
    }

    /// Cancels or refunds an order.
    pub fn return_order(&mut self, place: usize) {
        let RecordedOrder { id, status, lines, .. } = self.order(place).clone();
        let is_paid = status == "paid";
        let (status, reason) =
            if is_paid { ("refunded", "refund") } else { ("cancelled", "cancel") };
        for (sku, units) in lines {
            self.change(&sku, units, reason, Some(id), Uuid::nil());
        }
        if is_paid {
            self.change(&account(), 100, reason, Some(id), Uuid::nil());
        }
        self.order(place).status = status.to_owned();
    }

    pub fn restock(&mut self, sku: &str, units: i64) {
        self.change(sku, units, "restock", None, Uuid::nil());
    }

    pub fn changes(&mut self, place: usize) -> &mut Vec<ObservedChange> {
        match &mut self.seen[place].outcome {
            ObservedOutcome::Done { changes, .. } => changes,
            other => panic!("{other:?}"),
        }
    }

    pub fn entry(&mut self, place: usize, key: &str) -> &mut RecordedEntry {
        let order = Some(self.order_of(place));
        let mut entries = self.recorded.entries.iter_mut();
        entries.find(|entry| entry.order == order && entry.key == key).unwrap()
    }

    pub fn drop_entry(&mut self, place: usize, key: &str) {
        let dropped = self.entry(place, key).clone();
        self.recorded.entries.retain(|entry| *entry != dropped);
    }

    #[track_caller]
    pub fn assert_found(&self, what: &str, rules: &[Invariant]) {
        let found = check(&self.recorded, &self.seen);
        let by: BTreeSet<Invariant> = found.iter().map(|violation| violation.invariant).collect();
        assert_eq!(by, rules.iter().copied().collect(), "{what}: {found:#?}");
    }
}

pub fn account() -> String {
    USER.0.to_string()
}

pub fn done(order: OrderId, changes: Vec<ObservedChange>) -> ObservedOutcome {
    ObservedOutcome::Done { order, changes, replayed: false }
}

pub fn insufficient(key: &str, requested: i64, available: i64) -> ObservedOutcome {
    ObservedOutcome::Insufficient { key: key.to_owned(), requested, available }
}

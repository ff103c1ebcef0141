//! The checker of histories, tried on those of a shop in memory that keeps recorded as the real one
//! does.

mod agreement;
mod growth;
mod mutations;
mod response;

use std::collections::BTreeMap;

use crate::checker::*;
use holdfast::shop::{OrderId, UserId};
use uuid::Uuid;

/// A shop that does one thing after the other, whatever time its clients see.
#[derive(Debug, Clone, Default)]
struct Story {
    pub recorded: RecordedState,
    pub seen: Vec<ObservedRequest>,
    seq: i64,
    versions: BTreeMap<String, i64>,
}

impl Story {
    /// These items, opened.
    pub fn new(items: &[(&str, i64)]) -> Self {
        let mut story = Self::default();
        for (sku, stock) in items {
            story
                .recorded
                .stock
                .values
                .insert((*sku).to_owned(), RecordedValue { opening: 0, now: 0 });
            story.change(sku, *stock, "opening", None, Uuid::nil());
        }
        story
    }

    /// The money of a user, put in.
    pub fn account(&mut self, user: u128, cents: i64) {
        let key = Uuid::from_u128(user).to_string();
        let money = self.recorded.money.get_or_insert_default();
        money.values.insert(key.clone(), RecordedValue { opening: 0, now: 0 });
        self.change(&key, cents, "top-up", None, Uuid::nil());
    }

    /// An entry with its change, by nobody who is observed.
    pub fn change(
        &mut self,
        key: &str,
        delta: i64,
        reason: &str,
        order: Option<OrderId>,
        request: Uuid,
    ) -> ObservedChange {
        let ledger = match &mut self.recorded.money {
            Some(money) if money.values.contains_key(key) => money,
            _ => &mut self.recorded.stock,
        };
        let value = ledger.values.get_mut(key).unwrap();
        let before = value.now;
        value.now += delta;
        // Numbers of transactions that were rolled back are missing, and a statement may take its
        // number before another one that commits first: flipping bits exchanges neighbours.
        self.seq += 1 + self.seq % 3;
        let next = self.versions.entry(key.to_owned()).or_insert(0);
        let version = *next;
        *next += 1;
        ledger.entries.push(RecordedEntry {
            seq: self.seq ^ 6,
            key: key.to_owned(),
            before,
            delta,
            after: before + delta,
            version,
            fence: (reason != "restock").then_some(64 * version),
            order,
            reason: reason.to_owned(),
            request,
        });
        ObservedChange { key: key.to_owned(), before, delta, after: before + delta }
    }

    fn observe(
        &mut self,
        key: &str,
        operation: ObservedOperation,
        times: (u64, u64),
        outcome: ObservedOutcome,
    ) -> usize {
        self.seen.push(ObservedRequest {
            user: UserId(Uuid::from_u128(1)),
            key: key.to_owned(),
            request: Some(Uuid::from_u128(1_000 + self.seen.len() as u128)),
            operation,
            invoked_us: times.0,
            completed_us: times.1,
            outcome,
        });
        self.seen.len() - 1
    }

    /// An order, done now; its answer, or *sold out*.
    pub fn place(&mut self, key: &str, lines: &[(&str, i64)], times: (u64, u64)) -> usize {
        let operation = ObservedOperation::Place(
            lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect(),
        );
        for (sku, requested) in lines {
            let available = self.recorded.stock.values[*sku].now;
            if available < *requested {
                let outcome = ObservedOutcome::Insufficient {
                    key: (*sku).to_owned(),
                    requested: *requested,
                    available,
                };
                return self.observe(key, operation, times, outcome);
            }
        }
        let order = OrderId(Uuid::from_u128(self.recorded.orders.len() as u128));
        let request = Uuid::from_u128(1_000 + self.seen.len() as u128);
        let changes = lines
            .iter()
            .map(|(sku, many)| self.change(sku, -many, "order", Some(order), request))
            .collect();
        self.recorded.orders.push(RecordedOrder {
            id: order,
            user: UserId(Uuid::from_u128(1)),
            token: key.to_owned(),
            status: "pending".to_owned(),
            total_cents: lines.iter().map(|(_, many)| 100 * many).sum(),
            lines: lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect(),
        });
        self.observe(
            key,
            operation,
            times,
            ObservedOutcome::Done { order, changes, replayed: false },
        )
    }

    /// The order that a request placed.
    pub fn order_of(&self, place: usize) -> OrderId {
        self.seen[place].outcome.order().unwrap()
    }

    /// The same request again, and the same answer.
    pub fn again(&mut self, place: usize, times: (u64, u64)) -> usize {
        let ObservedRequest { key, operation, outcome, .. } = self.seen[place].clone();
        let ObservedOutcome::Done { order, changes, .. } = outcome else { panic!("not done") };
        self.observe(
            &key,
            operation,
            times,
            ObservedOutcome::Done { order, changes, replayed: true },
        )
    }

    /// A request that comes to nothing.
    pub fn refused(&mut self, key: &str, sku: &str, times: (u64, u64)) -> usize {
        self.observe(
            key,
            ObservedOperation::Place(vec![(sku.to_owned(), 1)]),
            times,
            ObservedOutcome::Rejected,
        )
    }

    /// Pays what that request ordered.
    pub fn pay(&mut self, place: usize, times: (u64, u64)) -> usize {
        let id = self.order_of(place);
        // Orders are numbered; looking for one would make long stories take long.
        let order = &mut self.recorded.orders[usize::try_from(id.0.as_u128()).unwrap()];
        order.status = "paid".to_owned();
        let (user, cents) = (order.user.0.to_string(), order.total_cents);
        let request = Uuid::from_u128(1_000 + self.seen.len() as u128);
        let changes = vec![self.change(&user, -cents, "payment", Some(id), request)];
        let outcome = ObservedOutcome::Done { order: id, changes, replayed: false };
        self.observe("a key of a payment", ObservedOperation::Pay(id), times, outcome)
    }

    /// Puts the units of an order back; its money too, if it was paid.
    pub fn take_back(&mut self, place: usize) {
        let id = self.order_of(place);
        let at = self.recorded.orders.iter().position(|order| order.id == id).unwrap();
        let RecordedOrder { status, lines, user, total_cents, .. } =
            self.recorded.orders[at].clone();
        let (new, reason) =
            if status == "paid" { ("refunded", "refund") } else { ("cancelled", "cancel") };
        for (sku, many) in lines {
            self.change(&sku, many, reason, Some(id), Uuid::nil());
        }
        if status == "paid" {
            self.change(&user.0.to_string(), total_cents, reason, Some(id), Uuid::nil());
        }
        self.recorded.orders[at].status = new.to_owned();
    }

    pub fn check(&self) -> Vec<Violation> {
        check(&self.recorded, &self.seen)
    }

    pub fn assert_sound(&self) {
        let found = self.check();
        assert!(found.is_empty(), "{}", lines(&found));
    }
}

/// The invariants that a story violates.
fn violated(story: &Story) -> Vec<Invariant> {
    story.check().iter().map(|violation| violation.invariant).collect()
}

fn insufficient(key: &str, requested: i64, available: i64) -> ObservedOutcome {
    ObservedOutcome::Insufficient { key: key.to_owned(), requested, available }
}

/// Violations, one a line.
fn lines(found: &[Violation]) -> String {
    found.iter().map(|violation| format!("{violation}\n")).collect()
}

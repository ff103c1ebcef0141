//! The history checker, on histories of a shop in memory that keeps the same ledgers as the real
//! one.

#![expect(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod agreement;
mod growth;
mod mutations;

use std::collections::BTreeMap;

use holdfast::shop::audit::history::*;
use holdfast::shop::{OrderId, UserId};
use uuid::Uuid;

/// A shop that executes one request after the other, independent of the times its clients observe.
#[derive(Debug, Clone, Default)]
struct Story {
    pub books: Books,
    pub seen: Vec<Observation>,
    seq: i64,
    versions: BTreeMap<String, i64>,
}

impl Story {
    /// These items, opened.
    pub fn new(items: &[(&str, i64)]) -> Self {
        let mut story = Self::default();
        for (sku, stock) in items {
            story.books.stock.values.insert((*sku).to_owned(), Value { opening: 0, now: 0 });
            story.change(sku, *stock, "opening", None, Uuid::nil());
        }
        story
    }

    /// The money of a user, put in.
    pub fn account(&mut self, user: u128, cents: i64) {
        let key = Uuid::from_u128(user).to_string();
        let money = self.books.money.get_or_insert_default();
        money.values.insert(key.clone(), Value { opening: 0, now: 0 });
        self.change(&key, cents, "top-up", None, Uuid::nil());
    }

    /// An entry with its change, by an unobserved client.
    pub fn change(
        &mut self,
        key: &str,
        delta: i64,
        reason: &str,
        order: Option<OrderId>,
        request: Uuid,
    ) -> Change {
        let ledger = match &mut self.books.money {
            Some(money) if money.values.contains_key(key) => money,
            _ => &mut self.books.stock,
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
        ledger.entries.push(Entry {
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
        Change { key: key.to_owned(), before, delta, after: before + delta }
    }

    fn observe(&mut self, key: &str, asked: Asked, times: (u64, u64), outcome: Outcome) -> usize {
        self.seen.push(Observation {
            user: UserId(Uuid::from_u128(1)),
            key: key.to_owned(),
            request: Some(Uuid::from_u128(1_000 + self.seen.len() as u128)),
            asked,
            invoked_us: times.0,
            completed_us: times.1,
            outcome,
        });
        self.seen.len() - 1
    }

    /// An order, done now; its answer, or *sold out*.
    pub fn place(&mut self, key: &str, lines: &[(&str, i64)], times: (u64, u64)) -> usize {
        let asked =
            Asked::Place(lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect());
        for (sku, requested) in lines {
            let available = self.books.stock.values[*sku].now;
            if available < *requested {
                let outcome =
                    Outcome::Short { key: (*sku).to_owned(), requested: *requested, available };
                return self.observe(key, asked, times, outcome);
            }
        }
        let order = OrderId(Uuid::from_u128(self.books.orders.len() as u128));
        let request = Uuid::from_u128(1_000 + self.seen.len() as u128);
        let changes = lines
            .iter()
            .map(|(sku, many)| self.change(sku, -many, "order", Some(order), request))
            .collect();
        self.books.orders.push(Order {
            id: order,
            user: UserId(Uuid::from_u128(1)),
            token: key.to_owned(),
            status: "pending".to_owned(),
            total_cents: lines.iter().map(|(_, many)| 100 * many).sum(),
            lines: lines.iter().map(|(sku, many)| ((*sku).to_owned(), *many)).collect(),
        });
        self.observe(key, asked, times, Outcome::Done { order, changes, replayed: false })
    }

    /// The order that a request placed.
    pub fn order_of(&self, place: usize) -> OrderId {
        self.seen[place].outcome.order().unwrap()
    }

    /// The same request again, and the same answer.
    pub fn again(&mut self, place: usize, times: (u64, u64)) -> usize {
        let Observation { key, asked, outcome, .. } = self.seen[place].clone();
        let Outcome::Done { order, changes, .. } = outcome else { panic!("not done") };
        self.observe(&key, asked, times, Outcome::Done { order, changes, replayed: true })
    }

    /// A request that comes to nothing.
    pub fn refused(&mut self, key: &str, sku: &str, times: (u64, u64)) -> usize {
        self.observe(key, Asked::Place(vec![(sku.to_owned(), 1)]), times, Outcome::Refused)
    }

    /// Pays what that request ordered.
    pub fn pay(&mut self, place: usize, times: (u64, u64)) -> usize {
        let id = self.order_of(place);
        // Orders are numbered; looking for one would make long stories take long.
        let order = &mut self.books.orders[usize::try_from(id.0.as_u128()).unwrap()];
        order.status = "paid".to_owned();
        let (user, cents) = (order.user.0.to_string(), order.total_cents);
        let request = Uuid::from_u128(1_000 + self.seen.len() as u128);
        let changes = vec![self.change(&user, -cents, "payment", Some(id), request)];
        let outcome = Outcome::Done { order: id, changes, replayed: false };
        self.observe("a key of a payment", Asked::Pay(id), times, outcome)
    }

    /// Puts the units of an order back; its money too, if it was paid.
    pub fn take_back(&mut self, place: usize) {
        let id = self.order_of(place);
        let at = self.books.orders.iter().position(|order| order.id == id).unwrap();
        let Order { status, lines, user, total_cents, .. } = self.books.orders[at].clone();
        let (new, reason) =
            if status == "paid" { ("refunded", "refund") } else { ("cancelled", "cancel") };
        for (sku, many) in lines {
            self.change(&sku, many, reason, Some(id), Uuid::nil());
        }
        if status == "paid" {
            self.change(&user.0.to_string(), total_cents, reason, Some(id), Uuid::nil());
        }
        self.books.orders[at].status = new.to_owned();
    }

    pub fn check(&self) -> Vec<Violation> {
        check(&self.books, &self.seen)
    }

    pub fn assert_sound(&self) {
        let found = self.check();
        assert!(found.is_empty(), "{}", lines(&found));
    }
}

/// Violations, one a line.
fn lines(found: &[Violation]) -> String {
    found.iter().map(|violation| format!("{violation}\n")).collect()
}

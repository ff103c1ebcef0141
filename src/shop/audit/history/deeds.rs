//! Compares requests and responses with their orders and entries: I4, I5, I6 and I10.
//!
//! An operation ([`Deed`]) is executed at most once: placing the order of an idempotency key,
//! paying an order. It has the entries that it wrote, by the ledger, and the clients' attempts that
//! may have executed it. Together they bound the time when its entries took effect.

use std::collections::HashMap;

use super::chain::Window;
use super::clerk::Clerk;
use super::report::{Findings, Rule, named};
use super::spec::Deed;
use super::{Asked, Books, Ledger, Observation, Order, Outcome};
use crate::shop::{OrderId, UserId};

/// Results for both ledgers.
pub(super) struct Settled {
    pub stock: Side,
    pub money: Side,
}

/// Results for one ledger.
#[derive(Default)]
pub(super) struct Side {
    /// One per entry.
    pub windows: Vec<Window>,
    /// Requests rejected as sold out, or for insufficient funds.
    pub short: Vec<usize>,
    /// For those whose operation another attempt executed later: the index of the entry that was
    /// not written yet.
    pub own: HashMap<usize, usize>,
}

/// Indices of observations, by what they belong to.
type By<K> = HashMap<K, Vec<usize>>;

/// Checks all operations of the books and of the observations.
pub(super) fn settle(
    books: &Books,
    observations: &[Observation],
    findings: &mut Findings,
) -> Settled {
    let mut placings: By<(UserId, &str)> = HashMap::new();
    let mut payings: By<OrderId> = HashMap::new();
    let (mut stock_short, mut money_short) = (Vec::new(), Vec::new());
    for (place, seen) in observations.iter().enumerate() {
        findings.step();
        let side = match seen.asked {
            Asked::Place(_) => {
                placings.entry((seen.user, &seen.key)).or_default().push(place);
                &mut stock_short
            }
            Asked::Pay(order) => {
                payings.entry(order).or_default().push(place);
                &mut money_short
            }
        };
        if matches!(seen.outcome, Outcome::Short { .. }) {
            side.push(place);
        }
    }
    let orders: HashMap<OrderId, &Order> = books.orders.iter().map(|o| (o.id, o)).collect();
    let mut stock = Clerk::new(&books.stock, "order", observations, &orders, findings);
    let mut tokens: HashMap<(UserId, &str), OrderId> = HashMap::new();
    for order in &books.orders {
        findings.step();
        let token = (order.user, order.token.as_str());
        let attempts = placings.remove(&token).unwrap_or_default();
        if let Some(first) = tokens.insert(token, order.id) {
            let text = format!("key {} has made two orders: {first} and {}", token.1, order.id);
            findings.add(Rule::Twice, vec![], vec![], text);
        }
        stock.settle(Deed::Place(order), &attempts, findings);
    }
    undone(placings.into_values().flatten(), observations, findings);
    let stock = Side { windows: stock.windows, short: stock_short, own: stock.own };
    let mut money = Side::default();
    if let Some(ledger) = &books.money {
        let clerk = money_side(books, ledger, observations, &orders, &mut payings, findings);
        undone(payings.into_values().flatten(), observations, findings);
        money = Side { windows: clerk.windows, short: money_short, own: clerk.own };
    }
    Settled { stock, money }
}

/// Checks that payments and refunds match the status of orders, and that the sums agree.
fn money_side<'a>(
    books: &Books,
    ledger: &'a Ledger,
    observations: &'a [Observation],
    orders: &HashMap<OrderId, &Order>,
    payings: &mut By<OrderId>,
    findings: &mut Findings,
) -> Clerk<'a> {
    let mut payments = Clerk::new(ledger, "payment", observations, orders, findings);
    let mut refunds = Clerk::new(ledger, "refund", observations, orders, findings);
    let mut spent: i128 = 0;
    for order in &books.orders {
        findings.step();
        let user = order.user.0.to_string();
        if !ledger.values.contains_key(&user) {
            continue;
        }
        let attempts = payings.remove(&order.id).unwrap_or_default();
        spent += if order.status == "paid" { i128::from(order.total_cents) } else { 0 };
        payments.settle(Deed::Pay(order), &attempts, findings);
        refunds.settle(Deed::Refund(order), &[], findings);
    }
    let sum = |pick: fn(&super::Value) -> i64| -> i128 {
        ledger.values.values().map(|value| i128::from(pick(value))).sum()
    };
    let put_in: i128 =
        ledger.entries.iter().filter(|e| e.order.is_none()).map(|e| i128::from(e.delta)).sum();
    let (opening, now) = (sum(|value| value.opening), sum(|value| value.now));
    if opening + put_in != now + spent {
        let text = format!(
            "there were {opening} cents, {put_in} were put in and {spent} spent on paid orders, so \
             {} should be left, and {now} are",
            opening + put_in - spent
        );
        findings.add(Rule::Money, vec![], vec![], text);
    }
    payments
}

/// Checks the attempts of operations that are not in the books: none may be acknowledged.
fn undone(
    attempts: impl Iterator<Item = usize>,
    observations: &[Observation],
    findings: &mut Findings,
) {
    let mut attempts: Vec<usize> = attempts.collect();
    findings.sort(&mut attempts, usize::cmp);
    for place in attempts {
        findings.step();
        if let Outcome::Done { order, .. } = &observations[place].outcome {
            let name = named(observations, place);
            let text = format!(
                "{name} was answered with order {order}; the books should have it under this key, \
                 and have nothing"
            );
            findings.add(Rule::Lost, vec![], vec![place], text);
        }
    }
}

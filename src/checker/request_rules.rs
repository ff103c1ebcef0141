//! Compares requests and responses with their orders and entries: I4, I5, I6 and I10.
//!
//! An operation ([`OrderOperation`]) is executed at most once: placing the order of an idempotency
//! key, paying an order. It has the entries that it wrote, by the ledger, and the clients' attempts
//! that may have executed it. Together they bound the time when its entries took effect.

use std::collections::HashMap;

use super::chain::TimeBounds;
use super::report::{Findings, Invariant, request_name};
use super::request_checks::RequestChecks;
use super::spec::OrderOperation;
use super::{
    ObservedOperation, ObservedOutcome, ObservedRequest, RecordedLedger, RecordedOrder,
    RecordedState, RecordedValue,
};
use crate::shop::{OrderId, UserId};

/// Results for both ledgers.
pub(super) struct CheckedRequests {
    pub stock: LedgerRequests,
    pub money: LedgerRequests,
}

/// Results for one ledger.
#[derive(Default)]
pub(super) struct LedgerRequests {
    /// One per entry.
    pub bounds: Vec<TimeBounds>,
    /// Requests rejected as sold out, or for insufficient funds.
    pub insufficient: Vec<usize>,
    /// For those whose operation another attempt executed later: the index of the entry that was
    /// not written yet.
    pub later_entry: HashMap<usize, usize>,
}

/// Indices of observations, by what they belong to.
type IndicesBy<K> = HashMap<K, Vec<usize>>;

/// Checks all recorded and all observed operations.
pub(super) fn check(
    state: &RecordedState,
    observations: &[ObservedRequest],
    findings: &mut Findings,
) -> CheckedRequests {
    let mut placings: IndicesBy<(UserId, &str)> = HashMap::new();
    let mut payings: IndicesBy<OrderId> = HashMap::new();
    let (mut stock_insufficient, mut money_insufficient) = (Vec::new(), Vec::new());
    for (index, seen) in observations.iter().enumerate() {
        findings.step();
        let insufficient = match seen.operation {
            ObservedOperation::Place(_) => {
                placings.entry((seen.user, &seen.key)).or_default().push(index);
                &mut stock_insufficient
            }
            ObservedOperation::Pay(order) => {
                payings.entry(order).or_default().push(index);
                &mut money_insufficient
            }
        };
        if matches!(seen.outcome, ObservedOutcome::Insufficient { .. }) {
            insufficient.push(index);
        }
    }
    let orders: HashMap<OrderId, &RecordedOrder> = state.orders.iter().map(|o| (o.id, o)).collect();
    let mut stock = RequestChecks::new(&state.stock, "order", observations, &orders, findings);
    let mut keys: HashMap<(UserId, &str), OrderId> = HashMap::new();
    for order in &state.orders {
        findings.step();
        let key = (order.user, order.token.as_str());
        let attempts = placings.remove(&key).unwrap_or_default();
        if let Some(first) = keys.insert(key, order.id) {
            let text = format!("key {} has made two orders: {first} and {}", key.1, order.id);
            findings.add(Invariant::Twice, vec![], vec![], text);
        }
        stock.check(OrderOperation::Place(order), &attempts, findings);
    }
    check_unexecuted(placings.into_values().flatten(), observations, findings);
    let stock = LedgerRequests {
        bounds: stock.bounds,
        insufficient: stock_insufficient,
        later_entry: stock.later_entry,
    };
    let mut money = LedgerRequests::default();
    if let Some(ledger) = &state.money {
        let checks = check_payments(state, ledger, observations, &orders, &mut payings, findings);
        check_unexecuted(payings.into_values().flatten(), observations, findings);
        money = LedgerRequests {
            bounds: checks.bounds,
            insufficient: money_insufficient,
            later_entry: checks.later_entry,
        };
    }
    CheckedRequests { stock, money }
}

/// Checks that payments and refunds match the status of orders, and that the sums agree.
fn check_payments<'a>(
    state: &RecordedState,
    ledger: &'a RecordedLedger,
    observations: &'a [ObservedRequest],
    orders: &HashMap<OrderId, &RecordedOrder>,
    payings: &mut IndicesBy<OrderId>,
    findings: &mut Findings,
) -> RequestChecks<'a> {
    let mut payments = RequestChecks::new(ledger, "payment", observations, orders, findings);
    let mut refunds = RequestChecks::new(ledger, "refund", observations, orders, findings);
    let mut spent: i128 = 0;
    for order in &state.orders {
        findings.step();
        let user = order.user.0.to_string();
        if !ledger.values.contains_key(&user) {
            continue;
        }
        let attempts = payings.remove(&order.id).unwrap_or_default();
        spent += if order.status == "paid" { i128::from(order.total_cents) } else { 0 };
        payments.check(OrderOperation::Pay(order), &attempts, findings);
        refunds.check(OrderOperation::Refund(order), &[], findings);
    }
    let sum = |pick: fn(&RecordedValue) -> i64| -> i128 {
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
        findings.add(Invariant::Money, vec![], vec![], text);
    }
    payments
}

/// Checks the attempts of operations that are not recorded: none may be acknowledged.
fn check_unexecuted(
    attempts: impl Iterator<Item = usize>,
    observations: &[ObservedRequest],
    findings: &mut Findings,
) {
    let mut attempts: Vec<usize> = attempts.collect();
    findings.sort(&mut attempts, usize::cmp);
    for place in attempts {
        findings.step();
        if let ObservedOutcome::Done { order, .. } = &observations[place].outcome {
            let name = request_name(observations, place);
            let text = format!(
                "{name} got order {order} as its response; no order is recorded under this \
                 key"
            );
            findings.add(Invariant::Lost, vec![], vec![place], text);
        }
    }
}

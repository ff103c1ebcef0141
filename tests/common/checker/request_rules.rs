//! Compares requests and responses with their orders and entries: I4, I5, I6 and I10.
//!
//! An operation ([`OrderOperation`]) is executed at most once: placing the order of an idempotency
//! key, paying an order. It has the entries that it wrote, by the ledger, and the clients' attempts
//! that may have executed it. Together they bound the time when its entries took effect.

use std::collections::HashMap;

use super::chain::CheckedLedger;
use super::report::{Findings, Invariant};
use super::request_checks::RequestChecks;
use super::spec::OrderOperation;
use super::{
    ObservedOperation, ObservedOutcome, RecordedLedger, RecordedOrder, RecordedState, RecordedValue,
};
use holdfast::shop::{OrderId, UserId};

/// Indices of observations, by what they belong to.
type IndicesBy<K> = HashMap<K, Vec<usize>>;

/// Checks all recorded and all observed operations. Returns the stock, and the money if recorded.
pub(super) fn check<'a>(
    state: &'a RecordedState,
    findings: &mut Findings<'a>,
) -> Vec<CheckedLedger<'a>> {
    let mut placings: IndicesBy<(UserId, &str)> = HashMap::new();
    let mut payings: IndicesBy<OrderId> = HashMap::new();
    let (mut stock_insufficient, mut money_insufficient) = (Vec::new(), Vec::new());
    for (index, seen) in findings.observations.iter().enumerate() {
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
    let mut stock = RequestChecks::new(&state.stock, "order", &orders, findings);
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
    check_unexecuted(placings.into_values().flatten(), findings);
    let mut checked = vec![CheckedLedger { insufficient: stock_insufficient, ..stock.checked }];
    if let Some(ledger) = &state.money {
        let money = check_payments(state, ledger, &orders, &mut payings, findings);
        check_unexecuted(payings.into_values().flatten(), findings);
        checked.push(CheckedLedger { insufficient: money_insufficient, ..money });
    }
    checked
}

/// Checks that payments and refunds match the status of orders, and that the sums agree.
fn check_payments<'a>(
    state: &RecordedState,
    ledger: &'a RecordedLedger,
    orders: &HashMap<OrderId, &RecordedOrder>,
    payings: &mut IndicesBy<OrderId>,
    findings: &mut Findings<'_>,
) -> CheckedLedger<'a> {
    let mut payments = RequestChecks::new(ledger, "payment", orders, findings);
    let mut refunds = RequestChecks::new(ledger, "refund", orders, findings);
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
    payments.checked
}

/// Checks the attempts of operations that are not recorded: none may be acknowledged.
fn check_unexecuted(attempts: impl Iterator<Item = usize>, findings: &mut Findings<'_>) {
    let mut attempts: Vec<usize> = attempts.collect();
    findings.sort(&mut attempts, usize::cmp);
    for place in attempts {
        findings.step();
        if let ObservedOutcome::Done { order, .. } = &findings.observations[place].outcome {
            let name = findings.name_of(place);
            let text = format!(
                "{name} got order {order} as its response; no order is recorded under this key"
            );
            findings.add(Invariant::Lost, vec![], vec![place], text);
        }
    }
}

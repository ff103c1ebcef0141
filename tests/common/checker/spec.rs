//! The sequential specification: the changes and rejections of an operation, by the rules that the
//! shop itself applies ([`Command::decide`]).

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{ObservedChange, ObservedOperation, RecordedOrder};
use holdfast::shop::command::pay_order::PayOrder;
use holdfast::shop::command::place_order::{MAX_LINES, MAX_QUANTITY, PlaceOrder};
use holdfast::shop::command::return_order::{ReturnKind, ReturnOrder};
use holdfast::shop::command::state::{BalanceSnapshot, OrderSnapshot, ShopState, StockSnapshot};
use holdfast::shop::command::{Command, MAX_BALANCE};
use holdfast::shop::failure::Rejection;
use holdfast::shop::model::{Order, OrderStatus, RequestedLine};
use holdfast::shop::{DEFAULT_PAYMENT_WINDOW, IdempotencyKey, OrderId, Sku, UserId};

/// An operation on an order that is executed at most once.
#[derive(Debug, Clone, Copy)]
pub(super) enum OrderOperation<'a> {
    Place(&'a RecordedOrder),
    Pay(&'a RecordedOrder),
    Refund(&'a RecordedOrder),
}

impl<'a> OrderOperation<'a> {
    pub fn order(self) -> &'a RecordedOrder {
        let (Self::Place(order) | Self::Pay(order) | Self::Refund(order)) = self;
        order
    }

    /// Returns the reason of its entries.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Place(_) => "order",
            Self::Pay(_) => "payment",
            Self::Refund(_) => "refund",
        }
    }

    /// Returns the keys with an entry of it, given the status of the order, with the deltas.
    pub fn deltas(self) -> Vec<(String, i64)> {
        let of_user = |order: &RecordedOrder, delta| vec![(order.user.0.to_string(), delta)];
        match (self, self.order().status.as_str()) {
            (Self::Place(order), _) => {
                order.lines.iter().map(|(sku, units)| (sku.clone(), -units)).collect()
            }
            (Self::Pay(order), "paid" | "refunded") => of_user(order, -order.total_cents),
            (Self::Refund(order), "refunded") => of_user(order, order.total_cents),
            _ => Vec::new(),
        }
    }

    /// Computes the change of one of its keys by the rules.
    pub fn apply_rules(self, key: &str, before: i64) -> Result<Option<ObservedChange>, Rejection> {
        let order = self.order();
        let (user, idempotency_key) = (order.user, IdempotencyKey::generate());
        let priced = || priced_order(order.id, order.total_cents);
        match self {
            Self::Place(_) => {
                let units = order.lines.iter().find(|(sku, _)| sku == key).map_or(0, |line| line.1);
                place(user, key, units, before)
            }
            Self::Pay(_) => {
                let command = PayOrder::new(user, user, priced(), idempotency_key);
                decide(&command, OrderStatus::Pending, before)
            }
            Self::Refund(_) => {
                let (kind, key) = (ReturnKind::Refund(user), Some(idempotency_key));
                let command = ReturnOrder::new(kind, user, priced(), key);
                decide(&command, OrderStatus::Paid, before)
            }
        }
    }
}

/// Returns whether `available` is below `requested`, and the rules do not accept it either.
pub(super) fn is_insufficient(
    operation: &ObservedOperation,
    key: &str,
    requested: i64,
    available: i64,
) -> bool {
    let user = UserId(Uuid::nil());
    let result = match operation {
        ObservedOperation::Place(_) => place(user, key, requested, available),
        ObservedOperation::Pay(_) if !(0..=MAX_BALANCE).contains(&requested) => Err(out_of_range()),
        ObservedOperation::Pay(order) => {
            let order = priced_order(*order, requested);
            let command = PayOrder::new(user, user, order, IdempotencyKey::generate());
            decide(&command, OrderStatus::Pending, available)
        }
    };
    available < requested && result.is_err()
}

fn place(
    user: UserId,
    key: &str,
    units: i64,
    before: i64,
) -> Result<Option<ObservedChange>, Rejection> {
    if !(1..=MAX_LINES as i64 * MAX_QUANTITY).contains(&units) {
        return Err(out_of_range());
    }
    let sku = Sku::try_from(key.to_owned()).map_err(|_| out_of_range())?;
    // The same item may be in several lines.
    let line = |from| RequestedLine { sku: sku.clone(), quantity: MAX_QUANTITY.min(units - from) };
    let lines: Vec<RequestedLine> = (0..units).step_by(MAX_QUANTITY as usize).map(line).collect();
    let command =
        PlaceOrder::new(user, IdempotencyKey::generate(), &lines, DEFAULT_PAYMENT_WINDOW)?;
    decide(&command, OrderStatus::Pending, before)
}

/// Returns the rejection of values that no order and no row can have.
fn out_of_range() -> Rejection {
    Rejection::Invalid("history".into(), "out of range".to_owned())
}

/// Creates an order of which the rules use only the price.
fn priced_order(id: OrderId, total_cents: i64) -> Order {
    let created_at = OffsetDateTime::UNIX_EPOCH;
    Order {
        id,
        status: OrderStatus::Pending.name().to_owned(),
        total_cents,
        lines: Vec::new(),
        expires_at: created_at,
        created_at,
        paid_at: None,
        expired: false,
    }
}

/// Returns the change that a command makes to its only value.
fn decide(
    command: &dyn Command,
    status: OrderStatus,
    before: i64,
) -> Result<Option<ObservedChange>, Rejection> {
    if !(0..=MAX_BALANCE).contains(&before) {
        return Err(out_of_range());
    }
    let now = OffsetDateTime::UNIX_EPOCH;
    let (version, fence, is_updated) = (0, 0, false);
    let (price_cents, limit_per_user) = (0, None);
    let item =
        StockSnapshot { price_cents, stock: before, limit_per_user, version, fence, is_updated };
    let account = BalanceSnapshot { balance_cents: before, version, fence, is_updated };
    let expires_at = now + Duration::from_secs(1);
    let order = OrderSnapshot { status, expires_at, paid_at: None, expired: false };
    let reads = command.reads();
    let mut state = ShopState::at(now);
    state.items.extend(reads.items.into_iter().map(|sku| (sku, item)));
    state.accounts.extend(reads.account.map(|user| (user, account)));
    state.orders.extend(reads.orders.into_iter().map(|id| (id, order)));
    let changes = command.decide(&mut state)?;
    let stock = changes.stock.into_iter().map(|c| (c.key.to_string(), c.before, c.delta));
    let balance = changes.balance.into_iter().map(|c| (c.key.0.to_string(), c.before, c.delta));
    let mut changes = stock.chain(balance);
    Ok(changes.next().map(|(key, before, delta)| {
        let after = before + delta;
        ObservedChange { key, before, delta, after }
    }))
}

//! The sequential specification: the changes and rejections of an operation, by the rules that the
//! shop itself applies ([`Command::decide`]).

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Asked, Change, Order};
use crate::shop::command::pay_order::PayOrder;
use crate::shop::command::place_order::{MAX_LINES, MAX_QUANTITY, PlaceOrder};
use crate::shop::command::refund_order::RefundOrder;
use crate::shop::command::state::{BalanceSnapshot, OrderSnapshot, State, StockSnapshot};
use crate::shop::command::{Command, MAX_BALANCE};
use crate::shop::failure::Rejection;
use crate::shop::model::{self, OrderStatus, WantedLine};
use crate::shop::{IdempotencyKey, OrderId, Sku, USUAL_HOLD, UserId};

/// An operation on an order that is executed at most once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed<'a> {
    Place(&'a Order),
    Pay(&'a Order),
    Refund(&'a Order),
}

impl<'a> Deed<'a> {
    pub fn order(self) -> &'a Order {
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
        let of_user = |order: &Order, delta| vec![(order.user.0.to_string(), delta)];
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
    pub fn execute(self, key: &str, before: i64) -> Result<Option<Change>, Rejection> {
        let order = self.order();
        let (user, token) = (order.user, IdempotencyKey::mint());
        match self {
            Self::Place(_) => {
                let units = order.lines.iter().find(|(sku, _)| sku == key).map_or(0, |line| line.1);
                place(user, key, units, before)
            }
            Self::Pay(_) => {
                decide(&PayOrder::new(user, priced(order), token), OrderStatus::Pending, before)
            }
            Self::Refund(_) => {
                let command = RefundOrder::new(user, priced(order), Some(token));
                decide(&command, OrderStatus::Paid, before)
            }
        }
    }
}

/// Returns whether `available` is below `requested`, and the rules do not accept it either.
pub(super) fn is_short(asked: &Asked, key: &str, requested: i64, available: i64) -> bool {
    let user = UserId(Uuid::nil());
    let done = match asked {
        Asked::Place(_) => place(user, key, requested, available),
        Asked::Pay(_) if !(0..=MAX_BALANCE).contains(&requested) => Err(not_judged()),
        Asked::Pay(order) => {
            let order = model_order(*order, requested);
            let command = PayOrder::new(user, order, IdempotencyKey::mint());
            decide(&command, OrderStatus::Pending, available)
        }
    };
    available < requested && done.is_err()
}

fn place(user: UserId, key: &str, units: i64, before: i64) -> Result<Option<Change>, Rejection> {
    if !(1..=MAX_LINES as i64 * MAX_QUANTITY).contains(&units) {
        return Err(not_judged());
    }
    let no_sku = |_| not_judged();
    let sku = Sku::try_from(key.to_owned()).map_err(no_sku)?;
    // The same item may be in several lines.
    let most = (0..units).step_by(MAX_QUANTITY as usize);
    let line = |from| WantedLine { sku: sku.clone(), quantity: MAX_QUANTITY.min(units - from) };
    let lines: Vec<WantedLine> = most.map(line).collect();
    let command = PlaceOrder::new(user, IdempotencyKey::mint(), &lines, USUAL_HOLD)?;
    decide(&command, OrderStatus::Pending, before)
}

/// Returns the rejection of values that no order and no row can have.
fn not_judged() -> Rejection {
    Rejection::Invalid("history".into(), "out of range".to_owned())
}

fn priced(order: &Order) -> model::Order {
    model_order(order.id, order.total_cents)
}

/// Creates an order of which the rules use only the price.
fn model_order(id: OrderId, total_cents: i64) -> model::Order {
    let created_at = OffsetDateTime::UNIX_EPOCH;
    model::Order {
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
) -> Result<Option<Change>, Rejection> {
    if !(0..=MAX_BALANCE).contains(&before) {
        return Err(not_judged());
    }
    let now = OffsetDateTime::UNIX_EPOCH;
    let (version, fence, reserved) = (0, 0, false);
    let (price_cents, limit_per_user) = (0, None);
    let item =
        StockSnapshot { price_cents, stock: before, limit_per_user, version, fence, reserved };
    let account = BalanceSnapshot { balance_cents: before, version, fence, reserved };
    let expires_at = now + Duration::from_secs(1);
    let order = OrderSnapshot { status, expires_at, paid_at: None, expired: false };
    let reads = command.reads();
    let mut state = State::at(now);
    state.items.extend(reads.items.into_iter().map(|sku| (sku, item)));
    state.accounts.extend(reads.account.map(|user| (user, account)));
    state.orders.extend(reads.orders.into_iter().map(|id| (id, order)));
    let changes = command.decide(&mut state)?;
    let stock = changes.stock.into_iter().map(|c| (c.sku.to_string(), c.before, c.delta));
    let balance = changes.balance.into_iter().map(|c| (c.user.0.to_string(), c.before, c.delta));
    let mut changes = stock.chain(balance);
    Ok(changes.next().map(|(key, before, delta)| {
        let after = before + delta;
        Change { key, before, delta, after }
    }))
}

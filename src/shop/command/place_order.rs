//! Places an order: takes its units from stock, and keeps them until it is paid or expires.
//!
//! Rejects, in this order: an unknown item; a total that overflows; insufficient stock; more units
//! than the item's limit per customer allows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use holdfast_lock::LockKey;
use uuid::Uuid;

use super::changes::{Changes, CommandResponse, NewOrder, NewOrderLine};
use super::state::ShopState;
use super::{Command, ConditionalUpdate, ReadSet};
use crate::shop::failure::Rejection;
use crate::shop::idempotency::{IdempotencyRequest, ORDERS_PATH};
use crate::shop::model::{Order, OrderLine, OrderStatus, RequestedLine, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, Sku, UserId};

/// Maximum number of lines of an order.
pub const MAX_LINES: usize = 50;
/// Maximum number of units of a line.
pub const MAX_QUANTITY: i64 = 1_000;

#[derive(Debug, Clone)]
pub struct PlaceOrder {
    idempotency: IdempotencyRequest,
    order: OrderId,
    /// Sorted, each item once.
    lines: BTreeMap<Sku, i64>,
    /// Time for which the unpaid order keeps its units.
    payment_window: Duration,
}

impl PlaceOrder {
    /// Sums the lines by item. [`Rejection::Invalid`] if there are too many lines or none, or a
    /// quantity is out of range.
    pub fn new(
        user: UserId,
        key: IdempotencyKey,
        requested: &[RequestedLine],
        payment_window: Duration,
    ) -> Result<Self, Rejection> {
        if requested.is_empty() || requested.len() > MAX_LINES {
            return Err(Rejection::Invalid("lines".into(), format!("1 to {MAX_LINES} lines")));
        }
        let mut lines = BTreeMap::new();
        for (place, line) in requested.iter().enumerate() {
            if !(1..=MAX_QUANTITY).contains(&line.quantity) {
                let field = format!("lines[{place}].quantity");
                return Err(Rejection::Invalid(field.into(), format!("1 to {MAX_QUANTITY}")));
            }
            *lines.entry(line.sku.clone()).or_insert(0) += line.quantity;
        }
        let mut content = String::new();
        for (sku, quantity) in &lines {
            let _ = writeln!(content, "{sku} {quantity}");
        }
        let idempotency = IdempotencyRequest::post(user, ORDERS_PATH, Some(key), &content);
        Ok(Self { idempotency, order: OrderId(Uuid::now_v7()), lines, payment_window })
    }

    /// Returns the item and quantity of an order for a single item.
    pub fn single_line(&self) -> Option<(&Sku, i64)> {
        let (sku, quantity) = self.lines.first_key_value()?;
        (self.lines.len() == 1).then_some((sku, *quantity))
    }

    fn user(&self) -> UserId {
        self.idempotency.user
    }

    /// Returns the placed order, with `changes` line by line.
    fn pending(&self, new: &NewOrder, changes: impl Iterator<Item = ValueChange>) -> Order {
        let lines = new.lines.iter().zip(changes).map(|(line, stock)| OrderLine {
            sku: line.sku.clone(),
            quantity: line.quantity,
            unit_price_cents: line.unit_price_cents,
            stock,
        });
        Order {
            id: new.id,
            status: OrderStatus::Pending,
            total_cents: new.total_cents,
            lines: lines.collect(),
            expires_at: new.expires_at,
            created_at: new.created_at,
            paid_at: None,
            expired: false,
        }
    }

    /// Computes the total and the lines, and checks stock and limits.
    fn check(&self, state: &ShopState) -> Result<(i64, Vec<NewOrderLine>), Rejection> {
        let mut total_cents = 0_i64;
        let mut lines = Vec::with_capacity(self.lines.len());
        for (sku, quantity) in &self.lines {
            let item = state.item(sku)?;
            let line_cents = item.price_cents.checked_mul(*quantity);
            let sum = line_cents.and_then(|cents| total_cents.checked_add(cents));
            total_cents = sum.ok_or_else(|| {
                Rejection::Invalid("lines".into(), "it costs too much".to_owned())
            })?;
            lines.push(NewOrderLine {
                sku: sku.clone(),
                quantity: *quantity,
                unit_price_cents: item.price_cents,
                limit_per_user: item.limit_per_user,
            });
        }
        // Stock first: it is the same for every customer, and needs no count.
        for NewOrderLine { sku, quantity, .. } in &lines {
            let available = state.items[sku].stock;
            if available < *quantity {
                let (sku, requested) = (sku.clone(), *quantity);
                return Err(Rejection::SoldOut { sku, requested, available });
            }
        }
        for NewOrderLine { sku, quantity, limit_per_user, .. } in &lines {
            let already = state.purchased.get(&(sku.clone(), self.user()));
            if let (Some(limit), Some(&already)) = (*limit_per_user, already)
                && already + quantity > limit
            {
                let (sku, requested) = (sku.clone(), *quantity);
                return Err(Rejection::LimitReached { sku, limit, already, requested });
            }
        }
        Ok((total_cents, lines))
    }
}

impl Command for PlaceOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.lines.keys().cloned().collect();
        ReadSet { items, buyer: Some(self.user()), ..ReadSet::default() }
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order)
    }

    fn batch_key(&self) -> Option<LockKey> {
        self.single_line().map(|(sku, _)| sku.lock_key())
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let stock = self.lines.iter().map(|(sku, quantity)| (sku.clone(), -quantity)).collect();
        Some(ConditionalUpdate { stock, ..ConditionalUpdate::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let (total_cents, lines) = self.check(state)?;
        let mut stock = Vec::with_capacity(lines.len());
        for NewOrderLine { sku, quantity, .. } in &lines {
            stock.push(state.change_stock(sku, -quantity, "order", Some(self.order))?);
            if let Some(purchased) = state.purchased.get_mut(&(sku.clone(), self.user())) {
                *purchased += quantity;
            }
        }
        let order = NewOrder {
            id: self.order,
            user: self.user(),
            key: self.idempotency.key.as_str().to_owned(),
            total_cents,
            created_at: state.now,
            expires_at: state.now + self.payment_window,
            lines,
        };
        let response =
            CommandResponse::Placed(self.pending(&order, stock.iter().map(ValueChange::from)));
        Ok(Changes { order: Some(order), stock, ..Changes::none(response) })
    }
}

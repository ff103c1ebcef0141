//! Cancels a pending order, and returns its units to stock, once.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::changes::{Changes, CommandResponse, StatusTransition, StockChange};
use super::pay_order::in_status;
use super::place_order::no_item;
use super::state::{OrderSnapshot, ShopState};
use super::{Command, ReadSet, Reservation};
use crate::ladder::Priority;
use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::model::{Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, Sku, UserId};

#[derive(Debug, Clone)]
pub struct CancelOrder {
    idempotency: IdempotencyRequest,
    /// The order as read before the command; its lines never change.
    order: Order,
}

impl CancelOrder {
    pub fn new(user: UserId, order: Order, key: Option<IdempotencyKey>) -> Self {
        let path = format!("/api/orders/{}/cancel", order.id);
        let fingerprint = Sha256::digest(b"").into();
        Self { idempotency: IdempotencyRequest::post(user, path, key, fingerprint), order }
    }
}

/// Returns units to stock. Rejects an unknown item before any change.
pub(super) fn return_units(
    state: &mut ShopState,
    units: &[(Sku, i64)],
    reason: &str,
    order: OrderId,
) -> Result<Vec<StockChange>, Rejection> {
    if let Some((sku, _)) = units.iter().find(|(sku, _)| !state.items.contains_key(sku)) {
        return Err(no_item(sku));
    }
    let changes = units.iter();
    Ok(changes
        .filter_map(|(sku, quantity)| state.change_stock(sku, *quantity, reason, Some(order)))
        .collect())
}

/// Returns the stock part of a response.
pub(super) fn by_sku(changes: &[StockChange]) -> BTreeMap<String, ValueChange> {
    changes.iter().map(|change| (change.sku.to_string(), ValueChange::from(change))).collect()
}

impl Command for CancelOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.order.lines.iter().map(|line| line.sku.clone()).collect();
        ReadSet { items, orders: vec![self.order.id], ..ReadSet::default() }
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order.id)
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    fn reservation(&self) -> Option<Reservation> {
        Some(Reservation { stock: self.order.units(), balance: None })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let id = self.order.id;
        let (from, to) = (OrderStatus::Pending, OrderStatus::Cancelled);
        let found = in_status(state, id, from, "cancel")?;
        let stock = return_units(state, &self.order.units(), "cancel", id)?;
        state.orders.insert(id, OrderSnapshot { status: to, ..found });
        let order = Order { status: to.name().to_owned(), ..self.order.clone() };
        let response = CommandResponse::Returned(ReturnedOrder {
            order,
            stock: by_sku(&stock),
            balance: None,
        });
        let transitions = vec![StatusTransition { order: id, from, to, paid_at: None }];
        Ok(Changes { transitions, stock, ..Changes::none(response) })
    }
}

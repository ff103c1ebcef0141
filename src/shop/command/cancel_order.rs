//! Cancels a pending order, and returns its units to stock, once.

use std::collections::BTreeMap;

use super::changes::{Changes, CommandResponse, StockChange};
use super::state::{OrderSnapshot, ShopState};
use super::{Command, ConditionalUpdate, ReadSet};
use crate::locks::Priority;
use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::model::{Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, UserId};

#[derive(Debug, Clone)]
pub struct CancelOrder {
    idempotency: IdempotencyRequest,
    /// The order as read before the command; its lines never change.
    order: Order,
}

impl CancelOrder {
    pub fn new(user: UserId, order: Order, key: Option<IdempotencyKey>) -> Self {
        let path = format!("/api/orders/{}/cancel", order.id);
        Self { idempotency: IdempotencyRequest::post(user, path, key, ""), order }
    }
}

/// Returns the stock part of a response.
pub(super) fn by_sku(changes: &[StockChange]) -> BTreeMap<String, ValueChange> {
    changes.iter().map(|change| (change.key.to_string(), ValueChange::from(change))).collect()
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

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let stock = self.order.units();
        Some(ConditionalUpdate { stock, ..ConditionalUpdate::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let id = self.order.id;
        let (from, to) = (OrderStatus::Pending, OrderStatus::Cancelled);
        let found = state.order_in(from, id, "cancel")?;
        let stock = state.return_units(&self.order.units(), "cancel", id)?;
        let transition = state.change_order(id, from, OrderSnapshot { status: to, ..found });
        let order = Order { status: to.name().to_owned(), ..self.order.clone() };
        let response = CommandResponse::Returned(ReturnedOrder {
            order,
            stock: by_sku(&stock),
            balance: None,
        });
        Ok(Changes { transitions: vec![transition], stock, ..Changes::none(response) })
    }
}

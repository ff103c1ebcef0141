//! Refunds a paid order: returns its units to stock, and its price to the account.

use super::cancel_order::by_sku;
use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::top_up::check_balance;
use super::{Command, ConditionalUpdate, ReadSet};
use crate::locks::Priority;
use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::model::{Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, UserId};

#[derive(Debug, Clone)]
pub struct RefundOrder {
    idempotency: IdempotencyRequest,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl RefundOrder {
    pub fn new(user: UserId, order: Order, key: Option<IdempotencyKey>) -> Self {
        let path = format!("/api/orders/{}/refund", order.id);
        Self { idempotency: IdempotencyRequest::post(user, path, key, ""), order }
    }
}

impl Command for RefundOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.order.lines.iter().map(|line| line.sku.clone()).collect();
        let account = Some(self.idempotency.user);
        ReadSet { items, account, orders: vec![self.order.id], ..ReadSet::default() }
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order.id)
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let balance = Some((self.idempotency.user, self.order.total_cents));
        Some(ConditionalUpdate { stock: self.order.units(), restocks: false, balance })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let (user, id, total) = (self.idempotency.user, self.order.id, self.order.total_cents);
        let (from, to) = (OrderStatus::Paid, OrderStatus::Refunded);
        let found = state.order_in(from, id, "refund")?;
        check_balance(state, user, total)?;
        let stock = state.return_units(&self.order.units(), "refund", id)?;
        let balance = state.change_balance(user, total, "refund", Some(id))?;
        let transition = state.change_order(id, from, OrderSnapshot { status: to, ..found });
        let status = to.name().to_owned();
        let order = Order { status, paid_at: found.paid_at, ..self.order.clone() };
        let returned = ReturnedOrder {
            order,
            stock: by_sku(&stock),
            balance: Some(ValueChange::from(&balance)),
        };
        Ok(Changes {
            transitions: vec![transition],
            stock,
            balance: Some(balance),
            ..Changes::none(CommandResponse::Returned(returned))
        })
    }
}

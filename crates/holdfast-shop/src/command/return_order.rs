//! Returns an order's units to stock, once: cancels a pending order, or refunds a paid one, whose
//! price returns to the account that paid.

use std::collections::BTreeMap;

use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::top_up::check_balance;
use super::{Command, ConditionalUpdate, ReadSet};
use crate::failure::Rejection;
use crate::idempotency::IdempotencyRequest;
use crate::locks::Priority;
use crate::model::{Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::{IdempotencyKey, UserId};

#[derive(Debug, Clone)]
pub struct ReturnOrder {
    idempotency: IdempotencyRequest,
    /// The account to which the price of a paid order returns; `None` for a pending order.
    refund_to: Option<UserId>,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl ReturnOrder {
    /// Cancels the order, or with `refund_to` refunds it.
    pub fn new(
        user: UserId,
        order: Order,
        refund_to: Option<UserId>,
        key: Option<IdempotencyKey>,
    ) -> Self {
        let path = format!("/api/orders/{}/{}", order.id, name(refund_to));
        Self { idempotency: IdempotencyRequest::post(user, path, key, ""), refund_to, order }
    }
}

/// Returns the name in paths, rejections and ledger entries.
fn name(refund_to: Option<UserId>) -> &'static str {
    if refund_to.is_some() { "refund" } else { "cancel" }
}

impl Command for ReturnOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.order.lines.iter().map(|line| line.sku.clone()).collect();
        let orders = vec![self.order.id];
        ReadSet { items, account: self.refund_to, orders, ..ReadSet::default() }
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let balance = self.refund_to.map(|user| (user, self.order.total_cents));
        Some(ConditionalUpdate { stock: self.order.units(), restocks: false, balance })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let id = self.order.id;
        let total = self.order.total_cents;
        let name = name(self.refund_to);
        let (from, to) = match self.refund_to {
            None => (OrderStatus::Pending, OrderStatus::Cancelled),
            Some(_) => (OrderStatus::Paid, OrderStatus::Refunded),
        };
        let found = state.order_in(from, id, name)?;
        if let Some(user) = self.refund_to {
            check_balance(state, user, total)?;
        }

        let stock = state.return_units(&self.order.units(), name, id)?;
        let balance = match self.refund_to {
            Some(user) => Some(state.change_balance(user, total, name, Some(id))?),
            None => None,
        };
        let transition = state.change_order(id, from, OrderSnapshot { status: to, ..found });

        let by_sku: BTreeMap<String, ValueChange> =
            stock.iter().map(|change| (change.key.to_string(), change.into())).collect();
        let response = CommandResponse::Returned(ReturnedOrder {
            order: Order { status: to, paid_at: found.paid_at, ..self.order.clone() },
            stock: by_sku,
            balance: balance.as_ref().map(ValueChange::from),
        });
        Ok(Changes { transitions: vec![transition], stock, balance, ..Changes::none(response) })
    }
}

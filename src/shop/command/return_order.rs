//! Returns an order's units to stock, once: cancels a pending order, or refunds a paid one, whose
//! price returns to the account that paid.

use std::collections::BTreeMap;

use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::top_up::check_balance;
use super::{Command, ConditionalUpdate, ReadSet};
use crate::locks::Priority;
use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::model::{Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::shop::{IdempotencyKey, UserId};

/// The reason for which an order is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnKind {
    /// It is pending, and its customer cancels it.
    Cancel,
    /// It is paid, and the money is returned to this account.
    Refund(UserId),
}

impl ReturnKind {
    /// Returns the name in paths, rejections and ledger entries.
    fn name(self) -> &'static str {
        match self {
            ReturnKind::Cancel => "cancel",
            ReturnKind::Refund(_) => "refund",
        }
    }

    /// Returns the status that the order must have, and the one that it gets.
    fn transition(self) -> (OrderStatus, OrderStatus) {
        match self {
            ReturnKind::Cancel => (OrderStatus::Pending, OrderStatus::Cancelled),
            ReturnKind::Refund(_) => (OrderStatus::Paid, OrderStatus::Refunded),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ReturnOrder {
    kind: ReturnKind,
    idempotency: IdempotencyRequest,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl ReturnOrder {
    pub fn new(kind: ReturnKind, user: UserId, order: Order, key: Option<IdempotencyKey>) -> Self {
        let path = format!("/api/orders/{}/{}", order.id, kind.name());
        Self { kind, idempotency: IdempotencyRequest::post(user, path, key, ""), order }
    }

    /// Returns the account to which the price returns.
    fn account(&self) -> Option<UserId> {
        match self.kind {
            ReturnKind::Cancel => None,
            ReturnKind::Refund(account) => Some(account),
        }
    }
}

impl Command for ReturnOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let items = self.order.lines.iter().map(|line| line.sku.clone()).collect();
        let (account, orders) = (self.account(), vec![self.order.id]);
        ReadSet { items, account, orders, ..ReadSet::default() }
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let balance = self.account().map(|user| (user, self.order.total_cents));
        Some(ConditionalUpdate { stock: self.order.units(), restocks: false, balance })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let (id, total, name) = (self.order.id, self.order.total_cents, self.kind.name());
        let (from, to) = self.kind.transition();
        let found = state.order_in(from, id, name)?;
        if let Some(user) = self.account() {
            check_balance(state, user, total)?;
        }
        let stock = state.return_units(&self.order.units(), name, id)?;
        let balance = match self.account() {
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

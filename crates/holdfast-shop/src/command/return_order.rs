//! Returns an order's units to stock, once: cancels a pending order, or refunds a paid one, whose
//! price returns to the account that paid. Its customer may, and an admin, who says why.

use std::collections::BTreeMap;

use serde_json::json;

use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::top_up::check_balance;
use super::{Command, ConditionalUpdate, ReadSet, is_line, line_rule};
use crate::failure::Rejection;
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::locks::Priority;
use crate::model::{AdminAction, AdminEntry, Order, OrderStatus, ReturnedOrder, ValueChange};
use crate::{IdempotencyKey, UserId};

pub const MAX_REASON_LENGTH: usize = 200;

/// The person who returns an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReturnedBy {
    Customer(UserId),
    /// With the reason, which is in the admin log alone.
    Admin(UserId, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    Cancel,
    Refund,
}

#[derive(Debug, Clone)]
pub struct ReturnOrder {
    idempotency: IdempotencyRequest,
    by: ReturnedBy,
    /// The account to which the price of a paid order returns; `None` for a pending order.
    refund_to: Option<UserId>,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl ReturnOrder {
    /// Cancels the order, or with `refund_to` refunds it.
    ///
    /// The key is the sender's: an admin's is neither that of the customer nor that of another
    /// admin. The second one finds the order returned.
    pub fn new(
        by: ReturnedBy,
        order: Order,
        refund_to: Option<UserId>,
        key: Option<IdempotencyKey>,
    ) -> Self {
        let operation = match refund_to {
            None => Operation::CancelOrder(order.id),
            Some(_) => Operation::RefundOrder(order.id),
        };
        let (sender, content) = match &by {
            ReturnedBy::Customer(user) => (*user, ""),
            ReturnedBy::Admin(admin, reason) => (*admin, reason.as_str()),
        };
        let idempotency = IdempotencyRequest::new(sender, operation, key, content);
        Self { idempotency, by, refund_to, order }
    }

    /// Returns what the admin log says, if an admin returns the order.
    fn entry(&self, from: OrderStatus, to: OrderStatus) -> Option<AdminEntry> {
        let ReturnedBy::Admin(_, reason) = &self.by else { return None };
        let action = match self.refund_to {
            None => AdminAction::CancelOrder,
            Some(_) => AdminAction::RefundOrder,
        };
        Some(AdminEntry {
            action,
            subject: self.order.id.to_string(),
            before: json!({ "status": from.name() }),
            after: json!({ "status": to.name(), "reason": reason }),
        })
    }
}

impl ReturnedBy {
    /// [`Rejection::Invalid`] if the reason is empty, too long or not on one line.
    pub fn admin(admin: UserId, reason: &str) -> Result<Self, Rejection> {
        let reason = reason.trim();
        if !is_line(reason, MAX_REASON_LENGTH) {
            return Err(Rejection::invalid("reason", line_rule(MAX_REASON_LENGTH)));
        }
        Ok(Self::Admin(admin, reason.to_owned()))
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
        let entry = self.entry(from, to);
        let transitions = vec![transition];
        Ok(Changes { transitions, stock, balance, entry, ..Changes::none(response) })
    }
}

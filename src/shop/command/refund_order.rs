//! Refunds a paid order: returns its units to stock, and its price to the account.

use sha2::{Digest, Sha256};

use super::cancel_order::{by_sku, return_units};
use super::changes::{Changes, CommandResponse, StatusTransition};
use super::pay_order::{in_status, no_account};
use super::state::{OrderSnapshot, ShopState};
use super::top_up::check_balance;
use super::{Command, ReadSet, Reservation};
use crate::ladder::Priority;
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
        let fingerprint = Sha256::digest(b"").into();
        Self { idempotency: IdempotencyRequest::post(user, path, key, fingerprint), order }
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

    fn reservation(&self) -> Option<Reservation> {
        let balance = Some((self.idempotency.user, self.order.total_cents));
        Some(Reservation { stock: self.order.units(), balance })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let (user, id, total) = (self.idempotency.user, self.order.id, self.order.total_cents);
        let (from, to) = (OrderStatus::Paid, OrderStatus::Refunded);
        let found = in_status(state, id, from, "refund")?;
        check_balance(state, user, total)?;
        let stock = return_units(state, &self.order.units(), "refund", id)?;
        let balance =
            state.change_balance(user, total, "refund", Some(id)).ok_or_else(no_account)?;
        state.orders.insert(id, OrderSnapshot { status: to, ..found });
        let status = to.name().to_owned();
        let order = Order { status, paid_at: found.paid_at, ..self.order.clone() };
        let returned = ReturnedOrder {
            order,
            stock: by_sku(&stock),
            balance: Some(ValueChange::from(&balance)),
        };
        Ok(Changes {
            transitions: vec![StatusTransition { order: id, from, to, paid_at: None }],
            stock,
            balance: Some(balance),
            ..Changes::none(CommandResponse::Returned(returned))
        })
    }
}

//! Pays a pending order from its customer's account, or lab account, before it expires.

use holdfast_lock::LockKey;

use super::changes::{Changes, CommandResponse};
use super::state::{OrderSnapshot, ShopState};
use super::{Command, ConditionalUpdate, ReadSet};
use crate::failure::Rejection;
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::model::{Order, OrderStatus, PaidOrder, ValueChange};
use crate::{IdempotencyKey, UserId};

#[derive(Debug, Clone)]
pub struct PayOrder {
    idempotency: IdempotencyRequest,
    account: UserId,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl PayOrder {
    pub fn new(user: UserId, account: UserId, order: Order, key: IdempotencyKey) -> Self {
        let operation = Operation::PayOrder(order.id);
        let idempotency = IdempotencyRequest::new(user, operation, Some(key), "");
        Self { idempotency, account, order }
    }
}

impl Command for PayOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let account = Some(self.account);
        ReadSet { account, orders: vec![self.order.id], ..ReadSet::default() }
    }

    fn batch_key(&self) -> Option<LockKey> {
        Some(self.account.lock_key())
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let balance = Some((self.account, -self.order.total_cents));
        Some(ConditionalUpdate { balance, ..ConditionalUpdate::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let account = self.account;
        let id = self.order.id;
        // A late payment gets this rejection whether the expiry is already written or not.
        if state.orders.get(&id).is_some_and(|order| order.expired) {
            return Err(Rejection::OrderExpired);
        }
        let found = state.order_in(OrderStatus::Pending, id, "pay")?;
        if found.expires_at <= state.now {
            return Err(Rejection::OrderExpired);
        }

        let needed_cents = self.order.total_cents;
        let balance_cents = state.balance_cents(account)?;
        if balance_cents < needed_cents {
            let in_lab = account != self.idempotency.user;
            return Err(Rejection::InsufficientFunds { needed_cents, balance_cents, in_lab });
        }

        let to = OrderStatus::Paid;
        let paid_at = Some(state.now);
        let balance = state.change_balance(account, -needed_cents, "payment", Some(id))?;
        let after = OrderSnapshot { status: to, paid_at, ..found };
        let transition = state.change_order(id, OrderStatus::Pending, after);

        let order = Order { status: to, paid_at, ..self.order.clone() };
        let response =
            CommandResponse::Paid(PaidOrder { order, balance: ValueChange::from(&balance) });
        Ok(Changes {
            transitions: vec![transition],
            balance: Some(balance),
            ..Changes::none(response)
        })
    }
}

//! Pays a pending order from its customer's account, before it expires.

use holdfast_lock::LockKey;
use sha2::{Digest, Sha256};

use super::changes::{Changes, CommandResponse, StatusTransition};
use super::state::{OrderSnapshot, ShopState};
use super::{Command, ReadSet, Reservation};
use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::model::{Order, OrderStatus, PaidOrder, ValueChange};
use crate::shop::{IdempotencyKey, OrderId, UserId};

#[derive(Debug, Clone)]
pub struct PayOrder {
    idempotency: IdempotencyRequest,
    /// The order as read before the command; its lines and its total never change.
    order: Order,
}

impl PayOrder {
    pub fn new(user: UserId, order: Order, key: IdempotencyKey) -> Self {
        let path = format!("/api/orders/{}/pay", order.id);
        let fingerprint = Sha256::digest(b"").into();
        let idempotency = IdempotencyRequest::post(user, path, Some(key), fingerprint);
        Self { idempotency, order }
    }
}

/// Returns the order, or rejects it if its status is not `from`.
pub(super) fn in_status(
    state: &ShopState,
    order: OrderId,
    from: OrderStatus,
    action: &'static str,
) -> Result<OrderSnapshot, Rejection> {
    let Some(found) = state.orders.get(&order) else {
        return Err(Rejection::NotFound(format!("you have no order {order}")));
    };
    if found.status != from {
        let status = found.status.name().to_owned();
        return Err(Rejection::OrderState { status, action });
    }
    Ok(*found)
}

/// Returns the rejection of a command whose account does not exist.
pub(super) fn no_account() -> Rejection {
    Rejection::NotFound("you have no account".to_owned())
}

impl Command for PayOrder {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let account = Some(self.idempotency.user);
        ReadSet { account, orders: vec![self.order.id], ..ReadSet::default() }
    }

    fn order(&self) -> Option<OrderId> {
        Some(self.order.id)
    }

    fn batch_key(&self) -> Option<LockKey> {
        Some(self.idempotency.user.lock_key())
    }

    fn reservation(&self) -> Option<Reservation> {
        let balance = Some((self.idempotency.user, -self.order.total_cents));
        Some(Reservation { balance, ..Reservation::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let (user, id) = (self.idempotency.user, self.order.id);
        // A late payment gets this rejection whether the expiry is already written or not.
        if state.orders.get(&id).is_some_and(|order| order.expired) {
            return Err(Rejection::OrderExpired);
        }
        let found = in_status(state, id, OrderStatus::Pending, "pay")?;
        if found.expires_at <= state.now {
            return Err(Rejection::OrderExpired);
        }
        let needed_cents = self.order.total_cents;
        let balance_cents = state.accounts.get(&user).ok_or_else(no_account)?.balance_cents;
        if balance_cents < needed_cents {
            return Err(Rejection::InsufficientFunds { needed_cents, balance_cents });
        }
        let paid_at = Some(state.now);
        let balance = state
            .change_balance(user, -needed_cents, "payment", Some(id))
            .ok_or_else(no_account)?;
        let (from, to) = (OrderStatus::Pending, OrderStatus::Paid);
        state.orders.insert(id, OrderSnapshot { status: to, paid_at, ..found });
        let order = Order { status: to.name().to_owned(), paid_at, ..self.order.clone() };
        let response =
            CommandResponse::Paid(PaidOrder { order, balance: ValueChange::from(&balance) });
        Ok(Changes {
            transitions: vec![StatusTransition { order: id, from, to, paid_at }],
            balance: Some(balance),
            ..Changes::none(response)
        })
    }
}

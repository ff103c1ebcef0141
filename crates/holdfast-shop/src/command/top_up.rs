//! Adds money to the user's own account.

use super::changes::{Changes, CommandResponse};
use super::state::ShopState;
use super::{Command, ConditionalUpdate, MAX_AMOUNT, MAX_BALANCE, ReadSet, range};
use crate::failure::Rejection;
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::locks::Priority;
use crate::{IdempotencyKey, UserId};
use holdfast_base::messages::message;

#[derive(Debug, Clone)]
pub struct TopUp {
    idempotency: IdempotencyRequest,
    amount_cents: i64,
}

impl TopUp {
    pub fn new(user: UserId, amount_cents: i64, key: IdempotencyKey) -> Result<Self, Rejection> {
        if !(1..=MAX_AMOUNT).contains(&amount_cents) {
            return Err(Rejection::invalid("amount_cents", range(1, MAX_AMOUNT)));
        }
        let content = amount_cents.to_string();
        let idempotency = IdempotencyRequest::new(user, Operation::TopUp, Some(key), &content);
        Ok(Self { idempotency, amount_cents })
    }
}

/// Rejects an amount that would raise the balance above the maximum.
pub(super) fn check_balance(state: &ShopState, user: UserId, cents: i64) -> Result<(), Rejection> {
    match state.balance_cents(user)?.checked_add(cents) {
        Some(after) if after <= MAX_BALANCE => Ok(()),
        _ => {
            let why = message!("problem-balance-above", most = MAX_BALANCE);
            Err(Rejection::invalid("amount_cents", why))
        }
    }
}

impl Command for TopUp {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        let account = Some(self.idempotency.user);
        ReadSet { account, next_entry: true, ..ReadSet::default() }
    }

    fn priority(&self) -> Priority {
        Priority::High
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let balance = Some((self.idempotency.user, self.amount_cents));
        Some(ConditionalUpdate { balance, ..ConditionalUpdate::default() })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let user = self.idempotency.user;
        let cents = self.amount_cents;
        check_balance(state, user, cents)?;
        let next = state.next_entry.ok_or_else(Rejection::no_account)?;
        let mut balance = state.change_balance(user, cents, "top-up", None)?;
        let entry = next.number(&mut balance, state.now);
        Ok(Changes {
            balance: Some(balance),
            top_up_cents: Some(cents),
            ..Changes::none(CommandResponse::ToppedUp(entry))
        })
    }
}

//! The commands of the shop, one file each, and all business rules: [`Command::decide`] is pure (no
//! SQL, no clock, no randomness), and decides alone and in a batch, on the state that the previous
//! commands left. Tests: `tests/model/decide/mod.rs`.

pub mod changes;
pub mod edit_item;
pub mod expire_orders;
pub mod pay_order;
pub mod place_order;
pub mod restock;
pub mod return_order;
pub mod state;
pub mod top_up;

use std::fmt::Debug;
use std::time::Duration;

use super::failure::Rejection;
use super::idempotency::IdempotencyRequest;
use super::{OrderId, Sku, UserId};
use crate::locks::Priority;
use changes::Changes;
use holdfast_base::messages::{Message, message};
use holdfast_lock::LockKey;
use state::ShopState;

pub const MAX_AMOUNT: i64 = 1_000_000_000;
pub const MAX_BALANCE: i64 = 1_000_000_000_000_000;

/// Returns whether a text is not empty, has at most `max` characters, and is on one line.
fn is_line(text: &str, max: usize) -> bool {
    let fits = !text.trim().is_empty() && text.chars().count() <= max;
    fits && !text.chars().any(char::is_control)
}

fn line_rule(max: usize) -> Message {
    message!("problem-line", most = max)
}

pub(crate) fn range(least: i64, most: i64) -> Message {
    message!("problem-range", least, most)
}

pub trait Command: Debug + Send + Sync + 'static {
    fn idempotency(&self) -> &IdempotencyRequest;

    fn reads(&self) -> ReadSet;

    /// Returns the order that it concerns, if it concerns a single one.
    fn order(&self) -> Option<OrderId> {
        match self.reads().orders[..] {
            [order] => Some(order),
            _ => None,
        }
    }

    /// Returns the order of one line that it places, if it does: another replica may be asked to.
    fn single_order(&self) -> Option<SingleOrder<'_>> {
        None
    }

    /// Returns the key of its batch. A command with a batch key changes no other item or account.
    fn batch_key(&self) -> Option<LockKey> {
        None
    }

    fn priority(&self) -> Priority {
        Priority::Normal
    }

    /// Returns the deltas of its values, if they are known in advance: `atomic` applies them before
    /// the decision, by a conditional update. If `None`, it locks the rows instead.
    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        None
    }

    /// Decides on `state`, and applies the changes to it. A rejected command leaves it as it was.
    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection>;
}

/// An order of one line: with its idempotency key, all that another replica needs to place it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleOrder<'a> {
    pub sku: &'a Sku,
    pub quantity: i64,
    pub expected_total_cents: Option<i64>,
    pub payment_window: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadSet {
    pub items: Vec<Sku>,
    pub account: Option<UserId>,
    pub orders: Vec<OrderId>,
    /// True if orders that another transaction has locked are skipped instead of awaited.
    pub skip_locked_orders: bool,
    /// The customer whose purchases count against the items' limits.
    pub buyer: Option<UserId>,
    /// True if the descriptions of its items are read too.
    pub descriptions: bool,
    /// True if the response contains the next entry of the ledger of its items or its account.
    pub next_entry: bool,
}

impl ReadSet {
    /// Returns the keys of the values that may change, which a lock must cover, in locking order.
    pub fn lock_keys(&self) -> Vec<LockKey> {
        let items = self.items.iter().map(Sku::lock_key);
        items.chain(self.account.map(UserId::lock_key)).collect()
    }
}

/// The deltas of a command, applied where the sum is allowed; negative for what it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConditionalUpdate {
    pub stock: Vec<(Sku, i64)>,
    /// True if the units come or go without an order.
    pub restocks: bool,
    pub balance: Option<(UserId, i64)>,
}

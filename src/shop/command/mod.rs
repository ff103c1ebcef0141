//! The commands of the shop, one file each, all of the same shape.
//!
//! A command names the rows it reads, its idempotency key, and its rule: [`Command::decide`], which
//! is synchronous and pure (no SQL, no clock, no randomness). All business rules are in this
//! module. The same function decides a command alone and in a batch, on the state that the previous
//! commands left.
//!
//! Tests: `tests/model/decide/mod.rs`.

pub mod changes;
pub mod expire_orders;
pub mod pay_order;
pub mod place_order;
pub mod restock;
pub mod return_order;
pub mod set_limit;
pub mod state;
pub mod top_up;

use std::fmt::Debug;

use super::failure::Rejection;
use super::idempotency::IdempotencyRequest;
use super::{OrderId, Sku, UserId};
use crate::locks::Priority;
use changes::Changes;
use holdfast_lock::LockKey;
use state::{LedgerKind, ShopState};

/// Maximum stock, price or amount.
pub const MAX_AMOUNT: i64 = 1_000_000_000;
/// Maximum balance, in cents.
pub const MAX_BALANCE: i64 = 1_000_000_000_000_000;

/// A request to change stock or money.
pub trait Command: Debug + Send + Sync + 'static {
    fn idempotency(&self) -> &IdempotencyRequest;

    /// Returns the rows that it reads and may change.
    fn reads(&self) -> ReadSet;

    /// Returns the order that it concerns, if it concerns a single one.
    fn order(&self) -> Option<OrderId> {
        match self.reads().orders[..] {
            [order] => Some(order),
            _ => None,
        }
    }

    /// Returns the key of its batch. A command with a batch key changes no other item or account.
    fn batch_key(&self) -> Option<LockKey> {
        None
    }

    /// Returns its priority, under a strategy with a queue: high if it returns units or money.
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadSet {
    /// Items, sorted; their stock may change.
    pub items: Vec<Sku>,
    /// An account; its balance may change.
    pub account: Option<UserId>,
    /// Orders, sorted; their status may change.
    pub orders: Vec<OrderId>,
    /// True if orders that another transaction has locked are skipped instead of awaited.
    pub skip_locked_orders: bool,
    /// The customer whose purchases count against the items' limits.
    pub buyer: Option<UserId>,
    /// The ledger whose next number the response needs.
    pub entry_in: Option<LedgerKind>,
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
    /// Units by item, sorted.
    pub stock: Vec<(Sku, i64)>,
    /// True if the units come or go without an order.
    pub restocks: bool,
    /// Cents on an account.
    pub balance: Option<(UserId, i64)>,
}

//! What can be asked of the shop: one file per command, each of the same shape.
//!
//! A command names the rows it reads, its idempotency key, and its rule: [`Command::decide`], which
//! is synchronous and pure (no SQL, no clock, no randomness). All business rules are here. Alone or
//! in a batch, a command is decided by the same function, on what the commands before it left.
//!
//! Tests: `tests/decide.rs`.

pub mod cancel_order;
pub mod changes;
pub mod expire_orders;
pub mod pay_order;
pub mod place_order;
pub mod refund_order;
pub mod restock;
pub mod set_limit;
pub mod state;
pub mod top_up;

use std::fmt::Debug;

use super::failure::Rejection;
use super::idempotency::IdempotencyRequest;
use super::{OrderId, Sku, UserId};
use crate::lock::{LockKey, Priority};
use changes::Changes;
use state::{Ledger, State};

/// The largest stock, price or amount.
pub const MAX_AMOUNT: i64 = 1_000_000_000;
/// The largest balance, in cents.
pub const MAX_BALANCE: i64 = 1_000_000_000_000_000;

/// A request to change stock or money.
pub trait Command: Debug + Send + Sync + 'static {
    fn idempotency(&self) -> &IdempotencyRequest;

    /// The rows it reads, and changes.
    fn reads(&self) -> Reads;

    /// The order it is about, if it is about one.
    fn order(&self) -> Option<OrderId> {
        None
    }

    /// The key of its batch; a command that has one changes no other row.
    fn batch_key(&self) -> Option<LockKey> {
        None
    }

    /// Its place in a queue, under a strategy that has one. What returns units or money goes first.
    fn priority(&self) -> Priority {
        Priority::Normal
    }

    /// What it adds to which value if it is executed, where that is known beforehand: what a
    /// strategy may reserve by a conditional update. `None`: its rows are locked instead.
    fn reservation(&self) -> Option<Reservation> {
        None
    }

    /// Decides on `state`, and applies the changes to it. A rejected command leaves it as it was.
    fn decide(&self, state: &mut State) -> Result<Changes, Rejection>;
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// Items, sorted; their stock may change.
    pub items: Vec<Sku>,
    /// An account; its balance may change.
    pub account: Option<UserId>,
    /// Orders, sorted; their status may change.
    pub orders: Vec<OrderId>,
    /// Whether orders that another transaction has locked are left out instead of waited for.
    pub skip_locked_orders: bool,
    /// The customer whose purchases count against the items' limits.
    pub buyer: Option<UserId>,
    /// The ledger whose next number the response needs.
    pub entry_in: Option<Ledger>,
}

impl Reads {
    /// The keys of the values that change: what a lock has to cover, in locking order.
    pub fn lock_keys(&self) -> Vec<LockKey> {
        let items = self.items.iter().map(Sku::lock_key);
        items.chain(self.account.map(UserId::lock_key)).collect()
    }
}

/// What a command adds to each value; negative when it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Units by item, sorted.
    pub stock: Vec<(Sku, i64)>,
    /// Cents on an account.
    pub balance: Option<(UserId, i64)>,
}

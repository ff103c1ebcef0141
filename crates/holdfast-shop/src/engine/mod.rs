//! Executes commands, alone or in a batch; `docs/ARCHITECTURE.md` follows one.
//!
//! A duplicate gets the stored response of its idempotency key at the read, or earlier: while it
//! waits for its locks, and before every rejection ([`duplicates`]).
//!
//! Guarantees: locks on values are acquired before a database connection; a started command
//! completes in a task of its own, even if its caller disconnects; each retry repeats read,
//! decision and write, a bounded number of times.

mod batch;
mod batch_entries;
mod begin;
mod decide;
mod deduction;
pub mod delegation;
mod direct;
pub mod duplicates;
mod entry;
mod forward;
mod group_commit;
mod kept_row;
mod known_items;
mod leader;
mod leader_batch;
mod lease;
mod locks;
mod pace;
mod points;
mod prepare;
mod queue;
mod queue_limit;
mod reconcile;
mod reply;
mod resolve;
mod respond;
mod return_order;
mod session;
mod settler;
mod sold_out;
#[cfg(test)]
mod tests;
mod unpaid;

use crate::UserId;
use crate::db::Pool;
use crate::tasks::Tasks;
use delegation::Delegation;
use duplicates::Duplicates;
use group_commit::GroupCommit;
use holdfast_base::metrics::MetricDefinition;
use known_items::KnownItems;
use moka::future::Cache;
pub use prepare::{
    edit_item, expire_orders, noop_order, pay_order, place_order, restock, set_limit, top_up,
};
use queue::CommandQueues;
pub use reconcile::{Reconciliation, reconcile};
pub use return_order::{cancel_order, refund_order};
use settler::Settler;
use sold_out::SoldOutCache;
use unpaid::UnpaidOrders;

/// The metrics that the engine records.
pub fn metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    let all = [
        batch::METRICS,
        forward::METRICS,
        group_commit::METRICS,
        kept_row::METRICS,
        leader::METRICS,
        locks::METRICS,
        prepare::METRICS,
    ];
    all.into_iter().flatten()
}

// A cache: an account that it forgot is found open.
const MAX_LAB_ACCOUNTS: u64 = 10_000;

#[derive(Debug, Clone)]
pub struct Engine {
    queues: CommandQueues,
    delegation: Delegation,
    group_commit: GroupCommit,
    // Of lab items, on its own: a statement waits for every row in it, and the lab pauses the
    // holders of some.
    lab_group_commit: GroupCommit,
    pub duplicates: Duplicates,
    sold_out: SoldOutCache,
    known_items: KnownItems,
    /// The users whose lab accounts are known to be open.
    lab_accounts: Cache<UserId, ()>,
    unpaid: UnpaidOrders,
    settler: Settler,
}

impl Engine {
    pub(super) fn new(pool: &Pool, tasks: &Tasks) -> Self {
        Self {
            queues: CommandQueues::default(),
            delegation: Delegation::default(),
            group_commit: GroupCommit::new(pool, tasks),
            lab_group_commit: GroupCommit::new(pool, tasks),
            duplicates: Duplicates::new(pool, tasks),
            sold_out: SoldOutCache::new(pool, tasks),
            known_items: KnownItems::new(pool, tasks),
            lab_accounts: Cache::new(MAX_LAB_ACCOUNTS),
            unpaid: UnpaidOrders::new(pool, tasks),
            settler: Settler::new(pool, tasks),
        }
    }
}

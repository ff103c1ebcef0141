//! Executes commands, alone or in a batch; `docs/ARCHITECTURE.md` follows one.
//!
//! An order goes down from [`intake`] past its [`duplicates`] to the [`command_queue`] of its item.
//! Its [`leader`] gets the [`lease`], decides a [`batch`] under it, has it written by [`commit`],
//! and sends the [`reply`]. A single command is executed [`direct`]ly.
//!
//! A duplicate gets the stored response of its idempotency key at the read, or earlier: while it
//! waits for its locks, and before every rejection ([`duplicates`]).
//!
//! Guarantees: locks on values are acquired before a database connection; a started command
//! completes in a task of its own, even if its caller disconnects; each retry repeats read,
//! decision and write, a bounded number of times.

mod batch;
mod command_queue;
mod commit;
pub mod delegation;
mod direct;
mod duplicates;
mod intake;
mod leader;
mod lease;
mod reply;

use crate::UserId;
use crate::db::Pool;
use crate::strategy::data_path::DataPaths;
use crate::tasks::Tasks;
use command_queue::CommandQueues;
use commit::GroupCommit;
use delegation::Delegation;
use duplicates::Duplicates;
use holdfast_base::metrics::MetricDefinition;
pub use intake::admission::context_for_whole_item;
use intake::known_items::KnownItems;
pub use intake::return_order::return_order;
use intake::sold_out::SoldOutCache;
use intake::unpaid::UnpaidOrders;
pub use intake::{
    edit_item, expire_orders, noop_order, pay_order, place_order, restock, set_limit, top_up,
};
use moka::future::Cache;

/// The metrics that the engine records.
pub fn metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    let all = [
        batch::METRICS,
        batch::kept_row::METRICS,
        commit::METRICS,
        intake::METRICS,
        leader::METRICS,
        lease::forward::METRICS,
        lease::locks::METRICS,
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
    data_paths: DataPaths,
}

impl Engine {
    pub(super) fn new(pool: &Pool, tasks: &Tasks, data_paths: DataPaths) -> Self {
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
            data_paths,
        }
    }
}

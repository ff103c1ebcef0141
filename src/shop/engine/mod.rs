//! How a command is executed, alone or in a batch.
//!
//! 1. *replay*: a duplicate gets the stored response of its idempotency key ([`replay`]);
//! 2. *prepare*: what is named, and whether it is admitted ([`prepare`]);
//! 3. *exclude*: the locks of a command ([`direct`], [`locks`]), or the queue of its key, whose
//!    leader holds the lock for a batch ([`queue`], [`leader`]);
//! 4. *read*, *decide*, *write*: the same for one command and for 256 ([`attempt`]); writes of
//!    several keys may share a statement ([`group_commit`]);
//! 5. *resolve* an unknown outcome ([`resolve`]);
//! 6. *release* the locks, then respond.
//!
//! Guarantees: locks of rows are acquired before a database connection; a command that has begun
//! runs to its end in a task of its own, also when its caller has gone; a command with several
//! attempts repeats all of them from the read on, a bounded number of times.
//!
//! Does not guarantee that a lease is still held when the write arrives: its guard does.

mod attempt;
mod batch;
mod coalesce;
mod direct;
mod group_commit;
mod in_flight;
mod leader;
mod locks;
mod prepare;
mod queue;
mod queue_limit;
pub mod replay;
mod resolve;
mod session;
mod sold_out;
mod write;

use group_commit::GroupCommit;
use in_flight::InFlightKeys;
pub use prepare::{
    cancel_order, check_order, expire_orders, pay_order, place_order, refund_order, restock,
    set_limit, top_up,
};
use queue::Queues;
use replay::ReplayLookup;
use sold_out::SoldOutCache;

/// The engine's state in one process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    queues: Queues,
    in_flight: InFlightKeys,
    group_commit: GroupCommit,
    /// Stored responses, looked up for many commands at once.
    pub replays: ReplayLookup,
    sold_out: SoldOutCache,
}

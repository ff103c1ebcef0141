//! `pre-deduct`: units are counted in Redis; the order is written to Postgres afterwards.
//!
//! # Guarantee
//! A script takes the units from the item's counter, or rejects the order: no two orders get the
//! same unit while Redis keeps its data, and of a sold-out item Postgres only looks up the key. The
//! order commits without the item's row, which no order locks: its stock and the ledger entry
//! follow behind it, from the orders that are not settled yet. A restock locks the row; units
//! leave the counter before its write, or come to it after the commit. Lab items only.
//!
//! # Breaks when
//! A replica dies between the two, or the outcome of the write stays unknown: units have left the
//! counter, and no order has them (an *undersell*). Or Redis loses the counter or its last changes,
//! by a flush or a failover: it is loaded from a row that does not know of the orders on their way,
//! and their units are sold twice. The ledger shows both; a reconciliation from it repairs the
//! counter, and cancels the orders without units. An order that is cancelled, refunded or expires
//! returns its units to the row only. A customer limit is not kept between two orders of one
//! customer that overlap.
//!
//! # Seen in the wild
//! The usual flash sale: stock in Redis, `DECR` or a script, a message queue behind it.

pub mod counter;
pub mod deduction;
pub mod path;
pub mod reconcile;
pub mod settler;
pub mod statements;

use super::definition::SoldItems;
use super::{Guarantee, Isolation, Strategy, none};

pub(super) const STRATEGY: Strategy = Strategy {
    name: "pre-deduct",
    transaction: Isolation::Autocommit,
    data_path: Some(SoldItems::OfLab),
    sends: statements::SENDS,
    guarantee: Guarantee::WhileRedisKeepsData,
    source: file!(),
    code: include_str!("mod.rs"),
    ..none::STRATEGY
};

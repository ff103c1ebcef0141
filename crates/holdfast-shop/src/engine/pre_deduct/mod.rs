//! What `pre-deduct` has beside the way of an order: units that left a counter, the settlement of
//! its orders, and the reconciliation of a counter with the ledger.

pub mod deduction;
pub mod reconcile;
pub mod settler;

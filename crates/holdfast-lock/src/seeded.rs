//! Bugs that a test seeds into the protocol, to show that its exploration of interleavings finds
//! each.

use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A lease that is granted when all waiters were cancelled counts as handed out, and is not
    /// released.
    CancelLeaksLease,
    /// A release ends the current lease, also that of another owner.
    HandoffToTwo,
    /// The late response of a renewal makes the lost lease a held one.
    RenewalAfterLoss,
    /// A guard is still held while `close` releases its lease.
    HeldWhileClosed,
    /// A grant that is announced before the response to the request is forgotten.
    LostWakeup,
}

thread_local! {
    static SEEDED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Seeds a bug into all locks of this thread, or none.
pub(crate) fn seed(bug: Option<Bug>) {
    SEEDED.set(bug);
}

pub(crate) fn is_seeded(bug: Bug) -> bool {
    SEEDED.get() == Some(bug)
}

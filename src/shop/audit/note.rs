//! The notes of an audit, which do not affect its result.

use std::fmt;

/// A note. The report has it in English; the page formats it in the visitor's language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditNote {
    /// The time of the snapshot in UTC, and what it contains of the shop.
    Checked { at: String, items: i64, orders: i64, entries: i64 },
    /// What it contains of the lab.
    CountedApart { items: i64, forks: i64, accounts: i64 },
    /// Locks in Redis, and those without an expiry.
    Locks { held: usize, forever: usize },
    /// Redis did not respond, with the error.
    WithoutRedis(String),
}

impl fmt::Display for AuditNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checked { at, items, orders, entries } => write!(
                f,
                "checked as of {at} UTC: {items} items, {orders} orders, {entries} ledger entries"
            ),
            Self::CountedApart { items, forks, accounts } => write!(
                f,
                "counted separately: {items} lab items with {forks} forks in their ledgers, \
                 {accounts} lab accounts"
            ),
            Self::Locks { held, forever } => {
                write!(
                    f,
                    "Redis: {held} locks held, {forever} of them without an expiry (the lock on \
                     an idempotency key stays for some seconds after its request)"
                )
            }
            Self::WithoutRedis(error) => write!(f, "Redis was left out: {error}"),
        }
    }
}

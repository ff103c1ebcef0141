//! Ledger entries, formatted for pages.

use serde::Deserialize;
use time::OffsetDateTime;

use super::format::{format_change, format_money_change, short_id};
use crate::shop::model::LedgerEntry;
use crate::shop::{Cents, OrderId};

/// Number of entries on a page of a ledger.
pub(super) const PAGE_LENGTH: usize = 50;

/// The query of a page with a ledger: entries older than `before`.
#[derive(Debug, Deserialize)]
pub struct LedgerQuery {
    pub before: Option<i64>,
}

/// The unit of a ledger's values.
#[derive(Debug, Clone, Copy)]
pub(super) enum LedgerUnit {
    /// Units of an item.
    Stock,
    /// Money of an account.
    Money,
}

impl LedgerUnit {
    fn value(self, value: i64) -> String {
        match self {
            LedgerUnit::Stock => value.to_string(),
            LedgerUnit::Money => Cents(value).to_string(),
        }
    }
}

/// A formatted entry.
#[derive(Debug)]
pub(super) struct LedgerRow {
    pub seq: i64,
    pub before: String,
    pub delta: String,
    pub after: String,
    pub reason: String,
    pub order: Option<(OrderId, String)>,
    pub version: i64,
    pub at: OffsetDateTime,
    /// The expected value of `before`, if the chain is broken.
    pub broken: Option<String>,
}

/// Formats an entry, without checking the chain.
pub(super) fn ledger_row(entry: &LedgerEntry, ledger: LedgerUnit) -> LedgerRow {
    LedgerRow {
        seq: entry.seq,
        before: ledger.value(entry.before),
        delta: match ledger {
            LedgerUnit::Stock => format_change(entry.delta),
            LedgerUnit::Money => format_money_change(entry.delta),
        },
        after: ledger.value(entry.after),
        reason: entry.reason.clone(),
        order: entry.order_id.map(|order| (order, short_id(&order))),
        version: entry.version,
        at: entry.at,
        broken: None,
    }
}

/// Formats a page of entries, newest first, and checks the chain. An entry behind the page is not
/// shown; the page's last entry is checked against it.
pub(super) fn ledger_rows(
    entries: &[LedgerEntry],
    ledger: LedgerUnit,
) -> impl Iterator<Item = LedgerRow> {
    entries.iter().take(PAGE_LENGTH).enumerate().map(move |(place, entry)| {
        let previous = entries.get(place + 1).map_or(0, |previous| previous.after);
        let broken = (entry.before != previous).then(|| ledger.value(previous));
        LedgerRow { broken, ..ledger_row(entry, ledger) }
    })
}

/// Returns the cursor of the next page, if there is one.
pub(super) fn older_cursor(entries: &[LedgerEntry]) -> Option<i64> {
    entries.get(PAGE_LENGTH).and(entries.get(PAGE_LENGTH - 1)).map(|entry| entry.seq)
}

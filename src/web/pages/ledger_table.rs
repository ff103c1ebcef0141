//! A page of a ledger, newest entry first: a chain in which each entry begins where another ended.
//! Broken links and forks, entries that were computed from one read, are marked.

use serde::Deserialize;

use super::format::{format_change, short_id};
use crate::web::middleware::cursor;
use crate::web::paging::cut_page;
use holdfast_base::messages::Language;
use holdfast_shop::audit::LedgerFork;
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::{Cents, OrderId};

pub(super) const PAGE_LENGTH: i64 = 50;

/// The lists with the pages of a user's own orders, and, for admins, of all.
pub(super) const OWN_ORDERS: &str = "/orders";
pub(super) const ORDERS_OF_ALL: &str = "/admin/orders";

#[derive(Debug, Deserialize)]
pub struct LedgerQuery {
    #[serde(default, deserialize_with = "cursor")]
    pub before: Option<i64>,
}

#[derive(Debug)]
pub(super) struct LedgerTable {
    pub rows: Vec<LedgerRow>,
    pub address: String,
    pub older: Option<i64>,
    pub is_newest: bool,
}

#[derive(Debug)]
pub(super) struct LedgerRow {
    pub entry: LedgerEntry,
    /// True if the ledger is an account's, not an item's.
    pub money: bool,
    /// The value at which the previous entry ended, if the chain is broken.
    pub broken: Option<String>,
    /// The list that has the order's page; `None` if the order has no link.
    pub order_list: Option<&'static str>,
    /// The other entries that read the same version, with their links.
    pub fork: Vec<(i64, String)>,
}

impl LedgerRow {
    pub fn new(entry: LedgerEntry, money: bool) -> Self {
        let order_list = money.then_some(OWN_ORDERS);
        Self { entry, money, broken: None, order_list, fork: Vec::new() }
    }

    pub fn before(&self) -> String {
        format_value(self.entry.before, self.money)
    }

    pub fn delta(&self) -> String {
        format_change(self.entry.delta, self.money)
    }

    pub fn after(&self) -> String {
        format_value(self.entry.after, self.money)
    }

    pub fn reason(&self, language: &Language) -> String {
        reason(&self.entry, *language)
    }

    pub fn order(&self) -> Option<(OrderId, String)> {
        self.entry.order_id.map(|order| (order, short_id(&order)))
    }

    pub fn request(&self) -> String {
        short_id(&self.entry.request_id)
    }
}

/// Returns the reason of an entry in words; an admin's own words in quotes, which no reason of the
/// shop's has.
pub(super) fn reason(entry: &LedgerEntry, language: Language) -> String {
    match entry.reason.as_str() {
        reason @ ("opening" | "order" | "cancel" | "refund" | "expiry" | "restock" | "payment"
        | "top-up" | "welcome" | "correction" | "damaged") => {
            language.text(&format!("shop-reason-{reason}"))
        }
        own => format!("“{own}”"),
    }
}

impl LedgerTable {
    /// Checks the chain of `entries`; one behind the page is compared, and not shown.
    pub fn new(
        mut entries: Vec<LedgerEntry>,
        money: bool,
        address: String,
        before: Option<i64>,
    ) -> Self {
        let ends: Vec<i64> = entries.iter().skip(1).map(|entry| entry.after).chain([0]).collect();
        let older = cut_page(&mut entries, PAGE_LENGTH, |entry| entry.seq);
        let rows = entries.into_iter().zip(ends).map(|(entry, previous)| {
            let broken = (entry.before != previous).then(|| format_value(previous, money));
            LedgerRow { broken, ..LedgerRow::new(entry, money) }
        });
        Self { rows: rows.collect(), address, older, is_newest: before.is_none() }
    }

    /// Links the orders that are `listed` to their pages in a list.
    pub fn link_orders(&mut self, list: &'static str, listed: impl Fn(OrderId) -> bool) {
        for row in &mut self.rows {
            if row.entry.order_id.is_some_and(&listed) {
                row.order_list = Some(list);
            }
        }
    }

    pub fn mark_forks(&mut self, forks: &[LedgerFork]) {
        let shown: Vec<i64> = self.rows.iter().map(|row| row.entry.seq).collect();
        // The link to an entry of another page leads to a page that begins with it.
        let link = |seq: i64| match shown.contains(&seq) {
            true => format!("#entry-{seq}"),
            false => format!("{}?before={}#entry-{seq}", self.address, seq.saturating_add(1)),
        };
        for row in &mut self.rows {
            let own = row.entry.seq;
            let fork = forks.iter().find(|fork| fork.entries.contains(&own));
            let others = fork.into_iter().flat_map(|fork| &fork.entries).filter(|seq| **seq != own);
            row.fork = others.map(|seq| (*seq, link(*seq))).collect();
        }
    }

    pub fn is_fenced(&self) -> bool {
        self.rows.iter().any(|row| row.entry.fence.is_some())
    }
}

fn format_value(value: i64, money: bool) -> String {
    if money { Cents(value).money() } else { value.to_string() }
}

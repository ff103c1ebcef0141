//! Two entries of a race's ledger, side by side: the proof of its result.

use askama::Template;

use crate::web::{AppState, Problem};
use holdfast_base::messages::Language;
use holdfast_lab::race::model::RaceResult;
use holdfast_shop::Sku;
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::query::ledger;

const MAX_ENTRIES: i64 = 500;

#[derive(Debug, Template)]
#[template(path = "parts/race_entries.html")]
pub(super) struct RaceEntries {
    language: Language,
    /// At most two.
    pub entries: Vec<LedgerEntry>,
    /// True if both were computed from the same version.
    is_fork: bool,
}

impl RaceEntries {
    /// Reads the first fork of the item's ledger, else its first two entries of orders.
    pub async fn of(
        state: &AppState,
        result: &RaceResult,
        language: Language,
    ) -> Result<Self, Problem> {
        let mut found = Self { language, entries: Vec::new(), is_fork: false };
        let sku = result.ledger.rsplit('/').next().unwrap_or_default().to_owned();
        let Ok(sku) = Sku::try_from(sku) else { return Ok(found) };

        let mut entries = ledger::stock_entries(&state.shop, &sku, 0, MAX_ENTRIES).await?;
        entries.retain(|entry| entry.reason == "order");

        let fork = entries.iter().enumerate().find_map(|(at, first)| {
            let later = entries.iter().skip(at + 1);
            let second = later.clone().find(|entry| entry.version == first.version)?;
            Some(vec![first.clone(), second.clone()])
        });

        found.is_fork = fork.is_some();
        entries.truncate(2);
        found.entries = fork.unwrap_or(entries);
        Ok(found)
    }

    /// Returns the sentence on the two.
    pub fn about(&self) -> String {
        match self.entries.first().filter(|_| self.is_fork) {
            Some(entry) => {
                let version = [("version", entry.version.to_string().into())];
                self.language.text_with("race-entries-fork", &version)
            }
            None => self.language.text("race-entries-chain"),
        }
    }
}

//! The catalogue as this replica last read it, which the pages show while Postgres is away.
//!
//! The replica reads it at its start, and again when somebody looks at the shop and it is old. No
//! order is decided by it: the engine reads its items from Postgres. Tests:
//! `tests/pages/paused.rs`.

use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use time::OffsetDateTime;
use tokio::time::Instant;

use holdfast_shop::model::Item;
use holdfast_shop::query::catalog;
use holdfast_shop::{Error, Shop, Sku, with_timeout};

/// Upper bound of the items that are kept, the first ones by sku.
const MAX_ITEMS: i64 = 600;
/// Timeout of a read: a page waits for it.
const READ_TIMEOUT: Duration = Duration::from_millis(300);
/// Age at which the next page reads the catalogue again.
const MAX_AGE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct LastCatalog {
    catalog: RwLock<Option<Catalog>>,
    /// Earlier than this, no page reads it again.
    next_read: Mutex<Instant>,
}

/// The items that the shop lists: without hidden and lab items.
#[derive(Debug)]
struct Catalog {
    items: Vec<Item>,
    read_at: OffsetDateTime,
}

/// The result of a read, and the time of the catalogue that it is from, if Postgres is away.
type ReadOrLast<T> = Result<(T, Option<OffsetDateTime>), Error>;

impl LastCatalog {
    /// Reads the first one. If that fails, there is none yet.
    pub async fn read(shop: &Shop) -> Self {
        let new = Self { catalog: RwLock::new(None), next_read: Mutex::new(Instant::now()) };
        new.refresh(shop).await;
        new
    }

    /// Reads the catalogue if it is old; if that fails, the last one stays.
    async fn refresh(&self, shop: &Shop) {
        let now = Instant::now();
        {
            // Of several pages at a time, one reads it.
            let mut next_read = self.next_read.lock();
            if now < *next_read {
                return;
            }
            *next_read = now + MAX_AGE;
        }

        // Before the read: what is shown is never older than its time says.
        let read_at = OffsetDateTime::now_utc();
        let reading = catalog::items(shop, None, MAX_ITEMS);
        if let Ok(items) = with_timeout(READ_TIMEOUT, reading).await {
            *self.catalog.write() = Some(Catalog { items, read_at });
        }
    }

    /// As [`catalog::items`]; while Postgres is away, from the last catalogue.
    pub async fn items(
        &self,
        shop: &Shop,
        after: Option<&Sku>,
        limit: i64,
    ) -> ReadOrLast<Vec<Item>> {
        match catalog::items(shop, after, limit).await {
            Ok(items) => {
                self.refresh(shop).await;
                Ok((items, None))
            }
            Err(error) => self.find(error, |items| page_after(items, after, limit)),
        }
    }

    /// As [`catalog::item`]; while Postgres is away, from the last catalogue. An item that it does
    /// not have may exist, so that is the error, not `None`.
    pub async fn item(&self, shop: &Shop, sku: &Sku) -> ReadOrLast<Option<Item>> {
        let kept = |items: &[Item]| items.iter().find(|item| item.sku == *sku).cloned().map(Some);
        match catalog::item(shop, sku).await {
            Ok(item) => {
                self.refresh(shop).await;
                Ok((item, None))
            }
            Err(error) => self.find(error, kept),
        }
    }

    /// Returns what is found in the last catalogue; the error of the read, if nothing is, or if
    /// Postgres is not away.
    fn find<T>(&self, error: Error, find: impl FnOnce(&[Item]) -> Option<T>) -> ReadOrLast<T> {
        let last = self.catalog.read();
        let last = last.as_ref().filter(|_| matches!(error, Error::Unavailable { .. }));
        let found = last.and_then(|last| Some((find(&last.items)?, Some(last.read_at))));
        found.ok_or(error)
    }
}

/// Returns the items that follow `after`; `None` if there are none.
fn page_after(items: &[Item], after: Option<&Sku>, limit: i64) -> Option<Vec<Item>> {
    let start = match after {
        // By its place: Postgres has sorted them, by the collation of the database.
        Some(sku) => items.iter().position(|item| item.sku == *sku)? + 1,
        None => 0,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page: Vec<Item> = items.iter().skip(start).take(limit).cloned().collect();
    (!page.is_empty()).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_the_order_of_postgres() {
        let sku = |text: &str| Sku::try_from(text.to_owned()).unwrap();
        let items = ["ab", "a-c", "ad"].map(|it| Item::new(sku(it), it.to_owned(), 100, 1));
        let page = |after: &str, limit: i64| {
            let after = Sku::try_from(after.to_owned()).ok();
            let page = page_after(&items, after.as_ref(), limit).unwrap_or_default();
            page.into_iter().map(|item| item.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(page("", 2), "ab a-c");
        assert_eq!(page("ab", 2), "a-c ad");
        assert_eq!(page("ad", 2), "");
        assert_eq!(page("unknown", 2), "");
    }
}

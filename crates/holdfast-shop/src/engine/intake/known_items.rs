//! Rejects orders of unknown items before any lock: a lock on a sku that anyone may invent would
//! leave a fence in Redis for a day. Distinguishes the shop's own items from those of the lab.
//!
//! Items that were found once are remembered, up to [`MAX_KNOWN_ITEMS`], with what never changes of
//! them: only throw-away items of the lab are ever deleted. One query finds the others for all
//! waiting commands ([`crate::coalesce`]). Tests: `tests/it/abuse.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::RwLock;

use crate::Sku;
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::engine::duplicates::LOOKUP_TIMEOUT;
use crate::failure::{Error, Failure, Rejection, with_timeout};
use crate::store::items::{self, KnownItem};
use crate::tasks::Tasks;

const MAX_KNOWN_ITEMS: usize = 100_000;

#[derive(Debug, Clone)]
pub struct KnownItems {
    known: Arc<RwLock<HashMap<Sku, KnownItem>>>,
    /// Each returns its items, `None` for one that does not exist.
    lookups: Coalescer<(), Vec<Sku>, Vec<Option<KnownItem>>>,
}

impl KnownItems {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let pool = pool.clone();
        Self::with(tasks, MAX_KNOWN_ITEMS, move |skus| read(pool.clone(), skus))
    }

    /// `read` returns those of the items that exist.
    fn with<F>(
        tasks: &Tasks,
        max: usize,
        read: impl Fn(Vec<Sku>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Vec<(Sku, KnownItem)>, Error>> + Send + 'static,
    {
        let known: Arc<RwLock<HashMap<Sku, KnownItem>>> = Arc::default();
        let all = known.clone();
        let lookups = Coalescer::new(tasks, move |(), requests: Vec<Vec<Sku>>| {
            let all = all.clone();
            let reading = read(requests.concat());
            async move {
                let existing: HashMap<Sku, KnownItem> = reading.await?.into_iter().collect();
                let mut found: Vec<Vec<Option<KnownItem>>> = Vec::with_capacity(requests.len());
                for skus in &requests {
                    found.push(skus.iter().map(|sku| existing.get(sku).copied()).collect());
                }

                let mut all = all.write();
                if all.len() >= max {
                    // Emptied, not trimmed: the order of use is not worth its cost, and all that is
                    // lost is a query.
                    all.clear();
                }
                all.extend(existing);
                Ok(found)
            }
        });
        Self { known, lookups }
    }

    /// Returns each item, or rejects the first one that does not exist. Reads from Postgres only if
    /// an item is not known yet.
    pub async fn find(&self, skus: &[Sku]) -> Result<Vec<KnownItem>, Failure> {
        if let Some(items) = self.known(skus) {
            return Ok(items);
        }

        // From the lookup itself: others may have emptied the set since.
        let lookup = self.lookups.look_up((), skus.to_vec());
        let found = with_timeout(LOOKUP_TIMEOUT, lookup).await?;
        skus.iter()
            .zip(found)
            .map(|(sku, item)| item.ok_or_else(|| Rejection::no_item(sku).into()))
            .collect()
    }

    fn known(&self, skus: &[Sku]) -> Option<Vec<KnownItem>> {
        let known = self.known.read();
        skus.iter().map(|sku| known.get(sku).copied()).collect()
    }
}

async fn read(pool: Pool, skus: Vec<Sku>) -> Result<Vec<(Sku, KnownItem)>, Error> {
    let reading = pool.read(move |db| {
        let skus = skus.clone();
        async move { items::find(db, &skus).await }.boxed()
    });
    Ok(reading.await?.0)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;
    use crate::model::ItemKind;

    const OF_THE_SHOP: KnownItem = KnownItem { kind: ItemKind::Shop, sold_under: None };

    async fn all_exist(skus: Vec<Sku>) -> Result<Vec<(Sku, KnownItem)>, Error> {
        Ok(skus.into_iter().map(|sku| (sku, OF_THE_SHOP)).collect())
    }

    #[tokio::test]
    async fn emptied_set_hides_no_item() -> Result<(), Failure> {
        let items = KnownItems::with(&Tasks::default(), 1, all_exist);
        let [one, other] = [[Sku::stored("one".to_owned())?], [Sku::stored("other".to_owned())?]];
        let mut first = pin!(items.find(&one));
        assert!(poll!(&mut first).is_pending(), "it waits for its look-up");
        while items.known(&one).is_none() {
            tokio::task::yield_now().await;
        }
        // The next look-up empties the set before the first caller goes on.
        items.find(&other).await?;
        assert_eq!(first.await?, [OF_THE_SHOP]);
        Ok(())
    }
}

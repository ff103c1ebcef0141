//! Rejects orders of unknown items before any lock: a lock on a sku that anyone may invent would
//! leave a fence in Redis for a day.
//!
//! Items that were found once are remembered, up to [`MAX_KNOWN_ITEMS`]: only throw-away items of
//! the lab are ever deleted. One query finds the others for all waiting commands
//! ([`crate::coalesce`]). Tests: `tests/it/abuse.rs`.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::RwLock;
use tokio::time::timeout;

use super::replay::LOOKUP_TIMEOUT;
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::shop::Sku;
use crate::shop::failure::{Error, Failure, Rejection};
use crate::tasks::Tasks;

/// Size at which the set is emptied; larger than a catalogue.
const MAX_KNOWN_ITEMS: usize = 100_000;

/// The items that are known to exist. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct KnownItems {
    known: Arc<RwLock<HashSet<Sku>>>,
    /// Each adds those of its items that exist to the set.
    lookups: Coalescer<(), Vec<Sku>, (), Error>,
}

impl KnownItems {
    pub(super) fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let known: Arc<RwLock<HashSet<Sku>>> = Arc::default();
        let (pool, found) = (pool.clone(), known.clone());
        let look_up = move |(), requests: Vec<Vec<Sku>>| {
            let (pool, found) = (pool.clone(), found.clone());
            async move {
                let skus: HashSet<Sku> = requests.iter().flatten().cloned().collect();
                let existing = read(&pool, skus.iter().map(Sku::to_string).collect()).await?;
                let mut found = found.write();
                if found.len() >= MAX_KNOWN_ITEMS {
                    found.clear();
                }
                found.extend(skus.into_iter().filter(|sku| existing.contains(sku.as_str())));
                Ok(vec![(); requests.len()])
            }
        };
        Self { known, lookups: Coalescer::new(tasks, look_up) }
    }

    /// Rejects the first item that does not exist. Reads from Postgres only if an item is not known
    /// yet.
    pub(super) async fn check(&self, skus: &[Sku]) -> Result<(), Failure> {
        let mut unknown = self.without_known(skus);
        if unknown.is_empty() {
            return Ok(());
        }
        let lookup = timeout(LOOKUP_TIMEOUT, self.lookups.look_up((), unknown.clone())).await;
        lookup.unwrap_or_else(|_| Err(Error::postgres_timeout()))?;
        unknown = self.without_known(&unknown);
        unknown.first().map_or(Ok(()), |sku| Err(Rejection::no_item(sku).into()))
    }

    fn without_known(&self, skus: &[Sku]) -> Vec<Sku> {
        let known = self.known.read();
        skus.iter().filter(|sku| !known.contains(*sku)).cloned().collect()
    }
}

/// Returns those of `skus` that exist.
async fn read(pool: &Pool, skus: Vec<String>) -> Result<HashSet<String>, Error> {
    let reading = pool.read(move |db| {
        let skus = skus.clone();
        async move {
            sqlx::query_scalar!("select sku from items where sku = any($1)", &skus)
                .fetch_all(db)
                .await
        }
        .boxed()
    });
    Ok(reading.await?.0.into_iter().collect())
}

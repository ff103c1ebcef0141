//! Rejects orders of sold-out items without a lock and without a write.
//!
//! After an order was rejected as sold out, orders of more units than the last known stock are
//! checked before they are enqueued: one call reads the stock and the key records of all waiting
//! orders ([`crate::coalesce`]). It begins after the last of them arrived, so every rejection was
//! true at some moment of its request. An order that the stock covers is enqueued as usual.

use futures_util::FutureExt as _;
use moka::sync::Cache;

use crate::Sku;
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::engine::duplicates::LOOKUP_TIMEOUT;
use crate::failure::{Error, Execution, Failure, Rejection, with_timeout};
use crate::idempotency::IdempotencyRequest;
use crate::store::key_records::{self, Replay};
use crate::tasks::Tasks;

/// Upper bound of the cached items; a removed one costs a rejection by the engine.
const MAX_ITEMS: u64 = 10_000;

#[derive(Debug, Clone)]
pub struct SoldOutCache {
    known: Cache<Sku, i64>,
    lookups: Coalescer<Sku, IdempotencyRequest, (Option<i64>, Option<Replay>)>,
}

impl SoldOutCache {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let known = Cache::new(MAX_ITEMS);
        let pool = pool.clone();
        let recorded = known.clone();
        let lookups = Coalescer::new(tasks, move |sku, requests| {
            look_up(pool.clone(), recorded.clone(), sku, requests)
        });
        Self { known, lookups }
    }

    pub fn record(&self, sku: &Sku, available: i64) {
        // A hint, which may be old: it decides whether to look, never what to answer.
        self.known.insert(sku.clone(), available);
    }

    /// Returns the stored response of a duplicate, or `None` if the order has to be executed.
    /// Rejects it with [`Rejection::SoldOut`] if the stock is too low.
    pub async fn check(
        &self,
        (sku, quantity): (&Sku, i64),
        request: &IdempotencyRequest,
    ) -> Result<Option<Execution>, Failure> {
        if self.known.get(sku).is_none_or(|available| available >= quantity) {
            return Ok(None);
        }

        // Not on what is remembered: units may be back in stock since.
        let lookup = self.lookups.look_up(sku.clone(), request.clone());
        match with_timeout(LOOKUP_TIMEOUT, lookup).await? {
            (_, Some(replay)) => replay.map(Some),
            (Some(available), None) if available < quantity => {
                Err(Rejection::SoldOut { sku: sku.clone(), requested: quantity, available }.into())
            }
            (_, None) => Ok(None),
        }
    }
}

async fn look_up(
    pool: Pool,
    known: Cache<Sku, i64>,
    sku: Sku,
    requests: Vec<IdempotencyRequest>,
) -> Result<Vec<(Option<i64>, Option<Replay>)>, Error> {
    let (stock, replays) = read(&pool, &sku, requests).await?;
    if let Some(available) = stock {
        known.insert(sku, available);
    }
    Ok(replays.into_iter().map(|replay| (stock, replay)).collect())
}

async fn read(
    pool: &Pool,
    sku: &Sku,
    requests: Vec<IdempotencyRequest>,
) -> Result<(Option<i64>, Vec<Option<Replay>>), Error> {
    let sku = sku.clone();
    let reading = pool.read(move |db| {
        let sku = sku.clone();
        let requests = requests.clone();
        async move {
            // First: the orders that emptied it have committed by then, so that the look-up finds
            // their key records.
            let stock = sqlx::query_scalar!("select stock from items where sku = $1", sku.as_str())
                .fetch_optional(&mut *db)
                .await?;

            let requests: Vec<&IdempotencyRequest> = requests.iter().collect();
            Ok((stock, key_records::look_up(db, &requests).await?))
        }
        .boxed()
    });
    Ok(reading.await?.0)
}

//! Rejects orders of sold-out items without a lock and without a write.
//!
//! After an order was rejected as sold out, orders of more units than the last known stock are
//! checked before they are enqueued: one call reads the stock and the key records of all waiting
//! orders ([`crate::coalesce`]). It begins after the last of them arrived, so every rejection was
//! true at some moment of its request. An order that the stock covers is enqueued as usual.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::replay::LOOKUP_TIMEOUT;
use crate::coalesce::Coalescer;
use crate::shop::failure::{Error, Execution, Failure, Rejection};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::key_records::{self, Replay};
use crate::shop::{Shop, Sku};

/// Upper bound of the cached items. Beyond it all are removed, which costs each item one rejection
/// by the engine.
const MAX_ITEMS: usize = 10_000;

/// The last known stock of items that were sold out. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SoldOutCache {
    stock: Arc<Mutex<HashMap<Sku, i64>>>,
    lookups: Coalescer<Sku, IdempotencyRequest, StockLookup, Error>,
}

/// The result of a lookup: the stock, if the item exists, and the replay of the key.
#[derive(Debug)]
struct StockLookup {
    stock: Option<i64>,
    replay: Option<Replay>,
}

impl SoldOutCache {
    /// Caches the last known stock of an item.
    pub(super) fn record(&self, sku: &Sku, available: i64) {
        let mut stock = self.stock.lock();
        if stock.len() >= MAX_ITEMS {
            stock.clear();
        }
        stock.insert(sku.clone(), available);
    }

    /// Returns whether the last known stock is below `quantity`.
    fn may_be_sold_out(&self, sku: &Sku, quantity: i64) -> bool {
        self.stock.lock().get(sku).is_some_and(|available| *available < quantity)
    }

    /// Returns the stored response of a duplicate, or `None` if the order has to be executed.
    /// Rejects it with [`Rejection::SoldOut`] if the stock is too low.
    pub(super) async fn check(
        &self,
        shop: &Shop,
        (sku, quantity): (&Sku, i64),
        request: &IdempotencyRequest,
    ) -> Result<Option<Execution>, Failure> {
        if !self.may_be_sold_out(sku, quantity) {
            return Ok(None);
        }
        let (cache, owned_shop, item) = (self.clone(), shop.clone(), sku.clone());
        let call = move |requests: Vec<IdempotencyRequest>| {
            let (cache, shop, item) = (cache.clone(), owned_shop.clone(), item.clone());
            async move { cache.look_up(&shop, item, requests).await }
        };
        let tasks = (&shop.running, &shop.runtime);
        let lookup = self.lookups.look_up(tasks, sku.clone(), request.clone(), call);
        let found = timeout(LOOKUP_TIMEOUT, lookup).await;
        match found.unwrap_or_else(|_| Err(Error::postgres_timeout()))? {
            StockLookup { replay: Some(replay), .. } => key_records::replayed(replay).map(Some),
            StockLookup { stock: Some(available), .. } if available < quantity => {
                let (sku, requested) = (sku.clone(), quantity);
                Err(Rejection::SoldOut { sku, requested, available }.into())
            }
            StockLookup { .. } => Ok(None),
        }
    }

    async fn look_up(
        &self,
        shop: &Shop,
        sku: Sku,
        requests: Vec<IdempotencyRequest>,
    ) -> Result<Vec<StockLookup>, Error> {
        let item = sku.clone();
        let reading = shop.pool.read(move |db| {
            let (item, requests) = (item.clone(), requests.clone());
            async move {
                // The stock first: the orders that emptied it have committed by then, so the lookup
                // finds their key records.
                let stock =
                    sqlx::query_scalar!("select stock from items where sku = $1", item.as_str())
                        .fetch_optional(&mut *db)
                        .await?;
                let requests: Vec<&IdempotencyRequest> = requests.iter().collect();
                Ok((stock, key_records::look_up(db, &requests).await?))
            }
            .boxed()
        });
        let ((stock, replays), _) = reading.await?;
        if let Some(stock) = stock {
            self.record(&sku, stock);
        }
        Ok(replays.into_iter().map(|replay| StockLookup { stock, replay }).collect())
    }
}

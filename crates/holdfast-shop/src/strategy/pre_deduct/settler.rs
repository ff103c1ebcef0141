//! Settles the orders of `pre-deduct` behind their commit: one task of a process, item by item.
//!
//! A settlement that fails or dies with its replica is made up for by the next one of the item, or
//! by a reconciliation; until then its lines are in `unsettled_lines`.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::statements::settle;
use crate::Sku;
use crate::db::Pool;
use crate::failure::Error;
use crate::tasks::Tasks;

#[derive(Debug, Clone)]
pub struct Settler {
    pool: Pool,
    tasks: Tasks,
    queue: Arc<Mutex<SettlerQueue>>,
}

#[derive(Debug, Default)]
struct SettlerQueue {
    items: BTreeSet<Sku>,
    is_served: bool,
}

impl Settler {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        Self { pool: pool.clone(), tasks: tasks.clone(), queue: Arc::default() }
    }

    /// Lets the item be settled soon. An item that waits already is settled once.
    pub fn request(&self, sku: Sku) {
        let mut queue = self.queue.lock();
        queue.items.insert(sku);
        if !std::mem::replace(&mut queue.is_served, true) {
            let (pool, queue) = (self.pool.clone(), self.queue.clone());
            self.tasks.spawn(async move {
                let settle_one = |sku: Sku| {
                    let pool = pool.clone();
                    async move { settle(&pool, &sku).await }
                };
                serve(&queue, settle_one).await;
            });
        }
    }
}

/// Settles items until none waits. A panic at one of them ends no other: this is the only task that
/// serves the queue.
async fn serve<F>(queue: &Mutex<SettlerQueue>, settle: impl Fn(Sku) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    while let Some(sku) = next(queue) {
        match AssertUnwindSafe(settle(sku.clone())).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, %sku, "an item's orders are not settled yet");
            }
            Err(_) => tracing::warn!(%sku, "the settlement of an item's orders panicked"),
        }
    }
}

fn next(queue: &Mutex<SettlerQueue>) -> Option<Sku> {
    let mut queue = queue.lock();
    let next = queue.items.pop_first();
    queue.is_served = next.is_some();
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_at_one_item_leaves_the_others_to_be_settled() {
        let items = ["a", "b"].map(|sku| Sku::try_from(sku.to_owned()).unwrap());
        let queue = SettlerQueue { items: items.into(), is_served: true };
        let queue = Mutex::new(queue);
        let settled = Mutex::new(Vec::new());
        let settle = |sku: Sku| {
            let settled = &settled;
            async move {
                assert_ne!(sku.as_str(), "a", "this panic is the test's");
                settled.lock().push(sku.to_string());
                Ok::<(), Error>(())
            }
        };
        serve(&queue, settle).await;
        assert_eq!(*settled.lock(), ["b"]);
        assert!(!queue.lock().is_served);
    }
}

//! Settles the orders of `pre-deduct` behind their commit: one task of a process, item by item.
//!
//! A settlement that fails or dies with its replica is made up for by the next one of the item, or
//! by a reconciliation; until then its lines are in `unsettled_lines`.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Sku;
use crate::db::Pool;
use crate::store::deducted::settle;
use crate::tasks::Tasks;

#[derive(Debug, Clone)]
pub(super) struct Settler {
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
    pub(super) fn new(pool: &Pool, tasks: &Tasks) -> Self {
        Self { pool: pool.clone(), tasks: tasks.clone(), queue: Arc::default() }
    }

    /// Lets the item be settled soon. An item that waits already is settled once.
    pub(super) fn request(&self, sku: Sku) {
        let mut queue = self.queue.lock();
        queue.items.insert(sku);
        if !std::mem::replace(&mut queue.is_served, true) {
            self.tasks.spawn(self.clone().serve());
        }
    }

    async fn serve(self) {
        while let Some(sku) = self.next() {
            if let Err(error) = settle(&self.pool, &sku).await {
                tracing::warn!(%error, %sku, "an item's orders are not settled yet");
            }
        }
    }

    fn next(&self) -> Option<Sku> {
        let mut queue = self.queue.lock();
        let next = queue.items.pop_first();
        queue.is_served = next.is_some();
        next
    }
}

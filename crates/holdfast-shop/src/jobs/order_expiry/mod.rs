//! Expires unpaid orders. Postgres is the queue; of the replicas' workers one at a time reads it.
//!
//! Guarantees: an order that is not paid in time expires once, within a second or two of its due
//! time while Redis, Postgres and one replica are available, also if processes are killed and Redis
//! loses its data. *At least once* is due to the order's row, which is read until its status
//! changes; *at most once* to that change ([`crate::command::expire_orders`]). A failed
//! expiry is retried with a growing backoff, then parked ([`failures`]).
//!
//! Does not guarantee order. An item that is locked delays its own orders. Without Redis, a
//! strategy that locks in Redis delays expiry. Tests: `tests/it/order_expiry*.rs`.

mod due;
mod expire;
pub mod failures;
mod groups;
mod lab_request;
mod worker;

use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::probe::PauseBoard;
use crate::{Error, Shop};
pub(super) use expire::METRICS;
use failures::ExpiryFailure;
pub use lab_request::{LAB_REQUEST_TIMEOUT, LabRequest, OrderExpiry};
use worker::ExpiryWorker;

/// Pause before a worker that panicked is replaced: it may panic again.
const RESTART_DELAY: Duration = Duration::from_secs(5);
const MAX_LISTED_FAILURES: i64 = 50;

#[derive(Debug, Serialize, ToSchema)]
pub struct ExpiryStatus {
    /// Orders that are due and have not expired yet.
    pub due: i64,
    /// Failed expiries: parked ones first, then the latest; 50 at most.
    pub failures: Vec<ExpiryFailure>,
}

pub async fn status(shop: &Shop) -> Result<ExpiryStatus, Error> {
    let due = sqlx::query_scalar!(
        r#"select count(*) as "count!" from orders
            where status = 'pending' and expires_at <= now()"#
    )
    .fetch_one(&mut *shop.connection().await?)
    .await?;
    Ok(ExpiryStatus { due, failures: failures::list(shop, MAX_LISTED_FAILURES).await? })
}

impl OrderExpiry {
    /// Expires due orders until `stop` is cancelled. A worker that panics is replaced.
    pub fn start_worker(
        &self,
        shop: &Shop,
        replica: &str,
        board: &PauseBoard,
        stop: &CancellationToken,
    ) {
        let expiry = self.clone();
        let shop = shop.clone();
        let board = board.clone();
        let replica = replica.to_owned();
        let stop = stop.clone();

        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let worker = ExpiryWorker::new(&shop, expiry.clone(), &replica, &board);
                let work = stop.clone().run_until_cancelled_owned(worker.run());

                if let Err(error) = tokio::spawn(work).await {
                    tracing::error!(%error, "the order expiry worker panicked");
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        });
    }
}

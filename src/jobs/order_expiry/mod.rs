//! Expires unpaid orders. Postgres is the queue; of the replicas' workers one at a time reads it.
//!
//! Guarantees: an order that is not paid in time expires once, within a second or two of its due
//! time while Redis, Postgres and one replica are available, also if processes are killed and Redis
//! loses its data. *At least once* is due to the order's row, which is read until its status
//! changes; *at most once* to that change ([`crate::shop::command::expire_orders`]). A failed
//! expiry is retried with a growing backoff, then parked ([`failures`]).
//!
//! Does not guarantee order. An item that is locked delays its own orders. Without Redis, a
//! strategy that locks in Redis delays expiry. Tests: `tests/it/order_expiry*.rs`.

mod due;
mod expire;
pub mod failures;
mod groups;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::probe::{PauseBoard, Point};
use crate::shop::{Error, Shop, Strategy};
use failures::ExpiryFailure;
use worker::ExpiryWorker;

/// Upper bound of the time for which a request of the lab applies: its sender may be gone.
pub const LAB_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a worker that panicked is replaced: it may panic again.
const RESTART_DELAY: Duration = Duration::from_secs(5);
const MAX_LISTED_FAILURES: i64 = 50;

/// A request of the lab to a worker.
#[derive(Debug, Clone, Copy)]
pub enum LabRequest {
    /// Do nothing for this time.
    Rest(Duration),
    /// Pause once, at the next orders to process; with the server's own strategy if it is `None`.
    Pause { at: Point, strategy: Option<&'static Strategy> },
}

/// The order expiry of this replica: the lab's request to its worker, and when that ends. Cheap to
/// clone.
#[derive(Debug, Clone, Default)]
pub struct OrderExpiry(Arc<Mutex<Option<(LabRequest, Instant)>>>);

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
        let (expiry, shop, board) = (self.clone(), shop.clone(), board.clone());
        let (replica, stop) = (replica.to_owned(), stop.clone());
        let runtime = shop.tasks.runtime.clone();
        runtime.spawn(async move {
            while !stop.is_cancelled() {
                let worker = ExpiryWorker::new(&shop, expiry.clone(), &replica, &board);
                let work = stop.clone().run_until_cancelled_owned(worker.run());
                if let Err(error) = shop.tasks.runtime.spawn(work).await {
                    tracing::error!(%error, "the order expiry worker panicked");
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        });
    }

    /// Replaces the lab's request to this replica's worker; `None` withdraws it.
    pub fn set_lab_request(&self, request: Option<LabRequest>) {
        let length = match request {
            Some(LabRequest::Rest(length)) => length,
            _ => LAB_REQUEST_TIMEOUT,
        };
        *self.0.lock() = request.map(|request| (request, Instant::now() + length));
    }

    fn is_resting(&self) -> bool {
        matches!(*self.0.lock(), Some((LabRequest::Rest(_), until)) if Instant::now() < until)
    }

    /// Takes the pause, if it has not ended.
    fn take_pause(&self) -> Option<LabRequest> {
        let is_pause = |(request, _): &mut _| matches!(request, LabRequest::Pause { .. });
        let (pause, until) = self.0.lock().take_if(is_pause)?;
        (Instant::now() < until).then_some(pause)
    }
}

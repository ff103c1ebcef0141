//! Duplicates: of all requests with one idempotency key, one is executed, and the others get its
//! response. Three rings keep them out, the cheapest first:
//!
//! 1. [`in_flight`]: the requests of this process.
//! 2. [`key_locks`]: in Redis, those of all replicas; a duplicate learns of them in one call.
//! 3. [`key_records`]: in Postgres, where the write of a command inserts the record of its key.
//!    This one alone guarantees it; the other two answer sooner.
//!
//! [`Duplicates::admit`] is the entry. Code that rejects a request before its key was read calls
//! [`Duplicates::replay_or`] first: an earlier request may have been executed.

pub mod in_flight;
mod key_locks;

use std::time::Duration;

use tokio::time::timeout;

use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::failure::{Component, Error, Execution, Failure, Rejection};
use crate::idempotency::IdempotencyRequest;
use crate::store::key_records::{self, Replay};
use crate::tasks::Tasks;
pub use in_flight::InFlightKey;
use in_flight::InFlightKeys;
pub use key_locks::{KeyLocks, keeps_lock};

pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Timeout of the look-up before a full queue rejects, which must be immediate.
const FULL_QUEUE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct Duplicates {
    in_flight: InFlightKeys,
    /// Under overload one look-up at a time serves all commands that arrived during the previous
    /// one.
    records: Coalescer<(), IdempotencyRequest, Option<Replay>>,
}

impl Duplicates {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let pool = pool.clone();
        let records = Coalescer::new(tasks, move |(), requests| {
            let pool = pool.clone();
            async move { key_records::look_up_in(&pool, requests).await }
        });
        Self { in_flight: InFlightKeys::default(), records }
    }

    /// Admits a request, and keeps its duplicates in this process out until the result is dropped.
    pub fn admit(&self, request: &IdempotencyRequest) -> Result<InFlightKey, Rejection> {
        self.in_flight.register(request)
    }

    /// Returns what was stored for the key. Best effort: behind [`crate::coalesce::MAX_WAITING`]
    /// others, after that time, or while Postgres is unavailable, nothing is found.
    pub async fn find(&self, request: &IdempotencyRequest, within: Duration) -> Option<Replay> {
        if request.is_generated {
            // No other request has the key.
            return None;
        }
        timeout(within, self.records.look_up((), request.clone())).await.ok()?.ok().flatten()
    }

    /// Returns the replay of the key, or else `failure`; at once if Postgres is unavailable.
    pub async fn replay_or(
        &self,
        request: &IdempotencyRequest,
        failure: Failure,
    ) -> Result<Execution, Failure> {
        self.replay_within(LOOKUP_TIMEOUT, request, failure).await
    }

    /// [`Self::replay_or`] before a full queue rejects.
    pub async fn replay_at_once_or(
        &self,
        request: &IdempotencyRequest,
        failure: Failure,
    ) -> Result<Execution, Failure> {
        self.replay_within(FULL_QUEUE_LOOKUP_TIMEOUT, request, failure).await
    }

    async fn replay_within(
        &self,
        within: Duration,
        request: &IdempotencyRequest,
        failure: Failure,
    ) -> Result<Execution, Failure> {
        if matches!(failure, Failure::Error(Error::Unavailable { what: Component::Postgres, .. })) {
            // The look-up would fail too, and the waits would add up.
            return Err(failure);
        }
        self.find(request, within).await.unwrap_or(Err(failure))
    }
}

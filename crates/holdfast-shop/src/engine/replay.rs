//! Looks up stored responses before a command is rejected: a client that lost a response gets it
//! even if the command itself can't be executed now. Under overload one lookup at a time serves all
//! commands that arrived during the previous one ([`crate::coalesce`]).
//!
//! Best effort: behind [`crate::coalesce::MAX_WAITING`] others, after the caller's time limit, or
//! while Postgres is unavailable, a command is rejected without a lookup.

use std::time::Duration;

use tokio::time::timeout;

use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::failure::{Component, Error, Execution, Failure};
use crate::idempotency::IdempotencyRequest;
use crate::store::key_records::{self, Replay};
use crate::tasks::Tasks;

pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Timeout of the key lookup before a full queue rejects, which must be immediate.
pub(super) const FULL_QUEUE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct ReplayLookup(Coalescer<(), IdempotencyRequest, Option<Replay>, Error>);

impl ReplayLookup {
    pub(super) fn new(pool: &Pool, tasks: &Tasks) -> Self {
        let pool = pool.clone();
        Self(Coalescer::new(tasks, move |(), requests| {
            let pool = pool.clone();
            async move { key_records::look_up_in(&pool, requests).await }
        }))
    }

    pub async fn find(&self, request: &IdempotencyRequest, within: Duration) -> Option<Replay> {
        if request.is_generated {
            // Nobody else has the key.
            return None;
        }
        timeout(within, self.0.look_up((), request.clone())).await.ok()?.ok().flatten()
    }

    /// Returns the replay of the key, or else `failure`; at once if Postgres is unavailable.
    pub(super) async fn find_or(
        &self,
        request: &IdempotencyRequest,
        within: Duration,
        failure: Failure,
    ) -> Result<Execution, Failure> {
        if matches!(failure, Failure::Error(Error::Unavailable { what: Component::Postgres, .. })) {
            // The look-up would fail too, and the waits would add up.
            return Err(failure);
        }
        self.find(request, within).await.unwrap_or(Err(failure))
    }
}

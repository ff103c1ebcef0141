//! Looks up stored responses. Under overload one look-up at a time serves all commands that arrived
//! during the previous one ([`crate::coalesce`]).
//!
//! Best effort: behind [`crate::coalesce::MAX_WAITING`] others, after the caller's time limit, or
//! while Postgres is unavailable, nothing is found.

use std::time::Duration;

use tokio::time::timeout;

use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::failure::Error;
use crate::idempotency::IdempotencyRequest;
use crate::store::key_records::{self, Replay};
use crate::tasks::Tasks;

#[derive(Debug, Clone)]
pub struct RecordLookup(Coalescer<(), IdempotencyRequest, Option<Replay>, Error>);

impl RecordLookup {
    pub fn new(pool: &Pool, tasks: &Tasks) -> Self {
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
}

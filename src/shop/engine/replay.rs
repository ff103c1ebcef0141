//! Looks up stored responses before a command is rejected: a client that lost a response gets it
//! even if the command itself can't be executed now.
//!
//! Under overload many commands are rejected at once, and a lookup for each would cost Postgres
//! more than the commands that it executes. So one lookup at a time, on one connection, serves all
//! commands that arrived during the previous one ([`crate::coalesce`]).
//!
//! Best effort: behind [`crate::coalesce::MAX_WAITING`] others, after the caller's time limit, or
//! while Postgres is unavailable, a command is rejected without a lookup. `overloaded` and
//! `idempotency-key-in-flight` mean *retry with the same key*.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use crate::coalesce::Coalescer;
use crate::shop::Shop;
use crate::shop::failure::{Error, Execution, Failure};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::key_records::{self, Replay};

/// Timeout of a lookup, which takes well under a millisecond.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The coalesced lookup of key records. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReplayLookup(Coalescer<(), IdempotencyRequest, Option<Replay>, Error>);

impl ReplayLookup {
    /// Returns the replay of the key, if it has a record that is found within the time limit.
    pub async fn find(
        &self,
        shop: &Shop,
        request: &IdempotencyRequest,
        within: Duration,
    ) -> Option<Replay> {
        if request.is_generated {
            return None;
        }
        let owned_shop = shop.clone();
        let call = move |requests: Vec<IdempotencyRequest>| {
            let shop = owned_shop.clone();
            async move { look_up(&shop, requests).await }
        };
        let lookup = self.0.look_up((&shop.running, &shop.runtime), (), request.clone(), call);
        timeout(within, lookup).await.ok()?.ok().flatten()
    }

    /// Returns the replay of the key, or else `failure`.
    pub(super) async fn find_or(
        &self,
        shop: &Shop,
        request: &IdempotencyRequest,
        within: Duration,
        failure: Failure,
    ) -> Result<Execution, Failure> {
        match self.find(shop, request, within).await {
            Some(replay) => key_records::replayed(replay),
            None => Err(failure),
        }
    }
}

/// Looks up keys on a connection of their own, within 1.5 s.
pub(super) async fn look_up(
    shop: &Shop,
    requests: Vec<IdempotencyRequest>,
) -> Result<Vec<Option<Replay>>, Error> {
    let reading = shop.pool.read(move |db| {
        let requests = requests.clone();
        async move { key_records::look_up(db, &requests.iter().collect::<Vec<_>>()).await }.boxed()
    });
    Ok(reading.await?.0)
}

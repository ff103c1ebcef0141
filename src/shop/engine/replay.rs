//! Looks up stored responses before a command is rejected: a client that has lost a response gets
//! it although there is no room for the command.
//!
//! When there is no room many commands are rejected at once, and a look-up for each would cost
//! Postgres more than what it executes. So one look-up at a time, on one connection, serves all
//! that came meanwhile ([`super::coalesce`]).
//!
//! Best effort: behind [`super::coalesce::MAX_WAITING`] others, after the caller's time limit, or
//! while Postgres is unavailable, a command is rejected without it. `overloaded` and
//! `idempotency-key-in-flight` mean *ask again with the same key*.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::coalesce::Coalescer;
use crate::shop::Shop;
use crate::shop::failure::{Error, Executed, Failure};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::key_records::{self, Replay};

/// A look-up takes well under a millisecond.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReplayLookup(Coalescer<(), IdempotencyRequest, Option<Replay>>);

impl ReplayLookup {
    /// Returns what the key's record says, if there is one and it is found in time.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn find(
        &self,
        shop: &Shop,
        request: &IdempotencyRequest,
        within: Duration,
    ) -> Option<Replay> {
        if request.minted {
            return None;
        }
        let there = shop.clone();
        let call = move |requests: Vec<IdempotencyRequest>| {
            let there = there.clone();
            async move { look_up(&there, requests).await }
        };
        let asking = self.0.ask(shop, (), request.clone(), call);
        timeout(within, asking).await.ok()?.ok().flatten()
    }

    /// Returns the stored response, or else the failure.
    ///
    /// # Errors
    /// `failure`, if the key has no record.
    pub(super) async fn or(
        &self,
        shop: &Shop,
        request: &IdempotencyRequest,
        within: Duration,
        failure: Failure,
    ) -> Result<Executed, Failure> {
        match self.find(shop, request, within).await {
            Some(replay) => key_records::replayed(replay),
            None => Err(failure),
        }
    }
}

/// Looks keys up on a connection of their own, within 1.5 s.
///
/// # Errors
/// Postgres's.
///
/// # Cancel safety
/// Safe: nothing is changed.
pub(super) async fn look_up(
    shop: &Shop,
    requests: Vec<IdempotencyRequest>,
) -> Result<Vec<Option<Replay>>, Error> {
    let asking = shop.pool.ask(move |db| {
        let requests = requests.clone();
        async move { key_records::look_up(db, &requests.iter().collect::<Vec<_>>()).await }.boxed()
    });
    Ok(asking.await?.0)
}

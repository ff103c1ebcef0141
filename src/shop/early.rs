//! A transaction that has begun when its lock is had.
//!
//! Who waits for a `fenced` lock is told when it is next in its process, and gets ready: it begins
//! its transaction and claims its key, so that under the lock, for which everybody waits, there are
//! only the read, the write and the commit. (A batch does the same for all of its members:
//! `combine::server`.)
//!
//! With a batch it is the exception to *nobody waits for Redis while holding a connection*, and is
//! bounded: with a connection that is idle at that moment, one in four of the pool at most
//! ([`crate::db::Pool::spare`]), and for [`A_WHILE`]. Then it is rolled back, and begins under the
//! lock like any other. Nothing that was read is kept: the claim alone was made before.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use time::OffsetDateTime;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::errand::{COMMIT_LIMIT, Errand};
use super::idempotency::{self, Claim};
use super::stock::{Isolation, Release};
use super::taken::{self, Taken};
use super::{Conditions, Error, Refusal, Shop};
use crate::db::{Spare, Transaction};
use crate::lock::Kind;

/// For how long a transaction may wait for its lock. A lock that is passed on from hand to hand
/// comes sooner.
pub(super) const A_WHILE: Duration = Duration::from_millis(50);

/// A transaction in which a key was claimed, and nothing else was done.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) tx: Transaction,
    /// When it began, by Postgres's clock.
    pub(super) at: OffsetDateTime,
}

/// Takes what the strategy locks, or says why not; and begins the errand's transaction, with its
/// key claimed, while the lock is waited for.
///
/// # Errors
/// Those of [`taken::take`]. What goes wrong with the transaction is left to be told under the
/// lock.
///
/// # Cancel safety
/// As safe as taking the lock: a transaction that nobody waits for any more is closed.
pub(super) async fn take<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
) -> Result<Result<(Taken, Option<Early>), Refusal>, Error> {
    let without = |taken: Result<Taken, Refusal>| taken.map(|taken| (taken, None));
    let Some(claim) = errand.claim().filter(|_| suits(conditions)) else {
        return Ok(without(taken::take(shop, conditions, errand, None).await?));
    };
    let (next, is_next) = oneshot::channel();
    let mut taking = pin!(taken::take(shop, conditions, errand, Some(next)));
    match select(taking.as_mut(), is_next).await {
        Either::Left((taken, _)) => return Ok(without(taken?)),
        // Never next: had, or not to be had.
        Either::Right((Err(_), _)) => return Ok(without(taking.await?)),
        Either::Right((Ok(()), _)) => {}
    }
    let until = Instant::now() + A_WHILE;
    let Some((early, permit)) = begin(shop, claim, until).await else {
        return Ok(without(taking.await?));
    };
    match timeout_at(until, taking.as_mut()).await {
        Ok(Ok(Ok(taken))) => {
            counted("used");
            drop(permit);
            Ok(Ok((taken, Some(early))))
        }
        Ok(not_taken) => {
            give_up(early.tx).await;
            Ok(without(not_taken?))
        }
        // Whoever is granted the lock meanwhile does not stand in it.
        Err(_) => Ok(without(join(give_up(early.tx), taking).await.1?)),
    }
}

/// Only that lock says who is next; and elsewhere the order of things is what is shown.
fn suits(conditions: &Conditions) -> bool {
    let strategy = conditions.strategy;
    strategy.lock == Some(Kind::Fenced)
        && strategy.isolation == Isolation::ReadCommitted
        && strategy.release == Release::AfterCommit
}

/// None if there is no connection to spare, if it is dead, or if the key is not free: that is
/// looked into under the lock.
async fn begin(
    shop: &Shop,
    claim: &Claim,
    until: Instant,
) -> Option<(Early, OwnedSemaphorePermit)> {
    let Spare { connection, permit } = shop.pool.spare()?;
    let mut tx = Transaction::begin(connection, until).await.ok()?;
    let claimed = timeout_at(until, idempotency::claim(&mut tx, claim)).await;
    match claimed {
        Ok(Ok(Some(at))) => Some((Early { tx, at }, permit)),
        Ok(Ok(None)) => {
            give_up(tx).await;
            None
        }
        Ok(Err(_)) | Err(_) => {
            counted("given-up");
            None
        }
    }
}

async fn give_up(tx: Transaction) {
    counted("given-up");
    let _ = timeout(COMMIT_LIMIT, tx.rollback()).await;
}

fn counted(end: &'static str) {
    metrics::counter!("holdfast_transactions_early_total", "end" => end).increment(1);
}

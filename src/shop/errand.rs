//! How every change travels: claim the token, take the locks, one transaction, commit, give back.
//!
//! Guarantees:
//! - the locks come before the database connection; nobody waits for Redis while holding one;
//! - the transaction and the guards live in a task of their own on the main runtime, so a caller
//!   that goes away releases nothing early;
//! - a commit whose outcome is unknown is settled by its key before the locks are given back, and
//!   where that is impossible the locks are left to expire;
//! - a deadlock or a serialization failure repeats the *whole* transaction, the claim included, a
//!   bounded number of times.
//!
//! Does not guarantee that a lease is still held at commit. Under `owner` nothing does.

use std::future::Future;
use std::time::Duration;

use rand::RngExt as _;
use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout_at};

use super::idempotency::{self, Claim, Opened, Stored};
use super::stock::{Exclusion, Strategy};
use super::{Answer, Conditions, Error, Outcome, Refusal, Shop};
use crate::lock::{self, Ask, Guards, LockKey, TokenGuard};
use crate::probe::{Point, Probe, Seen};

/// How often a transaction is tried when Postgres ends it for somebody else's sake.
const ATTEMPTS: u32 = 6;

/// One change of stock or money.
pub trait Errand: Send + Sync + 'static {
    /// What it needs a lock on, in any order.
    fn keys(&self) -> Vec<LockKey>;

    /// The key under which it is done once; none for those whose compare-and-set already sees to
    /// it.
    fn claim(&self) -> Option<&Claim>;

    /// The work itself, inside the transaction. A refusal rolls everything back.
    fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Error>> + Send;
}

/// Under what an errand is performed.
#[derive(Debug)]
pub struct Held<'a> {
    /// How values are read and written.
    pub strategy: &'static Strategy,
    /// What keeps others out.
    pub exclusion: Exclusion<'a>,
    /// The request's points.
    pub probe: &'a Probe,
    /// The request's name.
    pub request_id: uuid::Uuid,
    /// Whether money changed here proves nothing, because it may come out wrong by design.
    pub may_break: bool,
}

/// Runs an errand from its token to its answer.
///
/// # Errors
/// [`Error`]; then nothing was changed, unless it says that the outcome is unknown.
///
/// # Cancel safety
/// Dropping the future before the transaction has begun leaves nothing behind. Afterwards the
/// transaction goes on to its end by itself, and its answer can be had with the same key.
pub async fn run<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: E,
) -> Result<Outcome, Error> {
    let token = match errand.claim() {
        None => None,
        Some(claim) => match idempotency::open(shop, claim, conditions.strategy.lock).await? {
            Opened::Free(token) => token,
            Opened::Settled(Stored::Finished(answer)) => return Ok(Outcome::Replayed(answer)),
            Opened::Settled(Stored::Refused(refusal)) => return Ok(Outcome::Refused(refusal)),
        },
    };
    let guards = match take_locks(shop, conditions, &errand.keys()).await? {
        Ok(guards) => guards,
        Err(refusal) => {
            give_back_token(token).await;
            return Ok(Outcome::Refused(refusal));
        }
    };
    let task =
        shop.runtime.spawn(to_the_end(shop.clone(), conditions.clone(), errand, guards, token));
    task.await.map_err(|error| Error::Bug(format!("the transaction's task ended: {error}")))?
}

async fn take_locks(
    shop: &Shop,
    conditions: &Conditions,
    keys: &[LockKey],
) -> Result<Result<Guards, Refusal>, Error> {
    let seen = || keys.iter().map(|key| Seen::key(key.as_str()));
    conditions.probe.at(Point::Wait, seen()).await;
    let Some(kind) = conditions.strategy.lock else { return Ok(Ok(Guards::default())) };
    let started = tokio::time::Instant::now();
    let ask = Ask {
        kind,
        wait: conditions.wait.unwrap_or(kind.waits()[0]),
        ttl: conditions.ttl,
        deadline: conditions.deadline,
        keys,
    };
    let outcome = shop.locks.acquire(ask).await?;
    metrics::histogram!("holdfast_lock_wait_seconds", "strategy" => conditions.strategy.name)
        .record(started.elapsed().as_secs_f64());
    match outcome {
        lock::Outcome::Acquired(guards) => {
            conditions.probe.at(Point::Held, seen()).await;
            Ok(Ok(guards))
        }
        lock::Outcome::Busy(holder) => Ok(Err(Refusal::LockBusy(holder))),
        lock::Outcome::TimedOut { waited, holder } => {
            Ok(Err(Refusal::LockTimeout { waited, holder }))
        }
    }
}

/// What happens to the locks in the end.
enum End {
    /// The transaction is over.
    GiveBack(Result<Outcome, Error>),
    /// It may not be.
    LeaveToExpire(Error),
}

async fn to_the_end<E: Errand>(
    shop: Shop,
    conditions: Conditions,
    errand: E,
    guards: Guards,
    token: Option<TokenGuard>,
) -> Result<Outcome, Error> {
    let keys = errand.keys();
    let end = attempt_until_done(&shop, &conditions, &errand, &guards).await;
    let result = match end {
        End::GiveBack(result) => {
            if conditions.strategy.lock.is_some() {
                let released = guards.release().await;
                tracing::trace!(?released, "locks given back");
            }
            result
        }
        End::LeaveToExpire(error) => {
            guards.leave_to_expire();
            Err(error)
        }
    };
    conditions.probe.at(Point::Release, keys.iter().map(|key| Seen::key(key.as_str()))).await;
    give_back_token(token).await;
    result
}

async fn give_back_token(token: Option<TokenGuard>) {
    if let Some(token) = token {
        token.release().await;
    }
}

async fn attempt_until_done<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
    guards: &Guards,
) -> End {
    let mut attempt = 1;
    loop {
        match in_one_transaction(shop, conditions, errand, guards).await {
            End::GiveBack(Err(Error::Conflict(_))) if attempt < ATTEMPTS => {
                let pause = rand::rng().random_range(2..=20 * attempt);
                sleep(Duration::from_millis(pause.into())).await;
                attempt += 1;
            }
            End::GiveBack(Err(Error::Conflict(cause))) => {
                let cause = format!("given up after {ATTEMPTS} attempts: {cause}");
                return End::GiveBack(Err(Error::Overloaded(cause)));
            }
            end => return end,
        }
    }
}

async fn in_one_transaction<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
    guards: &Guards,
) -> End {
    let mut connection = match shop.connection().await {
        Ok(connection) => connection,
        Err(error) => return End::GiveBack(Err(error)),
    };
    let mut tx = match connection.begin().await {
        Ok(tx) => tx,
        Err(error) => return End::GiveBack(Err(error.into())),
    };
    let held = Held {
        strategy: conditions.strategy,
        exclusion: conditions.strategy.exclusion(guards),
        probe: &conditions.probe,
        request_id: conditions.request_id,
        may_break: conditions.may_break(shop),
    };
    // A transaction must not outlive its request: the lease it relies on is only a little longer.
    let work = timeout_at(conditions.deadline, body(&mut tx, errand, &held)).await;
    let answer = match work {
        Ok(Ok(Body::Answer(answer))) => answer,
        Ok(Ok(Body::Refused(refusal))) => {
            let rolled_back = tx.rollback().await.map_err(Error::from);
            return End::GiveBack(rolled_back.map(|()| Outcome::Refused(refusal)));
        }
        Ok(Ok(Body::Claimed)) => {
            if let Err(error) = tx.rollback().await {
                return End::GiveBack(Err(error.into()));
            }
            return End::GiveBack(finished_by_another(&mut connection, errand).await);
        }
        Ok(Err(error)) => return End::GiveBack(Err(error)),
        Err(_) => {
            return End::GiveBack(Err(Error::Overloaded("the request's time is up".to_owned())));
        }
    };
    conditions.probe.at(Point::Commit, seen(errand)).await;
    let end = match tx.commit().await {
        Ok(()) => End::GiveBack(Ok(Outcome::Done(answer))),
        Err(error) => settle(shop, errand, error.into()).await,
    };
    conditions.probe.at(Point::Committed, seen(errand)).await;
    end
}

/// How the statements of a transaction ended.
enum Body {
    /// With an answer, stored if it has a key.
    Answer(Answer),
    /// With a refusal.
    Refused(Refusal),
    /// With another request owning the key.
    Claimed,
}

async fn body<E: Errand>(
    tx: &mut PgConnection,
    errand: &E,
    held: &Held<'_>,
) -> Result<Body, Error> {
    if let Some(claim) = errand.claim()
        && !idempotency::claim(tx, claim).await?
    {
        return Ok(Body::Claimed);
    }
    let answer = match errand.perform(tx, held).await? {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Body::Refused(refusal)),
    };
    if let Some(claim) = errand.claim() {
        idempotency::store(tx, claim, &answer).await?;
    }
    Ok(Body::Answer(answer))
}

/// The answer of whoever won the claim. A separate statement: the insert that lost sees nothing.
async fn finished_by_another<E: Errand>(
    connection: &mut PgConnection,
    errand: &E,
) -> Result<Outcome, Error> {
    let Some(claim) = errand.claim() else {
        return Err(Error::Bug("an errand without a key lost a claim".to_owned()));
    };
    match idempotency::look_up(connection, claim).await? {
        Some(Stored::Finished(answer)) => Ok(Outcome::Replayed(answer)),
        Some(Stored::Refused(refusal)) => Ok(Outcome::Refused(refusal)),
        None => Err(Error::Conflict("the key was forgotten in this moment".to_owned())),
    }
}

/// The commit was sent and no answer came. With a key, the truth can be found out.
async fn settle<E: Errand>(shop: &Shop, errand: &E, error: Error) -> End {
    if matches!(error, Error::Conflict(_)) {
        return End::GiveBack(Err(error));
    }
    tracing::warn!(%error, "a commit was not acknowledged");
    let settled = match errand.claim() {
        Some(claim) => idempotency::settle(shop, claim).await,
        None => Err(Error::Bug("nothing to look it up by".to_owned())),
    };
    match settled {
        Ok(Some(Stored::Finished(answer))) => End::GiveBack(Ok(Outcome::Done(answer))),
        Ok(Some(Stored::Refused(refusal))) => End::GiveBack(Ok(Outcome::Refused(refusal))),
        Ok(None) => End::GiveBack(Err(error)),
        Err(_) => End::LeaveToExpire(Error::Unavailable {
            what: "Postgres",
            cause: error.to_string(),
            outcome_unknown: true,
        }),
    }
}

fn seen<E: Errand>(errand: &E) -> impl Iterator<Item = Seen> {
    errand.keys().into_iter().map(|key| Seen::key(key.as_str()))
}

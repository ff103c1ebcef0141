//! How every change travels: claim the token, take the locks, one transaction, commit, give back.
//!
//! Guarantees:
//! - the locks come before the database connection; nobody waits for Redis while holding one, but
//!   for who is next, and within bounds ([`super::early`]);
//! - the transaction and the guards live in a task of their own on the main runtime, so a caller
//!   that goes away releases nothing early;
//! - a commit whose outcome is unknown is settled by its key before the locks are given back, and
//!   where that is impossible the locks are left to expire;
//! - a deadlock or a serialization failure repeats the *whole* transaction, the claim included, a
//!   bounded number of times.
//!
//! Does not guarantee that a lease is still held at commit. Under `owner` nothing does; and under
//! `early-release` it is given back before it, on purpose.

use std::future::Future;
use std::time::Duration;

use rand::RngExt as _;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout, timeout_at};

use super::early::{self, Early};
pub use super::held::Held;
use super::idempotency::{self, Claim, Opened, Stored};
use super::stock::{self, Isolation, Release, Strategy};
use super::taken::Taken;
use super::{Answer, Conditions, Error, OrderId, Outcome, Refusal, Shop};
use crate::db::Transaction;
use crate::lock::{Guards, LockKey, Priority, TokenGuard};
use crate::probe::{Point, Seen};

/// How often a row's fence is taught to Redis before a request gives up.
const HEALINGS: u32 = 3;
/// How long a commit may take before it counts as not acknowledged.
pub(super) const COMMIT_LIMIT: Duration = Duration::from_secs(2);

/// One change of stock or money.
pub trait Errand: Send + Sync + 'static {
    /// What it needs a lock on, in any order.
    fn keys(&self) -> Vec<LockKey>;

    /// The order that it is about, where it is about one.
    fn order(&self) -> Option<OrderId> {
        None
    }

    /// The key under which it is done once; none for those whose compare-and-set already sees to
    /// it.
    fn claim(&self) -> Option<&Claim>;

    /// Who goes first, under a strategy that has a queue: what puts units or money back, for those
    /// who are in line for them.
    fn priority(&self) -> Priority {
        Priority::Normal
    }

    /// Whether it may be done under these conditions at all. Asked after a finished key was looked
    /// up and before anything is locked.
    fn admit(
        &self,
        _shop: &Shop,
        _conditions: &Conditions,
    ) -> impl Future<Output = Result<Result<(), Refusal>, Error>> + Send {
        std::future::ready(Ok(Ok(())))
    }

    /// It was committed, whether or not anybody still waits for its answer.
    fn done(&self, _shop: &Shop) {}

    /// Whether an answer that comes of its work is stored with its key by then.
    fn stores_its_answer(&self, _strategy: &Strategy) -> bool {
        false
    }

    /// The work itself, inside the transaction. A refusal rolls everything back.
    fn perform(
        &self,
        tx: &mut PgConnection,
        held: &Held<'_>,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Error>> + Send;
}

/// Runs an errand from its token to its answer.
///
/// All of it happens in a task on the main runtime: what is opened there outlives the worker that
/// serves the request.
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
    let (caller, caller_gone) = oneshot::channel::<()>();
    let (shop_there, conditions) = (shop.clone(), conditions.clone());
    let whole = async move {
        let prepared = tokio::select! {
            prepared = prepare(&shop_there, &conditions, &errand) => prepared?,
            _ = caller_gone => return Err(Error::Overloaded("the caller has gone".to_owned())),
        };
        match prepared {
            Prepared::Settled(outcome) => Ok(outcome),
            Prepared::Ready(taken, begun, token) => {
                to_the_end(shop_there, conditions, errand, (taken, begun), token).await
            }
        }
    };
    let task = shop.running.spawn_on(whole, &shop.runtime);
    let outcome = task.await;
    drop(caller);
    outcome.map_err(|error| Error::Bug(format!("the errand's task ended: {error}")))?
}

/// What came of everything before the transaction.
enum Prepared {
    /// All there is to say; nothing is held.
    Settled(Outcome),
    /// The locks, perhaps a transaction that has claimed the key, and the token's lock.
    Ready(Taken, Option<Early>, Option<TokenGuard>),
}

async fn prepare<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
) -> Result<Prepared, Error> {
    let token = match errand.claim() {
        None => None,
        Some(claim) => match idempotency::open(shop, claim, conditions.strategy.lock).await? {
            Opened::Free(token) => token,
            Opened::Settled(Stored::Finished(answer)) => {
                return Ok(Prepared::Settled(Outcome::Replayed(answer)));
            }
            Opened::Settled(Stored::Refused(refusal)) => {
                return Ok(Prepared::Settled(Outcome::Refused(refusal)));
            }
        },
    };
    let taken = match errand.admit(shop, conditions).await? {
        Ok(()) => early::take(shop, conditions, errand).await?,
        Err(refusal) => Err(refusal),
    };
    match taken {
        Ok((taken, begun)) => Ok(Prepared::Ready(taken, begun, token)),
        Err(refusal) => {
            give_back_token(token).await;
            Ok(Prepared::Settled(Outcome::Refused(refusal)))
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
    (mut taken, begun): (Taken, Option<Early>),
    token: Option<TokenGuard>,
) -> Result<Outcome, Error> {
    let end = attempt_until_done(&shop, &conditions, &errand, &mut taken, begun).await;
    let result = match end {
        End::GiveBack(result) => {
            taken.give_back(&conditions).await;
            result
        }
        End::LeaveToExpire(error) => {
            taken.leave_to_expire(&conditions).await;
            Err(error)
        }
    };
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
    taken: &mut Taken,
    mut begun: Option<Early>,
) -> End {
    let attempts = conditions.strategy.attempts;
    let mut attempt = 1;
    let mut healings = 0;
    loop {
        match in_one_transaction(shop, conditions, errand, taken, begun.take()).await {
            End::GiveBack(Err(Error::Conflict(_))) if attempt < attempts => {
                let pause = rand::rng().random_range(2..=20 * attempt);
                sleep(Duration::from_millis(pause.into())).await;
                attempt += 1;
            }
            End::GiveBack(Err(Error::Conflict(cause))) => {
                let cause = format!("given up after {attempts} attempts: {cause}");
                return End::GiveBack(Err(Error::Overloaded(cause)));
            }
            End::GiveBack(Err(Error::Stale(stale))) => {
                healings += 1;
                if let Err(error) = heal(&mut taken.guards, stale, healings).await {
                    return End::GiveBack(Err(error));
                }
            }
            end => return end,
        }
    }
}

/// A row knows a higher fence than ours. Either we come too late, and Redis says so; or Redis has
/// forgotten its numbers, and is told the row's.
pub(super) async fn heal(
    guards: &mut Guards,
    stale: Vec<(LockKey, i64)>,
    healings: u32,
) -> Result<(), Error> {
    for (key, floor) in stale {
        if healings > HEALINGS || guards.refence(&key, floor).await?.is_none() {
            return Err(Error::LockLost(key));
        }
    }
    Ok(())
}

/// How one transaction ended.
enum Step {
    /// It is over: committed, rolled back, or closed.
    Over(Result<Outcome, Error>),
    /// Somebody else has done its work meanwhile. The connection is free to ask what came of it.
    Claimed(PoolConnection<Postgres>),
    /// The commit was sent, and nobody said that it was done.
    Unacknowledged(Error),
}

impl From<sqlx::Error> for Step {
    fn from(error: sqlx::Error) -> Self {
        Step::Over(Err(error.into()))
    }
}

async fn in_one_transaction<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
    taken: &mut Taken,
    begun: Option<Early>,
) -> End {
    let step = match begun {
        Some(Early { tx, at }) => {
            match transaction(tx, Some(at), conditions, errand, taken).await {
                // Its session may have ended while it waited; nothing was committed.
                Step::Over(Err(Error::Unavailable { .. })) => {
                    from_the_beginning(shop, conditions, errand, taken).await
                }
                step => step,
            }
        }
        None => from_the_beginning(shop, conditions, errand, taken).await,
    };
    let end = match step {
        Step::Over(result) => End::GiveBack(result),
        Step::Claimed(mut connection) => {
            End::GiveBack(finished_by_another(&mut connection, errand).await)
        }
        Step::Unacknowledged(error) => settle(shop, errand, error).await,
    };
    if matches!(end, End::GiveBack(Ok(Outcome::Done(_)))) {
        errand.done(shop);
        conditions.probe.at(Point::Committed, seen(errand, &taken.guards)).await;
    }
    end
}

async fn from_the_beginning<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
    taken: &mut Taken,
) -> Step {
    match shop.begin().await {
        Ok(tx) => transaction(tx, None, conditions, errand, taken).await,
        Err(error) => Step::Over(Err(error)),
    }
}

async fn transaction<E: Errand>(
    mut tx: Transaction,
    claimed_at: Option<OffsetDateTime>,
    conditions: &Conditions,
    errand: &E,
    taken: &mut Taken,
) -> Step {
    let statements = async {
        match body(&mut tx, claimed_at, conditions, errand, &taken.guards).await {
            Ok(Body::Answer(answer)) => {
                if conditions.strategy.release == Release::BeforeCommit {
                    taken.give_back_early(conditions).await;
                }
                conditions.probe.at(Point::Commit, seen(errand, &taken.guards)).await;
                Ok((tx, answer))
            }
            Ok(Body::Refused(refusal)) => {
                tx.rollback().await?;
                Err(Step::Over(Ok(Outcome::Refused(refusal))))
            }
            Ok(Body::Claimed) => Err(Step::Claimed(tx.rollback().await?)),
            Err(error) => Err(Step::Over(Err(undone(tx, error).await))),
        }
    };
    // A transaction must not outlive its request: the lease it relies on is only a little longer.
    let (tx, answer) = match timeout_at(conditions.deadline, statements).await {
        Ok(Ok(ready)) => ready,
        Ok(Err(step)) => return step,
        Err(_) => return Step::Over(Err(Error::time_is_up())),
    };
    match timeout(COMMIT_LIMIT, tx.commit()).await {
        Ok(Ok(())) => Step::Over(Ok(Outcome::Done(answer))),
        Ok(Err(error)) => Step::Unacknowledged(error.into()),
        Err(_) => Step::Unacknowledged(Error::Overloaded("the commit took too long".to_owned())),
    }
}

/// Rolls back what failed, so that its connection can be used again; if that fails too, it is
/// closed.
pub(super) async fn undone(tx: Transaction, error: Error) -> Error {
    if !matches!(error, Error::Unavailable { .. }) {
        let _ = tx.rollback().await;
    }
    error
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
    claimed_at: Option<OffsetDateTime>,
    conditions: &Conditions,
    errand: &E,
    guards: &Guards,
) -> Result<Body, Error> {
    let Conditions { strategy, ref probe, request_id, .. } = *conditions;
    if strategy.isolation == Isolation::Serializable {
        stock::serializable::isolate(tx).await?;
    }
    let claimed_at = match (claimed_at, errand.claim()) {
        (None, Some(claim)) => match idempotency::claim(tx, claim).await? {
            Some(at) => Some(at),
            None => return Ok(Body::Claimed),
        },
        (claimed_at, _) => claimed_at,
    };
    let exclusion = strategy.exclusion(guards);
    let held = Held { strategy, exclusion, probe, request_id, claimed_at };
    let answer = match errand.perform(tx, &held).await? {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Body::Refused(refusal)),
    };
    if let Some(claim) = errand.claim()
        && !errand.stores_its_answer(strategy)
    {
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

fn seen<E: Errand>(errand: &E, guards: &Guards) -> impl Iterator<Item = Seen> {
    errand.keys().into_iter().map(|key| Seen::key(key.as_str()).under(guards.fence(&key)))
}

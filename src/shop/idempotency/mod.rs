//! One answer per key.
//!
//! Guarantees, by Postgres alone: of all requests with one key (per user, method and path), on
//! whatever replicas and through whatever crashes, at most one does its work; the others get its
//! answer, to the byte. The claim is the first statement of the transaction that does the work, so
//! there is no state *claimed but not done* for a crash to leave behind.
//!
//! The token's lock in Redis comes first and only answers sooner: *in flight* instead of a wait.
//! After a flush of Redis the duplicate waits in its own claim, and then gets the answer.
//!
//! Does not guarantee: the answer after a day ([`KEPT_HOURS`]). The key itself is remembered.

mod forget;
mod many;

use std::sync::Arc;

use futures_util::FutureExt as _;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Answer, Error, Key, OrderId, Outcome, Refusal, Shop, UserId};
use crate::lock::{Kind, TokenGuard, TokenOutcome};

pub use forget::{Reach, forget, forget_answers, reach};
pub(super) use many::LOOK_LIMIT;
pub use many::{ClaimRow, Claimed, claim_all, look_up_all, orders_of_tokens, settle_all, unclaim};

/// How long answers are kept.
pub const KEPT_HOURS: i64 = 24;

/// The path under which orders are placed, by page and by API alike.
pub const ORDERS_PATH: &str = "/api/orders";
/// The path under which money is put on an account.
pub const TOP_UPS_PATH: &str = "/api/me/top-ups";

/// One request that wants to be done once.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Who asks.
    pub user: UserId,
    /// The path of the request; the method is always POST.
    pub path: String,
    /// The client's key.
    pub key: Key,
    /// SHA-256 of what is asked for.
    pub fingerprint: [u8; 32],
}

/// Of every request that is done once.
pub(super) const METHOD: &str = "POST";

impl Claim {
    /// What follows `holdfast:token:` in Redis. The scope's path is part of it, but for orders,
    /// whose tokens are the rule.
    pub(super) fn token_name(&self) -> String {
        let name = format!("{{{}:{}}}", self.user.0, self.key.as_str());
        if self.path == ORDERS_PATH { name } else { format!("{name}:{}", self.path) }
    }

    pub(super) fn fingerprint_hex(&self) -> String {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
        self.fingerprint.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }
}

/// What is stored under a key.
#[derive(Debug)]
pub enum Stored {
    /// The answer.
    Finished(Answer),
    /// A reason not to give it.
    Refused(Refusal),
}

impl From<Stored> for Outcome {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Finished(answer) => Outcome::Replayed(answer),
            Stored::Refused(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// What a request with a key may do.
#[derive(Debug)]
pub enum Opened {
    /// Its work; nobody else is known to do it. Without Redis there is no guard.
    Free(Option<TokenGuard>),
    /// Nothing: this is the answer.
    Settled(Stored),
}

/// Looks the key up, then takes its lock. No connection is held while Redis is asked.
///
/// # Errors
/// Postgres away; Redis away and the shop's strategy needs it.
pub async fn open(shop: &Shop, claim: &Claim, lock: Option<Kind>) -> Result<Opened, Error> {
    if let Some(stored) = look_up_apart(shop, claim).await? {
        return Ok(Opened::Settled(stored));
    }
    match shop.locks.acquire_token(&claim.token_name(), &claim.fingerprint_hex()).await {
        Ok(TokenOutcome::Acquired(guard)) => Ok(Opened::Free(Some(guard))),
        Ok(TokenOutcome::Mismatch) => Ok(Opened::Settled(Stored::Refused(Refusal::KeyMismatch))),
        // It may have finished since we looked.
        Ok(TokenOutcome::InFlight) => {
            let stored = look_up_apart(shop, claim).await?;
            Ok(Opened::Settled(stored.unwrap_or(Stored::Refused(Refusal::KeyInFlight))))
        }
        Err(error) if lock.is_some_and(Kind::needs_redis) => Err(error.into()),
        Err(_) => Ok(Opened::Free(None)),
    }
}

/// [`look_up`] on a connection of its own, which need not be known to work.
async fn look_up_apart(shop: &Shop, claim: &Claim) -> Result<Option<Stored>, Error> {
    let asked = Arc::new(claim.clone());
    let (row, mut connection) = shop
        .pool
        .ask(move |db| {
            let asked = asked.clone();
            async move { find(db, &asked).await }.boxed()
        })
        .await?;
    read(row, &mut connection, claim).await
}

/// What is stored under the key, if anything.
///
/// # Errors
/// Postgres's.
pub async fn look_up(db: &mut PgConnection, claim: &Claim) -> Result<Option<Stored>, Error> {
    let row = find(db, claim).await?;
    read(row, db, claim).await
}

/// A key's row.
struct Row {
    fingerprint: Vec<u8>,
    status: Option<i16>,
    body: Option<Vec<u8>>,
    /// Its answer is no longer given.
    old: bool,
}

async fn find(db: &mut PgConnection, claim: &Claim) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        r#"select fingerprint, status, body,
                  created_at < clock_timestamp() - make_interval(hours => $5) as "old!"
             from idempotency
            where user_id = $1 and method = $2 and path = $3 and key = $4"#,
        claim.user.0,
        METHOD,
        claim.path,
        claim.key.as_str(),
        i32::try_from(KEPT_HOURS).unwrap_or(i32::MAX),
    )
    .fetch_optional(db)
    .await
}

/// What a key's row says.
async fn read(
    row: Option<Row>,
    db: &mut PgConnection,
    claim: &Claim,
) -> Result<Option<Stored>, Error> {
    let Some(row) = row else { return Ok(None) };
    // Without its answer it was old once: it was forgotten, and the clock was put back since.
    if row.old || row.body.is_none() {
        let order_id = order_of_token(db, claim).await?;
        return Ok(Some(Stored::Refused(Refusal::KeyUsed { order_id })));
    }
    if row.fingerprint != claim.fingerprint {
        return Ok(Some(Stored::Refused(Refusal::KeyMismatch)));
    }
    match (row.status, row.body) {
        (Some(status), Some(body)) => {
            let status = u16::try_from(status).unwrap_or(200);
            Ok(Some(Stored::Finished(Answer { status, body })))
        }
        _ => Err(Error::Bug("a key was committed without its answer".to_owned())),
    }
}

/// Claims the key inside the transaction that does the work, whose time it tells; `None` when
/// somebody else has it. Waits for whoever is claiming it at the moment to commit or roll back.
///
/// # Errors
/// Postgres's; among them that the other one took too long.
pub async fn claim(tx: &mut PgConnection, claim: &Claim) -> Result<Option<OffsetDateTime>, Error> {
    let claimed = sqlx::query_scalar!(
        "insert into idempotency (user_id, method, path, key, fingerprint)
         values ($1, $2, $3, $4::text, $5)
         on conflict do nothing
         returning created_at",
        claim.user.0,
        METHOD,
        claim.path,
        claim.key.as_str(),
        &claim.fingerprint[..],
    )
    .fetch_optional(tx)
    .await?;
    Ok(claimed)
}

/// Stores the answer in the transaction that claimed the key.
///
/// # Errors
/// Postgres's.
pub async fn store(tx: &mut PgConnection, claim: &Claim, answer: &Answer) -> Result<(), Error> {
    sqlx::query!(
        "update idempotency set status = $5, body = $6
          where user_id = $1 and method = $2 and path = $3 and key = $4",
        claim.user.0,
        METHOD,
        claim.path,
        claim.key.as_str(),
        answer.status_column(),
        answer.body,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Finds out whether a transaction whose commit was not acknowledged has happened.
///
/// A plain look would not do: the commit may still be on its way. So the key is claimed again; that
/// waits for the other transaction to end, and is then rolled back.
///
/// # Errors
/// Postgres is still away: nobody knows.
pub async fn settle(shop: &Shop, key: &Claim) -> Result<Option<Stored>, Error> {
    let mut connection = shop.connection().await?;
    let mut tx = sqlx::Connection::begin(&mut *connection).await?;
    let free = claim(&mut tx, key).await?;
    tx.rollback().await?;
    if free.is_some() { Ok(None) } else { look_up(&mut connection, key).await }
}

/// The order that was placed with the claim's token, however long ago.
///
/// # Errors
/// Postgres's.
pub async fn order_of_token(
    db: &mut PgConnection,
    claim: &Claim,
) -> Result<Option<OrderId>, Error> {
    if claim.path != ORDERS_PATH {
        return Ok(None);
    }
    let id = sqlx::query_scalar!(
        "select id from orders where user_id = $1 and token = $2",
        claim.user.0,
        claim.key.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(id.map(OrderId))
}

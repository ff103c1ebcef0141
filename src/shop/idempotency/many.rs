//! The keys of a batch: claimed, looked up, stored and settled together, with the rules of one.
//!
//! Each key is looked for by itself (`lateral … limit 1`), which is always a look into the index. A
//! plain join leaves the planner free to read the whole table, and it does, when its statistics are
//! old: that was 27 ms for a batch of one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Claim, METHOD, ORDERS_PATH, Stored, look_up};
use crate::shop::{Error, OrderId, Shop};

/// A look-up takes well under a millisecond.
pub(in crate::shop) const LOOK_LIMIT: Duration = Duration::from_millis(1_500);

/// How one claim of several came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It is ours, in that row.
    Ours(ClaimRow),
    /// It is ours, because its answer was forgotten: long ago it made this order.
    Used(OrderId),
    /// Somebody else has it, and has committed.
    Theirs,
}

/// Where a claim's row lies (its `ctid`), for the transaction that made it: nobody else moves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRow(String);

impl ClaimRow {
    /// Its `ctid`, as Postgres writes it.
    #[must_use]
    pub fn ctid(&self) -> &str {
        &self.0
    }
}

/// The columns of several claims.
struct Columns {
    users: Vec<Uuid>,
    paths: Vec<String>,
    keys: Vec<String>,
    fingerprints: Vec<Vec<u8>>,
}

impl Columns {
    fn of(claims: &[&Claim]) -> Self {
        Self {
            users: claims.iter().map(|claim| claim.user.0).collect(),
            paths: claims.iter().map(|claim| claim.path.clone()).collect(),
            keys: claims.iter().map(|claim| claim.key.as_str().to_owned()).collect(),
            fingerprints: claims.iter().map(|claim| claim.fingerprint.to_vec()).collect(),
        }
    }
}

/// What tells claims apart.
fn scope(claim: &Claim) -> (Uuid, &str, &str) {
    (claim.user.0, &claim.path, claim.key.as_str())
}

/// Claims all keys inside the transaction that does the work, sorted, so that two batches never
/// wait for each other. Waits for whoever is claiming one of them at the moment to commit or roll
/// back.
///
/// Orders of long ago, whose answers are forgotten, are looked for only if it is `thorough`: who is
/// not must expect the orders' own constraint to find one.
///
/// # Errors
/// Postgres's; among them that somebody else took too long.
pub async fn claim_all(
    tx: &mut PgConnection,
    claims: &[&Claim],
    thorough: bool,
) -> Result<Vec<Claimed>, Error> {
    let columns = Columns::of(claims);
    let rows = sqlx::query!(
        r#"insert into idempotency (user_id, method, path, key, fingerprint)
           select user_id, $1, path, key, fingerprint
             from unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[])
                  as new (user_id, path, key, fingerprint)
            order by user_id, path, key
           on conflict do nothing
           returning user_id, path, key, ctid::text as "place!",
                     (select id from orders
                       where $7 and idempotency.path = $6
                         and orders.user_id = idempotency.user_id
                         and token = idempotency.key) as "order_id?""#,
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
        &columns.fingerprints,
        ORDERS_PATH,
        thorough,
    )
    .fetch_all(tx)
    .await?;
    let ours: HashMap<(Uuid, &str, &str), (Option<Uuid>, &String)> = rows
        .iter()
        .map(|row| ((row.user_id, row.path.as_str(), row.key.as_str()), (row.order_id, &row.place)))
        .collect();
    let claimed = claims.iter().map(|claim| match ours.get(&scope(claim)) {
        Some((Some(order), _)) => Claimed::Used(OrderId(*order)),
        Some((None, place)) => Claimed::Ours(ClaimRow((*place).clone())),
        None => Claimed::Theirs,
    });
    Ok(claimed.collect())
}

/// Takes claims back whose work is not done after all, in the transaction that made them.
///
/// # Errors
/// Postgres's.
pub async fn unclaim(tx: &mut PgConnection, claims: &[&Claim]) -> Result<(), Error> {
    let columns = Columns::of(claims);
    sqlx::query!(
        "delete from idempotency i
          using unnest($2::uuid[], $3::text[], $4::text[]) as old (user_id, path, key),
                lateral (select ctid from idempotency
                          where user_id = old.user_id and method = $1 and path = old.path
                            and key = old.key limit 1) as claim
          where i.ctid = claim.ctid",
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What is stored under each key, if anything.
///
/// # Errors
/// Postgres's.
pub async fn look_up_all(
    db: &mut PgConnection,
    claims: &[&Claim],
) -> Result<Vec<Option<Stored>>, Error> {
    let columns = Columns::of(claims);
    let known = sqlx::query!(
        r#"select asked.user_id as "user_id!", asked.path as "path!", asked.key as "key!"
             from unnest($2::uuid[], $3::text[], $4::text[]) as asked (user_id, path, key),
                  lateral (select 1 from idempotency
                            where user_id = asked.user_id and method = $1 and path = asked.path
                              and key = asked.key limit 1) as known"#,
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
    )
    .fetch_all(&mut *db)
    .await?;
    let known: HashSet<(Uuid, &str, &str)> =
        known.iter().map(|row| (row.user_id, row.path.as_str(), row.key.as_str())).collect();
    let mut stored = Vec::with_capacity(claims.len());
    for claim in claims {
        // Few are known: a key is finished once, and asked for again by who lost the answer.
        let there = known.contains(&scope(claim));
        stored.push(if there { look_up(db, claim).await? } else { None });
    }
    Ok(stored)
}

/// The order that each key has placed, if any, however long ago: see [`super::order_of_token`]. To
/// be asked before an order is refused whose key is not known, for it may have been forgotten.
/// Without keys it costs nothing.
///
/// # Errors
/// Postgres's.
pub async fn orders_of_tokens(
    db: &mut PgConnection,
    claims: &[&Claim],
) -> Result<Vec<Option<OrderId>>, Error> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let columns = Columns::of(claims);
    let orders = sqlx::query_scalar!(
        r#"select (select id from orders
                    where asked.path = $1 and user_id = asked.user_id and token = asked.key)
                  as "order_id?"
             from unnest($2::uuid[], $3::text[], $4::text[])
                  with ordinality as asked (user_id, path, key, place)
            order by place"#,
        ORDERS_PATH,
        &columns.users,
        &columns.paths,
        &columns.keys,
    )
    .fetch_all(db)
    .await?;
    Ok(orders.into_iter().map(|order| order.map(OrderId)).collect())
}

impl Shop {
    /// What is stored under each key, if anything, on a connection of its own and in bounded time.
    ///
    /// # Errors
    /// Postgres's; [`Error::Unavailable`] when it does not answer within [`LOOK_LIMIT`].
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub(in crate::shop) async fn look(
        &self,
        claims: &[&Claim],
    ) -> Result<Vec<Option<Stored>>, Error> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let mut connection = self.connection().await?;
        match timeout(LOOK_LIMIT, look_up_all(&mut connection, claims)).await {
            Ok(stored) => stored,
            Err(_) => {
                // Whatever it waits for, nobody else shall get this connection.
                drop(connection.detach());
                Err(Error::silence())
            }
        }
    }
}

/// Finds out which of several transactions' worth of claims have happened: see
/// [`super::settle`].
///
/// # Errors
/// Postgres is still away: nobody knows.
pub async fn settle_all(shop: &Shop, claims: &[&Claim]) -> Result<Vec<Option<Stored>>, Error> {
    let mut connection = shop.connection().await?;
    let mut tx = Connection::begin(&mut *connection).await?;
    claim_all(&mut tx, claims, false).await?;
    tx.rollback().await?;
    look_up_all(&mut connection, claims).await
}

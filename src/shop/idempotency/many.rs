//! The keys of a batch: claimed, looked up, stored and settled together, with the rules of one.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{Claim, METHOD, ORDERS_PATH, Stored, look_up};
use crate::shop::{Answer, Error, OrderId, Shop};

/// How one claim of several came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// It is ours.
    Ours,
    /// It is ours, because its answer was forgotten: long ago it made this order.
    Used(OrderId),
    /// Somebody else has it, and has committed.
    Theirs,
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
/// # Errors
/// Postgres's; among them that somebody else took too long.
pub async fn claim_all(tx: &mut PgConnection, claims: &[&Claim]) -> Result<Vec<Claimed>, Error> {
    let columns = Columns::of(claims);
    let rows = sqlx::query!(
        r#"insert into idempotency (user_id, method, path, key, fingerprint)
           select user_id, $1, path, key, fingerprint
             from unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[])
                  as new (user_id, path, key, fingerprint)
            order by user_id, path, key
           on conflict do nothing
           returning user_id, path, key,
                     (select id from orders
                       where idempotency.path = $6 and orders.user_id = idempotency.user_id
                         and token = idempotency.key) as "order_id?""#,
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
        &columns.fingerprints,
        ORDERS_PATH,
    )
    .fetch_all(tx)
    .await?;
    let ours: HashMap<(Uuid, &str, &str), Option<Uuid>> = rows
        .iter()
        .map(|row| ((row.user_id, row.path.as_str(), row.key.as_str()), row.order_id))
        .collect();
    let claimed = claims.iter().map(|claim| match ours.get(&scope(claim)) {
        Some(Some(order)) => Claimed::Used(OrderId(*order)),
        Some(None) => Claimed::Ours,
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
          using unnest($2::uuid[], $3::text[], $4::text[]) as old (user_id, path, key)
          where i.user_id = old.user_id and i.method = $1 and i.path = old.path
            and i.key = old.key",
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Stores the answers in the transaction that claimed the keys.
///
/// # Errors
/// Postgres's.
pub async fn store_all(tx: &mut PgConnection, answers: &[(&Claim, &Answer)]) -> Result<(), Error> {
    let claims: Vec<&Claim> = answers.iter().map(|(claim, _)| *claim).collect();
    let columns = Columns::of(&claims);
    let statuses: Vec<i16> =
        answers.iter().map(|(_, answer)| i16::try_from(answer.status).unwrap_or(200)).collect();
    let bodies: Vec<Vec<u8>> = answers.iter().map(|(_, answer)| answer.body.clone()).collect();
    sqlx::query!(
        "update idempotency i set status = new.status, body = new.body
           from unnest($2::uuid[], $3::text[], $4::text[], $5::smallint[], $6::bytea[])
                as new (user_id, path, key, status, body)
          where i.user_id = new.user_id and i.method = $1 and i.path = new.path
            and i.key = new.key",
        METHOD,
        &columns.users,
        &columns.paths,
        &columns.keys,
        &statuses,
        &bodies,
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
             from unnest($2::uuid[], $3::text[], $4::text[]) as asked (user_id, path, key)
             join idempotency i on i.user_id = asked.user_id and i.method = $1
                               and i.path = asked.path and i.key = asked.key"#,
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

/// Finds out which of several transactions' worth of claims have happened: see
/// [`super::settle`].
///
/// # Errors
/// Postgres is still away: nobody knows.
pub async fn settle_all(shop: &Shop, claims: &[&Claim]) -> Result<Vec<Option<Stored>>, Error> {
    let mut connection = shop.connection().await?;
    let mut tx = Connection::begin(&mut *connection).await?;
    claim_all(&mut tx, claims).await?;
    tx.rollback().await?;
    look_up_all(&mut connection, claims).await
}

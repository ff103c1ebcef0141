//! Writes the opening balances of accounts, and opens lab accounts.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::Pool;
use crate::failure::Error;
use crate::{IdempotencyKey, UserId};

pub const LAB_CENTS: i64 = 100_000;

/// Writes the opening balance of an account that no other transaction has seen, as a ledger entry
/// with that reason.
pub async fn open_balance(
    tx: &mut PgConnection,
    user: UserId,
    cents: i64,
    reason: &'static str,
    request_id: Uuid,
) -> Result<(), Error> {
    // The audit expects a top-up for money that enters the shop; no client has named a key for
    // this.
    let key = IdempotencyKey::generate();

    // The trigger raises the account's version: the entry names the one before, as all entries do.
    sqlx::query!(
        "with topped_up as (
             insert into top_ups (id, user_id, token, amount_cents)
             values ($1, $2, $3, $4::bigint)),
         account as (
             update accounts set balance_cents = $4::bigint where user_id = $2
             returning user_id, version - 1 as version)
         insert into balance_ledger (user_id, before, delta, after, version, reason, request_id)
         select user_id, 0, $4::bigint, $4, version, $5::text, $6 from account",
        Uuid::now_v7(),
        user.0,
        key.as_str(),
        cents,
        reason,
        request_id,
    )
    .execute(tx)
    .await?;

    Ok(())
}

/// Opens the user's lab account with `cents`, unless it is open. Of several calls at once one opens
/// it, and the others wait for it.
///
/// It belongs to a user of its own, who is disabled and has no password, and stays so.
pub async fn open_lab_account(pool: &Pool, owner: UserId, cents: i64) -> Result<(), Error> {
    let id = owner.lab_account();
    let mut tx = pool.begin().await?;

    // No password has an empty hash: signing in would fail even if the user were enabled.
    let inserted = sqlx::query!(
        "insert into users (id, name, password_hash, disabled_at, lab_account_of)
         values ($1, $2, '', now(), $3) on conflict do nothing",
        id.0,
        // A name that begins with `lab-` is reserved: signing up with it fails.
        format!("lab-account-{}", owner.0.simple()),
        owner.0,
    )
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() == 0 {
        tx.rollback().await?;
        return Ok(());
    }

    sqlx::query!("insert into accounts (user_id, kind) values ($1, 'lab')", id.0)
        .execute(&mut *tx)
        .await?;
    open_balance(&mut tx, id, cents, "lab", Uuid::now_v7()).await?;
    Ok(tx.commit().await?)
}

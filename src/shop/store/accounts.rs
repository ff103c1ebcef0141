//! Writes to accounts: the mark that broken strategies were tried, and opening balances.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::shop::failure::Error;
use crate::shop::{IdempotencyKey, Shop, UserId};

/// Marks an account on which broken strategies are tried: the audit counts it separately.
pub async fn mark_lab(shop: &Shop, user: UserId) -> Result<(), Error> {
    sqlx::query!("update accounts set kind = 'lab' where user_id = $1 and kind <> 'lab'", user.0)
        .execute(&mut *shop.connection().await?)
        .await?;
    Ok(())
}

/// Writes the opening balance of an account that no other transaction has seen, as a ledger entry
/// with that reason.
pub async fn open_balance(
    tx: &mut PgConnection,
    user: UserId,
    cents: i64,
    reason: &'static str,
    request_id: Uuid,
) -> Result<(), Error> {
    let key = IdempotencyKey::generate();
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

//! The baskets of accounts. A basket's content is text that starts with the token of its version;
//! what else it says is up to the pages.
//!
//! Guarantees: of two changes that were made from the same content, one is refused; an order clears
//! the basket that it was placed for, and no other. Tests: `tests/pages/account_basket.rs`.

use futures_util::FutureExt as _;

use super::failure::Error;
use super::{Shop, UserId};

/// Returns the content of the account's basket; `None` if nothing was kept yet, or it was ordered.
pub async fn read(shop: &Shop, user: UserId) -> Result<Option<String>, Error> {
    let read = shop.pool.read(move |db| {
        sqlx::query_scalar!("select content from baskets where user_id = $1", user.0)
            .fetch_optional(db)
            .boxed()
    });
    Ok(read.await?.0)
}

/// Replaces the content that was read. Returns `false`, and changes nothing, if it is another one
/// by now.
pub async fn replace(
    shop: &Shop,
    user: UserId,
    old: Option<&str>,
    new: &str,
) -> Result<bool, Error> {
    let mut connection = shop.connection().await?;

    let replaced = match old {
        Some(old) => {
            sqlx::query!(
                "update baskets set content = $3, updated_at = now()
                  where user_id = $1 and content = $2",
                user.0,
                old,
                new,
            )
            .execute(&mut *connection)
            .await?
        }
        None => {
            sqlx::query!(
                "insert into baskets (user_id, content) values ($1, $2)
                 on conflict (user_id) do nothing",
                user.0,
                new,
            )
            .execute(&mut *connection)
            .await?
        }
    };

    Ok(replaced.rows_affected() > 0)
}

/// Clears the basket of that token. One that was filled since then has another token, and stays.
pub async fn clear(shop: &Shop, user: UserId, token: &str) -> Result<(), Error> {
    sqlx::query!(
        "delete from baskets where user_id = $1 and split_part(content, '.', 1) = $2",
        user.0,
        token,
    )
    .execute(&mut *shop.connection().await?)
    .await?;
    Ok(())
}

//! Queries of users, for admins. The users of the lab are left out: a person cannot sign in as one.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::text_search::containing;
use crate::failure::Error;
use crate::users::LAB_NAME_PREFIX;
use crate::{Shop, UserId, names};

/// A user as an admin sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserAccount {
    /// The user name.
    pub user: String,
    pub admin: bool,
    /// Since when the user is disabled, and cannot sign in; null if the user is not.
    #[serde(with = "time::serde::rfc3339::option")]
    pub disabled_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The balance, in cents.
    pub balance_cents: i64,
    /// The number of sessions that have not ended.
    pub sessions: i64,
}

macro_rules! accounts {
    ($rows:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            UserAccount,
            r#"select name as "user", admin, disabled_at, created_at,
                      coalesce((select balance_cents from accounts where user_id = u.id), 0)
                          as "balance_cents!",
                      (select count(*) from sessions s
                        where s.user_id = u.id and s.expires_at > clock_timestamp()) as "sessions!"
                 from users u "# + $rows,
            $($argument),+
        )
    };
}

/// Returns the users whose name contains `search`, in any case, by name, after `after`.
pub async fn list(
    shop: &Shop,
    search: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<UserAccount>, Error> {
    // Also characters that Postgres refuses.
    let pattern = name_pattern(search).zip(names::part_of_user_name(after));
    let Some((pattern, after)) = pattern else { return Ok(Vec::new()) };

    let users = accounts!(
        "where name > $1 and name ~ $2 and lab_account_of is null
           and not starts_with(name, $3)
         order by name limit $4",
        after,
        pattern,
        LAB_NAME_PREFIX,
        limit,
    );
    Ok(users.fetch_all(&mut *shop.connection().await?).await?)
}

/// Returns [`containing`] for the names of users; `None` if no name contains the part.
pub(super) fn name_pattern(part: &str) -> Option<String> {
    containing(&names::part_of_user_name(part.trim())?)
}

/// Returns a user by name, in any case.
pub async fn find(shop: &Shop, name: &str) -> Result<Option<(UserId, UserAccount)>, Error> {
    let Some(id) = id(shop, name).await? else { return Ok(None) };
    let account = account(&mut *shop.connection().await?, id).await?;
    let account = account.filter(|account| !account.user.starts_with(LAB_NAME_PREFIX));
    Ok(account.map(|account| (id, account)))
}

/// Returns the id of a user by name, in any case; also of one of the lab.
pub async fn id(shop: &Shop, name: &str) -> Result<Option<UserId>, Error> {
    let Some(name) = names::user_name(name) else { return Ok(None) };
    Ok(sqlx::query_scalar!(r#"select id as "id: UserId" from users where name = $1"#, name)
        .fetch_optional(&mut *shop.connection().await?)
        .await?)
}

pub(crate) async fn account(
    db: &mut PgConnection,
    user: UserId,
) -> sqlx::Result<Option<UserAccount>> {
    accounts!("where id = $1 and lab_account_of is null", user.0).fetch_optional(db).await
}

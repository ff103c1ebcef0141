//! Sessions of signed-in users.
//!
//! Guarantees: of a session's token only the SHA-256 is stored; a session that begins while its
//! user's password changes or its user is disabled does not survive that (the two wait for each
//! other on the row of the user); a disabled user has no session. A replica may know an ended
//! session for a few seconds more. Tests: `tests/it/sessions.rs`, `tests/it/passwords.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::failure::Error;
use super::{Shop, UserId};
use crate::db::Pool;

const SESSION_DAYS: i32 = 30;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionToken {
    /// Token to send as `Authorization: Bearer <token>`.
    pub token: String,
    /// End of the session.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub id: UserId,
    /// For a student of a class the nickname.
    pub name: String,
    pub admin: bool,
    pub is_student: bool,
    /// Token that a form of this session must contain.
    pub csrf: String,
    pub expires_at: OffsetDateTime,
}

impl Caller {
    /// Returns the name with which the user signs in: a student of a class has none.
    pub fn account_name(&self) -> Option<&str> {
        (!self.is_student).then_some(self.name.as_str())
    }
}

/// Identifies a session to its user: half of the token's hash, from which the token does not
/// follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Session {
    /// Identifies the session; the token does not follow from it.
    pub id: SessionId,
    /// Time of the sign-in.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// End of the session.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// True for the session of this request.
    pub current: bool,
}

impl SessionId {
    pub fn of(token: &str) -> Self {
        Self::from_hash(&hash(token))
    }

    fn from_hash(hash: &[u8]) -> Self {
        let mut id = [0; 16];
        id.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
        Self(Uuid::from_bytes(id))
    }
}

/// Begins a session for a user, without authentication: that is up to the caller.
pub async fn begin(connection: &mut PgConnection, user: UserId) -> Result<SessionToken, Error> {
    let session = insert(connection, user, None).await?;
    session.ok_or_else(|| Error::Bug(format!("no session: user {} is disabled", user.0)))
}

/// Begins a session for a user whose password was verified against `verified_hash`, if given;
/// `None` if the password was changed since or the user is disabled.
pub(super) async fn insert(
    connection: &mut PgConnection,
    user: UserId,
    verified_hash: Option<&str>,
) -> Result<Option<SessionToken>, Error> {
    let token = random_token()?;

    // `for share` waits for a change of the user, and such a change waits for this insert.
    let expires_at = sqlx::query_scalar!(
        "insert into sessions (token_hash, user_id, csrf, expires_at)
         select $1::bytea, u.id, $2::text, now() + make_interval(days => $3)
           from users u
          where u.id = $4 and u.disabled_at is null
            and ($5::text is null or u.password_hash = $5)
            for share of u
         returning expires_at",
        &hash(&token),
        random_token()?,
        SESSION_DAYS,
        user.0,
        verified_hash,
    )
    .fetch_optional(connection)
    .await?;

    Ok(expires_at.map(|expires_at| SessionToken { token, expires_at }))
}

/// Returns the user of a session; `None` if it is unknown or has expired, or its user is disabled.
pub async fn find(shop: &Shop, token: &str) -> Result<Option<Caller>, Error> {
    let hash = hash(token);

    let read = shop.pool.read(move |db| {
        let hash = hash.clone();
        async move {
            let caller = sqlx::query_as!(
                Caller,
                r#"select u.id as "id: UserId", coalesce(u.nickname, u.name) as "name!", u.admin,
                          u.nickname is not null as "is_student!", s.csrf, s.expires_at
                     from sessions s join users u on u.id = s.user_id
                    where s.token_hash = $1 and s.expires_at > clock_timestamp()
                      and u.disabled_at is null"#,
                &hash,
            );
            caller.fetch_optional(db).await
        }
        .boxed()
    });
    Ok(read.await?.0)
}

/// Lists a user's sessions, the latest first, from behind `after`; from the start if that session
/// has ended. `token` is that of the request.
pub async fn list(
    shop: &Shop,
    user: UserId,
    token: &str,
    after: Option<SessionId>,
    limit: i64,
) -> Result<Vec<Session>, Error> {
    let after = after.map(|id| id.0.as_bytes().to_vec());

    let rows = sqlx::query!(
        "select token_hash, created_at, expires_at from sessions
          where user_id = $1 and expires_at > clock_timestamp()
            and coalesce((created_at, token_hash) < (
                select a.created_at, a.token_hash from sessions a
                 where a.user_id = $1 and substring(a.token_hash from 1 for 16) = $2::bytea), true)
          order by created_at desc, token_hash desc limit $3",
        user.0,
        after,
        limit,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;

    let current = SessionId::of(token);
    let sessions = rows.into_iter().map(|row| {
        let id = SessionId::from_hash(&row.token_hash);
        Session {
            id,
            created_at: row.created_at,
            expires_at: row.expires_at,
            current: id == current,
        }
    });
    Ok(sessions.collect())
}

pub async fn sign_out(shop: &Shop, token: &str) -> Result<(), Error> {
    sqlx::query!("delete from sessions where token_hash = $1", &hash(token))
        .execute(&mut *shop.connection().await?)
        .await?;
    Ok(())
}

pub async fn end(shop: &Shop, user: UserId, id: SessionId) -> Result<bool, Error> {
    let ended = sqlx::query!(
        "delete from sessions
          where user_id = $1 and substring(token_hash from 1 for 16) = $2::bytea",
        user.0,
        &id.0.as_bytes()[..],
    )
    .execute(&mut *shop.connection().await?)
    .await?;
    Ok(ended.rows_affected() > 0)
}

pub(super) async fn end_all(
    connection: &mut PgConnection,
    user: UserId,
    kept: Option<&str>,
) -> Result<(), Error> {
    let kept = kept.map(hash);

    sqlx::query!(
        "delete from sessions
          where user_id = $1 and ($2::bytea is null or token_hash <> $2)",
        user.0,
        kept,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub async fn end_by_name(connection: &mut PgConnection, names: &str) -> Result<(), Error> {
    sqlx::query!(
        "delete from sessions s using users u where u.id = s.user_id and starts_with(u.name, $1)",
        names,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes up to `limit` expired sessions, in the order of the index on their end. (That index
/// can't be used with `clock_timestamp()`, which is volatile.)
pub async fn purge(pool: &Pool, limit: i64) -> Result<u64, Error> {
    let purged = sqlx::query!(
        "delete from sessions where token_hash = any(array(
            select token_hash from sessions where expires_at <= now()
             order by expires_at limit $1))",
        limit,
    )
    .execute(&mut *pool.acquire().await?)
    .await?;
    Ok(purged.rows_affected())
}

fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token).to_vec()
}

fn random_token() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Bug(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

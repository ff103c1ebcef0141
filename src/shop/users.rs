//! Users, passwords and sessions.
//!
//! Guarantees: a password is stored only as its argon2id hash, a session's token only as its
//! SHA-256; rejecting an unknown name takes as long as rejecting a wrong password. Hashing is slow
//! by design, so `MAX_CONCURRENT_HASHES` bounds its threads: many sign-ins must not stall orders.

use std::sync::LazyLock;

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, PasswordHash};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use utoipa::ToSchema;
use uuid::Uuid;

use super::failure::{Error, Failure, Rejection, StoredResponse};
use super::{Shop, UserId};
use crate::db::{self, Pool};

/// Lifetime of a session, in days.
const SESSION_DAYS: i32 = 30;
const MAX_NAME_LENGTH: usize = 64;
const MAX_CONCURRENT_HASHES: usize = 2;
/// Prefix of the names of the lab's users, reserved for them.
pub const LAB_NAME_PREFIX: &str = "lab-";
static HASH_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_HASHES);

/// Hash that a password is compared with if the name is unknown. No user has it.
static DUMMY_HASH: LazyLock<String> =
    LazyLock::new(|| hash("nobody's password").unwrap_or_default());

/// A name and a password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// 1 to 64 of `a-z0-9._-`.
    #[schema(example = "alice", pattern = "^[a-z0-9._-]{1,64}$")]
    pub user: String,
    /// 3 to 256 characters.
    #[schema(example = "alice", min_length = 3, max_length = 256)]
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A created user.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedUser {
    /// The user's id.
    pub id: UserId,
    /// The name.
    pub user: String,
}

/// A new session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
    pub name: String,
    pub admin: bool,
    /// Token that a form of this session must contain.
    pub csrf: String,
    pub expires_at: OffsetDateTime,
}

/// Creates a user with an empty account.
pub async fn create(
    pool: &Pool,
    credentials: Credentials,
    admin: bool,
) -> Result<StoredResponse, Failure> {
    check_credentials(&credentials)?;
    if credentials.user.starts_with(LAB_NAME_PREFIX) {
        let why = format!("names that begin with {LAB_NAME_PREFIX} are the lab's");
        return Err(Rejection::Invalid("user".into(), why).into());
    }
    let hash = hash_password(credentials.password).await?;
    let mut connection = pool.acquire().await?;
    let mut tx = connection.begin().await?;
    let Some(id) = insert(&mut tx, &credentials.user, &hash, admin).await? else {
        tx.rollback().await?;
        return Err(Rejection::Exists(format!("there is a user {}", credentials.user)).into());
    };
    tx.commit().await?;
    Ok(StoredResponse::json(201, &CreatedUser { id, user: credentials.user })?)
}

/// Inserts a user and the account; `None` if the name is taken.
pub async fn insert(
    tx: &mut PgConnection,
    name: &str,
    password_hash: &str,
    admin: bool,
) -> Result<Option<UserId>, Error> {
    let id = Uuid::now_v7();
    let inserted = sqlx::query!(
        "insert into users (id, name, password_hash, admin) values ($1, $2, $3, $4)",
        id,
        name,
        password_hash,
        admin,
    )
    .execute(&mut *tx)
    .await;
    match inserted {
        Err(error) if db::violates(&error, "users_name_key") => return Ok(None),
        other => other?,
    };
    sqlx::query!("insert into accounts (user_id) values ($1)", id).execute(tx).await?;
    Ok(Some(UserId(id)))
}

/// Ends all sessions of users whose names begin with `names`.
pub async fn end_sessions(db: &mut PgConnection, names: &str) -> Result<(), Error> {
    sqlx::query!(
        "delete from sessions s using users u where u.id = s.user_id and starts_with(u.name, $1)",
        names,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Begins a session; `None` if name or password is wrong, without distinguishing them.
pub async fn sign_in(shop: &Shop, credentials: Credentials) -> Result<Option<SessionToken>, Error> {
    // An impossible name is replaced by null, and rejected as slowly as any other.
    let name = check_credentials(&credentials).is_ok().then_some(credentials.user);
    let user = sqlx::query!("select id, password_hash from users where name = $1", name)
        .fetch_optional(&mut *shop.connection().await?)
        .await?;
    let (id, hash) = user.map(|user| (user.id, user.password_hash)).unzip();
    let matches = verify_password(credentials.password, hash).await?;
    let (Some(id), true) = (id, matches) else { return Ok(None) };
    begin_session(&mut *shop.connection().await?, UserId(id)).await.map(Some)
}

/// Begins a session for a user, without authentication: that is up to the caller.
pub async fn begin_session(
    connection: &mut PgConnection,
    user: UserId,
) -> Result<SessionToken, Error> {
    let token = random_token()?;
    let csrf = random_token()?;
    let expires_at = sqlx::query_scalar!(
        "insert into sessions (token_hash, user_id, csrf, expires_at)
         values ($1, $2, $3, now() + make_interval(days => $4))
         returning expires_at",
        &Sha256::digest(&token)[..],
        user.0,
        csrf,
        SESSION_DAYS,
    )
    .fetch_one(connection)
    .await?;
    Ok(SessionToken { token, expires_at })
}

/// Returns the user of a session; `None` if it is unknown or has expired.
pub async fn session(shop: &Shop, token: &str) -> Result<Option<Caller>, Error> {
    let row = sqlx::query!(
        "select u.id, u.name, u.admin, s.csrf, s.expires_at
           from sessions s join users u on u.id = s.user_id
          where s.token_hash = $1 and s.expires_at > clock_timestamp()",
        &Sha256::digest(token)[..],
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    Ok(row.map(|row| Caller {
        id: UserId(row.id),
        name: row.name,
        admin: row.admin,
        csrf: row.csrf,
        expires_at: row.expires_at,
    }))
}

pub async fn sign_out(shop: &Shop, token: &str) -> Result<(), Error> {
    sqlx::query!("delete from sessions where token_hash = $1", &Sha256::digest(token)[..])
        .execute(&mut *shop.connection().await?)
        .await?;
    Ok(())
}

/// Deletes up to `limit` expired sessions, in the order of the index on their end. (That index
/// can't be used with `clock_timestamp()`, which is volatile.)
pub async fn purge_sessions(pool: &Pool, limit: i64) -> Result<u64, Error> {
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

/// Hashes a password on a blocking thread. Fails with [`Error::Bug`].
pub async fn hash_password(password: String) -> Result<String, Error> {
    run_blocking(move || hash(&password)).await?
}

/// Verifies a password, against a dummy hash if there is none.
async fn verify_password(password: String, hash: Option<String>) -> Result<bool, Error> {
    run_blocking(move || {
        PasswordHash::new(hash.as_ref().unwrap_or(&DUMMY_HASH))
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    })
    .await
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let bug = |error: &dyn std::fmt::Display| Error::Bug(error.to_string());
    let permit = HASH_PERMITS.acquire().await.map_err(|error| bug(&error))?;
    // The permit moves into the task: a cancelled caller does not free the slot early.
    let hashing = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    hashing.await.map_err(|error| bug(&error))
}

fn hash(password: &str) -> Result<String, Error> {
    Argon2::default()
        .hash_password(password.as_bytes())
        .map(|hash| hash.to_string())
        .map_err(|error| Error::Bug(error.to_string()))
}

/// Returns 256 random bits as text.
fn random_token() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Bug(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns whether a name is valid: 1 to [`MAX_NAME_LENGTH`] characters of `a-z0-9._-`.
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(allowed)
}

fn check_credentials(credentials: &Credentials) -> Result<(), Rejection> {
    if !is_valid_name(&credentials.user) {
        let why = format!("1 to {MAX_NAME_LENGTH} of a-z, 0-9, dot, dash and underscore");
        return Err(Rejection::Invalid("user".into(), why));
    }
    if !(3..=256).contains(&credentials.password.chars().count()) {
        return Err(Rejection::Invalid("password".into(), "3 to 256 characters".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_short_and_plain() {
        let longest = "a".repeat(MAX_NAME_LENGTH);
        for name in ["a", "lab-7", "dora.the_2nd", &longest] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in ["", "Dora", "dora smith", "dora@home", "dör", &format!("{longest}a")] {
            assert!(!is_valid_name(name), "{name}");
        }
    }
}

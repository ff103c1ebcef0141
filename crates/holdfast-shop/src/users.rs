//! Users and their passwords.
//!
//! Guarantees: a password is stored only as its argon2id hash; rejecting an unknown name or a
//! disabled user takes as long as rejecting a wrong password, and only who knows the password
//! learns that a user is disabled; a changed password ends the user's other sessions. Tests:
//! `tests/it/passwords.rs`.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::sync::OnceCell;
use utoipa::ToSchema;
use uuid::Uuid;

use super::failure::{Error, Failure, Rejection, StoredResponse};
use super::sessions::{self, SessionToken};
use super::store::accounts::open_balance;
use super::{Shop, UserId, names, passwords};
use crate::db::Pool;
use holdfast_base::messages::message;

pub const MAX_PASSWORD_LENGTH: usize = 256;
/// Credit of a user who signs up: enough for a first purchase.
pub const WELCOME_CENTS: i64 = 10_000;
pub const LAB_NAME_PREFIX: &str = "lab-";
/// How the names of students begin, whose nicknames people see.
pub(super) const CLASS_NAME_PREFIX: &str = "class-";

#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// 1 to 64 of `a-z0-9._-`; `Alice` is `alice`.
    #[schema(example = "alice", pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub user: String,
    /// A new one: 8 to 256 characters, unless the shop has another minimum.
    #[schema(example = "alice", min_length = 3, max_length = 256)]
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A change of a password. Not `Debug`: it contains passwords.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The current password.
    pub old: String,
    /// The new password: 8 to 256 characters, unless the shop has another minimum.
    pub new: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedUser {
    pub id: UserId,
    /// The name as it is stored: in small letters.
    pub user: String,
}

/// Creates a user; one who signs up, by the request `welcome`, with [`WELCOME_CENTS`] on the
/// account. The password has at least `min_length` characters.
pub async fn create(
    pool: &Pool,
    credentials: Credentials,
    admin: bool,
    welcome: Option<Uuid>,
    min_length: u16,
) -> Result<StoredResponse, Failure> {
    let (user, hash) = check_credentials(credentials, min_length).await?;

    let mut tx = pool.begin().await?;
    let Some(id) = insert(&mut tx, &user, &hash, admin).await? else {
        return Err(Rejection::Exists(message!("problem-user-exists", user)).into());
    };
    if let Some(request_id) = welcome {
        open_balance(&mut tx, id, WELCOME_CENTS, "welcome", request_id).await?;
    }
    tx.commit().await?;

    Ok(StoredResponse::json(201, &CreatedUser { id, user })?)
}

/// Returns the name as it is stored, and the hash of the password.
async fn check_credentials(
    credentials: Credentials,
    min_length: u16,
) -> Result<(String, String), Failure> {
    let Some(name) = names::user_name(&credentials.user) else {
        let why = message!("problem-user-name", most = names::MAX_NAME_LENGTH);
        return Err(Rejection::invalid("user", why).into());
    };
    check_new_password("password", &credentials.password, min_length)?;
    for (prefix, of) in [(LAB_NAME_PREFIX, "lab"), (CLASS_NAME_PREFIX, "class")] {
        if name.starts_with(prefix) {
            let why = message!("problem-reserved-name", prefix, of);
            return Err(Rejection::invalid("user", why).into());
        }
    }
    let hash = passwords::hash(credentials.password).await?;
    Ok((name, hash))
}

pub async fn insert(
    tx: &mut PgConnection,
    name: &str,
    password_hash: &str,
    admin: bool,
) -> Result<Option<UserId>, Error> {
    let id = Uuid::now_v7();

    // Not by the violated constraint, which Postgres would log as an error for each attempt.
    let inserted = sqlx::query!(
        "insert into users (id, name, password_hash, admin) values ($1, $2, $3, $4)
         on conflict (name) do nothing",
        id,
        name,
        password_hash,
        admin,
    )
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(None);
    }

    sqlx::query!("insert into accounts (user_id) values ($1)", id).execute(tx).await?;
    Ok(Some(UserId(id)))
}

/// Returns the lab's user `name`, who has no known password; creates the user if there is none, in
/// the caller's transaction. `None` if a user of that name exists with a different `admin`.
pub async fn find_or_create_lab_user(
    tx: &mut PgConnection,
    name: &str,
    admin: bool,
) -> Result<Option<UserId>, Error> {
    let hash = unknown_password_hash().await?;
    if let Some(id) = insert(tx, name, hash, admin).await? {
        return Ok(Some(id));
    }

    let user =
        sqlx::query!("select id, admin from users where name = $1", name).fetch_one(tx).await?;
    Ok((user.admin == admin).then_some(UserId(user.id)))
}

/// Returns the hash of a random password that is discarded.
pub(super) async fn unknown_password_hash() -> Result<&'static str, Error> {
    static HASH: OnceCell<String> = OnceCell::const_new();
    let hash = HASH.get_or_try_init(|| passwords::hash(Uuid::new_v4().to_string())).await?;
    Ok(hash)
}

/// The result of signing in.
#[derive(Debug)]
pub enum SignIn {
    Session(SessionToken),
    /// Wrong name or password, without distinguishing them.
    Wrong,
    /// Both are right, and an admin has disabled the user.
    Disabled,
}

/// Begins a session, unless name or password is wrong or the user is disabled.
pub async fn sign_in(shop: &Shop, credentials: Credentials) -> Result<SignIn, Error> {
    let Credentials { user, password } = credentials;

    // An impossible name is replaced by null, and rejected as slowly as any other.
    let is_possible = passwords::length(&password) <= MAX_PASSWORD_LENGTH;
    let name = names::user_name(&user).filter(|_| is_possible);
    let user = sqlx::query!(
        r#"select id, password_hash, disabled_at is not null as "is_disabled!"
             from users where name = $1"#,
        name,
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;

    // Also without a user: the time of the response must not say which names exist.
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    let matches = passwords::verify(password, hash).await?;
    let Some(user) = user.filter(|_| matches) else { return Ok(SignIn::Wrong) };
    // Only to a client that knows the password.
    if user.is_disabled {
        return Ok(SignIn::Disabled);
    }

    let (id, hash) = (UserId(user.id), &user.password_hash);
    let session = sessions::insert(&mut *shop.connection().await?, id, Some(hash)).await?;
    Ok(session.map_or(SignIn::Wrong, SignIn::Session))
}

pub async fn change_password(
    shop: &Shop,
    user: UserId,
    token: &str,
    change: PasswordChange,
    min_length: u16,
) -> Result<(), Failure> {
    check_new_password("new", &change.new, min_length)?;

    let old_hash = sqlx::query_scalar!("select password_hash from users where id = $1", user.0)
        .fetch_one(&mut *shop.connection().await?)
        .await?;
    if !passwords::verify(change.old, Some(old_hash.clone())).await? {
        return Err(wrong_password().into());
    }

    // Two slow hashes, and no transaction open for that time: the update compares the old one.
    let new_hash = passwords::hash(change.new).await?;
    let mut tx = shop.pool.begin().await?;
    let updated = sqlx::query!(
        "update users set password_hash = $3 where id = $1 and password_hash = $2",
        user.0,
        old_hash,
        new_hash,
    )
    .execute(&mut *tx)
    .await?;
    if updated.rows_affected() == 0 {
        // Changed by another request since it was read.
        tx.rollback().await?;
        return Err(wrong_password().into());
    }

    // A statement of its own, to see the sessions for which the update has waited.
    sessions::end_all(&mut tx, user, Some(token)).await?;
    tx.commit().await?;
    Ok(())
}

fn wrong_password() -> Rejection {
    Rejection::invalid("old", message!("problem-wrong-password"))
}

/// Sets a user's password and ends the user's sessions. Returns whether the user is disabled, and
/// stays so.
pub async fn set_password(
    pool: &Pool,
    name: &str,
    password: String,
    min_length: u16,
) -> Result<bool, Failure> {
    let hash = hash_new_password("password", password, min_length).await?;
    let mut tx = pool.begin().await?;
    let is_disabled = set_password_in(&mut tx, &stored_name(name)?, &hash).await?;
    tx.commit().await?;
    Ok(is_disabled)
}

/// Returns the hash of a new password, given in that field. It takes long: callers have no
/// transaction open.
pub(super) async fn hash_new_password(
    field: &'static str,
    password: String,
    min_length: u16,
) -> Result<String, Failure> {
    check_new_password(field, &password, min_length)?;
    Ok(passwords::hash(password).await?)
}

pub(super) async fn set_password_in(
    tx: &mut PgConnection,
    name: &str,
    hash: &str,
) -> Result<bool, Failure> {
    let user = sqlx::query!(
        r#"update users set password_hash = $2 where name = $1 and lab_account_of is null
           returning id, disabled_at is not null as "disabled!""#,
        name,
        hash,
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| unknown_user(name))?;

    sessions::end_all(tx, UserId(user.id), None).await?;
    Ok(user.disabled)
}

/// Disables a user and ends the user's sessions. Orders, account and ledgers stay.
pub async fn disable(pool: &Pool, name: &str) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    disable_in(&mut tx, &stored_name(name)?).await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn disable_in(tx: &mut PgConnection, name: &str) -> Result<(), Failure> {
    let id = sqlx::query_scalar!(
        "update users set disabled_at = coalesce(disabled_at, now())
          where name = $1 and lab_account_of is null returning id",
        name,
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| unknown_user(name))?;
    Ok(sessions::end_all(tx, UserId(id), None).await?)
}

pub async fn enable(pool: &Pool, name: &str) -> Result<(), Failure> {
    enable_in(&mut *pool.acquire().await?, &stored_name(name)?).await
}

pub(super) async fn enable_in(connection: &mut PgConnection, name: &str) -> Result<(), Failure> {
    let enabled = sqlx::query!(
        "update users set disabled_at = null where name = $1 and lab_account_of is null",
        name,
    )
    .execute(connection)
    .await?;
    if enabled.rows_affected() == 0 {
        return Err(unknown_user(name).into());
    }
    Ok(())
}

pub(super) fn unknown_user(name: &str) -> Rejection {
    Rejection::NotFound(message!("problem-missing-user", name))
}

fn stored_name(typed: &str) -> Result<String, Rejection> {
    names::user_name(typed).ok_or_else(|| unknown_user(typed))
}

fn check_new_password(
    field: &'static str,
    password: &str,
    min_length: u16,
) -> Result<(), Rejection> {
    let lengths = usize::from(min_length)..=MAX_PASSWORD_LENGTH;
    if lengths.contains(&passwords::length(password)) {
        Ok(())
    } else {
        let why = message!("problem-length", least = min_length, most = MAX_PASSWORD_LENGTH);
        Err(Rejection::invalid(field, why))
    }
}

//! What an admin changes of another user: disabled or not, the sessions, the password.
//!
//! Guarantees: each change is executed once per idempotency key, with its entry in the admin log;
//! of two admins who disable each other at once one succeeds, and an admin cannot change the own
//! user here, so an enabled admin always remains; a password leaves nothing in the database but its
//! hash in `users`.
//! Tests: `tests/it/admin_users.rs`.

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::{Execution, Failure, Rejection, StoredResponse};
use super::idempotency::{IdempotencyRequest, Operation};
use super::model::{AdminAction, AdminEntry};
use super::query::users::{UserAccount, account};
use super::store::admin_changes;
use super::{IdempotencyKey, Shop, UserId, sessions, users};
use holdfast_base::messages::message;

/// The admin, the user that is changed, and the request.
#[derive(Debug, Clone)]
pub struct UserCommand {
    pub admin: UserId,
    pub user: UserId,
    /// The name of that user.
    pub name: String,
    pub key: IdempotencyKey,
    pub request_id: Uuid,
}

impl UserCommand {
    fn request(&self, operation: fn(String) -> Operation, content: &str) -> IdempotencyRequest {
        let operation = operation(self.name.clone());
        IdempotencyRequest::new(self.admin, operation, Some(self.key.clone()), content)
    }
}

/// Disables a user, whose sessions end, or enables one again.
pub async fn set_disabled(
    shop: &Shop,
    command: &UserCommand,
    disabled: bool,
) -> Result<Execution, Failure> {
    let request =
        command.request(Operation::DisableUser, if disabled { "disable" } else { "enable" });
    let action = if disabled { AdminAction::DisableUser } else { AdminAction::EnableUser };

    change_account(shop, command, &request, action, async |tx| match disabled {
        true => users::disable_in(tx, &command.name).await,
        false => users::enable_in(tx, &command.name).await,
    })
    .await
}

pub async fn end_sessions(shop: &Shop, command: &UserCommand) -> Result<Execution, Failure> {
    let request = command.request(Operation::EndSessions, "");
    change_account(shop, command, &request, AdminAction::EndSessions, async |tx| {
        Ok(sessions::end_all(tx, command.user, None).await?)
    })
    .await
}

/// Sets a user's password, given in the field `new`; the sessions end.
pub async fn reset_password(
    shop: &Shop,
    command: &UserCommand,
    new: String,
    min_length: u16,
) -> Result<Execution, Failure> {
    let hash = users::hash_new_password("new", new, min_length).await?;

    // The key record must not depend on the password: its fingerprint is a fast hash, from which a
    // short one could be guessed.
    let request = command.request(Operation::SetPassword, "");
    change_account(shop, command, &request, AdminAction::SetPassword, async |tx| {
        users::set_password_in(tx, &command.name, &hash).await.map(drop)
    })
    .await
}

async fn change_account(
    shop: &Shop,
    command: &UserCommand,
    request: &IdempotencyRequest,
    action: AdminAction,
    change: impl AsyncFnOnce(&mut PgConnection) -> Result<(), Failure>,
) -> Result<Execution, Failure> {
    if command.user == command.admin {
        return Err(Rejection::invalid("user", message!("problem-own-account")).into());
    }

    admin_changes::change_once(&shop.pool, request, command.request_id, async |tx| {
        lock_both(tx, command).await?;

        let before = read(tx, command).await?;
        change(tx).await?;
        let after = read(tx, command).await?;

        let facts = |account: &UserAccount| match before.disabled_at == after.disabled_at {
            true => json!({}),
            false => json!({ "disabled": account.disabled_at.is_some() }),
        };
        let entry = AdminEntry {
            action,
            // The id: a name may change.
            subject: command.user.0.to_string(),
            before: facts(&before),
            after: facts(&after),
        };
        Ok((StoredResponse::json(200, &after)?, entry))
    })
    .await
}

/// Locks the rows of both users, and checks that the first is an admin still: the two of whom each
/// disables the other come here one after the other.
async fn lock_both(tx: &mut PgConnection, command: &UserCommand) -> Result<(), Failure> {
    let locked = sqlx::query!(
        r#"select id as "id: UserId", admin and disabled_at is null as "may!"
             from users where id = any($1) order by id for no key update"#,
        &[command.admin, command.user] as &[UserId],
    )
    .fetch_all(tx)
    .await?;

    let may = locked.iter().any(|user| user.id == command.admin && user.may);
    if may { Ok(()) } else { Err(Rejection::AdminOnly.into()) }
}

async fn read(tx: &mut PgConnection, command: &UserCommand) -> Result<UserAccount, Failure> {
    let account = account(tx, command.user).await?;
    account.ok_or_else(|| users::unknown_user(&command.name).into())
}

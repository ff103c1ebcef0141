//! Applies the migrations, and checks that a database has them.
//!
//! Guarantees: each migration is applied completely or not at all; concurrent callers take turns; a
//! migration that waits for a lock blocks the requests behind it for at most [`LOCK_TIMEOUT`], and
//! is then rolled back and retried; a database whose migrations this program does not know is
//! rejected and stays unchanged.
//! Fails when another session holds a lock for longer than all attempts together.
//! Tests: `tests/it/migrate.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection};

use super::session::{self, SessionSettings};
use super::{Error, ErrorClass, check_encoding, classify, connect_error, options};

/// The schema, compiled into the binary.
pub static MIGRATIONS: Migrator = sqlx::migrate!();

/// A replica waits 1.5 s for the first statement on a connection, and its sessions 3 s for a lock:
/// requests that queue behind a waiting migration succeed when it gives up first.
const LOCK_TIMEOUT: &str = "1s";

/// Bounds the time that [`migrate`] waits for locks to about 30 s.
const MAX_ATTEMPTS: u32 = 20;

/// Lets the requests finish that queued behind the last attempt.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Applies the migrations that are missing.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::Refused`] or [`Error::Tls`] when Postgres cannot be used;
/// [`Error::Encoding`]; [`Error::Superseded`], [`Error::Changed`] or [`Error::Newer`] when the
/// database has other migrations than this program; [`Error::MigrationBlocked`] when another
/// session holds a lock; [`Error::Migrate`] when a migration fails. The migration that failed is
/// rolled back; those before it stay applied.
pub async fn migrate(url: &str) -> Result<(), Error> {
    let options = options(url)?;
    let connection = PgConnection::connect_with(&options).await;
    let mut connection = connection.map_err(|error| connect_error::explain(error, &options))?;
    session::check_own(&mut connection, &options).await?;
    SessionSettings::one("lock_timeout", LOCK_TIMEOUT).apply(&mut connection).await?;
    let result = match check_encoding(&mut connection).await {
        Ok(()) => apply(&mut connection).await,
        refused => refused,
    };
    // Also releases the migrator's advisory lock, which an error leaves with the session.
    let closed = connection.close().await;
    result?;
    Ok(closed?)
}

async fn apply(connection: &mut PgConnection) -> Result<(), Error> {
    for attempt in 1..=MAX_ATTEMPTS {
        match MIGRATIONS.run(&mut *connection).await {
            Err(error) if is_lock_timeout(&error) => {
                tracing::warn!("migration attempt {attempt} of {MAX_ATTEMPTS}: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            result => return result.map_err(convert_error),
        }
    }
    Err(Error::MigrationBlocked { attempts: MAX_ATTEMPTS })
}

fn is_lock_timeout(error: &MigrateError) -> bool {
    failed_statement(error).is_some_and(|error| classify(error) == ErrorClass::LockTimeout)
}

/// Returns the error of the statement that failed.
fn failed_statement(error: &MigrateError) -> Option<&sqlx::Error> {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Some(error),
        _ => None,
    }
}

fn convert_error(error: MigrateError) -> Error {
    if let Some(refusal) = failed_statement(&error).and_then(connect_error::explain_refusal) {
        return refusal;
    }
    match error {
        MigrateError::VersionMissing(version) if is_superseded(version) => Error::Superseded,
        MigrateError::VersionMissing(version) => Error::Newer(version),
        MigrateError::VersionMismatch(version) => Error::Changed(version),
        error => Error::Migrate(error),
    }
}

/// Returns whether the migration is older than the first one of this program.
fn is_superseded(version: i64) -> bool {
    MIGRATIONS.iter().next().is_some_and(|first| version < first.version)
}

/// Checks that all migrations are applied; fails with [`Error::Superseded`] (a database of the
/// first version), [`Error::Changed`] (a migration had another text) or [`Error::Schema`] (one is
/// missing). Accepts newer ones, which work while this version serves (`migrations/README.md`).
pub(super) async fn check_applied(connection: &mut PgConnection) -> Result<(), Error> {
    let applied = "select version, checksum from _sqlx_migrations where success order by version";
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as(applied).fetch_all(connection).await.map_err(|error| {
            let no_tables = || Error::Schema("the database has no tables of Holdfast".to_owned());
            connect_error::explain_refusal(&error).unwrap_or_else(no_tables)
        })?;
    let applied: BTreeMap<i64, Vec<u8>> = applied.into_iter().collect();
    if applied.keys().any(|version| is_superseded(*version)) {
        return Err(Error::Superseded);
    }
    if let Some(newer) = applied.keys().find(|version| !MIGRATIONS.version_exists(**version)) {
        tracing::warn!("the database has migration {newer}, which is newer than this program");
    }
    for migration in MIGRATIONS.iter() {
        match applied.get(&migration.version) {
            None => {
                return Err(Error::Schema(format!("migration {} is missing", migration.version)));
            }
            Some(checksum) if *checksum != *migration.checksum => {
                return Err(Error::Changed(migration.version));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

//! Applies the migrations, and checks that a database has them.
//!
//! Guarantees: each migration is applied completely or not at all; concurrent callers take turns; a
//! database with other migrations than this program's is rejected and stays unchanged.
//! Tests: `tests/it/migrate.rs`.

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection};

use super::connect::connect;
use super::connect_error;
use super::error::Error;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Of each statement, and of the wait for another `migrate`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Applies the migrations that are missing. One that fails is rolled back; those before it stay.
pub async fn migrate(url: &str) -> Result<(), Error> {
    let mut connection = connect(url, Some(TIMEOUT)).await?;
    let result = MIGRATIONS.run(&mut connection).await.map_err(convert_error);
    // Also releases the migrator's advisory lock, which an error leaves with the session.
    let closed = connection.close().await;
    result?;
    Ok(closed?)
}

/// Returns the text of each migration, in their order.
pub fn migration_texts() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().map(|migration| migration.sql.as_str())
}

fn convert_error(error: MigrateError) -> Error {
    match &error {
        MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) => Error::OtherBuild,
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) => {
            connect_error::explain_refusal(cause).unwrap_or(Error::Migrate(error))
        }
        _ => Error::Migrate(error),
    }
}

/// Checks that exactly this program's migrations are applied; fails with [`Error::OtherBuild`] or,
/// if one is missing, [`Error::Schema`].
pub(super) async fn check_applied(connection: &mut PgConnection) -> Result<(), Error> {
    let query = "select version, checksum from _sqlx_migrations where success order by version";
    let read = sqlx::query_as(query).fetch_all(connection).await;
    let applied: Vec<(i64, Vec<u8>)> = read.map_err(|error| {
        // Without a right, the tables may be there.
        connect_error::explain_refusal(&error)
            .unwrap_or_else(|| Error::Schema("the database has no tables of Holdfast".to_owned()))
    })?;

    let known: Vec<(i64, Vec<u8>)> =
        MIGRATIONS.iter().map(|one| (one.version, one.checksum.to_vec())).collect();
    if applied.iter().any(|one| !known.contains(one)) {
        return Err(Error::OtherBuild);
    }

    match known.iter().find(|one| !applied.contains(one)) {
        Some((version, _)) => Err(Error::Schema(format!("migration {version} is missing"))),
        None => Ok(()),
    }
}

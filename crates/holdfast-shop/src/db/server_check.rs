//! Checks at the start that the server keeps what it acknowledges, and lets this user in.

use sqlx::{Connection as _, PgConnection};

use super::connect::connect;
use super::connection::Connection;
use super::error::Error;
use super::pool::Pool;
use super::{connect_error, migrate, sequences};

/// Rejects a database that is not ready for this program: out of reach, behind a pooler that shares
/// sessions, as [`check_server`] says, or with a sequence behind its table.
pub async fn check_database(url: &str, pool: &Pool) -> Result<(), Error> {
    // One session for all checks: `connect` opens a second one beside it, to compare the two.
    let mut connection = connect(url, Some(sequences::TIMEOUT)).await?;
    check_server(pool).await?;
    sequences::reject_sequences_behind(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Rejects a server that may lose commits, lacks the schema or refuses the user.
pub async fn check_server(pool: &Pool) -> Result<(), Error> {
    let mut connection = acquire(pool).await?;
    let (commit, fsync): (String, String) =
        sqlx::query_as("select current_setting('synchronous_commit'), current_setting('fsync')")
            .fetch_one(&mut *connection)
            .await
            .map_err(|error| connect_error::explain(error, &pool.connect_options()))?;

    // synchronous_commit = off loses orders by design; a test server may turn off fsync.
    if commit == "off" {
        return Err(Error::Unsafe);
    }
    if fsync == "off" {
        tracing::warn!("Postgres runs with fsync = off: a power cut may lose everything");
    }

    check_schema(&mut connection, &["select", "insert"]).await
}

/// Rejects a database that can't be read: without the schema, or whose tables the user may not
/// read.
pub async fn check_readable(pool: &Pool) -> Result<(), Error> {
    check_schema(&mut *acquire(pool).await?, &["select"]).await
}

async fn acquire(pool: &Pool) -> Result<Connection, Error> {
    let acquired = pool.acquire().await;
    acquired.map_err(|(_, error)| connect_error::explain(error, &pool.connect_options()))
}

/// Rejects a database without the schema, and a user who lacks one of the rights on a table of
/// Holdfast, or may not read a sequence: the schema may have those of others, with other owners.
async fn check_schema(connection: &mut PgConnection, rights: &[&str]) -> Result<(), Error> {
    migrate::check_applied(connection).await?;

    // At the start the error names the table; otherwise an order would fail for it later.
    let missing: Option<String> = sqlx::query_scalar(
        "select wanted || ' on ' || string_agg(relname, ', ' order by relname)
           from pg_class, unnest($1::text[]) wanted
          where relkind in ('r', 'S')
            and (relnamespace, relowner) = (select relnamespace, relowner from pg_class
                                             where oid = to_regclass('_sqlx_migrations'))
            and relname <> '_sqlx_migrations'
            and case when relkind = 'r' then not has_table_privilege(pg_class.oid, wanted)
                     when wanted = 'select' then not has_sequence_privilege(pg_class.oid, wanted) end
          group by wanted order by wanted limit 1",
    )
    .bind(rights)
    .fetch_optional(connection)
    .await?;

    match missing {
        None => Ok(()),
        Some(missing) => Err(Error::Refused {
            cause: format!("permission denied: {missing}"),
            advice: connect_error::GRANT,
        }),
    }
}

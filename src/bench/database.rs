//! The database of a benchmark on the user's Postgres: created, marked as ours, and dropped.
//!
//! Guarantees: the database that the address names is only connected to; nothing is written where
//! [`check_own`] fails.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::timeout;

use crate::settings::BESIDE_POOL;
use holdfast_shop::db;

/// Of a statement, and of its response: Postgres writes a checkpoint to create or drop a database.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(70);
/// Start of its name.
const NAME: &str = "holdfast_bench_";
/// Start of its comment, which ends with its name: a copy under another name is not ours.
const MARK: &str = "temporary database of holdfast bench: ";
const REPLICAS: i64 = 2;
/// Size of the benchmark's own pool.
pub(super) const OWN_CONNECTIONS: u32 = 8;

#[derive(Debug)]
pub(super) struct BenchDatabase {
    server: String,
    pub(super) name: String,
    session: PgConnection,
}

/// The properties of a server that decide whether the benchmark can run.
#[derive(Debug, sqlx::FromRow)]
struct ServerProperties {
    role: String,
    may_create: bool,
    is_standby: bool,
    is_read_only: bool,
    synchronous_commit: String,
    /// Connections that the role may still open.
    free: i64,
}

impl BenchDatabase {
    /// Connects to the server of that address. Creates nothing yet.
    pub(super) async fn open(server: &str) -> anyhow::Result<Self> {
        let name = format!("{NAME}{:012x}", rand::random::<u64>() >> 16);
        let session = connect(server).await?;
        Ok(Self { server: server.to_owned(), name, session })
    }

    /// Returns its address.
    pub(super) fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    /// Fails if the server or the rights of the user are not enough for two replicas with pools of
    /// that size, and for the benchmark's own.
    pub(super) async fn check(&mut self, pool_size: u32) -> anyhow::Result<()> {
        let server: ServerProperties = sqlx::query_as(
            "select quote_ident(rolname) as role, rolcreatedb or rolsuper as may_create,
                    pg_is_in_recovery() as is_standby,
                    current_setting('transaction_read_only')::boolean as is_read_only,
                    current_setting('synchronous_commit') as synchronous_commit,
                    least(
                        current_setting('max_connections')::bigint
                            - case when rolsuper then 0 else
                                  current_setting('superuser_reserved_connections')::bigint
                                  + coalesce(current_setting('reserved_connections', true), '0')
                                      ::bigint
                              end
                            - (select sum(numbackends) from pg_stat_database)::bigint,
                        case when rolconnlimit >= 0 and not rolsuper then rolconnlimit
                            - (select count(*) from pg_stat_activity where usesysid = pg_roles.oid)
                        end
                    ) as free
               from pg_roles where rolname = current_user",
        )
        .fetch_one(&mut self.session)
        .await?;

        let ServerProperties {
            role,
            may_create,
            is_standby,
            is_read_only,
            synchronous_commit,
            free,
        } = server;
        ensure!(
            !is_standby,
            "this Postgres is a standby, which accepts no writes: name the primary in DATABASE_URL"
        );
        ensure!(
            !is_read_only,
            "the sessions of the user {role} are read-only: use another user, or a superuser resets \
             it with: alter role {role} reset default_transaction_read_only"
        );
        // The replicas would refuse it, too.
        ensure!(synchronous_commit != "off", db::Error::Unsafe);
        ensure!(
            may_create,
            "the user {role} may not create a database, and the benchmark never uses one of \
             yours. A superuser grants it with: alter role {role} createdb"
        );

        let own = i64::from(OWN_CONNECTIONS);
        let needed = REPLICAS * i64::from(pool_size + BESIDE_POOL) + own;
        if free < needed {
            let largest = (free - own) / REPLICAS - i64::from(BESIDE_POOL);
            let advice = if largest >= 1 {
                format!("Use --pool-size {largest}, or raise")
            } else {
                "Raise".to_owned()
            };
            bail!(
                "the user {role} may open {free} more connections to Postgres, and the benchmark \
                 needs {needed}: {own} of its own, and of each of its {REPLICAS} replicas \
                 {pool_size} in the pool and {BESIDE_POOL} beside it. {advice} max_connections of \
                 the server, or the limit of the role"
            );
        }
        Ok(())
    }

    /// Returns the databases of other benchmarks: of those that run, and of those that were killed.
    pub(super) async fn others(&mut self) -> anyhow::Result<Vec<String>> {
        let others = sqlx::query_scalar(
            "select datname::text from pg_database where starts_with(datname::text, $1)
              order by datname",
        );
        Ok(others.bind(NAME).fetch_all(&mut self.session).await?)
    }

    /// Creates it, without tables. Must not be cancelled: Postgres completes a statement that was
    /// sent.
    pub(super) async fn create(&mut self) -> anyhow::Result<()> {
        let name = &self.name;
        // Not from the default template, in which there may be tables and extensions.
        let create = format!(
            "create database {name} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'"
        );
        execute(&mut self.session, create).await.context("can't create a database")?;
        let mark = format!("comment on database {name} is '{MARK}{name}'");
        execute(&mut self.session, mark).await?;

        // The role may have a path of its own, to schemas that are in their database only. Like the
        // comment, the setting goes with the database.
        let path = format!("alter role current_user in database {name} set search_path = public");
        execute(&mut self.session, path).await
    }

    /// Creates the tables.
    pub(super) async fn migrate(&self) -> anyhow::Result<()> {
        let url = self.url();
        let mut session = in_time(db::connect(&url, Some(STATEMENT_TIMEOUT))).await??;
        in_time(check_own(&mut session, &self.name)).await??;
        session.close().await?;

        Ok(in_time(db::migrate(&url)).await??)
    }

    /// Drops it, if it exists. The error says what is left.
    pub(super) async fn remove(mut self) -> anyhow::Result<()> {
        // With force: the sessions of a killed replica may still be there.
        let statement = format!("drop database if exists {} with (force)", self.name);
        let mut outcome = execute(&mut self.session, statement.clone()).await;
        if outcome.is_err() {
            outcome = match connect(&self.server).await {
                Ok(mut session) => execute(&mut session, statement.clone()).await,
                Err(error) => Err(error),
            };
        }
        let _ = timeout(RESPONSE_TIMEOUT, self.session.close()).await;

        outcome.with_context(|| {
            let name = &self.name;
            format!("the database {name} may be left on your Postgres; drop it with: {statement}")
        })
    }
}

/// Fails unless the session is in the benchmark's database of that name: a pooler may lead every
/// address to the same one.
pub(super) async fn check_own(session: &mut PgConnection, name: &str) -> anyhow::Result<()> {
    let is_own: bool = sqlx::query_scalar(
        "select datname = $1 and shobj_description(oid, 'pg_database') is not distinct from $2
           from pg_database where datname = current_database()",
    )
    .bind(name)
    .bind(format!("{MARK}{name}"))
    .fetch_one(session)
    .await?;

    ensure!(
        is_own,
        "DATABASE_URL leads to another database than it names (a pooler?): name Postgres itself"
    );
    Ok(())
}

async fn connect(server: &str) -> anyhow::Result<PgConnection> {
    Ok(in_time(db::connect_to_any(server, Some(STATEMENT_TIMEOUT))).await??)
}

async fn execute(session: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    in_time(sqlx::raw_sql(AssertSqlSafe(statement)).execute(session)).await??;
    Ok(())
}

async fn in_time<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(RESPONSE_TIMEOUT, work).await.context("Postgres does not respond")
}

/// Returns the address of another database of the same server; of two names the last one counts.
fn with_database(url: &str, name: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}dbname={name}")
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::postgres::PgConnectOptions;

    use super::*;

    #[test]
    fn address_names_other_database_of_same_server() {
        for url in [
            "postgres://me:secret@db.example:6432/theirs?sslmode=disable",
            "postgres://me:secret@db.example:6432/theirs",
            "postgres://me:secret@db.example:6432",
            "postgres://me:secret@db.example:6432/theirs?dbname=others#x",
        ] {
            let options = PgConnectOptions::from_str(&with_database(url, "holdfast_bench_1"));
            let options = options.expect("an address");
            assert_eq!(options.get_database(), Some("holdfast_bench_1"), "{url}");
            assert_eq!((options.get_host(), options.get_port()), ("db.example", 6432), "{url}");
        }
    }
}

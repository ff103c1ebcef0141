//! The session by which a running replica is known to the others, and the recorded lock family.
//!
//! Each running replica holds an advisory lock in shared mode, on a connection of its own, so
//! Postgres knows which replicas run: also of one that is paused, and until 45 s after one vanished
//! from the network. A lost connection ends the session while the replica runs on, until it opens
//! another one.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;
use uuid::Uuid;

use super::connect::options;
use super::error::Error;
use super::pool::Pool;
use super::{connect_error, session};

/// First number of the advisory locks, which the strategies do not use: they lock one number.
const LOCKS: i32 = 0x484f_4c44;
/// Held by a replica while it compares and records.
const TURN: i32 = 1;
/// Held in shared mode by each running replica.
const RUNNING: i32 = 2;

const PING_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct RecordedFamily {
    pub family: String,
    /// The strategy of the replica that recorded it.
    pub strategy: String,
    /// Identifies the Redis, if the family excludes by Redis alone.
    pub redis_mark: Option<Uuid>,
}

/// The session of a replica. It ends with the value.
#[derive(Debug)]
pub struct ReplicaSession(PgConnection);

impl ReplicaSession {
    /// Takes the turn of comparing and recording, until [`Self::end_turn`], and registers the
    /// replica as running. Also returns the names of the others, with their addresses.
    pub async fn register(url: &str, replica: &str) -> Result<(Self, Vec<String>), Error> {
        let name = format!("holdfast replica {replica}");
        let options = options(url)?.application_name(&name);
        let connected = PgConnection::connect_with(&options).await;
        let mut connection = connected.map_err(|error| connect_error::explain(error, &options))?;
        session::apply(&mut connection, None).await?;

        // The turn's lock ends with the transaction; that of the session stays after it.
        sqlx::raw_sql("begin").execute(&mut connection).await?;
        sqlx::query("select pg_advisory_xact_lock($1, $2)")
            .bind(LOCKS)
            .bind(TURN)
            .execute(&mut connection)
            .await?;
        sqlx::query("select pg_advisory_lock_shared($1, $2)")
            .bind(LOCKS)
            .bind(RUNNING)
            .execute(&mut connection)
            .await?;

        let others = sqlx::query_scalar(
            "select coalesce(replace(application_name, 'holdfast replica ', ''), 'another user''s')
                    || coalesce(' at ' || host(client_addr), '')
               from pg_locks join pg_stat_activity using (pid)
              where locktype = 'advisory' and granted and pid <> pg_backend_pid()
                and database = (select oid from pg_database where datname = current_database())
                and classid::bigint = $1 and objid::bigint = $2 and objsubid = 2
              order by 1",
        );
        let others = others.bind(i64::from(LOCKS)).bind(i64::from(RUNNING));
        let names = others.fetch_all(&mut connection).await?;
        Ok((Self(connection), names))
    }

    pub async fn recorded(&mut self) -> Result<Option<RecordedFamily>, Error> {
        let row = sqlx::query_as("select family, strategy, redis_mark from lock_family");
        Ok(row.fetch_optional(&mut self.0).await?)
    }

    pub async fn record(&mut self, family: &RecordedFamily) -> Result<(), Error> {
        sqlx::query(
            "insert into lock_family (family, strategy, redis_mark) values ($1, $2, $3)
             on conflict (is_only) do update
                set (family, strategy, redis_mark, recorded_at)
                  = (excluded.family, excluded.strategy, excluded.redis_mark, now())",
        )
        .bind(&family.family)
        .bind(&family.strategy)
        .bind(family.redis_mark)
        .execute(&mut self.0)
        .await?;
        Ok(())
    }

    /// Commits what was recorded. The replica stays registered.
    pub async fn end_turn(&mut self) -> Result<(), Error> {
        sqlx::raw_sql("commit").execute(&mut self.0).await?;
        Ok(())
    }

    /// Ends the turn without a record. The replica is not registered any more.
    pub async fn leave(mut self) -> Result<(), Error> {
        // Unlocked before the close, which Postgres may notice after the next replica has looked.
        sqlx::raw_sql("rollback; select pg_advisory_unlock_all()").execute(&mut self.0).await?;
        Ok(self.0.close().await?)
    }

    pub async fn is_alive(&mut self) -> bool {
        matches!(timeout(PING_TIMEOUT, self.0.ping()).await, Ok(Ok(())))
    }
}

/// Returns the key under which the replicas of this database authenticate their messages.
pub async fn message_key(pool: &Pool) -> Result<Uuid, Error> {
    let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
    let key = sqlx::query_scalar("select message_key from lock_family");
    Ok(key.fetch_one(&mut *connection).await?)
}

/// Forgets the recorded family: the next replica records its own.
pub async fn forget_lock_family(pool: &Pool) -> Result<(), Error> {
    let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
    sqlx::query("delete from lock_family").execute(&mut *connection).await?;
    Ok(())
}

//! Creates Postgres' WAL segments ahead of time.
//!
//! A new cluster creates each WAL segment (16 MB) when it needs it: it fills the segment with zeros
//! and syncs it while all commits wait, 20 to 50 ms, once a second at ten thousand orders a second.
//! A cluster that has run for a day recycles old segments instead, and that is the state to
//! measure. So this creates as many segments as Postgres allows between two checkpoints
//! (`max_wal_size`), lets a checkpoint recycle them, and keeps them (`min_wal_size`).

use crate::db::Pool;

/// Takes a second or two, and 1 GB of disk with Postgres' default settings.
pub(super) async fn preallocate(pool: &Pool) -> anyhow::Result<()> {
    let mut connection = pool.acquire().await.map_err(|(_, error)| error)?;
    let (most, files): (String, i64) = sqlx::query_as(
        "select current_setting('max_wal_size'),
                pg_size_bytes(current_setting('max_wal_size'))
                    / pg_size_bytes(current_setting('wal_segment_size'))",
    )
    .fetch_one(&mut *connection)
    .await?;
    for statement in
        [format!("alter system set min_wal_size = '{most}'"), "select pg_reload_conf()".to_owned()]
    {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    // `pg_switch_wal` does nothing on a segment without writes.
    let next_file = "select pg_switch_wal() from pg_logical_emit_message(false, 'next', '')";
    for _ in 0..files {
        sqlx::raw_sql(next_file).execute(&mut *connection).await?;
    }
    sqlx::raw_sql("checkpoint").execute(&mut *connection).await?;
    Ok(())
}

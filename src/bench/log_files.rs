//! Postgres' log files, made ahead.
//!
//! A cluster that is new makes every file of its log (16 MB) when it is needed: it is filled with
//! zeros and synced while everybody who commits waits, for 20 to 50 ms; once a second at ten
//! thousand orders a second. One that has run for a day takes what it no longer needs instead, and
//! that is the one that is measured. So as many files as Postgres lets itself have between two
//! checkpoints (`max_wal_size`) are made, given back, and kept (`min_wal_size`).

use crate::db::Pool;

/// Takes a second or two, and a gigabyte of the disk as Postgres is set when nobody sets it.
pub(super) async fn make_ahead(pool: &Pool) -> anyhow::Result<()> {
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
    // Nothing is switched from a file that nothing was written to.
    let next_file = "select pg_switch_wal() from pg_logical_emit_message(false, 'next', '')";
    for _ in 0..files {
        sqlx::raw_sql(next_file).execute(&mut *connection).await?;
    }
    sqlx::raw_sql("checkpoint").execute(&mut *connection).await?;
    Ok(())
}

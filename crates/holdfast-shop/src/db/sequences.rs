//! Finds sequences that are behind their tables: the next number is in the table already, as after
//! data came by logical replication, which copies no sequences before Postgres 19. Orders would
//! fail, or be numbered below earlier ones.
//!
//! Guarantees: no false alarm beside running replicas. A statement reads a sequence after it took
//! its snapshot, and what that contains was numbered before. A sequence that is ahead of its table
//! is right: numbers of transactions that are open, or were rolled back, are missing there.
//! Tests: `tests/it/sequences.rs`.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::connect::connect;
use super::connect_error;
use super::error::Error;

/// Timeout of each statement at the start. The last numbers of a million accounts take seconds.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

/// A sequence, and the column that it numbers; as SQL writes their names.
#[derive(sqlx::FromRow)]
struct NumberedColumn {
    sequence: String,
    of_table: String,
    of_column: String,
    /// The first column of an index whose second one it is, if no index begins with it.
    index_prefix: Option<String>,
}

/// Rejects a database with a sequence behind its table; the error has the statement that mends it.
pub async fn check_sequences(url: &str) -> Result<(), Error> {
    let mut connection = connect(url, Some(TIMEOUT)).await?;
    reject_sequences_behind(&mut connection).await?;
    Ok(connection.close().await?)
}

/// [`check_sequences`] in a session whose statements have [`TIMEOUT`].
pub(super) async fn reject_sequences_behind(db: &mut PgConnection) -> Result<(), Error> {
    let explain = |error| connect_error::explain_refusal(&error).unwrap_or(Error::Other(error));

    let mut behind: Vec<String> = Vec::new();
    for query in sequence_queries(db).await? {
        let found = sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut *db).await;
        behind.extend(found.map_err(explain)?);
    }

    if behind.is_empty() { Ok(()) } else { Err(Error::Sequences(behind.join("\n"))) }
}

/// Returns a query for each sequence of the schema, with a row if the sequence is behind its table.
pub async fn sequence_queries(db: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    let columns: Vec<NumberedColumn> =
        sqlx::query_as(include_str!("sequences.sql")).fetch_all(db).await?;
    Ok(columns.iter().map(NumberedColumn::query).collect())
}

impl NumberedColumn {
    fn query(&self) -> String {
        let Self { sequence, of_table, of_column, .. } = self;
        let [name, table, column] = [sequence, of_table, of_column].map(|name| literal(name));

        // A sequence that was not called since it was set returns its `last_value` itself.
        format!(
            "select format('the sequence %s is behind its table: its next number is %s, and %s.%s \
                            has %s already. Execute: select setval(%L, (select max(%s) from %s));',
                           name, next, tab, col, highest, name, col, tab)
               from (select {name}, {table}, {column}) as names (name, tab, col),
                    (select last_value + case when is_called then seqincrement else 0 end
                       from {sequence}, pg_sequence
                      where seqrelid = {name}::regclass) as sequence (next),
                    ({}) as numbers (highest)
              where next <= highest",
            self.highest_number()
        )
    }

    /// Without an index that begins with the column, `max` would read a ledger of years. From each
    /// value of the first column the index leads to the next one: a step per item or account.
    fn highest_number(&self) -> String {
        let Self { of_table, of_column, index_prefix, .. } = self;
        let Some(prefix) = index_prefix else {
            return format!("select max({of_column}) from {of_table}");
        };

        let last = format!("order by {prefix} desc, {of_column} desc limit 1");
        format!(
            "with recursive walk (place, number) as (
                 (select {prefix}, {of_column} from {of_table} {last})
                  union all
                 select step.* from walk cross join lateral (
                     select {prefix}, {of_column} from {of_table}
                      where {prefix} < walk.place {last}) as step)
             select max(number) from walk"
        )
    }
}

fn literal(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

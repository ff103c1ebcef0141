//! The database of a service: made by the judge, in a server of its own or of the user's, or that
//! of a service that runs already. In the last one the judge runs nothing but the file's SQL.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use holdfast_base::output::print_progress;
use holdfast_services::{TempFolder, TempPostgres, Upstream};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgRow};
use sqlx::{AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Executor as _};
use sqlx::{PgConnection, Row as _, SqlSafeStr as _};
use tokio::time::timeout;
use url::Url;

use super::file::Values;
use super::learned::Learned;

/// Name of the database in the judge's own server.
const NAME: &str = "service";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The judge's access to the database.
#[derive(Debug)]
pub(super) struct Database {
    url: Url,
    options: PgConnectOptions,
    connection: PgConnection,
    origin: DatabaseOrigin,
}

#[derive(Debug)]
enum DatabaseOrigin {
    Own(Box<TempPostgres>),
    /// A database that the judge made in a server of the user's, and drops.
    Made {
        server: Box<PgConnectOptions>,
        name: String,
    },
    /// That of a service which runs already.
    Attached,
}

impl Database {
    /// Starts a Postgres with an empty database.
    pub(super) async fn start(folder: &TempFolder) -> anyhow::Result<Self> {
        let postgres = TempPostgres::start(folder).await?;
        postgres.create_database(NAME).await?;
        let url = format!("postgres://holdfast:{}@127.0.0.1/{NAME}", postgres.password);
        let options = PgConnectOptions::from_str(&postgres.url_of(NAME))?;
        Self::connect(Url::parse(&url)?, options, DatabaseOrigin::Own(Box::new(postgres))).await
    }

    /// Makes an empty database in the server of a URL.
    pub(super) async fn make_in(server: &str) -> anyhow::Result<Self> {
        let (mut url, options) = parse(server)?;
        let mut admin = connect(&options).await?;
        let name = format!("holdfast_judge_{:08x}", rand::random::<u32>());
        let create = AssertSqlSafe(format!("create database {name}"));
        if let Err(error) = sqlx::raw_sql(create).execute(&mut admin).await {
            bail!(
                "[service] database: can't create a database of the judge's own there: {}",
                reason(&error)
            );
        }
        let _ = admin.close().await;

        url.set_path(&name);
        let own = options.clone().database(&name);
        let connected = connect_to(&own, &name).await;
        let origin = DatabaseOrigin::Made { server: Box::new(options), name };
        match connected {
            Ok(connection) => Ok(Self::new(url, own, connection, origin)),
            Err(error) => {
                origin.end().await;
                Err(error)
            }
        }
    }

    /// Connects to the database of a service that runs already.
    pub(super) async fn attach(url: &str) -> anyhow::Result<Self> {
        let (url, options) = parse(url)?;
        Self::connect(url, options, DatabaseOrigin::Attached).await
    }

    async fn connect(
        url: Url,
        options: PgConnectOptions,
        origin: DatabaseOrigin,
    ) -> anyhow::Result<Self> {
        let connection = connect(&options).await?;
        Ok(Self::new(url, options, connection, origin))
    }

    fn new(
        url: Url,
        options: PgConnectOptions,
        connection: PgConnection,
        origin: DatabaseOrigin,
    ) -> Self {
        Self { url, options: options.disable_statement_logging(), connection, origin }
    }

    /// Returns where a proxy finds the server.
    pub(super) fn target(&self) -> Upstream {
        match &self.origin {
            DatabaseOrigin::Own(postgres) => Upstream::Socket(postgres.socket()),
            DatabaseOrigin::Made { .. } | DatabaseOrigin::Attached => {
                let host = self.url.host_str().unwrap_or("127.0.0.1");
                Upstream::Address(format!("{host}:{}", self.url.port().unwrap_or(5432)))
            }
        }
    }

    /// Returns the id of the process of the judge's own server.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.origin {
            DatabaseOrigin::Own(postgres) => postgres.pid(),
            DatabaseOrigin::Made { .. } | DatabaseOrigin::Attached => None,
        }
    }

    /// Returns the placeholders of the database behind the proxy on this port.
    pub(super) fn values_at(&self, port: u16) -> anyhow::Result<Values> {
        let mut url = self.url.clone();
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let no_address = |()| anyhow!("[service] database: the URL has no host");
        url.set_ip_host(proxy.ip()).map_err(no_address)?;
        url.set_port(Some(port)).map_err(no_address)?;
        url.set_query(None);
        Ok(Values::default()
            .with("database_url", url.as_str())
            .with("database_host", "127.0.0.1")
            .with("database_port", port)
            .with("database_user", decoded(url.username()))
            .with("database_password", decoded(url.password().unwrap_or_default()))
            .with("database_name", url.path().trim_start_matches('/')))
    }

    /// Runs statements of the file.
    pub(super) async fn run(&mut self, key: &str, sql: &str) -> anyhow::Result<()> {
        let run = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connection).await;
        run.map_err(|error| failed(key, sql, &error))?;
        Ok(())
    }

    /// Returns the whole number that a query of the file returns.
    pub(super) async fn number(&mut self, key: &str, sql: &str) -> anyhow::Result<i64> {
        let rows = self.rows(key, sql).await?;
        let [row] = rows.as_slice() else {
            bail!("{key}: `{sql}` returned {} rows instead of one. {SEE_SETUP}", rows.len());
        };
        ensure!(
            row.len() == 1,
            "{key}: `{sql}` returned {} columns instead of one number",
            row.len()
        );
        let name = row.column(0).name();
        let text = text_at(row, 0)
            .with_context(|| format!("{key}: `{sql}` returned null: use coalesce({name}, 0)"))?;
        whole(&text)
            .with_context(|| format!("{key}: `{sql}` returned {text:?}: it must be a whole number"))
    }

    /// Returns the number of each key that a query of the file returns; of a key in several rows,
    /// their sum.
    pub(super) async fn numbers(
        &mut self,
        key: &str,
        sql: &str,
    ) -> anyhow::Result<HashMap<String, i64>> {
        let mut numbers = HashMap::new();
        for row in &self.rows(key, sql).await? {
            ensure!(
                row.len() == 2,
                "{key}: `{sql}` must return two columns, a key and a number, not {}",
                row.len()
            );
            let Some(name) = text_at(row, 0) else { continue };
            let number = text_at(row, 1).and_then(|text| whole(&text));
            let number = number.with_context(|| {
                format!("{key}: the second column of `{sql}` must be a whole number")
            })?;
            *numbers.entry(name).or_default() += number;
        }
        Ok(numbers)
    }

    async fn rows(&mut self, key: &str, sql: &str) -> anyhow::Result<Vec<PgRow>> {
        // As a simple query, whose values are all texts.
        let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connection);
        rows.await.map_err(|error| failed(key, sql, &error))
    }

    /// Returns the tables that a query reads, and the columns of their rows.
    pub(super) async fn learn(&mut self, sql: &str) -> anyhow::Result<Learned> {
        let explain = AssertSqlSafe(format!("explain (verbose, format json) {sql}"));
        let rows = sqlx::raw_sql(explain).fetch_all(&mut self.connection).await;
        let rows = rows.map_err(|error| failed("[books] stock", sql, &error))?;
        let plan = rows.first().and_then(|row| text_at(row, 0)).unwrap_or_default();
        let mut learned = Learned::default();
        collect(&serde_json::from_str(&plan).unwrap_or_default(), &mut learned);

        // A plan reads partitions; the service's statements name the table that they belong to.
        let tables = sqlx::query_scalar::<_, String>(
            "with recursive tables as (
                 select oid, relname from pg_class where relname::text = any($1)
                 union
                 select parent.oid, parent.relname
                   from tables
                   join pg_inherits on inhrelid = tables.oid
                   join pg_class as parent on parent.oid = inhparent)
             select distinct relname::text from tables order by 1",
        );
        let tables = tables.bind(learned.tables).fetch_all(&mut self.connection).await?;
        learned.tables = tables.iter().map(|table| table.to_lowercase()).collect();
        Ok(learned)
    }

    /// Locks the row of the item in a transaction of a connection of its own, until that is
    /// dropped.
    pub(super) async fn lock_row(&self, sql: &str) -> anyhow::Result<PgConnection> {
        let mut connection = connect(&self.options).await?;
        connection.execute("begin").await?;
        // The service may hold the row for ever.
        connection.execute("set local lock_timeout = '10s'").await?;
        let locked = connection.fetch_all(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
        let locked = locked.map_err(|error| failed("[books] row", sql, &error))?;
        ensure!(!locked.is_empty(), "[books] row: `{}` finds no row", sql.trim());
        Ok(connection)
    }

    /// Returns the server's processes that wait for a lock. Behind the gate a second one waits for
    /// the first.
    pub(super) async fn waiting(&mut self) -> anyhow::Result<Vec<i32>> {
        let waiting = sqlx::query_scalar::<_, i32>(
            "select pid from pg_stat_activity
              where wait_event_type = 'Lock' and datname = current_database()",
        );
        Ok(waiting.fetch_all(&mut self.connection).await?)
    }

    /// Returns whether one of the server's processes waits for a lock.
    pub(super) async fn is_any_waiting(&mut self, backends: &[i32]) -> anyhow::Result<bool> {
        let waits = sqlx::query_scalar(
            "select exists (select from unnest($1::int[]) as pid
                             where cardinality(pg_blocking_pids(pid)) > 0)",
        );
        Ok(waits.bind(backends).fetch_one(&mut self.connection).await?)
    }

    /// Returns whether the open transaction of one of the server's processes has written one of the
    /// tables. Its statements need not say so: it has a lock then that no read needs.
    pub(super) async fn has_written(
        &mut self,
        backend: i32,
        tables: &[String],
    ) -> anyhow::Result<bool> {
        let written = sqlx::query_scalar(
            "select exists (
                 select from pg_locks join pg_class on pg_class.oid = relation
                  where pid = $1 and locktype = 'relation' and mode = 'RowExclusiveLock'
                    and lower(relname::text) = any($2))",
        );
        let written = written.bind(backend).bind(tables);
        Ok(written.fetch_one(&mut self.connection).await?)
    }

    /// Ends the judge's own server, or drops the database that it made.
    pub(super) async fn end(self) {
        let _ = self.connection.close().await;
        self.origin.end().await;
    }
}

impl DatabaseOrigin {
    async fn end(self) {
        match self {
            Self::Own(postgres) => postgres.stop().await,
            Self::Made { server, name } => {
                let drop = AssertSqlSafe(format!("drop database if exists {name} with (force)"));
                let dropping = async {
                    let mut admin = connect(&server).await?;
                    let dropped = sqlx::raw_sql(drop).execute(&mut admin).await;
                    dropped.map_err(|error| anyhow!(reason(&error)))?;
                    anyhow::Ok(())
                };
                if let Err(error) = dropping.await {
                    print_progress(&format!("the judge can't drop its database {name}: {error:#}"));
                }
            }
            Self::Attached => {}
        }
    }
}

const SEE_SETUP: &str = "Does [setup] make the item?";

/// Collects the tables of a plan, and the columns of what it returns. A node that reads for another
/// one has more of them, often all of its table; a subquery has its own.
fn collect(plan: &Value, learned: &mut Learned) {
    match plan {
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, learned)),
        Value::Object(fields) => {
            if let Some(table) = fields.get("Relation Name").and_then(Value::as_str) {
                learned.tables.push(table.to_owned());
            }
            let parent = fields.get("Parent Relationship").and_then(Value::as_str);
            let is_input = matches!(parent, Some("Outer" | "Inner" | "Member"));
            let output = fields.get("Output").and_then(Value::as_array).filter(|_| !is_input);
            for text in output.into_iter().flatten().filter_map(Value::as_str) {
                let is_part = |letter: char| letter.is_alphanumeric() || "_.".contains(letter);
                let words = text.split(|letter| !is_part(letter));
                let names = words.filter_map(|word| word.rsplit('.').next());
                learned.columns.extend(names.filter(|it| !it.is_empty()).map(str::to_owned));
            }
            fields.values().for_each(|field| collect(field, learned));
        }
        _ => {}
    }
}

fn parse(url: &str) -> anyhow::Result<(Url, PgConnectOptions)> {
    // Without the URL, which has the password.
    const WRONG: &str =
        "[service] database: it must be a URL, postgres://USER:PASSWORD@HOST:PORT/NAME";
    let parsed =
        Url::parse(url).ok().filter(|it| it.scheme().starts_with("postgres") && it.has_host());
    let parsed = parsed.context(WRONG)?;
    let options = PgConnectOptions::from_str(url).context("[service] database")?;
    Ok((parsed, options))
}

async fn connect(options: &PgConnectOptions) -> anyhow::Result<PgConnection> {
    const FAILED: &str = "[service] database: can't connect to it";
    let options = options.clone().disable_statement_logging();
    match timeout(CONNECT_TIMEOUT, options.connect()).await {
        Ok(connected) => connected.map_err(|error| anyhow!("{FAILED}: {}", reason(&error))),
        Err(_) => bail!("{FAILED}: no answer within {CONNECT_TIMEOUT:?}"),
    }
}

/// Connects to a database that the judge has made. A pooler may lead to one of the user's instead.
async fn connect_to(options: &PgConnectOptions, name: &str) -> anyhow::Result<PgConnection> {
    let mut connection = connect(options).await?;
    let row = sqlx::raw_sql("select current_database()").fetch_one(&mut connection).await?;
    let found = text_at(&row, 0).unwrap_or_default();
    ensure!(
        found == name,
        "[service] database: the address leads to another database than it names, {found} instead \
         of {name}. Is it a pooler's?"
    );
    Ok(connection)
}

/// Returns a part of a URL as it is outside of one.
pub(super) fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

fn failed(key: &str, sql: &str, error: &sqlx::Error) -> anyhow::Error {
    anyhow!("{key}: `{}` failed: {}", sql.trim(), reason(error))
}

/// Returns what the server has said. The error itself ends with a line of the server's source.
fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let own = error.try_downcast_ref::<PgDatabaseError>();
            let line =
                |name: &str, text: Option<&str>| text.map(|text| format!("\n  {name}: {text}"));
            let detail = line("DETAIL", own.and_then(PgDatabaseError::detail)).unwrap_or_default();
            let hint = line("HINT", own.and_then(PgDatabaseError::hint)).unwrap_or_default();
            format!("{}{detail}{hint}", error.message())
        }
        error => error.to_string(),
    }
}

fn text_at(row: &PgRow, column: usize) -> Option<String> {
    row.try_get_unchecked::<Option<String>, _>(column).ok().flatten()
}

/// Returns a whole number that may be written with a fraction of zeros, as a sum of decimals is.
fn whole(text: &str) -> Option<i64> {
    let digits = match text.split_once('.') {
        Some((digits, zeros)) if zeros.chars().all(|digit| digit == '0') => digits,
        _ => text,
    };
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_those_that_the_plan_returns() {
        let scan = json!({
            "Parent Relationship": "Outer", "Relation Name": "Goods",
            "Output": ["g.id", "g.stock", "g.price"],
        });
        let subquery = json!({
            "Parent Relationship": "InitPlan", "Output": ["held.units"], "Relation Name": "held",
        });
        let output = ["(sum(g.\"onHand\") - $0)"];
        let plan = json!([{ "Plan": { "Output": output, "Plans": [subquery, scan] } }]);
        let mut learned = Learned::default();
        collect(&plan, &mut learned);
        learned.tables.sort_unstable();
        learned.columns.sort_unstable();
        assert_eq!(learned.tables, ["Goods", "held"]);
        assert_eq!(learned.columns, ["0", "onHand", "sum", "units"]);
    }
}

//! All checks of the shop's books, one statement each: `checks.sql`, and one of names.
//!
//! A check is a query for violations, and holds if there are none. Those that look at the rows of a
//! table one by one are executed in steps of [`BLOCKS_PER_STEP`], so that each statement ends long
//! before its timeout, for tables of any size. The others pass once over the items, or over
//! a ledger.
//!
//! `tests/it/forgeries.rs` forges every column of every table.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Error;
use super::nicknames;
use crate::db::{self, ErrorClass};
use holdfast_base::messages::{Message, message};
use holdfast_base::output::grouped;

/// Timeout of one statement of an audit, for long ledgers.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCheck {
    pub name: String,
    /// True if the check holds.
    pub ok: bool,
    /// The rule if it holds, otherwise the first violations.
    pub detail: String,
}

/// The number of checks that are done, of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditProgress {
    pub done: usize,
    pub total: usize,
    pub check: &'static str,
}

impl AuditProgress {
    pub(super) fn start() -> Self {
        Self::before(0, checks().next().map_or("", |check| check.name))
    }

    fn before(done: usize, check: &'static str) -> Self {
        Self { done, total: checks().count() + 1, check }
    }
}

/// Upper bound of the violations that are fetched and listed: forged books may have millions.
const MAX_LISTED: usize = 5;

/// Blocks of a table that one statement checks: 64 MB, about half a million orders.
const BLOCKS_PER_STEP: usize = 8_192;

const CHECKS: &str = include_str!("checks.sql");

struct Check {
    name: &'static str,
    rule: &'static str,
    query: &'static str,
    steps: CheckStatements,
}

/// The statements of a check.
#[derive(Clone, Copy)]
enum CheckStatements {
    /// Its query.
    One,
    /// Its query for each range of blocks of this table.
    Blocks(&'static str),
    /// One for each sequence of the schema.
    Sequences,
}

fn checks() -> impl Iterator<Item = Check> {
    parts(CHECKS).map(|(name, rule, query)| {
        let first_line = query.split('\n').next().unwrap_or_default();
        let steps = match (first_line, first_line.strip_prefix("-- blocks of ")) {
            ("-- sequences", _) => CheckStatements::Sequences,
            (_, Some(table)) => CheckStatements::Blocks(table),
            (_, None) => CheckStatements::One,
        };
        Check { name, rule, query, steps }
    })
}

/// Splits a file of checks into name, rule and query of each.
pub(super) fn parts(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.split("\n-- check ").skip(1).filter_map(|check| {
        let (header, query) = check.split_once('\n')?;
        let (name, rule) = header.split_once(": ")?;
        Some((name, rule, query.trim_end().trim_end_matches(';')))
    })
}

/// Runs a check that has one statement.
pub(super) async fn run_query(
    tx: &mut PgConnection,
    name: &str,
    rule: &str,
    query: &str,
) -> Result<AuditCheck, Error> {
    let mut violations = Violations::default();
    violations.add(tx, query).await.map_err(|error| explain(name, error))?;
    Ok(violations.result(name, rule))
}

impl Check {
    async fn statements(&self, tx: &mut PgConnection) -> Result<Vec<String>, Error> {
        let table = match self.steps {
            CheckStatements::One => return Ok(vec![self.query.to_owned()]),
            CheckStatements::Sequences => return Ok(db::sequence_queries(tx).await?),
            CheckStatements::Blocks(table) => table,
        };
        let size = "select pg_relation_size($1::regclass) / current_setting('block_size')::bigint";
        let blocks: i64 = sqlx::query_scalar(size).bind(table).fetch_one(tx).await?;
        // Later blocks have no row of this snapshot. An empty table has one step, too.
        let steps = (0..blocks.max(1).unsigned_abs()).step_by(BLOCKS_PER_STEP);
        Ok(steps.map(|from| self.query_of_blocks(from)).collect())
    }

    fn query_of_blocks(&self, from: u64) -> String {
        let to = from + BLOCKS_PER_STEP as u64;
        self.query
            .replace(":from", &format!("'({from},0)'::tid"))
            .replace(":to", &format!("'({to},0)'::tid"))
    }

    /// Returns the settings under which its statements are planned, whether or not the tables have
    /// been analyzed: a step looks up each row by an index, and costs the same in a table of any
    /// size; a pass over whole tables would take half a minute by nested loops.
    fn planner_settings(&self) -> &'static str {
        match self.steps {
            CheckStatements::Blocks(_) | CheckStatements::Sequences => {
                "set local enable_nestloop = on; set local enable_hashjoin = off;
                 set local enable_mergejoin = off; set local enable_seqscan = off"
            }
            CheckStatements::One => {
                "set local enable_nestloop = off; set local enable_hashjoin = on;
                 set local enable_mergejoin = on; set local enable_seqscan = on"
            }
        }
    }
}

pub(super) async fn run(
    tx: &mut PgConnection,
    mut report: impl FnMut(AuditProgress),
) -> Result<Vec<AuditCheck>, Error> {
    let mut results = Vec::new();
    for (done, check) in checks().enumerate() {
        report(AuditProgress::before(done, check.name));
        sqlx::raw_sql(check.planner_settings()).execute(&mut *tx).await?;

        let mut violations = Violations::default();
        for query in check.statements(tx).await? {
            violations.add(tx, &query).await.map_err(|error| explain(check.name, error))?;
        }

        results.push(violations.result(check.name, check.rule));
    }

    report(AuditProgress::before(results.len(), nicknames::NAME));
    let violations = Violations::of(nicknames::conflicts(tx).await?);
    results.push(violations.result(nicknames::NAME, nicknames::RULE));
    Ok(results)
}

/// Names the bound that a cancelled statement met.
fn explain(check: &str, error: Error) -> Error {
    let Error::Postgres(ErrorClass::Cancelled, cause) = error else { return error };
    let bound = STATEMENT_TIMEOUT.as_secs();
    let cause = format!("a step of the check {check} took longer than {bound} s: {cause}");
    Error::Postgres(ErrorClass::Cancelled, cause)
}

#[derive(Default)]
struct Violations {
    listed: Vec<String>,
    number: i64,
}

impl Violations {
    fn of(mut found: Vec<String>) -> Self {
        let number = i64::try_from(found.len()).unwrap_or(i64::MAX);
        found.truncate(MAX_LISTED);
        Self { listed: found, number }
    }

    fn result(&self, name: &str, rule: &str) -> AuditCheck {
        let (ok, detail) = (self.number == 0, self.detail(rule));
        AuditCheck { name: name.to_owned(), ok, detail }
    }

    async fn add(&mut self, tx: &mut PgConnection, query: &str) -> Result<(), Error> {
        // Materialized: to find a few rows, and without statistics, Postgres chooses a merge join
        // by sku alone, which is quadratic in the orders of an item.
        let sql = format!(
            "with v (violation) as materialized ({query}\n)
             select violation, count(*) over () from v limit {MAX_LISTED}"
        );
        let found: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(tx).await?;
        self.number += found.first().map_or(0, |(_, number)| *number);
        self.listed.extend(found.into_iter().map(|(violation, _)| violation));
        self.listed.truncate(MAX_LISTED);
        Ok(())
    }

    fn detail(&self, rule: &str) -> String {
        let listed = self.listed.join("; ");
        match self.number.unsigned_abs().saturating_sub(self.listed.len() as u64) {
            _ if self.number == 0 => rule.to_owned(),
            0 => listed,
            more => format!("{listed}; and {more} more"),
        }
    }
}

/// Returns the notes, and the time of the snapshot.
pub(super) async fn notes(tx: &mut PgConnection) -> Result<(Vec<Message>, OffsetDateTime), Error> {
    let shop = sqlx::query!(
        r#"select (select count(*) from items where kind = 'shop') as "items!",
                  (select count(*) from orders) as "orders!",
                  (select count(*) from stock_ledger) + (select count(*) from balance_ledger)
                      as "entries!",
                  to_char(now() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') as "at!",
                  now() as "now!""#
    )
    .fetch_one(&mut *tx)
    .await?;

    // Forks are what the lab's lessons are about: counted, and no violation.
    let lab = sqlx::query!(
        r#"select (select count(*) from items where kind = 'lab') as "items!",
                  (select count(*) from accounts where kind = 'lab') as "accounts!",
                  (select count(*) from (
                       select from stock_ledger l join items i on i.sku = l.sku and i.kind = 'lab'
                        group by l.sku, l.version having count(*) > 1) forks) as "forks!""#
    )
    .fetch_one(tx)
    .await?;

    let notes = vec![
        message!(
            "admin-audit-note-checked",
            at = shop.at,
            items = count(shop.items),
            orders = count(shop.orders),
            entries = count(shop.entries)
        ),
        message!(
            "admin-audit-note-apart",
            items = count(lab.items),
            forks = count(lab.forks),
            accounts = count(lab.accounts)
        ),
    ];
    Ok((notes, shop.now))
}

fn count(number: i64) -> String {
    grouped(number.unsigned_abs())
}

//! The ledger of a column of any table, in a Postgres of one's own: its SQL, and its audit.
//!
//! The names in the SQL are quoted as they are given. The audit reads one snapshot, and finds each
//! ledger by its comment, also if the table or a column was renamed. What it cannot find:
//! `docs/LEDGER.md`. Tests: `tests/it/table_ledger.rs`.

use sqlx::AssertSqlSafe;

use super::super::Error;
use super::checks::{self, STATEMENT_TIMEOUT};
use super::{AuditReport, begin_snapshot};
use crate::db::Pool;

const INSTALL: &str = include_str!("install.sql");
const REMOVE: &str = include_str!("remove.sql");
const CHECKS: &str = include_str!("checks.sql");

/// Suffixes of a ledger's name in the names of its functions and triggers.
const PARTS: &str = "key value text_guard write keep close rows changes repeats";

/// Bytes of a name in Postgres, which cuts off what is longer: of a ledger, with a part.
const MAX_NAME: usize = 63;
const MAX_LEDGER_NAME: usize = MAX_NAME - "_text_guard".len();

/// The ledgers of a database, and their tables. The row type of its table is what a ledger's
/// function of keys takes.
const LEDGERS: &str = "
    select of_ledger.nspname::text, l.relname::text, format('%I.%I', of_table.nspname, t.relname)
      from pg_class l
      join pg_namespace of_ledger on of_ledger.oid = l.relnamespace
      join pg_proc p on p.pronamespace = l.relnamespace and p.proname = l.relname || '_key'
      join pg_class t on t.reltype = p.proargtypes[0]
      join pg_namespace of_table on of_table.oid = t.relnamespace
     where obj_description(l.oid, 'pg_class') = 'holdfast ledger' order by 1, 2";

/// A ledger, and what it keeps. The names are as they are stored, without quotes.
#[derive(Debug, Clone)]
pub struct TableLedger {
    schema: String,
    table: String,
    keys: Vec<String>,
    value: String,
    name: String,
}

impl TableLedger {
    /// Describes the ledger of the column `value` of a table (with a schema: `shop.products`),
    /// whose rows the columns `keys` identify. Without a `name` it is called after table and
    /// column. Fails if a name is none, or is too long for Postgres.
    pub fn new(
        table: &str,
        keys: Vec<String>,
        value: String,
        name: Option<String>,
    ) -> Result<Self, String> {
        let (schema, table) = table.split_once('.').unwrap_or(("public", table));
        let name = name.unwrap_or_else(|| format!("{table}_{value}_ledger"));
        let ledger = Self { schema: schema.to_owned(), table: table.to_owned(), keys, value, name };

        if ledger.name.len() > MAX_LEDGER_NAME {
            return Err(format!(
                "the name {} has more than {MAX_LEDGER_NAME} bytes: give the ledger a shorter one, \
                 with --name",
                ledger.name
            ));
        }
        let mut names = vec![&ledger.schema, &ledger.table, &ledger.value, &ledger.name];
        names.extend(&ledger.keys);
        let is_name = |name: &str| (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('"');
        if let Some(wrong) = names.into_iter().find(|name| !is_name(name)) {
            return Err(format!(
                "a name has 1 to {MAX_NAME} bytes, and is given without quotes: {wrong}"
            ));
        }
        Ok(ledger)
    }

    /// Returns the SQL that makes the ledger.
    pub fn install_sql(&self) -> String {
        let of_keys = |prefix: &str| {
            let columns = self.keys.iter().map(|key| format!("{prefix}.{}", quoted(key)));
            columns.collect::<Vec<_>>().join(", ")
        };
        let key = match self.keys.len() {
            1 => format!("{}::text", of_keys("of_row")),
            _ => format!("jsonb_build_array({})::text", of_keys("of_row")),
        };
        let literals: Vec<_> = self.keys.iter().map(|key| format!("'{}'", escaped(key))).collect();

        self.fill(INSTALL)
            .replace("{key_columns}", &key)
            .replace("{value_column}", &quoted(&self.value))
            .replace("{value_column_text}", &escaped(&self.value))
            .replace("{old_key}", &of_keys("old"))
            .replace("{new_key}", &of_keys("new"))
            .replace("{key_arguments}", &literals.join(", "))
    }

    /// Returns the SQL that removes the ledger and all its entries.
    pub fn remove_sql(&self) -> String {
        self.fill(REMOVE)
    }

    fn fill(&self, sql: &str) -> String {
        let table = format!("{}.{}", quoted(&self.schema), quoted(&self.table));
        fill(sql, &self.schema, &self.name, &table)
    }
}

/// Audits all ledgers of a database; `None` if it has none. With `lately`, an interval of Postgres,
/// forks and breaks are those of entries that are not older.
pub async fn check_ledgers(
    pool: &Pool,
    lately: Option<&str>,
) -> Result<Option<AuditReport>, Error> {
    let is_lately = lately.map_or_else(
        || "true".to_owned(),
        |interval| format!("written > now() - interval '{}'", escaped(interval)),
    );

    let mut tx = begin_snapshot(pool, STATEMENT_TIMEOUT).await?;
    let ledgers: Vec<(String, String, String)> =
        sqlx::query_as(LEDGERS).fetch_all(&mut *tx).await?;
    let (mut results, mut notes) = (Vec::new(), Vec::new());
    for (schema, ledger, table) in &ledgers {
        let sql = fill(CHECKS, schema, ledger, table).replace("{is_lately}", &is_lately);
        for (name, rule, query) in checks::parts(&sql) {
            if name == "note" {
                let note: String =
                    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut *tx).await?;
                notes.push(format!("{schema}.{ledger}: {note}"));
            } else {
                let name = format!("{schema}.{ledger} {name}");
                results.push(checks::run_query(&mut tx, &name, rule, query).await?);
            }
        }
    }
    tx.rollback().await?;

    let ok = results.iter().all(|check| check.ok);
    let report = AuditReport { ok, checks: results, notes, noted: Vec::new(), checked_at: None };
    Ok((!ledgers.is_empty()).then_some(report))
}

/// Replaces the names in a template. `{ledger_PART}` is that of a function, `{PART}` of a trigger.
fn fill(sql: &str, schema: &str, ledger: &str, table: &str) -> String {
    let in_schema = |name: &str| format!("{}.{}", quoted(schema), quoted(name));
    let mut filled = sql
        .replace("{table}", table)
        .replace("{table_text}", &escaped(table))
        .replace("{ledger}", &in_schema(ledger))
        .replace("{ledger_text}", &escaped(&in_schema(ledger)));

    for part in PARTS.split(' ') {
        let name = format!("{ledger}_{part}");
        filled = filled
            .replace(&format!("{{ledger_{part}}}"), &in_schema(&name))
            .replace(&format!("{{{part}}}"), &quoted(&name))
            .replace(&format!("{{{part}_text}}"), &escaped(&name));
    }
    filled
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Escapes a text that is put between single quotes.
fn escaped(text: &str) -> String {
    text.replace('\'', "''")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(table: &str, keys: &[&str], value: &str) -> Result<TableLedger, String> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        TableLedger::new(table, keys, value.to_owned(), None)
    }

    #[test]
    fn names_are_quoted_as_they_are_given() {
        let sql = ledger("My.Shop's \"it\"", &["Id"], "o'clock").unwrap().install_sql();
        for words in [
            r#"lock table "My"."Shop's ""it""" in"#,
            r#"'"My"."Shop''s ""it"""'::regclass"#,
            r#"create table "My"."Shop's ""it""_o'clock_ledger" ("#,
            r#"select of_row."Id"::text"#,
            r#"t.tgname = 'Shop''s "it"_o''clock_ledger_repeats'"#,
            "with the name %', 'o''clock'",
        ] {
            assert!(sql.contains(words), "{words}: {sql}");
        }

        let of_two = ledger("t", &["a", "b"], "n").unwrap().install_sql();
        assert!(of_two.contains(r#"jsonb_build_array(of_row."a", of_row."b")"#), "{of_two}");
    }

    #[test]
    fn every_placeholder_is_replaced() {
        let of_one = ledger("t", &["a"], "n").unwrap();
        let checks = fill(CHECKS, "public", "t_n_ledger", "t").replace("{is_lately}", "");
        for sql in [of_one.install_sql(), of_one.remove_sql(), checks] {
            let mut after_braces = sql.split('{').skip(1);
            let left = after_braces.find(|rest| rest.starts_with(char::is_alphabetic));
            assert_eq!(left, None);
        }
    }

    #[test]
    fn unusable_names_are_rejected() {
        for wrong in ["", "\"a\"", &"a".repeat(64)] {
            assert!(ledger(wrong, &["id"], "n").is_err(), "{wrong}");
            assert!(ledger("t", &["id", wrong], "n").is_err(), "{wrong}");
            assert!(ledger("t", &["id"], wrong).is_err(), "{wrong}");
        }
        // That of the ledger would be longer.
        let long = ledger(&"t".repeat(50), &["id"], "n");
        assert!(long.unwrap_err().contains("--name"));
    }
}

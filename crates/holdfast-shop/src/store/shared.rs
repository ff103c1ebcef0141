//! The statements that the site's scheduler executes, too, on a Postgres in the browser.
//!
//! Each stands in a file, for `sqlx` here and as text there. The last lines of the file name its
//! parameters in their order, so that a script passes its values by name.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::db;

/// The statements that a game without a server executes.
#[derive(Debug, Serialize)]
pub struct SharedSql {
    /// By the names of their files.
    pub statements: BTreeMap<&'static str, SharedStatement>,
    /// In their order.
    pub migrations: Vec<&'static str>,
}

/// A statement without the comment of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedStatement {
    pub sql: String,
    /// The names of `$1`, `$2`, ….
    pub parameters: Vec<String>,
}

const FILES: [(&str, &str); 6] = [
    ("insert_item", include_str!("insert_item.sql")),
    ("open_ledger", include_str!("open_ledger.sql")),
    ("read_items", include_str!("read_items.sql")),
    ("place", include_str!("place.sql")),
    ("summary", include_str!("../audit/summary.sql")),
    ("latest_stock_entries", include_str!("../query/latest_stock_entries.sql")),
];
/// How the comment in a file begins.
const PARAMETERS: &str = "-- parameters:";

pub fn shared_sql() -> SharedSql {
    let statements = FILES.map(|(name, file)| (name, SharedStatement::of_file(file)));
    SharedSql { statements: statements.into(), migrations: db::migration_texts().collect() }
}

impl SharedStatement {
    fn of_file(file: &str) -> Self {
        let (sql, comment) = file.split_once(PARAMETERS).unwrap_or((file, ""));
        let names = comment.split([',', '-', ' ', '\n']).filter(|name| !name.is_empty());
        Self { sql: sql.trim_end().to_owned(), parameters: names.map(str::to_owned).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_a_name() {
        let transition = SharedStatement::of_file(include_str!("transition.sql"));
        let shared = shared_sql().statements.into_iter();
        for (name, statement) in shared.chain([("transition", transition)]) {
            let count = statement.parameters.len();
            assert!(count > 0, "{name}");
            assert!(statement.sql.contains(&format!("${count}")), "{name}");
            assert!(!statement.sql.contains(&format!("${}", count + 1)), "{name}");
            assert!(!statement.sql.contains("--"), "{name}: {}", statement.sql);
        }
    }
}

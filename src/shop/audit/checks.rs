//! All checks of the shop's books, one statement each: `checks.sql`.
//!
//! A check is a query for violations, and holds if there are none. Each corresponds to one way to
//! forge the books; `tests/it/audit.rs` forges all of them.

use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};
use utoipa::ToSchema;

use super::super::Error;
use crate::messages::{Message, message};
use crate::output::grouped;

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCheck {
    /// Name of the check.
    pub name: String,
    /// True if the check holds.
    pub ok: bool,
    /// The rule if it holds, otherwise the first violations.
    pub detail: String,
}

/// The number of checks that are done, of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditProgress {
    /// Checks that are done.
    pub done: usize,
    /// All checks.
    pub total: usize,
    /// Name of the check that runs.
    pub check: &'static str,
}

impl AuditProgress {
    /// Returns the progress of an audit that begins.
    pub(super) fn start() -> Self {
        Self::before(0, checks().next().map_or("", |(name, ..)| name))
    }

    fn before(done: usize, check: &'static str) -> Self {
        Self { done, total: checks().count(), check }
    }
}

/// Upper bound of the violations that are fetched and listed: forged books may have millions.
const MAX_LISTED: i64 = 5;

/// All checks.
const CHECKS: &str = include_str!("checks.sql");

/// Returns the name, the rule and the query of each check.
fn checks() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    CHECKS.split("\n-- check ").skip(1).filter_map(|check| {
        let (header, query) = check.split_once('\n')?;
        let (name, rule) = header.split_once(": ")?;
        Some((name, rule, query.trim_end().trim_end_matches(';')))
    })
}

/// Executes the checks one after the other; calls `report` before each.
pub(super) async fn run(
    tx: &mut PgConnection,
    mut report: impl FnMut(AuditProgress),
) -> Result<Vec<AuditCheck>, Error> {
    let mut results = Vec::new();
    for (done, (name, rule, query)) in checks().enumerate() {
        report(AuditProgress::before(done, name));
        // Materialized: to find a few rows, and without statistics, Postgres chooses a merge join
        // by sku alone, which is quadratic in the orders of an item.
        let sql = format!(
            "with v (violation) as materialized ({query}\n)
             select violation, count(*) over () from v limit {MAX_LISTED}"
        );
        let violations: Vec<(String, i64)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut *tx).await?;
        results.push(AuditCheck {
            name: name.to_owned(),
            ok: violations.is_empty(),
            detail: detail(rule, violations),
        });
    }
    Ok(results)
}

/// Replaces the hyphen of a negative number (after a space, before a digit) with a minus sign.
/// Hyphens inside names and ids remain.
fn with_minus(violation: String) -> String {
    let mut text = String::with_capacity(violation.len());
    let mut before = None;
    let mut rest = violation.chars().peekable();
    while let Some(c) = rest.next() {
        let is_minus =
            c == '-' && before == Some(' ') && rest.peek().is_some_and(char::is_ascii_digit);
        text.push(if is_minus { '−' } else { c });
        before = Some(c);
    }
    text
}

/// Lists the first violations, each with the number of all.
fn detail(rule: &str, violations: Vec<(String, i64)>) -> String {
    let Some((_, all)) = violations.first() else { return rule.to_owned() };
    let more = (all - MAX_LISTED).max(0);
    let listed = violations.into_iter().map(|(violation, _)| with_minus(violation));
    let listed = listed.collect::<Vec<_>>().join("; ");
    if more == 0 { listed } else { format!("{listed}; and {more} more") }
}

pub(super) async fn notes(tx: &mut PgConnection) -> Result<Vec<Message>, Error> {
    let shop = sqlx::query!(
        r#"select (select count(*) from items where kind = 'shop') as "items!",
                  (select count(*) from orders) as "orders!",
                  (select count(*) from stock_ledger) + (select count(*) from balance_ledger)
                      as "entries!",
                  to_char(now() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS') as "at!""#
    )
    .fetch_one(&mut *tx)
    .await?;
    let lab = sqlx::query!(
        r#"select (select count(*) from items where kind = 'lab') as "items!",
                  (select count(*) from accounts where kind = 'lab') as "accounts!",
                  (select count(*) from (
                       select from stock_ledger l join items i on i.sku = l.sku and i.kind = 'lab'
                        group by l.sku, l.version having count(*) > 1) forks) as "forks!""#
    )
    .fetch_one(tx)
    .await?;
    let count = |number: i64| grouped(number.unsigned_abs());
    Ok(vec![
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
    ])
}

#[cfg(test)]
mod tests {
    use super::with_minus;

    #[test]
    fn negative_numbers_get_minus_and_names_keep_hyphens() {
        for (violation, expected) in [
            ("lock-picks: on the shelf 614, by the ledger -11", "−11"),
            (
                "order 01a2-3b, key-ring: quantity 3, entries order -3, order -2",
                "order −3, order −2",
            ),
            ("order 01a2-3b-4, key-9: entries none", "order 01a2-3b-4, key-9: entries none"),
        ] {
            let text = with_minus(violation.to_owned());
            assert!(text.ends_with(expected), "{text}");
            assert_eq!(text.replace('−', "-"), violation);
        }
    }
}

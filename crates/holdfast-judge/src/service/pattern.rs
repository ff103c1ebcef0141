//! What is wrong with a service, by the statements of two requests.

use holdfast_base::message;
use holdfast_base::messages::{Language, Message};

use super::pass::Pass;
use super::report::{Imbalance, Pattern};
use super::sql::{Access, is_word};

/// A statement of one of two requests.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Number of the request.
    pub(super) request: usize,
    pub(super) connection: u64,
    pub(super) access: Option<Access>,
    /// In lower case.
    pub(super) sql: String,
    /// A transaction is open after it.
    pub(super) in_transaction: bool,
    /// It has changed a row.
    pub(super) has_changed: bool,
}

impl Pattern {
    /// Names the mistake that fits what two requests have shown, by their statements in order of
    /// time. `columns` have the stock.
    pub(super) fn of(
        pass: Pass,
        shown: &[Imbalance],
        steps: &[&Step],
        columns: &[String],
        has_lock: bool,
    ) -> Self {
        let shows = |imbalance| shown.contains(&imbalance);
        match pass {
            _ if shows(Imbalance::Doubled) => return Self::KeyNotUnique,
            // Of one key, two units.
            Pass::Retry | Pass::LostAnswer if shows(Imbalance::Oversold) => {
                return Self::KeyNotUnique;
            }
            Pass::Control => {
                let has_written = steps.iter().any(|it| it.access == Some(Access::Write));
                return if has_written { Self::NoCheck } else { Self::Unknown };
            }
            Pass::Kill | Pass::Restart | Pass::DatabaseCut
                if shows(Imbalance::Drift) || shows(Imbalance::Lost) =>
            {
                return Self::TwoTransactions;
            }
            Pass::Pause if has_lock => return Self::LeaseOutlived,
            _ => {}
        }

        if steps.iter().any(|it| it.in_transaction && it.sql.contains("advisory_unlock")) {
            return Self::ReleasedBeforeCommit;
        }

        let is_write = |step: &Step| step.access == Some(Access::Write) && step.has_changed;
        let Some(place) = steps.iter().position(|step| is_write(step)) else {
            return Self::Unknown;
        };
        let write = steps[place];
        let others = steps.iter().filter(|step| step.request != write.request);
        let is_alone = others.clone().next().is_some() && !others.clone().any(|it| is_write(it));
        if is_alone && shows(Imbalance::Oversold) {
            return Self::OrderWithoutUnit;
        }

        let of_request = steps[..place].iter().filter(|step| step.request == write.request);
        let mut read = None;
        let mut is_same = true;
        for step in of_request {
            if step.access == Some(Access::Read) {
                read = Some(step);
                is_same = step.in_transaction;
            }
            // A transaction that ends between the read and the write.
            is_same &= step.in_transaction && step.connection == write.connection;
        }

        // A statement for several cases may have both kinds of assignment; but units that are taken
        // one by one leave no drift.
        let is_relative = is_relative(&write.sql, columns) && !shows(Imbalance::Drift);
        match (read, is_relative) {
            (None, _) => Self::NoCheck,
            (Some(_), false) => Self::ReadThenWrite,
            (Some(_), true) if is_same => Self::CheckThenDecrement,
            (Some(read), true) if read.in_transaction || write.in_transaction => {
                Self::CheckElsewhere
            }
            (Some(_), true) => Self::CheckThenDecrement,
        }
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns its name in a language, with which its sentence begins.
    pub fn title(self, language: Language) -> String {
        language.text(&format!("service-pattern-{}", self.name()))
    }

    /// Returns what to do about it.
    pub fn cure(self, language: Language) -> String {
        language.text(&format!("service-cure-{}", self.name()))
    }

    /// Says what happened to two requests.
    pub(super) fn message(self, sold: u64, opening: i64) -> Message {
        match self {
            Self::NoCheck => message!("service-found-no-check", sold, opening),
            Self::ReadThenWrite => message!("service-found-read-then-write", sold, opening),
            Self::CheckThenDecrement => {
                message!("service-found-check-then-decrement", sold, opening)
            }
            Self::CheckElsewhere => message!("service-found-check-elsewhere", sold, opening),
            Self::OrderWithoutUnit => {
                message!("service-found-order-without-unit", sold, opening)
            }
            Self::TwoTransactions => message!("service-found-two-transactions"),
            Self::ReleasedBeforeCommit => message!("service-found-released-before-commit"),
            Self::LeaseOutlived => message!("service-found-lease-outlived"),
            Self::KeyNotUnique => message!("service-found-key-not-unique"),
            Self::Unknown => message!("service-found-unknown", sold, opening),
        }
    }
}

/// Returns whether an update computes one of the columns from itself: `stock = stock - 1`.
fn is_relative(sql: &str, columns: &[String]) -> bool {
    let sql = sql.replace('"', "");
    let Some((_, assignments)) = sql.split_once(" set ") else { return false };
    let assignments = assignments.split(" where ").next().unwrap_or_default();
    assignments.split(',').any(|assignment| {
        let Some((column, value)) = assignment.split_once('=') else { return false };
        let column = column.trim();
        let mut words = value.split(|letter| !is_word(letter));
        columns.iter().any(|it| it.to_lowercase() == column) && words.any(|word| word == column)
    })
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    /// Statements of one connection each: request, text, and whether its transaction stays open.
    fn pattern(steps: &[(usize, &str, bool)]) -> Pattern {
        pattern_of(&[Imbalance::Oversold], steps)
    }

    fn pattern_of(shown: &[Imbalance], steps: &[(usize, &str, bool)]) -> Pattern {
        let tables = ["goods".to_owned()];
        let steps: Vec<Step> = steps
            .iter()
            .map(|(request, sql, in_transaction)| Step {
                request: *request,
                connection: 1,
                access: crate::service::sql::access(sql, &tables),
                sql: (*sql).to_owned(),
                in_transaction: *in_transaction,
                has_changed: true,
            })
            .collect();
        let steps: Vec<&Step> = steps.iter().collect();
        let columns = ["Stock".to_owned()];
        Pattern::of(Pass::Gate, shown, &steps, &columns, false)
    }

    const READ: &str = "select stock from goods where id = 'tea'";
    const ABSOLUTE: &str = "update goods set stock = 0, sold_at = now() where stock >= 0";
    /// Only its version is computed from itself.
    const VERSIONED: &str = "update goods set version = version + 1, stock = 0 where id = 'tea'";
    const EITHER: &str = "update goods set stock = case when true then 0 else stock - 1 end";
    const RELATIVE: &str =
        "update \"goods\" set \"stock\" = (\"goods\".\"stock\" - 1) where id = 'tea'";

    const GUIDE: &str = include_str!("../../../../docs/SERVICE.md");

    #[test]
    fn guide_has_the_cures_of_the_page() {
        for pattern in Pattern::VARIANTS {
            let row = format!("| `{}` | {}", pattern.name(), pattern.cure(Language::English));
            assert!(GUIDE.contains(&row), "{row}");
        }
    }

    #[test]
    fn pattern_is_named_by_the_statements() {
        let both =
            |text, write| [(0, text, true), (1, text, true), (0, write, true), (1, write, true)];
        assert_eq!(pattern(&both(READ, ABSOLUTE)), Pattern::ReadThenWrite);
        assert_eq!(pattern(&both(READ, VERSIONED)), Pattern::ReadThenWrite);
        assert_eq!(pattern(&both(READ, RELATIVE)), Pattern::CheckThenDecrement);
        let overwritten = [Imbalance::Oversold, Imbalance::Drift];
        assert_eq!(pattern_of(&overwritten, &both(READ, EITHER)), Pattern::ReadThenWrite);
        // Without transactions there is none to be another one.
        assert_eq!(pattern(&[(0, READ, false), (0, RELATIVE, false)]), Pattern::CheckThenDecrement);
        let committed = [(0, READ, true), (0, "commit", false), (0, RELATIVE, true)];
        assert_eq!(pattern(&committed), Pattern::CheckElsewhere);
        assert_eq!(pattern(&[(0, RELATIVE, true)]), Pattern::NoCheck);
        let accepted = [(1, READ, true), (0, READ, true), (0, RELATIVE, true)];
        assert_eq!(pattern(&accepted), Pattern::OrderWithoutUnit);
        assert_eq!(pattern(&[(0, READ, true)]), Pattern::Unknown);
        let unlocked = [(0, READ, true), (0, "select pg_advisory_unlock(1)", true)];
        assert_eq!(pattern(&unlocked), Pattern::ReleasedBeforeCommit);
    }
}

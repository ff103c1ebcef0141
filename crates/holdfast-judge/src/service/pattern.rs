//! What is wrong with a service, by the statements of two requests.

use std::collections::BTreeSet;

use holdfast_base::message;
use holdfast_base::messages::{Language, Message};

use super::learned::Learned;
use super::pass::Pass;
use super::report::{Imbalance, Pattern};
use super::sql::{Access, access, is_word};

/// A statement of one of two requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    /// Number of the request.
    pub(super) request: usize,
    pub(super) connection: u64,
    pub(super) access: Option<Access>,
    /// It names the key of the request.
    pub(super) has_key: bool,
    /// In lower case.
    pub(super) sql: String,
    /// A transaction is open after it.
    pub(super) in_transaction: bool,
    /// It has changed a row.
    pub(super) has_changed: bool,
}

impl Step {
    /// Returns whether it begins a transaction.
    pub(super) fn begins(&self) -> bool {
        self.sql.starts_with("begin") || self.sql.starts_with("start ")
    }
}

impl Pattern {
    /// Names the mistake that fits what two requests have shown, by their statements in order of
    /// time.
    pub(super) fn of(
        pass: Pass,
        shown: &[Imbalance],
        steps: &[&Step],
        learned: &Learned,
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

        // One after the other: the second one has seen what the first had written. Not, if it began
        // before: its snapshot may be older than its first read.
        let ended = steps.iter().rposition(|step| step.request == write.request);
        let began = steps.iter().position(|step| step.request != write.request);
        let has_read = others.clone().any(|step| step.access == Some(Access::Read));
        if has_read && began > ended && shows(Imbalance::Oversold) {
            // What it has read in Redis, earlier, is no statement.
            return if has_lock { Self::Unknown } else { Self::NoCheck };
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

        // What a trigger or a function writes is not seen, and a statement for several cases may
        // have both kinds of assignment; but units that are taken one by one leave no drift.
        let has_drift = shows(Imbalance::Drift);
        let is_hidden = access(&write.sql, &learned.tables) != Some(Access::Write);
        let own = steps.iter().filter(|step| step.request == write.request && is_write(step));
        let set = own.clone().filter_map(|step| is_relative(&step.sql, &learned.columns));
        let set = set.reduce(|one, other| one || other);
        // A stock that is counted has no column to be set, but rows.
        let has_inserted = own.clone().any(|step| step.sql.contains("insert into "));
        let is_counted = !is_hidden && !has_drift && set.is_none() && has_inserted;
        let is_one_by_one = !has_drift && (is_hidden || is_counted || set == Some(true));
        match read {
            // A function may have looked.
            None if is_hidden => Self::Unknown,
            // The insert itself has.
            None if is_counted && write.sql.contains("select ") => Self::CheckThenInsert,
            None => Self::NoCheck,
            Some(_) if !is_one_by_one => Self::ReadThenWrite,
            Some(read) if !is_same && (read.in_transaction || write.in_transaction) => {
                Self::CheckElsewhere
            }
            Some(_) if is_counted => Self::CheckThenInsert,
            Some(_) => Self::CheckThenDecrement,
        }
    }

    /// Returns the places of the statements that decide: of each request its first write, and what
    /// it has read last before. Of a key that is not unique these are the statements that name it.
    pub(super) fn decisive(self, steps: &[&Step]) -> BTreeSet<usize> {
        let access = |step: &Step| match self {
            Self::Unknown => None,
            Self::KeyNotUnique if !step.has_key => None,
            Self::KeyNotUnique if step.sql.starts_with("select") => Some(Access::Read),
            Self::KeyNotUnique => Some(Access::Write),
            _ => step.access,
        };
        let mut places = BTreeSet::new();
        let requests: BTreeSet<usize> = steps.iter().map(|step| step.request).collect();
        for request in requests {
            let mut own = (0..steps.len()).filter(|place| steps[*place].request == request);
            let mut read = None;
            let write = own.find(|place| {
                let step = steps[*place];
                let found = access(step);
                if found == Some(Access::Read) {
                    read = Some(*place);
                }
                found == Some(Access::Write) && step.has_changed
            });
            places.extend(read.into_iter().chain(write));
        }
        places
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
            Self::CheckThenInsert => message!("service-found-check-then-insert", sold, opening),
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

/// Returns whether an update computes one of the columns from itself, `stock = stock - 1`; `None`
/// if it sets none of them.
fn is_relative(sql: &str, columns: &[String]) -> Option<bool> {
    let sql = sql.replace('"', "");
    let (_, assignments) = sql.split_once(" set ")?;
    let assignments = assignments.split(" where ").next().unwrap_or_default();
    let of_stock = assignments.split(',').filter_map(|assignment| {
        let (column, value) = assignment.split_once('=')?;
        let column = column.trim();
        let mut words = value.split(|letter| !is_word(letter));
        let is_of_stock = columns.iter().any(|it| it.to_lowercase() == column);
        is_of_stock.then(|| words.any(|word| word == column))
    });
    of_stock.reduce(|one, other| one || other)
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::service::sql::fingerprint;

    /// Statements of one connection each: request, text, and whether its transaction stays open.
    fn pattern(steps: &[(usize, &str, bool)]) -> Pattern {
        pattern_of(&[Imbalance::Oversold], steps)
    }

    fn pattern_of(shown: &[Imbalance], steps: &[(usize, &str, bool)]) -> Pattern {
        let steps = steps_of(steps);
        let steps: Vec<&Step> = steps.iter().collect();
        Pattern::of(Pass::Gate, shown, &steps, &learned(), false)
    }

    fn learned() -> Learned {
        Learned {
            tables: ["goods", "sales"].map(str::to_owned).to_vec(),
            columns: vec!["Stock".to_owned()],
            hidden_writes: [HIDDEN, FUNCTION].map(fingerprint).to_vec(),
        }
    }

    fn steps_of(steps: &[(usize, &str, bool)]) -> Vec<Step> {
        let learned = learned();
        let steps = steps.iter().map(|(request, sql, in_transaction)| Step {
            request: *request,
            connection: 1,
            access: learned.access(sql),
            has_key: sql.contains("'key'"),
            sql: (*sql).to_owned(),
            in_transaction: *in_transaction,
            has_changed: !sql.starts_with("select"),
        });
        steps.collect()
    }

    #[test]
    fn decisive_are_the_last_read_and_the_write_of_each_request() {
        const FIND: &str = "select id from orders where key = 'key'";
        const ORDER: &str = "insert into bought values ('key')";
        let all = [
            (0, FIND, true),
            (0, READ, true),
            (1, FIND, true),
            (0, READ, true),
            (1, READ, true),
            (1, RELATIVE, true),
            (1, ORDER, true),
            (0, RELATIVE, true),
            (0, ORDER, true),
            (0, READ, true),
        ];
        let places = |pattern: Pattern, count: usize| {
            let steps = steps_of(&all[..count]);
            let steps: Vec<&Step> = steps.iter().collect();
            pattern.decisive(&steps).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(places(Pattern::ReadThenWrite, 10), [3, 4, 5, 7]);
        assert_eq!(places(Pattern::KeyNotUnique, 10), [0, 2, 6, 8]);
        // The first request takes no unit.
        assert_eq!(places(Pattern::OrderWithoutUnit, 7), [3, 4, 5]);
        assert!(places(Pattern::Unknown, 10).is_empty());
    }

    const READ: &str = "select stock from goods where id = 'tea'";
    const ABSOLUTE: &str = "update goods set stock = 0, sold_at = now() where stock >= 0";
    /// Only its version is computed from itself.
    const VERSIONED: &str = "update goods set version = version + 1, stock = 0 where id = 'tea'";
    const EITHER: &str = "update goods set stock = case when true then 0 else stock - 1 end";
    const RELATIVE: &str =
        "update \"goods\" set \"stock\" = (\"goods\".\"stock\" - 1) where id = 'tea'";

    const COUNT: &str = "select size - (select count(*) from sales) from goods where id = 'tea'";
    const INSERT: &str = "insert into sales (item) values ('tea') on conflict do nothing";
    /// A trigger, and a function, subtract.
    const HIDDEN: &str = "insert into tickets (item) values ('tea')";
    const FUNCTION: &str = "select take('tea')";

    const GUIDE: &str = include_str!("../../../../docs/SERVICE.md");

    #[test]
    fn guide_names_each_pattern() {
        for pattern in Pattern::VARIANTS {
            let name = format!("`{}`", pattern.name());
            assert!(GUIDE.contains(&name), "{name} is not in the guide");
        }
    }

    #[test]
    fn late_read_is_no_missing_check_if_another_may_be_earlier() {
        let serial = [(0, READ, true), (0, RELATIVE, true), (0, "commit", false)];
        let next = [(1, READ, true), (1, RELATIVE, true)];
        let both = [&serial[..], &next].concat();
        assert_eq!(pattern(&both), Pattern::NoCheck);

        let steps = steps_of(&both);
        let steps: Vec<&Step> = steps.iter().collect();
        let shown = [Imbalance::Oversold];
        let with_redis = Pattern::of(Pass::Gate, &shown, &steps, &learned(), true);
        assert_eq!(with_redis, Pattern::Unknown);
        let snapshot = [(1, "begin isolation level repeatable read", true)];
        let overlapping = [&snapshot[..], &both[..]].concat();
        assert_eq!(pattern(&overlapping), Pattern::CheckThenDecrement);
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
        assert_eq!(pattern(&both(COUNT, INSERT)), Pattern::CheckThenInsert);
        assert_eq!(pattern_of(&overwritten, &both(COUNT, INSERT)), Pattern::ReadThenWrite);
        let itself = "insert into sales (item) select 'tea' where (select count(*) from sales) < 5";
        assert_eq!(pattern(&[(0, itself, false), (1, itself, false)]), Pattern::CheckThenInsert);
        let upsert =
            "insert into goods (id) values ('tea') on conflict (id) do update set stock = 0";
        assert_eq!(pattern(&both(READ, upsert)), Pattern::ReadThenWrite);
        let both_written = [(0, READ, true), (0, INSERT, true), (0, ABSOLUTE, true)];
        assert_eq!(pattern(&both_written), Pattern::ReadThenWrite);
        let subtracted = [(0, READ, true), (0, INSERT, true), (0, RELATIVE, true)];
        assert_eq!(pattern(&subtracted), Pattern::CheckThenDecrement);

        assert_eq!(pattern(&both(READ, HIDDEN)), Pattern::CheckThenDecrement);
        assert_eq!(pattern_of(&overwritten, &both(READ, HIDDEN)), Pattern::ReadThenWrite);
        assert_eq!(pattern(&[(0, FUNCTION, false), (1, FUNCTION, false)]), Pattern::Unknown);
        let unlocked = [(0, READ, true), (0, "select pg_advisory_unlock(1)", true)];
        assert_eq!(pattern(&unlocked), Pattern::ReleasedBeforeCommit);
    }
}

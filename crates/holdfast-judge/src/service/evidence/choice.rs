//! Which statements of two requests are shown: those that matter most.

use std::collections::{BTreeMap, BTreeSet};

use super::shortening::name_of;
use crate::service::pattern::Step;
use crate::service::report::{Pattern, StatementReport};
use crate::service::sent::{WITHOUT_EFFECT, is_script};
use crate::service::sql::Access;

/// Statements that are shown. If these are all, so is what begins the two transactions.
const MAX_STATEMENTS: usize = 10;
const MAX_BEGINS: usize = 2;

/// A statement, how important it is, and what it shows.
pub(super) struct Line {
    pub(super) weight: u8,
    pub(super) step: Step,
    pub(super) report: StatementReport,
    pub(super) has_failed: bool,
}

/// Of what a request tries in vain, the first time is shown with its rollback. The same again says
/// nothing new, from its begin to its rollback.
pub(super) fn weigh_failures(lines: &mut [Line]) {
    let mut tried = BTreeSet::new();
    // Of each connection, where its transaction begins, and the weight of what has failed in it.
    let (mut begun, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for place in 0..lines.len() {
        let Line { weight, step, report, has_failed } = &mut lines[place];
        let connection = (step.request, step.connection);
        let has_ended = !step.in_transaction;
        if step.begins() {
            begun.insert(connection, place);
        }
        if *has_failed {
            let is_first = !failed.contains_key(&connection);
            let is_new = is_first && tried.insert((step.request, step.sql.clone()));
            *weight = if is_new { 3 } else { 0 };
            failed.entry(connection).or_insert(*weight);
        } else if report.result == "ROLLBACK"
            && let Some(failure) = failed.remove(&connection)
        {
            // Also of a `COMMIT`, as a failed transaction ends so, and back to a savepoint.
            *weight = failure;
            if failure == 0
                && has_ended
                && let Some(begin) = begun.get(&connection)
            {
                lines[*begin].weight = 0;
            }
        }
        if has_ended {
            failed.remove(&connection);
        }
    }
}

/// Of what a request reads of the stock, the last time before it writes decides, and the first time
/// may be the check. The rest says nothing new.
pub(super) fn weigh_reads(lines: &mut [Line]) {
    let requests: BTreeSet<usize> = lines.iter().map(|line| line.step.request).collect();
    for request in requests {
        let mut has_written = false;
        let mut reads: Vec<&mut u8> = Vec::new();
        for Line { weight, step, .. } in lines.iter_mut().filter(|it| it.step.request == request) {
            match step.access {
                Some(Access::Write) => has_written |= step.has_changed,
                Some(Access::Read) if has_written => *weight = 0,
                Some(Access::Read) => reads.push(weight),
                None => {}
            }
        }

        reads.pop();
        for (place, weight) in reads.into_iter().enumerate() {
            *weight = if place == 0 { 3 } else { 0 };
        }
    }
}

/// Prefers what shows a mistake: what decides, or that a transaction began after the check.
pub(super) fn weigh_for(pattern: Pattern, decisive: &BTreeSet<usize>, lines: &mut [Line]) {
    for (place, Line { weight, step, report, .. }) in lines.iter_mut().enumerate() {
        report.decisive = decisive.contains(&place);
        if report.decisive {
            *weight = 6;
        } else if pattern == Pattern::CheckElsewhere && step.begins() && *weight > 0 {
            *weight = 4;
        }
    }
}

/// Returns how important a command to Redis is: one that takes a lock, or looks for it, is as what
/// it guards. `None` if it has nothing to do with an order.
pub(super) fn weight_of_command(name: &str) -> Option<u8> {
    match name {
        "EXISTS" | "GET" | "GETSET" | "SET" | "SETNX" => Some(5),
        "DEL" | "UNLINK" => Some(4),
        _ if is_script(name) => Some(5),
        _ if WITHOUT_EFFECT.contains(&name) => None,
        _ => Some(2),
    }
}

/// Leaves out the statements for which there is no place, and returns their names.
pub(super) fn leave_out(lines: &mut Vec<Line>) -> Vec<String> {
    let others = lines.iter().filter(|line| !line.step.begins()).count();
    let max = if others <= MAX_STATEMENTS { MAX_STATEMENTS + MAX_BEGINS } else { MAX_STATEMENTS };
    let mut left_out = Vec::new();
    // The least important ones go first, of these the latest.
    while lines.len() > max
        && let Some(least) = lines.iter().map(|line| line.weight).min()
        && let Some(place) = lines.iter().rposition(|line| line.weight == least)
    {
        left_out.push(name_of(&lines.remove(place).report.sql));
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a line that says nothing of the stock.
    fn line(sql: &str) -> Line {
        let step = Step { sql: sql.to_owned(), in_transaction: true, ..Step::default() };
        let report = StatementReport { sql: sql.to_owned(), ..StatementReport::default() };
        Line { weight: 1, step, report, has_failed: false }
    }

    #[test]
    fn what_fails_again_gives_way_with_its_rollback() {
        let tries = ["begin", "select", "rollback"].repeat(2);
        let lines = tries.into_iter().chain(["rollback"]).map(|sql| {
            let mut line = line(sql);
            line.weight = 4;
            line.has_failed = sql == "select";
            line.report.result = sql.to_uppercase();
            line.step.in_transaction = sql != "rollback";
            line
        });
        let mut lines: Vec<Line> = lines.collect();
        weigh_failures(&mut lines);
        weigh_for(Pattern::CheckElsewhere, &BTreeSet::new(), &mut lines);
        let weights: Vec<u8> = lines.iter().map(|line| line.weight).collect();
        assert_eq!(weights, [4, 3, 3, 0, 0, 0, 4]);
    }

    #[test]
    fn statement_that_shows_the_mistake_is_preferred() {
        let weights = |pattern| {
            let mut lines = ["begin", "select 1 from orders where key = 'a'", "commit"].map(line);
            weigh_for(pattern, &BTreeSet::from([1]), &mut lines);
            assert!(lines[1].report.decisive && !lines[2].report.decisive);
            lines.map(|line| line.weight)
        };
        assert_eq!(weights(Pattern::CheckElsewhere), [4, 6, 1]);
        assert_eq!(weights(Pattern::ReadThenWrite), [1, 6, 1]);
    }

    #[test]
    fn begin_stays_if_all_others_do() {
        let left_out = |others: usize| {
            let begins = ["BEGIN", "START TRANSACTION"].map(|sql| {
                let mut line = line(&sql.to_lowercase());
                line.report.sql = sql.to_owned();
                line
            });
            let others = (0..others).map(|_| Line { weight: 5, ..line("update goods set a = 1") });
            let mut lines: Vec<Line> = begins.into_iter().chain(others).collect();
            let names = leave_out(&mut lines);
            (lines.len(), names.join(" "))
        };
        assert_eq!(left_out(10), (12, String::new()));
        assert_eq!(left_out(11), (10, "START BEGIN UPDATE goods".to_owned()));
    }
}

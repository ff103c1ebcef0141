//! A schedule that has found something, in a file: the same two requests can be run again, as a
//! test.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use super::steps::Passed;

/// A schedule, and what has passed under it: a file that `--replay` runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScheduleRecording {
    pub(super) service: String,
    pub(super) schedule: Schedule,
    pub(super) statements: Vec<Passed>,
}

impl ScheduleRecording {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("--replay: can't read {}", path.display()))?;
        let recording: Option<Self> = serde_json::from_str(&text).ok();
        let recording = recording.filter(|it| it.schedule.is_possible());
        recording.with_context(|| {
            format!("--replay: {} is no schedule that the judge has written", path.display())
        })
    }

    pub(super) fn check_service(&self, name: &str) -> anyhow::Result<()> {
        let recorded = &self.service;
        ensure!(
            recorded == name,
            "--replay: the schedule is of the service {recorded}, not {name}"
        );
        Ok(())
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
    }

    /// Fails if other statements have passed than those of the recording, however often a request
    /// has tried.
    pub(super) fn check(&self, passed: &[Passed]) -> anyhow::Result<()> {
        let pairs = without_retries(&self.statements).into_iter().map(Some).chain([None]);
        let found = without_retries(passed).into_iter().map(Some).chain([None]);
        let differing = pairs.zip(found).find(|(expected, found)| expected != found);
        let Some((expected, found)) = differing else { return Ok(()) };
        let told = |passed: Option<&Passed>| match passed {
            Some(Passed { request, statement }) => format!("buyer {}: {statement}", request + 1),
            None => "nothing more".to_owned(),
        };
        bail!(
            "--replay: the orders send other statements than those of the schedule, as after most \
             cures, so it says nothing of them. In the schedule\n  {}\nnow\n  {}\nSearch again \
             with --faults interleavings",
            told(expected),
            told(found)
        );
    }
}

/// Leaves out the rollbacks after which a request sends the same again, and what it sends again:
/// how often it does so may depend on the time that it waits for a lock.
fn without_retries(passed: &[Passed]) -> Vec<&Passed> {
    let mut kept: Vec<&Passed> = Vec::new();
    for next in passed {
        kept.push(next);
        let is_own = |place: &usize| kept[*place].request == next.request;
        // The latest one first.
        let own: Vec<usize> = (0..kept.len()).rev().filter(is_own).collect();
        let is_retry = |length: &usize| {
            let (again, before) = own.split_at(*length);
            let is_same = |(one, other): (&usize, &usize)| kept[*one] == kept[*other];
            kept[before[0]].statement.starts_with("rollback")
                && again.iter().zip(&before[1..]).all(is_same)
        };
        if let Some(length) = (1..own.len().div_ceil(2)).find(is_retry) {
            for place in &own[..=length] {
                kept.remove(*place);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns statements, each of which follows the number of its request.
    fn passed(text: &str) -> Vec<Passed> {
        let statements = text.split(", ").map(|text| {
            let (request, statement) = text.split_once(' ').unwrap();
            Passed { request: request.parse().unwrap(), statement: statement.to_owned() }
        });
        statements.collect()
    }

    #[test]
    fn number_of_tries_does_not_matter() {
        const TWICE: &str = "1 select, 0 commit, 1 rollback, 1 select, 1 rollback, 1 select, 1 end";
        for (all, left) in [
            (TWICE, "1 select, 0 commit, 1 end"),
            ("0 read, 0 take, 0 rollback, 0 read, 0 take, 0 end", "0 read, 0 take, 0 end"),
            ("0 read, 0 rollback, 0 take", "0 read, 0 rollback, 0 take"),
            ("0 read, 1 rollback, 0 read", "0 read, 1 rollback, 0 read"),
        ] {
            let all = passed(all);
            assert_eq!(without_retries(&all), passed(left).iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn recording_is_of_the_statements_that_pass() {
        let passed = |request: usize, text: &str| Passed { request, statement: text.to_owned() };
        let statements = vec![passed(0, "select ?"), passed(1, "commit")];
        let schedule = Schedule { first: 0, switches: vec![1], patient: false };
        let recording = ScheduleRecording { service: "shop".to_owned(), schedule, statements };
        assert!(recording.check(&recording.statements).is_ok());
        for (other, word) in [
            (vec![passed(0, "select ?")], "\nnow\n  nothing more"),
            (vec![passed(0, "select ?"), passed(0, "commit")], "buyer 1: commit"),
            (
                [&recording.statements[..], &[passed(1, "commit")]].concat(),
                "In the schedule\n  nothing more",
            ),
        ] {
            let error = recording.check(&other).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}

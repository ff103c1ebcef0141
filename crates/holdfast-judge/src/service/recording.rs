//! A schedule that has found something, in a file: the same two requests can be run again, as a
//! test.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use super::steps::Passed;

/// A schedule, and what has passed under it: a file that `--replay` runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recording {
    pub(super) service: String,
    pub(super) schedule: Schedule,
    pub(super) statements: Vec<Passed>,
}

impl Recording {
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

    /// Fails if other statements have passed than those of the recording.
    pub(super) fn check(&self, passed: &[Passed]) -> anyhow::Result<()> {
        let pairs = self.statements.iter().map(Some).chain([None]);
        let found = passed.iter().map(Some).chain([None]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_is_of_the_statements_that_pass() {
        let passed = |request: usize, text: &str| Passed { request, statement: text.to_owned() };
        let statements = vec![passed(0, "select ?"), passed(1, "commit")];
        let schedule = Schedule { first: 0, switches: vec![1] };
        let recording = Recording { service: "shop".to_owned(), schedule, statements };
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

//! What the caller demands of a judgement, of a lock or of a service, and with it the exit code.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::report::{FaultReport, Judgement, ViolationKind};

/// A judgement whose findings are compared with what the caller demands.
pub trait Judged {
    fn name(&self) -> &str;

    /// Returns its faults or passes, and whether each has run.
    fn parts(&self) -> Vec<(&str, bool)>;

    /// Returns what was found of what a caller may not want.
    fn found(&self) -> Vec<Found>;

    /// Returns why it is no verdict if nothing was found that is not allowed.
    fn undecided(&self) -> Option<String>;
}

/// Something that was found under a fault or in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub under: String,
    pub what: Finding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// A loss that `--may-lose` can allow, in words.
    Lost(&'static str),
    LostWithFence,
    /// A finding that `--fail-on` asks for.
    Of(Demand),
}

/// Violations that are no lost updates, and that a caller may not want either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Demand {
    /// The lock was free, and no client got it for too long.
    Blocked,
    /// A client never got the lock.
    Starved,
    /// A release said ok while another client held the lock.
    BadRelease,
    /// A fence was not above all earlier ones.
    FencesBack,
}

impl Demand {
    pub(super) fn kind(self) -> ViolationKind {
        match self {
            Self::Blocked => ViolationKind::Blocked,
            Self::Starved => ViolationKind::Starved,
            Self::BadRelease => ViolationKind::ReleaseOkWhenLost,
            Self::FencesBack => ViolationKind::FenceRegression,
        }
    }
}

/// The demands of one command.
#[derive(Debug, Default)]
pub struct Demands {
    fail_on: Vec<Demand>,
    /// Names of faults or passes.
    may_lose: Vec<String>,
    baseline: Option<Baseline>,
}

/// The findings of an earlier judgement.
#[derive(Debug)]
struct Baseline {
    name: String,
    ran: Vec<String>,
    found: Vec<Found>,
}

impl Demands {
    /// Reads a baseline, before the work, which must have all of these parts.
    pub(super) fn read<J: Judged + DeserializeOwned>(
        may_lose: &[String],
        baseline: Option<&Path>,
        parts: &[&str],
    ) -> anyhow::Result<Self> {
        let baseline = baseline.map(|path| Baseline::read::<J>(path, parts)).transpose()?;
        Ok(Self { fail_on: Vec::new(), may_lose: may_lose.to_vec(), baseline })
    }

    pub(super) fn with_fail_on(self, fail_on: &[Demand]) -> Self {
        Self { fail_on: fail_on.to_vec(), ..self }
    }

    /// Returns whether the caller demands anything else than the default.
    pub fn are_given(&self) -> bool {
        !self.fail_on.is_empty() || !self.may_lose.is_empty() || self.baseline.is_some()
    }

    /// Fails if the baseline is of something else than this name says.
    pub(super) fn check_name(&self, ours: &str) -> anyhow::Result<()> {
        if let Some(Baseline { name, .. }) = &self.baseline {
            ensure!(
                without_version(ours) == without_version(name),
                "the baseline is of something else: {name}, not {ours}"
            );
        }
        Ok(())
    }

    /// Returns what the judgement lacks, a sentence each; none if it is as demanded.
    ///
    /// # Errors
    /// If it is as demanded only because it could not be judged.
    pub fn unmet(&self, judgement: &impl Judged) -> anyhow::Result<Vec<String>> {
        let unmet = self.described(judgement, false);
        let undecided = judgement.undecided().filter(|_| unmet.is_empty());
        match undecided {
            Some(why) => Err(anyhow::anyhow!("it can't be judged: {why}")),
            None => Ok(unmet),
        }
    }

    /// Returns why the judgement is as demanded although something was found, and what the baseline
    /// says nothing of, a sentence each.
    pub fn remarks(&self, judgement: &impl Judged) -> Vec<String> {
        let allowed = self.described(judgement, true).into_iter();
        // The verdict above it may be another one.
        let is_met = self.described(judgement, false).is_empty();
        let begin = if is_met { "Exit code 0: as demanded, " } else { "As demanded: " };
        let mut remarks: Vec<String> = allowed.map(|it| format!("{begin}{it}.")).collect();

        if let Some(Baseline { ran, .. }) = &self.baseline {
            let parts = judgement.parts().into_iter();
            let new = parts.filter(|(name, has_run)| *has_run && !ran.iter().any(|it| it == name));
            let new = new.map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            let said = format!("The baseline has no result for {new}: all found there is new.");
            remarks.extend((!new.is_empty()).then_some(said));
        }
        remarks
    }

    /// Describes the findings that are allowed, or those that are not.
    fn described(&self, judgement: &impl Judged, is_allowed: bool) -> Vec<String> {
        let found = judgement.found().into_iter().filter(|found| self.is_asked(found));
        let found = found.filter(|found| self.allows(found) == is_allowed);
        found.map(|found| self.describe(&found, is_allowed)).collect()
    }

    fn is_asked(&self, found: &Found) -> bool {
        match &found.what {
            Finding::Lost(_) | Finding::LostWithFence => true,
            Finding::Of(demand) => self.baseline.is_some() || self.fail_on.contains(demand),
        }
    }

    fn allows(&self, found: &Found) -> bool {
        if let Some(baseline) = &self.baseline {
            return baseline.found.contains(found);
        }

        match found.what {
            Finding::Lost(_) => self.may_lose.contains(&found.under),
            // The fence is there for what the lock may lose.
            Finding::LostWithFence | Finding::Of(_) => false,
        }
    }

    fn describe(&self, found: &Found, is_allowed: bool) -> String {
        let what = match found.what {
            Finding::Lost(what) => what,
            Finding::LostWithFence => "updates were lost despite the fence",
            Finding::Of(demand) => (&demand.kind()).into(),
        };
        let why = match (self.baseline.is_some(), is_allowed) {
            (true, true) => ", as in the baseline",
            (true, false) => ", and not in the baseline",
            (false, true) => ", which --may-lose allows",
            (false, false) => "",
        };
        format!("{what} under {}{why}", found.under)
    }
}

impl Judged for Judgement {
    fn name(&self) -> &str {
        &self.adapter.name
    }

    fn parts(&self) -> Vec<(&str, bool)> {
        self.faults.iter().map(|report| (report.name.as_str(), report.ran)).collect()
    }

    fn found(&self) -> Vec<Found> {
        let found = self.faults.iter().flat_map(|report| {
            let what = findings(report).into_iter();
            what.map(|what| Found { under: report.name.clone(), what })
        });
        found.collect()
    }

    fn undecided(&self) -> Option<String> {
        let names = |reports: Vec<&FaultReport>| {
            let names: Vec<&str> = reports.iter().map(|it| it.name.as_str()).collect();
            names.join(", ")
        };
        let prevented = names(self.prevented().collect());
        if !prevented.is_empty() {
            return Some(format!(
                "no client of the process to be struck got the lock under {prevented}"
            ));
        }
        let stopped = names(self.stopped().collect());
        (!stopped.is_empty())
            .then(|| format!("nobody got the lock any more under {stopped}, although it was free"))
    }
}

fn findings(report: &FaultReport) -> Vec<Finding> {
    let has = |demand: &Demand| {
        let kind = demand.kind();
        report.violations.iter().any(|violation| violation.kind == kind)
    };
    let lost = report.loses_updates().then_some(Finding::Lost("updates were lost"));
    let with_fence = report.loses_with_fence().then_some(Finding::LostWithFence);
    let demands = Demand::value_variants().iter().copied().filter(has);
    lost.into_iter().chain(with_fence).chain(demands.map(Finding::Of)).collect()
}

impl Baseline {
    fn read<J: Judged + DeserializeOwned>(path: &Path, parts: &[&str]) -> anyhow::Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("can't read {name}"))?;
        let judgement: J = serde_json::from_str(&text)
            .with_context(|| format!("{name} is no judgement of this version of holdfast"))?;

        let known = judgement.parts();
        let is_missing = |part: &&&str| !known.iter().any(|(name, _)| name == *part);
        let missing: Vec<&str> = parts.iter().filter(is_missing).copied().collect();
        ensure!(
            missing.is_empty(),
            "the baseline {name} has no result for {}: choose other --faults, or make it again",
            missing.join(", ")
        );
        let ran = known.iter().filter(|(_, has_run)| *has_run);
        Ok(Self {
            name: judgement.name().to_owned(),
            ran: ran.map(|(name, _)| (*name).to_owned()).collect(),
            found: judgement.found(),
        })
    }
}

/// Fails if the judgement would be written over its baseline: the next one would allow all that was
/// found.
pub(super) fn check_files(baseline: Option<&Path>, json: Option<&Path>) -> anyhow::Result<()> {
    let file = |path: &Path| fs::canonicalize(path).ok();
    let baseline = baseline.and_then(file);
    ensure!(
        baseline.is_none() || baseline != json.and_then(file),
        "--json and --baseline name one file: the judgement would overwrite what it is compared with"
    );
    Ok(())
}

/// Returns the name of a lock without the words behind the first one that have a digit: an upgrade
/// is compared, too.
fn without_version(name: &str) -> Vec<&str> {
    let words = name.split_whitespace().enumerate();
    let kept = words.filter(|(at, word)| *at == 0 || !word.contains(|c: char| c.is_ascii_digit()));
    kept.map(|(_, word)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::report::{Violation, WithFence};

    fn report(fault: Fault, lost_updates: u64, kinds: &[ViolationKind]) -> FaultReport {
        let violation = |kind: &ViolationKind| Violation {
            kind: kind.clone(),
            text: String::new(),
            message: None,
            events: Vec::new(),
            story: Vec::new(),
        };
        FaultReport {
            name: fault.name().to_owned(),
            ran: true,
            lost_updates,
            violations: kinds.iter().map(violation).collect(),
            ..FaultReport::default()
        }
    }

    fn judgement(name: &str, faults: Vec<FaultReport>) -> Judgement {
        let adapter = serde_json::from_value(serde_json::json!({ "name": name, "fencing": false }));
        Judgement {
            adapter: adapter.unwrap(),
            faults,
            safe: true,
            ttl_ms: 1_000,
            seed: 7,
            started_at: String::new(),
            options: String::new(),
        }
    }

    #[test]
    fn lost_updates_and_what_the_caller_names_are_not_met() {
        let starved = [ViolationKind::Starved];
        let faults = vec![report(Fault::Undisturbed, 0, &starved), report(Fault::Pause, 3, &[])];
        let found = judgement("a 1.0", faults);
        let demands = |may_lose: &[Fault], fail_on: &[Demand]| Demands {
            fail_on: fail_on.to_vec(),
            may_lose: may_lose.iter().map(|fault| fault.name().to_owned()).collect(),
            baseline: None,
        };
        let unmet = |demands: Demands| demands.unmet(&found).unwrap();
        assert_eq!(unmet(demands(&[], &[])), ["updates were lost under pause"]);
        assert!(unmet(demands(&[Fault::Pause], &[Demand::Blocked])).is_empty());
        assert_eq!(unmet(demands(&[Fault::Pause], &[Demand::Starved])), ["starved under none"]);
        assert!(demands(&[], &[]).remarks(&found).is_empty());
        let said =
            ["Exit code 0: as demanded, updates were lost under pause, which --may-lose allows."];
        assert_eq!(demands(&[Fault::Pause], &[]).remarks(&found), said);

        let with_fence = Some(WithFence { lost_updates: 1, refused: 0 });
        let fenced = FaultReport { with_fence, ..report(Fault::Pause, 3, &[]) };
        let found = judgement("a 1.0", vec![fenced]);
        let unmet = demands(&[Fault::Pause], &[]).unmet(&found).unwrap();
        assert_eq!(unmet, ["updates were lost despite the fence under pause"]);
    }

    #[test]
    fn fault_that_the_lock_kept_from_running_is_no_verdict() {
        let prevented =
            |ran, lost| FaultReport { ran, prevented: !ran, ..report(Fault::Pause, lost, &[]) };
        let none = || report(Fault::Undisturbed, 0, &[]);
        let starving = judgement("a", vec![none(), prevented(false, 0)]);
        let error = Demands::default().unmet(&starving).unwrap_err();
        assert!(error.to_string().contains("got the lock under pause"), "{error}");

        // Elsewhere it is broken for certain.
        let broken = FaultReport { lost_updates: 1, ..none() };
        let broken = judgement("a", vec![broken, prevented(false, 0)]);
        let unmet = Demands::default().unmet(&broken).unwrap();
        assert_eq!(unmet, ["updates were lost under none"]);
        // What may be lost is no proof.
        let allowed = Demands { may_lose: vec!["none".to_owned()], ..Demands::default() };
        allowed.unmet(&broken).unwrap_err();
    }

    #[test]
    fn baseline_allows_what_it_has_and_no_more() {
        let before = judgement("a 1.0", vec![report(Fault::Pause, 3, &[ViolationKind::Blocked])]);
        let baseline = Baseline {
            name: before.name().to_owned(),
            ran: vec!["pause".to_owned()],
            found: before.found(),
        };
        let demands = Demands { baseline: Some(baseline), ..Demands::default() };
        let same = report(Fault::Pause, 99, &[ViolationKind::Blocked]);
        let same = judgement("a 1.1", vec![same, report(Fault::Evict, 0, &[])]);
        assert!(demands.unmet(&same).unwrap().is_empty());
        let said = [
            "Exit code 0: as demanded, updates were lost under pause, as in the baseline.",
            "Exit code 0: as demanded, blocked under pause, as in the baseline.",
            "The baseline has no result for evict: all found there is new.",
        ];
        assert_eq!(demands.remarks(&same), said);

        let starved = vec![report(Fault::Pause, 0, &[ViolationKind::Starved])];
        let worse = demands.unmet(&judgement("a 1.1", starved)).unwrap();
        assert_eq!(worse, ["starved under pause, and not in the baseline"]);
        let both = [ViolationKind::Starved, ViolationKind::Blocked];
        let both = judgement("a 1.1", vec![report(Fault::Pause, 0, &both)]);
        let said = ["As demanded: blocked under pause, as in the baseline."];
        assert_eq!(demands.remarks(&both), said, "the exit code is 1");
        let other = demands.check_name("b 1.1").unwrap_err();
        assert!(other.to_string().contains("something else: a 1.0, not b 1.1"), "{other}");
    }
}

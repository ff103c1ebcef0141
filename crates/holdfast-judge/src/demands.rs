//! What the caller demands of a judgement, and with it the exit code.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use super::args::{Demand, JudgeArgs};
use super::fault::Fault;
use super::plan;
use super::report::{Adapter, FaultReport, Judgement};

/// The demands of one command.
#[derive(Debug, Default)]
pub struct Demands {
    fail_on: Vec<Demand>,
    may_lose: Vec<Fault>,
    baseline: Option<Judgement>,
}

impl Demands {
    /// Reads the baseline, before the work. Fails if a fault has another name, or the baseline
    /// can't be compared with what will be found.
    pub fn of(args: &JudgeArgs) -> anyhow::Result<Self> {
        let faults = plan::select(&args.faults)?;
        let may_lose = args.may_lose.iter().map(|name| {
            let fault = Fault::named(name);
            fault.with_context(|| {
                format!("--may-lose {name}: the faults are {}", Fault::list(|_| true))
            })
        });
        let baseline = args.baseline.as_deref().map(|path| read_baseline(path, &faults));
        Ok(Self {
            fail_on: args.fail_on.clone(),
            may_lose: may_lose.collect::<anyhow::Result<_>>()?,
            baseline: baseline.transpose()?,
        })
    }

    /// Returns whether the caller demands anything else than the default.
    pub fn are_given(&self) -> bool {
        !self.fail_on.is_empty() || !self.may_lose.is_empty() || self.baseline.is_some()
    }

    /// Fails if the baseline is of another lock than that of this adapter.
    pub(super) fn check_lock(&self, adapter: &Adapter) -> anyhow::Result<()> {
        if let Some(baseline) = &self.baseline {
            let (ours, theirs) = (&adapter.name, &baseline.adapter.name);
            ensure!(
                without_version(ours) == without_version(theirs),
                "the baseline is of another lock: {theirs}, not {ours}"
            );
        }
        Ok(())
    }

    /// Returns what the judgement lacks, a sentence each; none if it is as demanded.
    ///
    /// # Errors
    /// If the lock kept a fault from running, or stopped, and is else as demanded: it can't be
    /// judged.
    pub fn unmet(&self, judgement: &Judgement) -> anyhow::Result<Vec<String>> {
        let unmet = self.described(judgement, false);
        let prevented: Vec<&str> = judgement.prevented().map(|it| it.name.as_str()).collect();
        ensure!(
            prevented.is_empty() || !unmet.is_empty(),
            "it can't be judged: no client of the process to be struck got the lock under {}",
            prevented.join(", ")
        );
        let stopped: Vec<&str> = judgement.stopped().map(|it| it.name.as_str()).collect();
        ensure!(
            stopped.is_empty() || !unmet.is_empty(),
            "it can't be judged: nobody got the lock any more under {}, although it was free",
            stopped.join(", ")
        );
        Ok(unmet)
    }

    /// Returns why the judgement is as demanded although something was found, and which faults the
    /// baseline says nothing of, a sentence each.
    pub fn remarks(&self, judgement: &Judgement) -> Vec<String> {
        let allowed = self.described(judgement, true).into_iter();
        let mut remarks: Vec<String> = allowed.map(|it| format!("As demanded: {it}.")).collect();

        if let Some(baseline) = &self.baseline {
            let has_run = |name: &str| baseline.report(name).is_some_and(|before| before.ran);
            let new = judgement.faults.iter().filter(|it| it.ran && !has_run(&it.name));
            let new = new.map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
            let said = format!("The baseline has no result for {new}: all found there is new.");
            remarks.extend((!new.is_empty()).then_some(said));
        }
        remarks
    }

    /// Describes the findings that are allowed, or those that are not.
    fn described(&self, judgement: &Judgement, is_allowed: bool) -> Vec<String> {
        let described = judgement.faults.iter().flat_map(|report| {
            let found = self.findings(report).into_iter();
            let found = found.filter(move |it| self.allows(it, report) == is_allowed);
            found.map(move |finding| self.describe(finding, report, is_allowed))
        });
        described.collect()
    }

    /// Returns what was found of what the caller may not want.
    fn findings(&self, report: &FaultReport) -> Vec<Finding> {
        let has = |demand: &Demand| {
            let kind = demand.kind();
            report.violations.iter().any(|violation| violation.kind == kind)
        };
        let is_asked = |demand: &Demand| self.baseline.is_some() || self.fail_on.contains(demand);
        let lost = report.loses_updates().then_some(Finding::Lost);
        let with_fence = report.loses_with_fence().then_some(Finding::LostWithFence);
        let demands = Demand::value_variants().iter().copied().filter(is_asked).filter(has);
        lost.into_iter().chain(with_fence).chain(demands.map(Finding::Of)).collect()
    }

    fn allows(&self, finding: &Finding, report: &FaultReport) -> bool {
        if let Some(baseline) = &self.baseline {
            let before = baseline.report(&report.name);
            return before.is_some_and(|before| self.findings(before).contains(finding));
        }

        match finding {
            Finding::Lost => report.fault().is_some_and(|fault| self.may_lose.contains(&fault)),
            // The fence is there for what the lock may lose.
            Finding::LostWithFence | Finding::Of(_) => false,
        }
    }

    fn describe(&self, finding: Finding, report: &FaultReport, is_allowed: bool) -> String {
        let what = match finding {
            Finding::Lost => "updates were lost".to_owned(),
            Finding::LostWithFence => "updates were lost despite the fence".to_owned(),
            Finding::Of(demand) => demand.kind().name().to_owned(),
        };
        let why = match (self.baseline.is_some(), is_allowed) {
            (true, true) => ", as in the baseline",
            (true, false) => ", and not in the baseline",
            (false, true) => ", which --may-lose allows",
            (false, false) => "",
        };
        format!("{what} under {}{why}", report.name)
    }
}

/// What a caller may not want of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Lost,
    LostWithFence,
    Of(Demand),
}

fn read_baseline(path: &Path, faults: &[Fault]) -> anyhow::Result<Judgement> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("can't read {name}"))?;
    let baseline: Judgement = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no judgement of this version of holdfast"))?;

    let missing = faults.iter().filter(|fault| baseline.report(fault.name()).is_none());
    let missing: Vec<&str> = missing.map(|fault| fault.name()).collect();
    ensure!(
        missing.is_empty(),
        "the baseline {name} has no result for {}: choose other --faults, or make it again",
        missing.join(", ")
    );
    Ok(baseline)
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
    use crate::report::{Violation, ViolationKind, WithFence};

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
            may_lose: may_lose.to_vec(),
            baseline: None,
        };
        let unmet = |demands: Demands| demands.unmet(&found).unwrap();
        assert_eq!(unmet(demands(&[], &[])), ["updates were lost under pause"]);
        assert!(unmet(demands(&[Fault::Pause], &[Demand::Blocked])).is_empty());
        assert_eq!(unmet(demands(&[Fault::Pause], &[Demand::Starved])), ["starved under none"]);
        assert!(demands(&[], &[]).remarks(&found).is_empty());
        let said = ["As demanded: updates were lost under pause, which --may-lose allows."];
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
        let allowed = Demands { may_lose: vec![Fault::Undisturbed], ..Demands::default() };
        allowed.unmet(&broken).unwrap_err();
    }

    #[test]
    fn baseline_allows_what_it_has_and_no_more() {
        let before = judgement("a 1.0", vec![report(Fault::Pause, 3, &[ViolationKind::Blocked])]);
        let demands = Demands { baseline: Some(before), ..Demands::default() };
        let same = report(Fault::Pause, 99, &[ViolationKind::Blocked]);
        let same = judgement("a 1.1", vec![same, report(Fault::Evict, 0, &[])]);
        assert!(demands.unmet(&same).unwrap().is_empty());
        let said = [
            "As demanded: updates were lost under pause, as in the baseline.",
            "As demanded: blocked under pause, as in the baseline.",
            "The baseline has no result for evict: all found there is new.",
        ];
        assert_eq!(demands.remarks(&same), said);

        let starved = vec![report(Fault::Pause, 0, &[ViolationKind::Starved])];
        let worse = demands.unmet(&judgement("a 1.1", starved)).unwrap();
        assert_eq!(worse, ["starved under pause, and not in the baseline"]);
        let other = demands.check_lock(&judgement("b 1.1", Vec::new()).adapter).unwrap_err();
        assert!(other.to_string().contains("another lock: a 1.0, not b 1.1"), "{other}");
    }
}

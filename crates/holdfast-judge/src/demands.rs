//! What the caller demands of a judgement, and with it the exit code.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use super::args::{Demand, JudgeArgs};
use super::fault::Fault;
use super::plan;
use super::report::{FaultReport, Judgement};

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

    /// Returns what the judgement lacks, a sentence each; none if it is as demanded.
    ///
    /// # Errors
    /// If the lock kept a fault from running, or stopped, and is else as demanded: it can't be
    /// judged. Or if the baseline is of another lock.
    pub fn unmet(&self, judgement: &Judgement) -> anyhow::Result<Vec<String>> {
        if let Some(baseline) = &self.baseline {
            let (ours, theirs) = (&judgement.adapter.name, &baseline.adapter.name);
            ensure!(
                without_version(ours) == without_version(theirs),
                "the baseline is of another lock: {theirs}, not {ours}"
            );
        }

        let unmet = judgement.faults.iter().flat_map(|report| {
            let found = findings(report).into_iter();
            let unmet = found.filter(|finding| !self.allows(finding, report));
            unmet.map(|finding| self.describe(finding, report))
        });
        let unmet: Vec<String> = unmet.collect();

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

    fn allows(&self, finding: &Finding, report: &FaultReport) -> bool {
        if let Some(baseline) = &self.baseline {
            // A fault that it has no result for is not compared.
            return baseline
                .report(&report.name)
                .is_none_or(|before| findings(before).contains(finding));
        }

        match finding {
            Finding::Lost => report.fault().is_some_and(|fault| self.may_lose.contains(&fault)),
            // The fence is there for what the lock may lose.
            Finding::LostWithFence => false,
            Finding::Of(demand) => !self.fail_on.contains(demand),
        }
    }

    fn describe(&self, finding: Finding, report: &FaultReport) -> String {
        let what = match finding {
            Finding::Lost => "updates were lost".to_owned(),
            Finding::LostWithFence => "updates were lost despite the fence".to_owned(),
            Finding::Of(demand) => demand.kind().name().to_owned(),
        };
        let since = if self.baseline.is_some() { ", and not in the baseline" } else { "" };
        format!("{what} under {}{since}", report.name)
    }
}

/// What a caller may not want of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Lost,
    LostWithFence,
    Of(Demand),
}

fn findings(report: &FaultReport) -> Vec<Finding> {
    let has = |demand: &Demand| {
        let kind = demand.kind();
        report.violations.iter().any(|violation| violation.kind == kind)
    };
    let lost = report.loses_updates().then_some(Finding::Lost);
    let with_fence = report.loses_with_fence().then_some(Finding::LostWithFence);
    let demands = Demand::value_variants().iter().copied().filter(has).map(Finding::Of);
    lost.into_iter().chain(with_fence).chain(demands).collect()
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
        let same = vec![report(Fault::Pause, 99, &[ViolationKind::Blocked])];
        assert!(demands.unmet(&judgement("a 1.1", same)).unwrap().is_empty());

        let starved = vec![report(Fault::Pause, 0, &[ViolationKind::Starved])];
        let worse = demands.unmet(&judgement("a 1.1", starved)).unwrap();
        assert_eq!(worse, ["starved under pause, and not in the baseline"]);
        let other = demands.unmet(&judgement("b 1.1", Vec::new())).unwrap_err();
        assert!(other.to_string().contains("another lock: a 1.0, not b 1.1"), "{other}");
    }
}

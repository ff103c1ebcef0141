//! A fault that runs several times, each time with another seed: it lost updates in *k of n* runs.

use super::report::{FaultReport, Repeats};

/// Losses after which a fault is not repeated any more.
const CLEAR_LOSSES: u32 = 3;

/// The runs of one fault so far.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    repeats: Repeats,
    /// Turns of all runs.
    turns: u64,
    /// The run that is reported.
    shown: FaultReport,
}

impl Tally {
    pub(super) fn new(first: FaultReport, seed: u64) -> Self {
        let repeats = Repeats { runs: 0, lost_in: 0, lost_in_with_fence: 0, run_seed: seed };
        let mut tally = Self { repeats, turns: 0, shown: first.clone() };
        tally.add(first, seed);
        tally
    }

    /// Counts a run; not one in which the fault could not be placed.
    pub(super) fn add(&mut self, run: FaultReport, seed: u64) {
        if !run.ran {
            return;
        }
        self.repeats.runs += 1;
        self.turns += run.turns;
        self.repeats.lost_in += u32::from(run.lost_updates > 0);
        self.repeats.lost_in_with_fence += u32::from(lost_with_fence(&run));
        let other = if severity(&run) > severity(&self.shown) {
            self.repeats.run_seed = seed;
            std::mem::replace(&mut self.shown, run)
        } else {
            run
        };
        // Of what only another run has found, the first sentence.
        let shown = &mut self.shown.violations;
        for found in other.violations {
            if !shown.iter().any(|it| it.kind == found.kind) {
                shown.push(found);
            }
        }
    }

    /// Returns whether more runs would say nothing new: each row has lost updates three times. A
    /// lock with fences claims that the second row loses none, so its runs go on for that one.
    pub(super) fn is_clear(&self) -> bool {
        let has_fences = self.shown.with_fence.is_some();
        let losses =
            if has_fences { self.repeats.lost_in_with_fence } else { self.repeats.lost_in };
        losses >= CLEAR_LOSSES
    }

    pub(super) fn into_report(self) -> FaultReport {
        FaultReport { repeats: Some(self.repeats), turns: self.turns, ..self.shown }
    }
}

fn lost_with_fence(run: &FaultReport) -> bool {
    run.with_fence.as_ref().is_some_and(|fenced| fenced.lost_updates > 0)
}

fn severity(run: &FaultReport) -> (bool, bool) {
    (lost_with_fence(run), run.lost_updates > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::WithFence;

    fn run(lost_updates: u64, with_fence: Option<u64>) -> FaultReport {
        let with_fence = with_fence.map(|lost_updates| WithFence { lost_updates, refused: 0 });
        FaultReport { ran: true, lost_updates, with_fence, ..FaultReport::default() }
    }

    fn tally(runs: &[FaultReport]) -> Tally {
        let mut tally = Tally::new(runs[0].clone(), 10);
        (11..).zip(&runs[1..]).for_each(|(seed, run)| tally.add(run.clone(), seed));
        tally
    }

    #[test]
    fn third_loss_is_enough() {
        let runs = [0, 7, 0, 1, 1].map(|lost| run(lost, None));
        assert!(!tally(&runs[..4]).is_clear());
        let tally = tally(&runs);
        assert!(tally.is_clear());
        let report = tally.into_report();
        let repeats = Repeats { runs: 5, lost_in: 3, lost_in_with_fence: 0, run_seed: 11 };
        // The first run that lost updates is shown.
        assert_eq!((report.repeats, report.lost_updates), (Some(repeats), 7));
    }

    #[test]
    fn lock_with_fences_is_repeated_for_the_row_that_compares_them() {
        let mut runs = vec![run(1, Some(0)); 4];
        assert!(!tally(&runs).is_clear());
        runs.extend(vec![run(2, Some(9)); 3]);
        let tally = tally(&runs);
        assert!(tally.is_clear());
        let repeats = Repeats { runs: 7, lost_in: 7, lost_in_with_fence: 3, run_seed: 14 };
        assert_eq!(tally.into_report().repeats, Some(repeats));
    }

    #[test]
    fn run_without_its_fault_does_not_count() {
        let tally = tally(&[run(0, None), FaultReport { ran: false, ..run(0, None) }]);
        assert_eq!(tally.repeats.runs, 1);
    }
}

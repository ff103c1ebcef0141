//! The figures of a judgement's tables: one column each.

use holdfast_base::output::grouped;
use strum::{IntoStaticStr, VariantArray};

use super::report::{FaultReport, Judgement, ViolationKind};
use super::verdict::{Row, VerdictCell};

/// A column; its text is its name in messages. Those of safety are the first: lost updates and
/// other violations; then liveness and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Column {
    Lost,
    Turns,
    Fenced,
    Refused,
    Saved,
    Overlaps,
    Release,
    Fence,
    Busy,
    Blocked,
    Starved,
    Leftover,
    Held,
    P50,
    P99,
    Ratio,
    Jain,
    Errors,
    Commands,
}

/// A figure, apart from how a view writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// It has none, for instance without fences.
    None,
    Count(u64),
    /// Runs that lost updates, among all.
    Runs {
        lost: u32,
        runs: u32,
    },
    Ms(f64),
    Share(f64),
    Tenths(f64),
    Hundredths(f64),
}

impl Figure {
    /// Formats the figure without its unit, for a column whose head names it.
    pub fn number(self) -> String {
        match self {
            Self::None => "–".to_owned(),
            Self::Count(count) => grouped(count),
            Self::Runs { lost, runs } => format!("{lost}/{runs}"),
            Self::Ms(ms) if ms < 100.0 => format!("{ms:.1}"),
            Self::Ms(ms) => grouped(ms.round() as u64),
            Self::Share(share) => format!("{:.0}", 100.0 * share),
            Self::Tenths(value) => format!("{value:.1}"),
            Self::Hundredths(value) => format!("{value:.2}"),
        }
    }
}

impl From<VerdictCell> for Figure {
    fn from(cell: VerdictCell) -> Self {
        match cell {
            VerdictCell::NotRun | VerdictCell::Elsewhere => Self::None,
            VerdictCell::FencesBack(_) => Self::Count(0),
            VerdictCell::Updates { lost, .. } => Self::Count(lost),
            VerdictCell::Runs { lost, runs, .. } => Self::Runs { lost, runs },
        }
    }
}

impl Column {
    const SAFETY: usize = 9;
    /// Those of liveness and cost.
    pub const COST: &[Self] = Self::VARIANTS.split_at(Self::SAFETY).1;

    /// Returns the columns of safety that say something of this lock.
    pub fn safety(judgement: &Judgement) -> impl Iterator<Item = Self> {
        Self::VARIANTS[..Self::SAFETY].iter().copied().filter(|column| column.applies_to(judgement))
    }

    /// Returns whether the lock can have such figures: those of fences only if it has any.
    pub(super) fn applies_to(self, judgement: &Judgement) -> bool {
        match self {
            Self::Fenced | Self::Refused | Self::Fence => judgement.has_fence(),
            Self::Saved => judgement.faults.iter().any(|report| report.saved_updates > 0),
            _ => true,
        }
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn figure(self, report: &FaultReport) -> Figure {
        let fenced = report.with_fence.as_ref();
        match self {
            Self::Lost => report.updates(Row::WithoutFence).into(),
            Self::Turns => Figure::Count(report.turns),
            Self::Fenced => report.updates(Row::WithFence).into(),
            Self::Refused => fenced.map_or(Figure::None, |fenced| Figure::Count(fenced.refused)),
            Self::Saved => Figure::Count(report.saved_updates),
            Self::Overlaps => Figure::Count(report.overlaps),
            Self::Release => Figure::Count(report.release_ok_when_lost),
            Self::Fence => fenced.map_or(Figure::None, |_| Figure::Count(report.fence_regressions)),
            Self::Busy => Figure::Count(report.misreported_busy),
            Self::Blocked => Figure::Count(report.blocked_ms_max),
            Self::Starved => Figure::Count(report.waiters_starved),
            Self::Leftover => Figure::Count(report.leftover_keys),
            Self::Held => Figure::Share(report.held_share),
            Self::P50 => Figure::Ms(report.wait_p50_ms),
            Self::P99 => Figure::Ms(report.wait_p99_ms),
            Self::Ratio => Figure::Tenths(report.wait_ratio),
            Self::Jain => Figure::Hundredths(report.jain),
            Self::Errors => Figure::Count(report.errors),
            Self::Commands => Figure::Tenths(report.redis_commands),
        }
    }

    /// Returns the kind of violation of which the figure is the number. Some keys remain without a
    /// violation, too.
    pub fn violation(self) -> Option<ViolationKind> {
        match self {
            Self::Lost => Some(ViolationKind::LostUpdate),
            Self::Fenced => Some(ViolationKind::LostWithFence),
            Self::Overlaps => Some(ViolationKind::Overlap),
            Self::Release => Some(ViolationKind::ReleaseOkWhenLost),
            Self::Fence => Some(ViolationKind::FenceRegression),
            Self::Busy => Some(ViolationKind::MisreportedBusy),
            Self::Blocked => Some(ViolationKind::Blocked),
            Self::Starved => Some(ViolationKind::Starved),
            Self::Leftover => Some(ViolationKind::LeftoverKey),
            Self::Turns
            | Self::Refused
            | Self::Saved
            | Self::Held
            | Self::P50
            | Self::P99
            | Self::Ratio
            | Self::Jain
            | Self::Errors
            | Self::Commands => None,
        }
    }
}

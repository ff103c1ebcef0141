//! The passes: what happens to the service, and how many orders there are.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_base::messages::Language;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::recording::ScheduleRecording;
use super::watch::Aim;

/// The passes, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Pass {
    Control,
    None,
    Gate,
    Retry,
    Stretch,
    Interleavings,
    LostAnswer,
    DatabaseCut,
    Pause,
    Kill,
    Restart,
    SlowCommit,
    RedisFlush,
    RedisRestart,
    RedisAway,
}

/// The orders of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) units: i64,
    pub(super) attempts: usize,
    /// Number of attempts at once.
    pub(super) buyers: usize,
}

/// The options of a judgement.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) passes: Vec<Pass>,
    pub(super) seed: u64,
    pub(super) repeat: u32,
    /// Time for the schedules of `interleavings`.
    pub(super) budget: Duration,
    /// The schedule to run again, instead of all passes.
    pub(super) replay: Option<ScheduleRecording>,
    /// The file to which a schedule is written that finds something.
    pub(super) recording: PathBuf,
    /// RFC 3339, UTC.
    pub(super) started_at: String,
}

/// A variant of a run. The runs of one repetition differ in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    /// It strikes at such a statement.
    Aimed(Aim),
    /// The gate is held for so long that orders give up waiting, and may go on without a lock.
    Held,
}

impl Pass {
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns its name in a language.
    pub fn title(self, language: Language) -> String {
        language.text(&format!("service-pass-{}", self.name()))
    }

    /// Returns what happens in it.
    pub fn about(self, language: Language) -> String {
        language.text(&format!("service-happens-{}", self.name()))
    }

    /// Returns what is said where it has struck.
    pub(super) fn mark(self, language: Language) -> String {
        language.text(&format!("service-struck-{}", self.name()))
    }

    pub(crate) fn list() -> String {
        Self::ALL.iter().map(|pass| pass.name()).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether it runs unless others are asked for. These need no more than seconds.
    pub(super) fn is_default(self) -> bool {
        matches!(self, Self::Control | Self::None | Self::Gate | Self::Retry)
    }

    pub(super) fn load(self, instances: usize) -> Load {
        match self {
            Self::Control => Load { units: 5, attempts: 8, buyers: 1 },
            // Few units, so that more orders than there are units wait at the gate.
            Self::Gate => Load { units: 5, attempts: 16, buyers: 16 },
            // Enough that some are left for the orders at the last instance.
            Self::Restart => {
                let last = 80_usize.div_ceil(instances);
                Load { units: 80 - last.div_ceil(2) as i64, attempts: 80, buyers: 16 }
            }
            _ => Load { units: 20, attempts: 80, buyers: 16 },
        }
    }

    /// Returns whether it strikes something, which may not succeed.
    pub(super) fn strikes(self) -> bool {
        matches!(self, Self::LostAnswer | Self::SlowCommit) || self.is_aimed()
    }

    /// Returns whether it strikes at a statement.
    pub(super) fn is_aimed(self) -> bool {
        self.variants().iter().any(|variant| matches!(variant, Variant::Aimed(_)))
    }

    /// Returns whether it cuts connections of instances that go on.
    pub(super) fn cuts_connections(self) -> bool {
        self == Self::DatabaseCut || self.strikes_redis()
    }

    pub(super) fn strikes_redis(self) -> bool {
        matches!(self, Self::RedisFlush | Self::RedisRestart | Self::RedisAway)
    }

    /// Returns the runs of one repetition: one at each aim, if it strikes at a statement.
    pub(super) fn variants(self) -> Vec<Variant> {
        let aims: &[Aim] = match self {
            Self::Pause | Self::Kill => &[Aim::Read, Aim::Write, Aim::Commit],
            // It was done, or it was not.
            Self::DatabaseCut => &[Aim::Commit, Aim::CommitSent],
            Self::Restart => &[Aim::Write],
            // A request that works under its lock, and one that is about to release it.
            Self::RedisFlush | Self::RedisRestart | Self::RedisAway => &[Aim::Read, Aim::Commit],
            // Orders that give up waiting, and sell nothing, are judged by the first one.
            Self::Gate => return vec![Variant::Plain, Variant::Held],
            _ => return vec![Variant::Plain],
        };
        aims.iter().copied().map(Variant::Aimed).collect()
    }
}

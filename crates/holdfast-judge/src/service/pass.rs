//! The passes: what happens to the service, and how many orders there are.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_base::messages::Language;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::recording::Recording;
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
    Pause,
    Kill,
}

/// The orders of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) units: i64,
    pub(super) attempts: usize,
    /// So many attempts at once.
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
    pub(super) replay: Option<Recording>,
    /// The file to which a schedule is written that finds something.
    pub(super) recording: PathBuf,
    /// RFC 3339, UTC.
    pub(super) started_at: String,
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

    pub(crate) fn list() -> String {
        Self::ALL.iter().map(|pass| pass.name()).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether it runs unless others are asked for. These need no more than seconds.
    pub(super) fn is_default(self) -> bool {
        matches!(self, Self::Control | Self::None | Self::Gate | Self::Retry)
    }

    pub(super) fn load(self) -> Load {
        match self {
            Self::Control => Load { units: 5, attempts: 8, buyers: 1 },
            // Few units, so that more orders than there are units wait at the gate.
            Self::Gate => Load { units: 5, attempts: 16, buyers: 16 },
            _ => Load { units: 20, attempts: 80, buyers: 16 },
        }
    }

    /// Returns whether it strikes something, which may not succeed.
    pub(super) fn strikes(self) -> bool {
        matches!(self, Self::LostAnswer | Self::Pause | Self::Kill)
    }

    /// Returns the runs of one repetition: one at each aim, if an instance is struck.
    pub(super) fn aims(self) -> Vec<Option<Aim>> {
        match self {
            Self::Pause | Self::Kill => Aim::ALL.map(Some).to_vec(),
            _ => vec![None],
        }
    }
}

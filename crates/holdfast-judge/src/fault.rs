//! The faults: their names and texts. `faults` places them.

use holdfast_base::messages::Language;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The faults, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Fault {
    #[strum(serialize = "none")]
    Undisturbed,
    Pause,
    LongWork,
    KillHolder,
    RedisFlush,
    RedisRestart,
    RedisFailover,
    RedisSlow,
    RedisAway,
    ClientKill,
    ScriptFlush,
    Evict,
    SessionCut,
    Partition,
    LateGrant,
    ClockJump,
    SlowCommit,
    Cancel,
}

impl Fault {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the fault of a name; `None` for one of a later version, which a file may have.
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns its name in a language.
    pub fn title(self, language: Language) -> String {
        language.text(&format!("judge-name-{}", self.name()))
    }

    /// Returns what happens under it.
    pub fn about(self, language: Language) -> String {
        language.text(&format!("judge-fault-{}", self.name()))
    }

    /// Returns whether it strikes Redis, and not a lock that sends no commands there.
    pub fn strikes_redis(self) -> bool {
        match self {
            Self::RedisFlush
            | Self::RedisRestart
            | Self::RedisFailover
            | Self::RedisSlow
            | Self::RedisAway
            | Self::ClientKill
            | Self::ScriptFlush
            | Self::Evict => true,
            // Those of the network strike the connections that the lock has, to any server.
            Self::Undisturbed
            | Self::Pause
            | Self::LongWork
            | Self::KillHolder
            | Self::SessionCut
            | Self::Partition
            | Self::LateGrant
            | Self::ClockJump
            | Self::SlowCommit
            | Self::Cancel => false,
        }
    }

    /// Returns whether its outcome depends on when it strikes, so that one run says little.
    pub fn is_repeated(self) -> bool {
        match self {
            Self::Pause
            | Self::RedisFailover
            | Self::Partition
            | Self::LateGrant
            | Self::RedisRestart
            | Self::Cancel => true,
            Self::Undisturbed
            | Self::LongWork
            | Self::KillHolder
            | Self::RedisFlush
            | Self::RedisSlow
            | Self::RedisAway
            | Self::ClientKill
            | Self::ScriptFlush
            | Self::Evict
            | Self::SessionCut
            | Self::ClockJump
            | Self::SlowCommit => false,
        }
    }

    /// Lists the names of some of the faults.
    pub(crate) fn list(is_listed: impl Fn(Self) -> bool) -> String {
        let listed = Self::ALL.iter().copied().filter(|fault| is_listed(*fault));
        listed.map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

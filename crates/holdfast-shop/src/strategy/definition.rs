//! The definition of a strategy.

use holdfast_lock::Wait;
use serde::Serialize;

use crate::locks::Lock;
use crate::probe::Point;

/// A strategy: everything that isolates concurrent changes of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// Name, as in `--lock` and `Holdfast-Lock`.
    pub name: &'static str,
    /// Lock on the values that are changed (each item, the account), from before the read until
    /// after the commit.
    pub lock: Option<Lock>,
    pub mistake: Option<Mistake>,
    pub transaction: Isolation,
    pub read: ReadMethod,
    pub guard: WriteGuard,
    pub attempts: u32,
    pub batches: bool,
    /// The items that it sells, if it has a data path of its own ([`super::data_path`]).
    pub data_path: Option<SoldItems>,
    /// The statements of its data path for an item at a probe point, as the lab shows them.
    pub sends: &'static [(Point, &'static str)],
    pub guarantee: Guarantee,
    pub source: &'static str,
    pub code: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// It is on the order, if the command has one; see [`super::wrong_key`].
    WrongKey,
    /// It is released between the write and the commit; see [`super::early_release`].
    EarlyRelease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// None: the write is one statement that commits itself, and no row is locked between the read
    /// and it.
    Autocommit,
    /// One transaction; each statement sees what was committed when it began.
    ReadCommitted,
    /// One transaction, as if it ran alone; see [`super::serializable`].
    Serializable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMethod {
    /// `select`, which locks no row.
    Plain,
    /// `select … for no key update`, which locks the row until the commit; a data path may leave
    /// out the items.
    RowLock,
    /// `select`, after acquiring an advisory lock on the key.
    Advisory,
    /// A conditional update that returns the row as it was before; see [`super::atomic`].
    ConditionalUpdate,
    /// `select`, on which the command is checked, and before the write an update without a
    /// condition, which returns the row as it was before; see [`super::check_then_decrement`].
    CheckThenUpdate,
}

/// The items that a strategy with a data path sells: never the shop's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoldItems {
    /// Any of the lab.
    OfLab,
    /// Those of the lab that were made for it, which no other strategy sells.
    MadeForIt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteGuard {
    None,
    Version,
    /// [`WriteGuard::Version`], and no holder with a higher fence has written.
    VersionAndFence,
}

/// The condition under which a strategy is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Never: two overlapping requests break it.
    Never,
    /// With one replica; a second one breaks it.
    OneReplica,
    /// Until a holder dies; from then on the item stays locked.
    UntilHolderDies,
    /// While no work outlives its lease.
    WhileLeased,
    /// While Redis keeps its data, and then without selling everything.
    WhileRedisKeepsData,
    /// Among its own changes, which Postgres isolates from each other but not from other
    /// strategies.
    AmongItself,
    /// Always: it writes a value only if no other change was committed since it read it.
    Always,
}

/// Strategies that may change one value at the same time, on different replicas: each keeps the
/// guarantee that it has alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Postgres,
    /// Each holds the same key in one Redis as a lease. (`fenced` holds it too, but excludes others
    /// also after its lease.)
    Redis,
    Alone(&'static str),
}

impl Family {
    pub fn name(self) -> &'static str {
        match self {
            Family::Postgres => "postgres",
            Family::Redis => "redis",
            Family::Alone(strategy) => strategy,
        }
    }
}

impl Strategy {
    /// Returns whether the shop can oversell under this strategy without any failure.
    pub fn is_broken(&self) -> bool {
        matches!(self.guarantee, Guarantee::Never | Guarantee::OneReplica)
    }

    /// Returns whether it sells an item below zero, unless a constraint prevents that.
    pub fn sells_below_zero(&self) -> bool {
        self.read == ReadMethod::CheckThenUpdate
    }

    /// Returns whether it sells only items that were made for it.
    pub fn has_own_items(&self) -> bool {
        self.data_path == Some(SoldItems::MadeForIt)
    }

    /// Returns why the shop should not sell its own items under it, if it should not.
    pub fn hazard(&self) -> Option<&'static str> {
        match (self.guarantee, self.lock) {
            (Guarantee::Never, _) => Some("two orders at the same time can get the same unit"),
            (Guarantee::OneReplica, _) => {
                Some("it excludes no other replica: with two, the same unit can be sold twice")
            }
            (Guarantee::WhileRedisKeepsData, _) => Some(
                "units whose order is lost on its way to Postgres are not sold, and a Redis that \
                 loses data sells units twice",
            ),
            (_, Some(lock)) if lock.is_teaching() => {
                Some("it is a lock of the lessons, with a mistake on purpose")
            }
            _ => None,
        }
    }

    pub fn family(&self) -> Family {
        match (self.guarantee, self.lock) {
            // Of rows that no other strategy changes.
            _ if self.has_own_items() => Family::Alone(self.name),
            (Guarantee::Always, _) => Family::Postgres,
            // A quorum's keys are on other servers.
            (Guarantee::WhileLeased, lock) if lock != Some(Lock::Redlock) => Family::Redis,
            _ => Family::Alone(self.name),
        }
    }

    pub fn is_compatible_with(&self, other: &Strategy) -> bool {
        self.family() == other.family()
    }

    /// Returns whether single requests may use it where `own` is the shop's strategy.
    pub fn is_safe_beside(&self, own: &Strategy) -> bool {
        self.name == own.name || self.is_compatible_with(own) && self.hazard().is_none()
    }

    pub fn waits(&self) -> &'static [Wait] {
        self.lock.map_or(&[], Lock::wait_modes)
    }

    pub fn lock_in_redis(&self) -> Option<Lock> {
        self.lock.filter(|lock| lock.needs_redis())
    }

    /// Returns whether its lock is released between the write and the commit.
    pub fn releases_before_commit(&self) -> bool {
        self.mistake == Some(Mistake::EarlyRelease)
    }

    /// Returns whether it sells only items of the lab, and is no strategy of a whole server.
    pub fn is_for_lab_only(&self) -> bool {
        self.data_path.is_some()
    }

    /// Returns whether a customer's purchases are counted with the read: an order in between raises
    /// the version that the write requires. Otherwise they are counted after the write, which locks
    /// the row until the commit. An autocommitted write without a guard locks none: two orders of
    /// one customer that overlap may exceed the limit.
    pub fn counts_with_read(&self) -> bool {
        self.guard != WriteGuard::None || self.transaction == Isolation::Autocommit
    }
}

//! What a strategy consists of.

use crate::lock::{Kind, Wait};

/// Everything that keeps two changes of one value apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Its name, as in `--lock` and `Holdfast-Lock`.
    pub name: &'static str,
    /// The lock that is held from before the read to after the write.
    pub lock: Option<Kind>,
    /// What that lock is on.
    pub target: LockTarget,
    /// When it is released.
    pub release: Release,
    /// The transaction around read and write.
    pub transaction: Isolation,
    /// How the value is read.
    pub read: Read,
    /// What the write demands of the row.
    pub guard: Guard,
    /// How often a command is tried that lost against another one.
    pub attempts: u32,
    /// Whether commands for one value are executed in batches.
    pub batches: bool,
    /// While what it holds.
    pub guarantee: Guarantee,
    /// One line for people.
    pub about: &'static str,
    /// The file that describes it, from the repository's root.
    pub source: &'static str,
    /// The text of that file, as this program was built from it.
    pub code: &'static str,
}

/// What a lock is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockTarget {
    /// What is changed: each item, the account.
    Value,
    /// The order, where there is one: see [`super::wrong_key`].
    Order,
}

/// When locks are released. (`expire-only` never does, by its lock.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// When the write is done.
    AfterCommit,
    /// Between the write and the commit: see [`super::early_release`].
    BeforeCommit,
}

/// The transaction around read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// None: the write is one statement that commits itself, and no row is locked meanwhile.
    Autocommit,
    /// One transaction; each statement sees what was committed when it began.
    ReadCommitted,
    /// One transaction, as if it ran alone: see [`super::serializable`].
    Serializable,
}

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// `select`; no row is locked.
    Plain,
    /// `select … for no key update`: the row is locked until the commit.
    RowLock,
    /// `select`, behind an advisory lock on the key.
    Advisory,
    /// A conditional update that changes the row and returns what it was: see [`super::atomic`].
    Reserve,
}

/// What a write demands of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Nothing: it replaces what is there.
    None,
    /// The version that was read.
    Version,
    /// That, and that no holder with a higher fence has written.
    VersionAndFence,
}

/// How far a strategy can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Two requests that overlap are enough to break it.
    Never,
    /// Exact with one replica, broken with two.
    OneReplica,
    /// Exact, until a holder dies: from then on the item stays locked.
    UntilAHolderDies,
    /// While no work outlives its lease.
    WhileLeased,
    /// Postgres keeps its changes apart from each other, but not from those of other strategies.
    Among,
    /// Postgres keeps its changes apart from all others.
    Always,
}

impl Strategy {
    /// Whether a shop under it can oversell although nothing fails.
    pub fn is_broken(&self) -> bool {
        matches!(self.guarantee, Guarantee::Never | Guarantee::OneReplica)
    }

    /// Whether it holds beside `other` on one value: the same one, or two of which Postgres keeps
    /// each apart from all others.
    pub fn holds_beside(&self, other: &Strategy) -> bool {
        let always = |strategy: &Strategy| strategy.guarantee == Guarantee::Always;
        self.name == other.name || always(self) && always(other)
    }

    /// The ways to wait for its lock; the first is the default.
    pub fn waits(&self) -> &'static [Wait] {
        self.lock.map_or(&[], Kind::waits)
    }

    /// Whether it can't work without Redis.
    pub fn needs_redis(&self) -> bool {
        self.lock.is_some_and(Kind::needs_redis)
    }

    /// Whether the count of what a customer has is exact when it is read together with the row: any
    /// other order in between raises the version that the write demands.
    pub fn counts_with_read(&self) -> bool {
        self.guard != Guard::None
    }

    /// Whether the row is locked when it has been read.
    pub fn locks_row_at_read(&self) -> bool {
        matches!(self.read, Read::RowLock | Read::Advisory | Read::Reserve)
    }
}

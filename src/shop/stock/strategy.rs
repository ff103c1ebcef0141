//! What a strategy says, and what follows from it.

use super::sources;
use super::strategies::STRATEGIES;
use super::{Exclusion, Sealed};
use crate::lock::{Guards, Kind, Wait};

/// Everything that keeps two changes of one value apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Its name, as in `--lock` and `Holdfast-Lock`.
    pub name: &'static str,
    /// The lock that is taken around the transaction.
    pub lock: Option<Kind>,
    /// What that lock is on.
    pub on: On,
    /// When it is given back.
    pub release: Release,
    /// How transactions see each other.
    pub isolation: Isolation,
    /// How the value is read.
    pub read: Read,
    /// How it is written.
    pub write: Write,
    /// How often a whole transaction is tried that lost against another.
    pub attempts: u32,
    /// Whether requests for one value are carried out together.
    pub batches: bool,
    /// While what it holds.
    pub holds: Holds,
    /// One line for people.
    pub about: &'static str,
    /// The file that shows it, from the repository's root.
    pub source: &'static str,
}

/// What a lock is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// What is changed: each item, the account.
    Value,
    /// The order, where there is one: see [`super::wrong_key`].
    Order,
}

/// When locks are given back. (Never, says the lock itself: [`crate::lock::ladder::expire_only`].)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// When the transaction is over.
    AfterCommit,
    /// When its work is done: see [`super::early_release`].
    BeforeCommit,
}

/// How transactions see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began: Postgres's own choice.
    ReadCommitted,
    /// As if there were one at a time: see [`super::serializable`].
    Serializable,
}

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// `select`, no row is locked.
    Plain,
    /// `select … for no key update`: whoever else reads so waits until we commit.
    RowLock,
    /// `select`, behind a lock on the key's number that whoever else reads so waits for.
    Advisory,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// `set stock = <what was read, less what was sold>`.
    Computed,
    /// `set stock = stock - n where stock >= n`: read and write are one statement.
    Conditional,
    /// As computed, if the row is as it was read.
    Versioned,
    /// As computed, if the row is as it was read and nobody with a higher fence has written.
    Fenced,
}

/// How far a strategy can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Two requests that overlap are enough to break it.
    Never,
    /// Exact with one replica, broken with two.
    OneReplica,
    /// Exact, until a holder dies: from then on nobody is let in any more.
    UntilAHolderDies,
    /// While no work outlives its lease.
    WhileLeased,
    /// Postgres keeps its changes apart from each other, and not from those under another one.
    Among,
    /// Postgres itself keeps them apart, whoever else there is.
    Always,
}

impl Strategy {
    /// The strategy of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        STRATEGIES.iter().find(|strategy| strategy.name == name)
    }

    /// All names, for an error message.
    #[must_use]
    pub fn names() -> String {
        STRATEGIES.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
    }

    /// The text of [`Strategy::source`], as this program was built from it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        sources::text(self.source)
    }

    /// Whether a shop under it can oversell although nothing fails.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.holds, Holds::Never | Holds::OneReplica)
    }

    /// Whether it holds beside `other` on one value: the same one, or two of which Postgres keeps
    /// each apart from everybody.
    #[must_use]
    pub fn holds_beside(&self, other: &Strategy) -> bool {
        self.name == other.name || self.holds == Holds::Always && other.holds == Holds::Always
    }

    /// The ways to wait for its lock; the first is the default.
    #[must_use]
    pub fn waits(&self) -> &'static [Wait] {
        self.lock.map_or(&[], Kind::waits)
    }

    /// What keeps a change under this strategy apart from others, given the locks it took.
    #[must_use]
    pub fn exclusion<'g>(&self, guards: &'g Guards) -> Exclusion<'g> {
        match self {
            Strategy { on: On::Order, .. } => Exclusion::Unprotected(
                "its lock is on the order, not on what is changed",
                Sealed(()),
            ),
            Strategy { release: Release::BeforeCommit, .. } => {
                Exclusion::Unprotected("its lock is given back before the commit", Sealed(()))
            }
            Strategy { lock: Some(_), .. } => Exclusion::Locked(guards),
            Strategy { isolation: Isolation::Serializable, .. }
            | Strategy { read: Read::RowLock | Read::Advisory, .. }
            | Strategy { write: Write::Conditional | Write::Versioned, .. } => {
                Exclusion::InDatabase(Sealed(()))
            }
            Strategy { read: Read::Plain, write: Write::Computed | Write::Fenced, .. } => {
                Exclusion::Unprotected(self.about, Sealed(()))
            }
        }
    }
}

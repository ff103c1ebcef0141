//! How a value (an item's stock, a user's balance) is read and changed, and what keeps two changes
//! apart.
//!
//! A [`Strategy`] is a value: one `place` and one `pay` read it. It says which lock is taken, how
//! the value is read and how it is written. Whatever it says, a value changes only in
//! [`write_stock`] and [`write_balance`], which write its ledger entry in the same breath, and
//! which want to see an [`Exclusion`]: a write whose keeper is not named does not compile.

pub mod atomic;
pub mod batched;
mod entries;
pub mod fenced;
pub mod read_then_update;
pub mod row_lock;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Error, OrderId, Sku, UserId};
use crate::lock::{Guards, Kind, LockKey, Wait};

/// Everything that keeps two changes of one value apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Its name, as in `--lock` and `Holdfast-Lock`.
    pub name: &'static str,
    /// The lock that is taken around the transaction.
    pub lock: Option<Kind>,
    /// How the value is read.
    pub read: Read,
    /// How it is written.
    pub write: Write,
    /// Whether requests for one value are carried out together.
    pub batches: bool,
    /// While what it holds.
    pub holds: Holds,
    /// One line for people.
    pub about: &'static str,
}

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// `select`, no row is locked.
    Plain,
    /// `select … for no key update`: whoever else reads so waits until we commit.
    RowLock,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// `set stock = <what was read, less what was sold>`.
    Computed,
    /// `set stock = stock - n where stock >= n`: read and write are one statement.
    Conditional,
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
    /// While no work outlives its lease.
    WhileLeased,
    /// Postgres itself keeps them apart.
    Always,
}

/// Many requests for one value under one fenced lock.
pub const BATCHED: Strategy = Strategy {
    name: "batched",
    lock: Some(Kind::Fenced),
    read: Read::RowLock,
    write: Write::Fenced,
    batches: true,
    holds: Holds::Always,
    about: "fenced, and all who wait for one item share one lock and one transaction",
};

/// The ladder, in teaching order.
pub static STRATEGIES: [Strategy; 9] = [
    Strategy {
        name: "none",
        lock: None,
        read: Read::Plain,
        write: Write::Computed,
        batches: false,
        holds: Holds::Never,
        about: "no lock at all: two orders read 10 and both write 9",
    },
    Strategy {
        name: "local",
        lock: Some(Kind::Local),
        read: Read::Plain,
        write: Write::Computed,
        batches: false,
        holds: Holds::OneReplica,
        about: "a mutex in this process: right with one replica, wrong with two",
    },
    Strategy {
        name: "owner",
        lock: Some(Kind::Owner),
        read: Read::Plain,
        write: Write::Computed,
        batches: false,
        holds: Holds::WhileLeased,
        about: "the textbook Redis lock: SET NX PX with an owner, released by compare-and-delete",
    },
    Strategy {
        name: "watchdog",
        lock: Some(Kind::Watchdog),
        read: Read::Plain,
        write: Write::Computed,
        batches: false,
        holds: Holds::WhileLeased,
        about: "owner, renewed while the work runs: breaks when the process is paused",
    },
    Strategy {
        name: "redlock",
        lock: Some(Kind::Quorum),
        read: Read::Plain,
        write: Write::Computed,
        batches: false,
        holds: Holds::WhileLeased,
        about: "a lease on a majority of several Redis: breaks when the process is paused",
    },
    Strategy {
        name: "fenced",
        lock: Some(Kind::Fenced),
        read: Read::Plain,
        write: Write::Fenced,
        batches: false,
        holds: Holds::Always,
        about: "the lock of this project: every write shows its fence and the version it read",
    },
    Strategy {
        name: "row-lock",
        lock: None,
        read: Read::RowLock,
        write: Write::Computed,
        batches: false,
        holds: Holds::Always,
        about: "select … for no key update: Postgres keeps the row for one transaction at a time",
    },
    Strategy {
        name: "atomic",
        lock: None,
        read: Read::Plain,
        write: Write::Conditional,
        batches: false,
        holds: Holds::Always,
        about: "one conditional update: there is nothing between read and write",
    },
    BATCHED,
];

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

    /// Whether a shop under it can oversell although nothing fails.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.holds, Holds::Never | Holds::OneReplica)
    }

    /// Whether Postgres itself keeps its changes apart.
    #[must_use]
    pub fn holds_always(&self) -> bool {
        self.holds == Holds::Always
    }

    /// The ways to wait for its lock; the first is the default.
    #[must_use]
    pub fn waits(&self) -> &'static [Wait] {
        self.lock.map_or(&[], Kind::waits)
    }

    /// What keeps a change under this strategy apart from others, given the locks it took.
    #[must_use]
    pub fn exclusion<'g>(&self, guards: &'g Guards) -> Exclusion<'g> {
        match (self.lock, self.read, self.write) {
            (Some(_), _, _) => Exclusion::Locked(guards),
            (None, Read::RowLock, _) | (None, _, Write::Conditional) => {
                Exclusion::InDatabase(Sealed(()))
            }
            (None, Read::Plain, Write::Computed | Write::Fenced) => {
                Exclusion::Unprotected(self.about, Sealed(()))
            }
        }
    }
}

/// What keeps one change apart from others. Only [`Strategy::exclusion`] can claim that the
/// database does, or that nothing does.
#[derive(Debug)]
pub enum Exclusion<'g> {
    /// These locks. A write checks that they name its key.
    Locked(&'g Guards),
    /// The row is locked, or the write is conditional.
    InDatabase(Sealed),
    /// Nothing, and why.
    Unprotected(&'static str, Sealed),
}

/// Can be made in this module only.
#[derive(Debug)]
pub struct Sealed(());

impl Exclusion<'_> {
    /// The fence under which `key` may be written.
    fn fence(&self, key: &LockKey) -> Result<i64, Error> {
        match self {
            Exclusion::Locked(guards) => guards.fence(key),
            Exclusion::InDatabase(_) | Exclusion::Unprotected(..) => None,
        }
        .ok_or_else(|| Error::Bug(format!("{key} is written without a fence")))
    }

    /// A write to a value whose lock is not held is a mistake in this program.
    fn check(&self, key: &LockKey) -> Result<(), Error> {
        match self {
            Exclusion::Locked(guards) if !guards.cover(key) => {
                Err(Error::Bug(format!("{key} is written without its lock")))
            }
            _ => Ok(()),
        }
    }
}

/// An item as it was read: what the change is computed from.
#[derive(Debug, Clone)]
pub struct StockReading {
    /// Which item.
    pub sku: Sku,
    /// Its price.
    pub price_cents: i64,
    /// What was on the shelf.
    pub stock: i64,
    /// The row's version at that moment.
    pub version: i64,
}

/// An account as it was read.
#[derive(Debug, Clone, Copy)]
pub struct BalanceReading {
    /// Whose.
    pub user: UserId,
    /// What was on it.
    pub balance_cents: i64,
    /// The row's version at that moment.
    pub version: i64,
}

/// Why a ledger entry was written, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The reason, as in the ledger.
    pub reason: &'a str,
    /// The order it belongs to, if any.
    pub order: Option<OrderId>,
    /// The request that did it.
    pub request_id: Uuid,
}

/// One change that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Its place in the ledger.
    pub seq: i64,
    /// The value before.
    pub before: i64,
    /// What was added.
    pub delta: i64,
    /// The value after.
    pub after: i64,
    /// The row's version that `before` was read at.
    pub version: i64,
}

/// There is not enough.
#[derive(Debug, Clone)]
pub struct Short {
    /// Which of the changes could not be made: its place in the list.
    pub at: usize,
    /// How much there is.
    pub available: i64,
}

/// Reads the items, sorted by sku; unknown ones are left out.
///
/// # Errors
/// Postgres's.
pub async fn read_stock(
    tx: &mut PgConnection,
    strategy: &Strategy,
    skus: &[String],
) -> Result<Vec<StockReading>, Error> {
    match strategy.read {
        Read::Plain => read_then_update::read_stock(tx, skus).await,
        Read::RowLock => row_lock::read_stock(tx, skus).await,
    }
}

/// Changes the stock of each reading by its delta and writes the ledger entries. All or nothing:
/// whoever gets [`Short`] must roll back. `readings` are sorted by sku; a sku occurs once.
///
/// # Errors
/// [`Error::Bug`] when a lock of `exclusion` does not cover an item; Postgres's.
pub async fn write_stock(
    tx: &mut PgConnection,
    strategy: &Strategy,
    exclusion: &Exclusion<'_>,
    readings: &[StockReading],
    deltas: &[i64],
    origin: Origin<'_>,
) -> Result<Result<Vec<Moved>, Short>, Error> {
    for reading in readings {
        exclusion.check(&reading.sku.lock_key())?;
    }
    match strategy.write {
        Write::Computed => read_then_update::write_stock(tx, readings, deltas, origin).await,
        Write::Conditional => atomic::write_stock(tx, readings, deltas, origin).await,
        Write::Fenced => fenced::write_stock(tx, exclusion, readings, deltas, origin).await,
    }
}

/// Reads an account; `None` when there is none.
///
/// # Errors
/// Postgres's.
pub async fn read_balance(
    tx: &mut PgConnection,
    strategy: &Strategy,
    user: UserId,
) -> Result<Option<BalanceReading>, Error> {
    match strategy.read {
        Read::Plain => read_then_update::read_balance(tx, user).await,
        Read::RowLock => row_lock::read_balance(tx, user).await,
    }
}

/// Changes a balance and writes the ledger entry. Whoever gets [`Short`] must roll back.
///
/// # Errors
/// [`Error::Bug`] when a lock of `exclusion` does not cover the account; Postgres's.
pub async fn write_balance(
    tx: &mut PgConnection,
    strategy: &Strategy,
    exclusion: &Exclusion<'_>,
    reading: BalanceReading,
    delta: i64,
    origin: Origin<'_>,
) -> Result<Result<Moved, Short>, Error> {
    exclusion.check(&reading.user.lock_key())?;
    match strategy.write {
        Write::Computed => read_then_update::write_balance(tx, reading, delta, origin).await,
        Write::Conditional => atomic::write_balance(tx, reading, delta, origin).await,
        Write::Fenced => fenced::write_balance(tx, exclusion, reading, delta, origin).await,
    }
}

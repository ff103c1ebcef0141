//! The rules of a game, and what they let its orders do, in words.

use std::time::Duration;

use holdfast_lock::LockKind;

use crate::locks::Mechanism;
use crate::probe::Point;
use crate::shop::Strategy;
use crate::shop::strategy::Isolation;

/// Upper bound of a game's duration.
pub const GAME_DURATION: Duration = Duration::from_mins(10);
/// A lease that expires while the visitor looks at the page.
const SHORT_LEASE: Duration = Duration::from_secs(4);

/// Strategies that can be played; each shows a different result.
pub const PLAYABLE: [&str; 4] = ["none", "owner", "fenced", "row-lock"];

#[derive(Debug, Clone, Copy)]
pub struct GameRules {
    pub strategy: &'static Strategy,
    /// True if the lease expires while the visitor looks at the page.
    pub short_lease: bool,
    /// Number of orders: 2 or 3. There is one unit less.
    pub orders: usize,
}

impl GameRules {
    /// Returns whether the write commits itself: the points are then read, commit, write,
    /// committed.
    pub fn is_autocommit(self) -> bool {
        self.strategy.transaction == Isolation::Autocommit
    }

    /// Returns the lease of the lock. A renewed lease is always short: the renewal is how its
    /// holder learns of a loss.
    pub(super) fn lease(self) -> Option<Duration> {
        let is_short = self.short_lease || self.is_renewed();
        self.strategy.lock.map(|_| if is_short { SHORT_LEASE } else { GAME_DURATION })
    }

    fn is_renewed(self) -> bool {
        self.strategy.lock == Some(Mechanism::Lock(LockKind::Fenced))
    }

    pub fn describe_lease(self) -> String {
        let renewed = if self.is_renewed() { ", renewed" } else { "" };
        match self.lease() {
            None => "no lease".to_owned(),
            Some(GAME_DURATION) => "a lease as long as the game".to_owned(),
            Some(lease) => format!("a lease of {} s{renewed}", lease.as_secs()),
        }
    }

    /// Describes what an order does next when it is resumed at `point`.
    pub fn describe_next(self, point: Point) -> String {
        let locked = self.strategy.lock.is_some();
        let autocommit = self.is_autocommit();
        match point {
            Point::Wait if locked => "asks for the lock",
            Point::Wait | Point::Held => "reads the stock",
            Point::Read if autocommit => "prepares its statement, which writes everything at once",
            Point::Commit if autocommit => {
                "sends its statement: writes, if the row is as it was read"
            }
            Point::Write if autocommit => "receives the acknowledgement",
            Point::Read => "writes what it computed",
            Point::Write => "prepares its commit",
            Point::Commit => "commits",
            Point::Committed if locked => "gives the lock back",
            Point::Committed | Point::Release => "is answered",
            // No strategy in `PLAYABLE` passes these points.
            Point::Claimed | Point::Expire | Point::Delete => "goes on",
        }
        .to_owned()
    }

    /// Describes what an order has done when it is paused at `point`; `read` is the value that it
    /// read last.
    pub(super) fn describe_arrival(self, point: Point, read: Option<i64>) -> String {
        let value = |value: Option<i64>| value.map(|value| format!(" {value}")).unwrap_or_default();
        let (read, written) = (value(read), value(read.map(|read| read - 1)));
        match point {
            Point::Commit if self.is_autocommit() => "it is about to send its statement".to_owned(),
            Point::Write if self.is_autocommit() => {
                format!("it has written{written}, and with that committed")
            }
            Point::Wait => "it has arrived".to_owned(),
            Point::Held => "it has the lock".to_owned(),
            Point::Read => format!("it has read{read}"),
            Point::Write => format!("it has written{written}"),
            Point::Commit => "it is about to commit".to_owned(),
            Point::Committed => "it has committed".to_owned(),
            Point::Release => "it has given everything back".to_owned(),
            Point::Claimed | Point::Expire | Point::Delete => "it is half-way".to_owned(),
        }
    }
}

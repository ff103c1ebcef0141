//! The rules of a game, and the levels, whose goals the item's ledger decides. `levels.json`
//! describes the levels, also for the site, which plays them without a server.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use holdfast_shop::Strategy;
use holdfast_shop::audit::ItemSummary;
use holdfast_shop::locks::Lock;
use holdfast_shop::probe::Point;
use holdfast_shop::strategy::{Isolation, ReadMethod};

pub const GAME_DURATION: Duration = Duration::from_mins(10);
/// An undo repeats them all.
pub(super) const MAX_STEPS: usize = 100;
/// The lease of a lock that is renewed: the renewal is how its holder learns of a loss.
const RENEWED_LEASE: Duration = Duration::from_secs(4);

/// Strategies that can be played; each shows a different result. Each statement commits itself, so
/// that a game needs no connection between two moves; only a row lock is a transaction's.
static PLAYABLE: LazyLock<Vec<Strategy>> = LazyLock::new(|| {
    let strategies =
        ["none", "version", "owner", "fenced", "row-lock"].into_iter().filter_map(Strategy::named);
    let playable = strategies.map(|strategy| match strategy.read {
        ReadMethod::RowLock => strategy.clone(),
        _ => Strategy { transaction: Isolation::Autocommit, ..strategy.clone() },
    });
    playable.collect()
});

pub fn playable() -> &'static [Strategy] {
    &PLAYABLE
}

pub fn playable_named(name: &str) -> Option<&'static Strategy> {
    PLAYABLE.iter().find(|strategy| strategy.name == name)
}

#[derive(Debug, Clone, Copy)]
pub struct GameRules {
    pub strategy: &'static Strategy,
    /// Number of orders: 2 or 3. There is one unit less.
    pub orders: usize,
    /// The level that is played; `None` in a free game, whose goal is to oversell.
    pub level: Option<Level>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Level {
    /// Sell the last unit twice without a lock.
    Oversell,
    /// Take the same steps where each write requires the version that was read.
    Version,
    /// Sell it twice although each order has the lock.
    UselessLock,
    /// Make the fence reject a write after the lease was lost.
    Fence,
}

/// The writes of a game that Postgres has rejected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RejectedWrites {
    pub any: bool,
    /// One of an order that had lost its lock.
    pub stale: bool,
}

/// The contents of `levels.json`.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Levels {
    /// Number of steps beyond the best that still give two stars.
    two_stars_within: usize,
    levels: Vec<LevelDescription>,
}

#[derive(Debug, Deserialize, Serialize)]
struct LevelDescription {
    name: String,
    strategy: String,
    orders: usize,
    goal: LevelGoal,
    solution: String,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LevelGoal {
    /// More units are sold than there were.
    Oversold,
    /// The version rejects a write, whose order reads again, and the books balance.
    Conflict,
    /// The fence rejects a late write, and the books balance.
    StaleWrite,
}

static LEVELS: LazyLock<Levels> = LazyLock::new(|| {
    serde_json::from_str(include_str!("levels.json")).unwrap_or_else(|error| {
        tracing::error!(%error, "the levels of the scheduler game can't be read");
        Levels::default()
    })
});

pub(super) fn levels() -> &'static Levels {
    &LEVELS
}

impl Level {
    pub const ALL: [Self; 4] = [Self::Oversell, Self::Version, Self::UselessLock, Self::Fence];

    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    fn description(self) -> Option<&'static LevelDescription> {
        LEVELS.levels.iter().find(|level| level.name == self.name())
    }

    pub fn rules(self) -> Option<GameRules> {
        let level = self.description()?;
        let strategy = playable_named(&level.strategy)?;
        Some(GameRules { strategy, orders: level.orders, level: Some(self) })
    }

    pub fn has_lock(self) -> bool {
        self.rules().is_some_and(GameRules::has_lock)
    }

    /// The fewest steps that reach the goal: the letter of an order, or X to end the lease.
    pub fn solution(self) -> &'static str {
        self.description().map_or("", |level| &level.solution)
    }

    pub fn best_steps(self) -> usize {
        self.solution().len()
    }

    pub fn stars(self, steps: usize) -> usize {
        match steps.saturating_sub(self.best_steps()) {
            0 => 3,
            more if more <= LEVELS.two_stars_within => 2,
            _ => 1,
        }
    }
}

impl GameRules {
    /// Returns whether the write commits itself: the commit is then before the write.
    pub fn is_autocommit(self) -> bool {
        is_autocommit(self.strategy)
    }

    pub(super) fn transactions(self) -> usize {
        if self.is_autocommit() { 0 } else { self.orders }
    }

    pub fn has_lock(self) -> bool {
        self.strategy.lock.is_some()
    }

    /// As long as the game, unless it is renewed.
    pub(super) fn lease(self) -> Option<Duration> {
        let is_renewed = self.strategy.lock == Some(Lock::Fenced);
        self.strategy.lock.map(|_| if is_renewed { RENEWED_LEASE } else { GAME_DURATION })
    }

    pub(super) fn is_reached(self, audit: &ItemSummary, rejected: RejectedWrites) -> bool {
        let goal =
            self.level.and_then(Level::description).map_or(LevelGoal::Oversold, |it| it.goal);
        let is_sold_once = audit.adds_up() && audit.sold == 1;
        match goal {
            LevelGoal::Oversold => audit.oversold > 0,
            LevelGoal::Conflict => is_sold_once && rejected.any,
            LevelGoal::StaleWrite => is_sold_once && rejected.stale,
        }
    }
}

pub(super) fn is_autocommit(strategy: &Strategy) -> bool {
    strategy.transaction == Isolation::Autocommit
}

/// Returns the points that an order passes under a strategy, in their order.
pub(super) fn points(strategy: &Strategy) -> Vec<Point> {
    let write = match is_autocommit(strategy) {
        true => [Point::Commit, Point::Write],
        false => [Point::Write, Point::Commit],
    };

    let mut points = vec![Point::Wait];
    points.extend(strategy.lock.map(|_| Point::Held));
    points.push(Point::Read);
    points.extend(write);
    points.extend([Point::Committed, Point::Release]);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_described() {
        let described: Vec<&str> = LEVELS.levels.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(described, Level::ALL.map(Level::name));
        assert!(Level::ALL.iter().all(|level| level.rules().is_some()));
    }

    #[test]
    fn stars_depend_on_the_steps_beyond_the_best() {
        let level = Level::Oversell;
        let stars = [0, 1, 2, 3].map(|more| level.stars(level.best_steps() + more));
        assert_eq!(stars, [3, 2, 2, 1]);
    }
}

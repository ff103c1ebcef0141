//! One game: its orders, what the visitor did, and where each order is.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::rules::{GAME_DURATION, GameRules, MAX_STEPS};
use crate::progress::Visitor;
use holdfast_shop::audit::ItemAudit;
use holdfast_shop::model::{LedgerEntry, Order};
use holdfast_shop::probe::{Point, RequestProbe, TraceEvent};
use holdfast_shop::{Error, Execution, Failure, Rejection, Sku, StoredResponse};

#[derive(Debug)]
pub struct Game {
    pub id: Uuid,
    pub rules: GameRules,
    pub sku: Sku,
    pub stock: i64,
    pub(super) player: Player,
    pub(super) begun: Instant,
    pub(super) last_used: Mutex<Instant>,
    pub(super) orders: Vec<GameOrder>,
    pub(super) steps: Mutex<Vec<GameStep>>,
    pub(super) reached_at: Mutex<Option<usize>>,
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Player {
    pub visitor: Visitor,
    /// The client's address: browsers without a session are counted together by it.
    pub address: String,
}

#[derive(Debug)]
pub(super) struct GameOrder {
    pub name: char,
    pub probe: Arc<RequestProbe>,
    pub result: SharedOrderResult,
}

pub(super) type SharedOrderResult = Arc<Mutex<Option<Result<Execution, Failure>>>>;

#[derive(Debug, Clone, Default)]
pub struct GameStep {
    /// Order that was resumed; `None` if the lease was ended in Redis.
    pub who: Option<char>,
    /// Point at which it was paused before.
    pub from: Option<Point>,
    /// Point at which it is paused now.
    pub at: Option<Point>,
    /// Value that it has read last.
    pub read: Option<i64>,
    /// True if Postgres rejected its write, because the row has another version.
    pub is_conflict: bool,
    /// True if it waits for a lock whose lease was ended: its server still counts the last holder.
    pub waits_for_ended_lease: bool,
    /// Orders that had the lock when its lease was ended. They are not told.
    pub lost_by: Vec<char>,
    pub result: Option<OrderResult>,
    /// The points at which all orders were paused after the step, for the replay of an undo.
    pub(super) all: Vec<Option<Point>>,
}

/// Why an action was refused; the game is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Over,
    TooManySteps,
    /// The steps before the undone one did not have the same effects again in time.
    NotReplayed,
}

/// Why no game began: there is no place for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// The player has as many as one may have.
    OfPlayer,
    /// So have all players of this replica, or those of the address.
    OfReplica,
    /// As many orders as possible may hold a row lock.
    RowLock,
}

#[derive(Debug)]
pub enum GameError {
    Refused(Refusal),
    NoRoom(NoRoom),
    Failed(Failure),
}

impl From<NoRoom> for GameError {
    fn from(why: NoRoom) -> Self {
        Self::NoRoom(why)
    }
}

impl From<Refusal> for GameError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Into<Failure>> From<E> for GameError {
    fn from(failure: E) -> Self {
        Self::Failed(failure.into())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderResult {
    Sold {
        before: i64,
        after: i64,
    },
    SoldOut,
    LockTimeout,
    /// It lost its lock, and a later holder wrote.
    StaleWrite,
    Failed(String),
}

#[derive(Debug, Clone)]
pub struct OrderPosition {
    pub name: char,
    pub held: Option<Point>,
    /// Start of the pause, which identifies it.
    pub since_us: Option<u64>,
    pub result: Option<OrderResult>,
    pub events: Vec<TraceEvent>,
}

impl OrderPosition {
    pub fn last_read(&self) -> Option<i64> {
        self.events.iter().rev().find(|event| event.event == "read").and_then(|event| event.value)
    }

    /// Returns the last event of a point. What precedes a write counts only since the last read:
    /// an order whose write was rejected reads again.
    pub fn event(&self, point: Point) -> Option<&TraceEvent> {
        let is_of_attempt = matches!(point, Point::Commit | Point::Write | Point::Committed);
        let of_attempt = |event: &&TraceEvent| !is_of_attempt || event.event != "read";
        let mut latest = self.events.iter().rev().take_while(of_attempt);
        latest.find(|event| event.event == point.name())
    }

    /// Returns whether it has taken the lock and not released it, whatever Redis has done since.
    pub fn believes_it_has_lock(&self) -> bool {
        self.result.is_none()
            && self.event(Point::Held).is_some()
            && self.event(Point::Release).is_none()
    }

    /// Returns the number of its writes that Postgres rejected because of another version.
    pub(super) fn conflicts(&self) -> usize {
        self.events.iter().filter(|event| event.event == "refused").count()
    }
}

#[derive(Debug)]
pub struct GameView {
    pub positions: Vec<OrderPosition>,
    pub audit: ItemAudit,
    pub entries: Vec<LedgerEntry>,
    pub steps: Vec<GameStep>,
    pub reached_at: Option<usize>,
    pub left: Duration,
}

impl GameView {
    /// Returns whether the lease of the lock was ended while the order had it.
    pub fn has_lost_lock(&self, order: char) -> bool {
        has_lost_lock(&self.steps, order)
    }
}

pub(super) fn has_lost_lock(steps: &[GameStep], order: char) -> bool {
    steps.iter().any(|step| step.lost_by.contains(&order))
}

impl Game {
    pub fn steps_taken(&self) -> usize {
        self.steps.lock().len()
    }

    /// Returns the number of steps in which the goal was reached.
    pub fn reached_at(&self) -> Option<usize> {
        *self.reached_at.lock()
    }

    /// Returns the time until the game ends.
    pub fn left(&self) -> Duration {
        GAME_DURATION.saturating_sub(self.begun.elapsed())
    }

    pub(super) fn is_over(&self) -> bool {
        self.orders.iter().all(GameOrder::is_over)
    }

    pub(super) fn check_step(&self) -> Result<(), Refusal> {
        if self.is_over() {
            return Err(Refusal::Over);
        }
        if self.steps.lock().len() >= MAX_STEPS { Err(Refusal::TooManySteps) } else { Ok(()) }
    }

    pub(super) fn release(&self) {
        self.orders.iter().for_each(|order| order.probe.release());
    }

    pub(super) fn idle(&self) -> Duration {
        self.last_used.lock().elapsed()
    }
}

/// A game that is dropped before it has a place must not leave paused orders behind.
impl Drop for Game {
    fn drop(&mut self) {
        self.release();
    }
}

impl GameOrder {
    pub fn is_over(&self) -> bool {
        self.result.lock().is_some()
    }
}

pub(super) fn order_result(result: &Result<Execution, Failure>) -> OrderResult {
    match result {
        Ok(executed) => sale(&executed.response),
        Err(Failure::Rejected(Rejection::SoldOut { .. })) => OrderResult::SoldOut,
        Err(Failure::Rejected(Rejection::LockTimeout { .. } | Rejection::LockBusy(_))) => {
            OrderResult::LockTimeout
        }
        Err(Failure::Rejected(other)) => OrderResult::Failed(format!("{other:?}")),
        Err(Failure::Error(Error::LockLost(_))) => OrderResult::StaleWrite,
        Err(Failure::Error(error)) => OrderResult::Failed(error.to_string()),
    }
}

fn sale(response: &StoredResponse) -> OrderResult {
    let order: Result<Order, _> = response.read();
    match order.ok().and_then(|order| order.lines.first().map(|line| line.stock)) {
        Some(stock) => OrderResult::Sold { before: stock.before, after: stock.after },
        None => OrderResult::Failed("its response has no stock".to_owned()),
    }
}

//! One game: its orders, and what the visitor did.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

use super::rules::{GAME_DURATION, GameRules, MAX_STEPS};
use super::state::{OrderResult, StepState};
use crate::progress::Visitor;
use holdfast_shop::model::Order;
use holdfast_shop::probe::{Point, RequestProbe};
use holdfast_shop::{Error, Execution, Failure, Rejection, Sku, StoredResponse};

#[derive(Debug)]
pub struct Game {
    pub id: Uuid,
    pub rules: GameRules,
    pub sku: Sku,
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

#[derive(Debug, Clone)]
pub(super) struct GameStep {
    pub shown: StepState,
    /// Orders that had the lock when its lease was ended. They do not learn of it.
    pub lost_by: Vec<char>,
    /// The points at which all orders were paused before the step, for the replay of an undo.
    pub before: Vec<Option<Point>>,
}

/// Why an action was refused; the game is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ActionRejection {
    #[serde(rename = "over")]
    Over,
    #[serde(rename = "steps")]
    TooManySteps,
    /// The steps before the undone one did not have the same effects again in time.
    #[serde(rename = "undo")]
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
    Refused(ActionRejection),
    NoRoom(NoRoom),
    Failed(Failure),
}

impl From<NoRoom> for GameError {
    fn from(why: NoRoom) -> Self {
        Self::NoRoom(why)
    }
}

impl From<ActionRejection> for GameError {
    fn from(refusal: ActionRejection) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Into<Failure>> From<E> for GameError {
    fn from(failure: E) -> Self {
        Self::Failed(failure.into())
    }
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

    pub(super) fn check_step(&self) -> Result<(), ActionRejection> {
        if self.is_over() {
            return Err(ActionRejection::Over);
        }
        if self.steps.lock().len() >= MAX_STEPS {
            Err(ActionRejection::TooManySteps)
        } else {
            Ok(())
        }
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
            OrderResult::Timeout
        }
        Err(Failure::Rejected(other)) => OrderResult::Failed { why: format!("{other:?}") },
        Err(Failure::Error(Error::LockLost(_))) => OrderResult::Stale,
        Err(Failure::Error(error)) => OrderResult::Failed { why: error.to_string() },
    }
}

fn sale(response: &StoredResponse) -> OrderResult {
    let order: Result<Order, _> = response.read();
    match order.ok().and_then(|order| order.lines.first().map(|line| line.stock)) {
        Some(stock) => OrderResult::Sold { before: stock.before, after: stock.after },
        None => OrderResult::Failed { why: "its response has no stock".to_owned() },
    }
}

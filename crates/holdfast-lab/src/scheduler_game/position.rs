//! Where an order of a game is: its trace, read as its state.

use super::game::GameStep;
use super::rules::{GameRules, points};
use super::stages::next_action;
use super::state::{LockBelief, OrderResult, OrderState, Waits};
use holdfast_shop::probe::{Point, TraceEvent};

#[derive(Debug)]
pub(super) struct OrderPosition {
    pub name: char,
    pub at: Option<Point>,
    pub result: Option<OrderResult>,
    pub events: Vec<TraceEvent>,
}

impl OrderPosition {
    pub fn last_read(&self) -> Option<i64> {
        self.events.iter().rev().find(|event| event.event == "read").and_then(|event| event.value)
    }

    /// Returns the last event of a point. What precedes a write counts only since the last read:
    /// an order whose write was rejected reads again.
    fn event(&self, point: Point) -> Option<&TraceEvent> {
        let is_of_attempt = matches!(point, Point::Commit | Point::Write | Point::Committed);
        let of_attempt = |event: &&TraceEvent| !is_of_attempt || event.event != "read";
        let mut latest = self.events.iter().rev().take_while(of_attempt);
        latest.find(|event| event.event == point.name())
    }

    /// Returns whether it has taken the lock and not released it; in Redis it may be gone.
    pub fn believes_it_has_lock(&self) -> bool {
        self.result.is_none()
            && self.event(Point::Held).is_some()
            && self.event(Point::Release).is_none()
    }

    /// Returns the number of its writes that Postgres rejected because of another version.
    pub fn rejected_writes(&self) -> usize {
        self.events.iter().filter(|event| event.event == "refused").count()
    }

    /// Returns what it waits for, if it is neither paused nor over.
    pub fn waits_for(&self, rules: GameRules) -> Option<Waits> {
        let asks_for_lock = rules.has_lock() && self.event(Point::Held).is_none();
        let waits = self.at.is_none() && self.result.is_none();
        waits.then_some(if asks_for_lock { Waits::Lock } else { Waits::Row })
    }

    pub fn state(self, rules: GameRules, steps: &[GameStep]) -> OrderState {
        let read = self.last_read();
        let has_reached = |point: &Point| self.event(*point).is_some();
        let lock = match has_lost_lock(steps, self.name) {
            true => LockBelief::Lost,
            false => LockBelief::Held,
        };
        let mut own_steps = steps.iter().rev().filter(|step| step.shown.who == self.name);

        OrderState {
            name: self.name,
            at: self.at,
            reached: points(rules.strategy).into_iter().filter(has_reached).collect(),
            read,
            fence: self.event(Point::Held).and_then(|event| event.fence),
            lock: self.believes_it_has_lock().then_some(lock),
            next: self.at.map(|at| next_action(rules.strategy, at, read)),
            waits_for: self.waits_for(rules),
            rejection: own_steps.find_map(|step| step.shown.rejection),
            result: self.result,
        }
    }
}

/// Returns whether the lease of the lock was ended while the order had it.
pub(super) fn has_lost_lock(steps: &[GameStep], order: char) -> bool {
    steps.iter().any(|step| step.lost_by.contains(&order))
}

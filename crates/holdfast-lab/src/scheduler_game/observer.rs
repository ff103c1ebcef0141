//! Reads where the orders of a game are, and waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::game::{Game, GameOrder, order_result};
use super::position::{OrderPosition, has_lost_lock};
use super::rules::GameRules;
use super::state::{EntryState, GameState, OrderState, RejectedWrite};
use holdfast_shop::audit::{self, ItemSummary};
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::probe::{PauseBoard, Point};
use holdfast_shop::query::ledger;
use holdfast_shop::{Error, Shop};

pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(4);
const MAX_ENTRIES: i64 = 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct GameObserver<'a> {
    pub game: &'a Game,
    pub shop: &'a Shop,
    pub board: &'a PauseBoard,
}

impl GameObserver<'_> {
    pub async fn state(self) -> Result<GameState, Error> {
        let entries = self.entries(MAX_ENTRIES).await?;
        let audit = self.audit().await?;

        let GameRules { level, strategy, .. } = self.game.rules;
        let reached_at = self.game.reached_at();
        let steps = self.game.steps.lock().iter().map(|step| step.shown.clone()).collect();
        Ok(GameState {
            level,
            strategy: strategy.name,
            orders: self.orders(),
            steps,
            entries: entries.into_iter().map(EntryState::from).collect(),
            audit,
            reached_at,
            stars: level.zip(reached_at).map_or(0, |(level, steps)| level.stars(steps)),
        })
    }

    pub fn orders(self) -> Vec<OrderState> {
        let positions = self.positions();
        let steps = self.game.steps.lock();
        positions.into_iter().map(|position| position.state(self.game.rules, &steps)).collect()
    }

    /// Returns the start of each pause by its order.
    pub fn pauses(self) -> BTreeMap<char, u64> {
        let since = |order: &GameOrder| Some((order.name, self.paused_at(order)?.1));
        self.game.orders.iter().filter_map(since).collect()
    }

    /// Returns the orders that have the lock, or believe it.
    pub fn holders(self) -> Vec<char> {
        let holders = self.positions().into_iter().filter(OrderPosition::believes_it_has_lock);
        holders.map(|order| order.name).collect()
    }

    pub fn have_all_holders_lost(self) -> bool {
        let holders = self.holders();
        let steps = self.game.steps.lock();
        !holders.is_empty() && holders.iter().all(|order| has_lost_lock(&steps, *order))
    }

    /// Returns whether an order that continues may have to wait for another one: for the lock, or
    /// for a row that the other's transaction has locked.
    pub fn may_wait(self, order: &GameOrder, from: Point) -> bool {
        let rules = self.game.rules;
        if rules.has_lock() {
            return from == Point::Wait && !self.holders().is_empty();
        }
        let mut others = self.game.orders.iter().filter(|other| other.name != order.name);
        !rules.is_autocommit() && others.any(|other| !other.is_over())
    }

    /// Returns the row as the last write left it; `None` if the item has no ledger.
    pub async fn row(self) -> Result<Option<RejectedWrite>, Error> {
        let newest = self.entries(1).await?;
        // The entry has the version that was read, and each write raises it.
        let row =
            |entry: &LedgerEntry| RejectedWrite { version: entry.version + 1, fence: entry.fence };
        Ok(newest.first().map(row))
    }

    async fn entries(self, limit: i64) -> Result<Vec<LedgerEntry>, Error> {
        ledger::latest_stock_entries(self.shop, &self.game.sku, None, limit).await
    }

    pub async fn audit(self) -> Result<ItemSummary, Error> {
        let summary = audit::summary(&mut *self.shop.connection().await?, &self.game.sku).await?;
        summary.ok_or_else(|| Error::Bug("the game's item has gone".to_owned()))
    }

    pub fn positions(self) -> Vec<OrderPosition> {
        self.game.orders.iter().map(|order| self.position(order)).collect()
    }

    pub fn position(self, order: &GameOrder) -> OrderPosition {
        let result = order.result.lock();
        let events = order.probe.events.lock().clone();
        OrderPosition {
            name: order.name,
            at: self.paused_at(order).map(|(point, _)| point),
            result: result.as_ref().map(order_result),
            events,
        }
    }

    /// Returns the point at which an order is paused, and the start of the pause.
    pub fn paused_at(self, order: &GameOrder) -> Option<(Point, u64)> {
        self.board.paused_at(order.probe.request_id)
    }

    /// Returns the points at which all orders are paused.
    pub fn points(self) -> Vec<Option<Point>> {
        let point = |order| self.paused_at(order).map(|(point, _)| point);
        self.game.orders.iter().map(point).collect()
    }

    /// Waits until each order is paused at its point, if it has one.
    pub async fn wait_until_paused_at(self, points: &[Option<Point>]) {
        let is_there =
            |(now, point): (&Option<Point>, &Option<Point>)| point.is_none() || now == point;
        while !self.points().iter().zip(points).all(is_there) {
            sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn wait_until_all_settled(self, timeout: Duration) {
        for order in &self.game.orders {
            self.wait_until_settled(order, None, timeout).await;
        }
    }

    /// Waits until the order ends or is paused by another pause than `since`, up to `timeout`.
    pub async fn wait_until_settled(
        self,
        order: &GameOrder,
        since: Option<u64>,
        timeout: Duration,
    ) {
        let end = Instant::now() + timeout;
        while Instant::now() < end && !order.is_over() {
            match self.paused_at(order) {
                Some((_, since_us)) if Some(since_us) != since => return,
                _ => sleep(POLL_INTERVAL).await,
            }
        }
    }
}

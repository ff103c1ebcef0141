//! The visitor chooses the interleaving of two or three real orders that compete for the last
//! units: each is paused at every probe point until the visitor resumes it.
//!
//! The orders use the shop's own locks, with longer timeouts, and hold no connection while they are
//! paused; under a row lock each has a transaction, of which there are few. They live in the
//! process that started them, and end after [`GAME_DURATION`]. A real request cannot be undone:
//! [`Games::undo`] replays the steps before in a new game. A game that is not used for
//! [`IDLE_TIMEOUT`] ends when another one needs its place.
//! Tests: `tests/it/scheduler.rs`, `tests/pages/scheduler.rs`.

mod game;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::progress::Visitor;
use holdfast_base::messages::message;
use holdfast_shop::audit;
use holdfast_shop::budget::Budget;
use holdfast_shop::db::ErrorClass;
use holdfast_shop::model::{Item, RequestedLine};
use holdfast_shop::probe::{Pause, PauseBoard, Point, Probe, RequestProbe};
use holdfast_shop::query::ledger;
use holdfast_shop::store::items;
use holdfast_shop::users::{self, LAB_NAME_PREFIX};
use holdfast_shop::{
    Error, Failure, IdempotencyKey, Rejection, RequestOptions, Shop, Sku, UserId, engine,
};

pub use game::{
    Game, GameError, GameStep, GameView, NoRoom, OrderPosition, OrderResult, Player, Refusal,
};
use game::{GameOrder, SharedOrderResult, has_lost_lock, order_result};
use rules::RejectedWrites;
pub use rules::{GAME_DURATION, GameRules, Level, playable, playable_named};

const STEP_TIMEOUT: Duration = Duration::from_millis(400);
/// In which other orders react to a step, for example to a released lock.
const REACTION_TIMEOUT: Duration = Duration::from_millis(120);
/// Shorter than the time limit of a request.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Per replica: two classes.
const MAX_GAMES: usize = 64;
const MAX_GAMES_PER_PLAYER: usize = 4;
/// Of browsers without a session.
const MAX_GAMES_PER_ADDRESS: usize = 32;
/// Upper bound of the orders per replica that hold a transaction; in a class, each student's.
pub const MAX_TRANSACTIONS: u32 = 6;
pub const MAX_TRANSACTIONS_OF_CLASS: u32 = 64;
/// Connections to Postgres of the games of a class on one replica.
pub const CONNECTIONS_OF_CLASS: u32 = MAX_TRANSACTIONS_OF_CLASS + REPLAY_CONNECTIONS;
/// For the transactions of a replay.
const REPLAY_CONNECTIONS: u32 = 3;
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_ENTRIES: i64 = 20;

#[derive(Debug)]
pub struct Games {
    shop: Shop,
    /// The same with sessions that a person may keep waiting.
    shop_of_transactions: Shop,
    board: PauseBoard,
    max_transactions: usize,
    games: Mutex<BTreeMap<Uuid, Arc<Game>>>,
    /// One game begins at a time, so that the bounds are exact.
    begin_turn: tokio::sync::Mutex<()>,
    /// One undo under a row lock at a time: its orders use connections beside those of the
    /// permitted games.
    undo_turn: tokio::sync::Mutex<()>,
}

impl Games {
    /// Their transactions use connections in addition to the replica's own.
    pub fn new(shop: &Shop, board: &PauseBoard, max_transactions: u32) -> Self {
        let mut shop = shop.clone();
        shop.lab_connections = Budget::new(MAX_GAMES * 3, MAX_GAMES * 3);
        // A visitor may think for longer than a request may hold its lock.
        let locks = shop.locks.with_max_hold(GAME_DURATION);
        shop.locks = locks.with_acquire_timeout(GAME_DURATION);
        let connections = max_transactions + REPLAY_CONNECTIONS;
        let pool = shop.pool.with_session_timeout(connections, GAME_DURATION);
        Self {
            shop_of_transactions: Shop { pool, ..shop.clone() },
            shop,
            board: board.clone(),
            max_transactions: usize::try_from(max_transactions).unwrap_or(0),
            games: Mutex::default(),
            begin_turn: tokio::sync::Mutex::default(),
            undo_turn: tokio::sync::Mutex::default(),
        }
    }

    /// Begins a game with its orders paused at their first point, and ends the game `previous`.
    pub async fn begin(
        &self,
        player: &Player,
        rules: GameRules,
        previous: Option<Uuid>,
    ) -> Result<Arc<Game>, GameError> {
        let game = {
            let _turn = self.begin_turn.lock().await;
            self.make_room(player, rules, previous)?;
            let game = self.start(player, rules).await?;
            self.games.lock().insert(game.id, Arc::clone(&game));
            game
        };

        self.wait_until_all_settled(&game, STEP_TIMEOUT).await;
        Ok(game)
    }

    /// Ends games that are over, and if necessary abandoned ones, to make room for one more.
    fn make_room(
        &self,
        player: &Player,
        rules: GameRules,
        previous: Option<Uuid>,
    ) -> Result<(), NoRoom> {
        self.end(|game| {
            Some(game.id) == previous || game.is_over() || game.left() == Duration::ZERO
        });

        let of_player = |game: &Game| usize::from(game.player.visitor == player.visitor);
        if !self.has_room(MAX_GAMES_PER_PLAYER, 1, of_player) {
            return Err(NoRoom::OfPlayer);
        }

        // Whoever has no cookie is a new visitor each time.
        let needed = usize::from(player.visitor.user.is_none());
        let of_address = |game: &Game| {
            let is_counted = game.player.visitor.user.is_none();
            usize::from(is_counted && game.player.address == player.address)
        };
        if !self.has_room(MAX_GAMES_PER_ADDRESS, needed, of_address)
            || !self.has_room(MAX_GAMES, 1, |_| 1)
        {
            return Err(NoRoom::OfReplica);
        }

        let needed = rules.transactions();
        if !self.has_room(self.max_transactions, needed, |game| game.rules.transactions()) {
            return Err(NoRoom::RowLock);
        }
        Ok(())
    }

    /// Returns whether `needed` more are at most `max`; ends abandoned games for that.
    fn has_room(&self, max: usize, needed: usize, share: impl Fn(&Game) -> usize) -> bool {
        loop {
            let used: usize = self.games.lock().values().map(|game| share(game)).sum();
            if needed == 0 || used + needed <= max {
                return true;
            }
            if !self.end_longest_idle(|game| share(game) > 0) {
                return false;
            }
        }
    }

    async fn start(&self, player: &Player, rules: GameRules) -> Result<Arc<Game>, Failure> {
        let name = format!("{LAB_NAME_PREFIX}scheduler");
        let mut tx = self.shop.pool.begin().await.map_err(Error::from)?;
        let user = users::find_or_create_lab_user(&mut tx, &name, false).await?;
        let user = user.ok_or_else(|| Error::Bug(format!("{name} is an admin")))?;
        tx.commit().await.map_err(Error::from)?;

        let stock = i64::try_from(rules.orders).unwrap_or(2) - 1;
        let item = Item::throw_away("The last units", 100, stock);
        let sku = item.sku.clone();
        items::create_in_lab(&self.shop, item, Uuid::now_v7()).await?;

        let orders =
            ('A'..).take(rules.orders).map(|name| self.start_order(name, user, rules, &sku));
        Ok(Arc::new(Game {
            // Knowing the id is the permission to play, so it must not be guessable.
            id: Uuid::new_v4(),
            rules,
            sku: sku.clone(),
            stock,
            player: player.clone(),
            begun: Instant::now(),
            last_used: Mutex::new(Instant::now()),
            orders: orders.collect(),
            steps: Mutex::default(),
            reached_at: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    pub fn game(&self, id: Uuid) -> Option<Arc<Game>> {
        self.games.lock().get(&id).cloned()
    }

    /// Returns the games of a visitor that can go on, the oldest first. Knowing the id of a game is
    /// the permission to play it, so those of an address are nobody's to list.
    pub fn of(&self, visitor: Visitor) -> Vec<Arc<Game>> {
        let goes_on = |game: &&Arc<Game>| {
            game.player.visitor == visitor && !game.is_over() && game.left() > Duration::ZERO
        };
        let mut games: Vec<_> = self.games.lock().values().filter(goes_on).cloned().collect();
        games.sort_by_key(|game| game.begun);
        games
    }

    /// Resumes an order until its next point. Returns `false` if it is not paused, or if `since_us`
    /// names an earlier pause: a second click is not a second step.
    pub async fn step(
        &self,
        game: &Game,
        who: char,
        since_us: Option<u64>,
    ) -> Result<bool, GameError> {
        let _turn = game.turn.lock().await;
        let Some(order) = game.orders.iter().find(|order| order.name == who) else {
            return Ok(false);
        };
        let Some((from, since)) = self.paused_at(order) else { return Ok(false) };
        game.check_step()?;
        let conflicts = self.position(order).conflicts();
        if !self.board.resume(order.probe.request_id, Some(since_us.unwrap_or(since))) {
            return Ok(false);
        }

        self.wait_until_settled(order, Some(since), STEP_TIMEOUT).await;
        self.wait_until_all_settled(game, REACTION_TIMEOUT).await;

        let position = self.position(order);
        let waits = position.held.is_none() && position.result.is_none();
        let step = GameStep {
            who: Some(who),
            from: Some(from),
            at: position.held,
            read: position.last_read(),
            is_conflict: position.conflicts() > conflicts,
            waits_for_ended_lease: waits && self.have_all_holders_lost(game),
            result: position.result,
            ..GameStep::default()
        };
        self.finish_step(game, step).await?;
        Ok(true)
    }

    /// Ends the lease of the item's lock now: Redis deletes its key, as when a lease expires.
    pub async fn expire_lease(&self, game: &Game) -> Result<(), GameError> {
        let _turn = game.turn.lock().await;
        game.check_step()?;

        let lost_by = self.holders(game);
        self.delete_lock(game).await?;
        self.wait_until_all_settled(game, REACTION_TIMEOUT).await;
        Ok(self.finish_step(game, GameStep { lost_by, ..GameStep::default() }).await?)
    }

    /// Returns the orders that have the lock, or believe it.
    fn holders(&self, game: &Game) -> Vec<char> {
        let holders = self.positions(game).into_iter().filter(OrderPosition::believes_it_has_lock);
        holders.map(|order| order.name).collect()
    }

    fn have_all_holders_lost(&self, game: &Game) -> bool {
        let holders = self.holders(game);
        let steps = game.steps.lock();
        !holders.is_empty() && holders.iter().all(|order| has_lost_lock(&steps, *order))
    }

    async fn delete_lock(&self, game: &Game) -> Result<(), Error> {
        Ok(self.shop.locks.leases().force_release(&game.sku.lock_key()).await?)
    }

    /// Begins another game, repeats all steps but the last, and puts it in the place of this one.
    /// If the steps do not have the same effects within [`UNDO_TIMEOUT`], this one goes on.
    pub async fn undo(&self, game: &Game) -> Result<Arc<Game>, GameError> {
        let _turn = game.turn.lock().await;
        self.game(game.id).ok_or_else(game_has_ended)?;
        *game.last_used.lock() = Instant::now();

        let mut steps = game.steps.lock().clone();
        steps.pop();
        // If it is not completed, dropping the new game releases its orders.
        let again = match timeout(UNDO_TIMEOUT, self.replay_all(game, steps)).await {
            // A row that stays locked keeps the new game from its item.
            Err(_)
            | Ok(Err(GameError::Failed(Failure::Error(Error::Postgres(
                ErrorClass::LockTimeout,
                _,
            ))))) => {
                return Err(Refusal::NotReplayed.into());
            }
            Ok(replayed) => replayed?,
        };

        // This game may have ended meanwhile; then the other one must not take a place either.
        let mut games = self.games.lock();
        games.remove(&game.id).ok_or_else(game_has_ended)?;
        games.insert(again.id, Arc::clone(&again));
        game.release();
        Ok(again)
    }

    async fn replay_all(&self, game: &Game, steps: Vec<GameStep>) -> Result<Arc<Game>, GameError> {
        let _turn = match game.rules.transactions() {
            0 => None,
            _ => Some(self.undo_turn.lock().await),
        };
        let again = self.start(&game.player, game.rules).await?;
        self.wait_until_all_settled(&again, STEP_TIMEOUT).await;
        for step in steps {
            self.replay(&again, step).await?;
        }
        Ok(again)
    }

    async fn replay(&self, game: &Game, step: GameStep) -> Result<(), GameError> {
        match game.orders.iter().find(|order| Some(order.name) == step.who) {
            Some(order) => {
                self.wait_until_settled(order, None, UNDO_TIMEOUT).await;
                let (_, since) = self.paused_at(order).ok_or(Refusal::NotReplayed)?;
                let _ = self.board.resume(order.probe.request_id, Some(since));
                // An order that waits does not settle: it gets as long as it needs to ask.
                let waits = step.at.is_none() && step.result.is_none();
                let timeout = if waits { REACTION_TIMEOUT } else { UNDO_TIMEOUT };
                self.wait_until_settled(order, Some(since), timeout).await;
            }
            None => self.delete_lock(game).await?,
        }

        // An order that waited for a lock may have it earlier than in the first game.
        while !self.are_paused_at(game, &step.all) {
            sleep(POLL_INTERVAL).await;
        }
        Ok(self.finish_step(game, step).await?)
    }

    /// Returns whether each order is paused at its point, if it has one.
    fn are_paused_at(&self, game: &Game, points: &[Option<Point>]) -> bool {
        let positions = self.positions(game);
        positions.iter().zip(points).all(|(now, point)| point.is_none() || now.held == *point)
    }

    async fn finish_step(&self, game: &Game, step: GameStep) -> Result<(), Error> {
        let positions = self.positions(game);
        let all = positions.iter().map(|position| position.held).collect();
        let steps = {
            let mut steps = game.steps.lock();
            steps.push(GameStep { all, ..step });
            steps.len()
        };
        *game.last_used.lock() = Instant::now();

        let rejected = RejectedWrites {
            by_version: positions.iter().any(|order| order.conflicts() > 0),
            by_fence: positions.iter().any(|order| order.result == Some(OrderResult::StaleWrite)),
        };
        let is_reached = game.rules.is_reached(&self.audit(game).await?, rejected);
        let mut reached_at = game.reached_at.lock();
        if is_reached && reached_at.is_none() {
            *reached_at = Some(steps);
        }
        Ok(())
    }

    pub async fn view(&self, game: &Game) -> Result<GameView, Error> {
        *game.last_used.lock() = Instant::now();
        Ok(GameView {
            positions: self.positions(game),
            audit: self.audit(game).await?,
            entries: ledger::latest_stock_entries(&self.shop, &game.sku, None, MAX_ENTRIES).await?,
            steps: game.steps.lock().clone(),
            reached_at: *game.reached_at.lock(),
            left: game.left(),
        })
    }

    async fn audit(&self, game: &Game) -> Result<audit::ItemAudit, Error> {
        let audit = audit::check_item(&self.shop.pool, &game.sku).await?;
        audit.ok_or_else(|| Error::Bug("the game's item has gone".to_owned()))
    }

    fn start_order(&self, name: char, user: UserId, rules: GameRules, sku: &Sku) -> GameOrder {
        let request_id = Uuid::now_v7();
        let deadline = Instant::now() + GAME_DURATION;
        let probe = Arc::new(RequestProbe {
            record: true,
            yields_connection: true,
            pause: Some(Pause { at: None, length: None, until: deadline }),
            ..RequestProbe::new(name, request_id, &self.board)
        });
        let options = RequestOptions {
            strategy: rules.strategy,
            ttl: rules.lease(),
            probe: Probe::Lab(Arc::clone(&probe)),
            deadline,
            ..RequestOptions::new(&self.shop, request_id)
        };

        let shop = match rules.is_autocommit() {
            true => self.shop.clone(),
            false => self.shop_of_transactions.clone(),
        };
        let lines = [RequestedLine { sku: sku.clone(), quantity: 1 }];
        let result = SharedOrderResult::default();
        let shared = Arc::clone(&result);
        self.shop.tasks.spawn(async move {
            let key = IdempotencyKey::generate();
            let result = engine::place_order(&shop, &options, user, key, &lines, None).await;
            *shared.lock() = Some(result);
        });
        GameOrder { name, probe, result }
    }

    pub fn end_game(&self, id: Uuid) {
        self.end(|game| game.id == id);
    }

    pub fn end_all(&self) {
        self.end(|_| true);
    }

    /// Ends the games that `which` selects: their orders pause no more, and run to completion.
    fn end(&self, which: impl Fn(&Game) -> bool) {
        self.games
            .lock()
            .extract_if(.., |_, game| which(game))
            .for_each(|(_, game)| game.release());
    }

    /// Ends, of the games selected, the one that was abandoned first; `false` if none was.
    fn end_longest_idle(&self, which: impl Fn(&Game) -> bool) -> bool {
        let idle = {
            let games = self.games.lock();
            let abandoned = games.values().filter(|game| which(game) && game.idle() > IDLE_TIMEOUT);
            abandoned.max_by_key(|game| game.idle()).map(|game| game.id)
        };
        self.end(|game| Some(game.id) == idle);
        idle.is_some()
    }

    fn paused_at(&self, order: &GameOrder) -> Option<(Point, u64)> {
        let paused = self.board.paused(None);
        let paused = paused.iter().find(|paused| paused.request_id == order.probe.request_id)?;
        Some((paused.point, paused.since_us))
    }

    async fn wait_until_all_settled(&self, game: &Game, timeout: Duration) {
        for order in &game.orders {
            self.wait_until_settled(order, None, timeout).await;
        }
    }

    /// Waits until the order ends or is paused by another pause than `since`, up to `timeout`.
    async fn wait_until_settled(&self, order: &GameOrder, since: Option<u64>, timeout: Duration) {
        let end = Instant::now() + timeout;
        while Instant::now() < end && !order.is_over() {
            match self.paused_at(order) {
                Some((_, since_us)) if Some(since_us) != since => return,
                _ => sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn positions(&self, game: &Game) -> Vec<OrderPosition> {
        game.orders.iter().map(|order| self.position(order)).collect()
    }

    fn position(&self, order: &GameOrder) -> OrderPosition {
        let result = order.result.lock();
        let events = order.probe.events.lock().clone();
        let (held, since_us) = self.paused_at(order).unzip();
        OrderPosition {
            name: order.name,
            held,
            since_us,
            result: result.as_ref().map(order_result),
            events,
        }
    }
}

fn game_has_ended() -> Rejection {
    Rejection::NotFound(message!("problem-missing-game"))
}

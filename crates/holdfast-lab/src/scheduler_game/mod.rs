//! The visitor chooses the interleaving of two or three real orders that compete for the last
//! units: each is paused at every probe point until the visitor resumes it.
//!
//! The orders use the shop's own locks, with longer timeouts, and hold no connection while they are
//! paused; under a row lock each has a transaction, of which there are few. They live in the
//! process that started them, and end after [`GAME_DURATION`]. A real request cannot be undone:
//! [`Games::undo`] replays the steps before in a new game. A game that is not used for
//! [`IDLE_TIMEOUT`] ends when another one needs its place.
//! Tests: `tests/it/scheduler_game.rs`, `tests/pages/scheduler_game.rs`.

mod game;
mod observer;
mod position;
mod rules;
mod stages;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::progress::Visitor;
use holdfast_base::messages::message;
use holdfast_shop::budget::Budget;
use holdfast_shop::db::ErrorClass;
use holdfast_shop::model::{Item, RequestedLine};
use holdfast_shop::probe::{Pause, PauseBoard, Point, Probe, RequestProbe};
use holdfast_shop::store::items;
use holdfast_shop::users::{self, LAB_NAME_PREFIX};
use holdfast_shop::{
    Error, Failure, IdempotencyKey, Rejection, RequestContext, Shop, Sku, UserId, engine,
};

pub use game::{ActionRejection, Game, GameError, NoRoom, Player};
use game::{GameOrder, GameStep, SharedOrderResult};
use observer::GameObserver;
use rules::RejectedWrites;
pub use rules::{GAME_DURATION, GameRules, Level, playable, playable_named};
use stages::next_action;
pub use stages::{GameCatalogue, NextAction};
pub use state::{
    EntryState, GameState, LockBelief, OrderResult, OrderState, RejectedWrite, StepState, Waits,
};

/// In which an order reaches its next point, unless it waits for another one.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// After which an order that may wait for another one counts as waiting.
const WAIT_TIMEOUT: Duration = Duration::from_millis(400);
/// In which other orders react to a step, for example to a released lock.
const REACTION_TIMEOUT: Duration = Duration::from_millis(120);
/// Shorter than the time limit of a request.
const UNDO_TIMEOUT: Duration = Duration::from_secs(5);
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

        self.observe(&game).wait_until_all_settled(STEP_TIMEOUT).await;
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

        // A browser without a cookie is a new visitor each time.
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
    /// the permission to play it, so the games of an address are never listed.
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
        let observer = self.observe(game);
        let Some((from, since)) = observer.paused_at(order) else { return Ok(false) };
        game.check_step()?;

        let before = observer.points();
        let rejected_writes = observer.position(order).rejected_writes();
        let timeout = if observer.may_wait(order, from) { WAIT_TIMEOUT } else { STEP_TIMEOUT };
        if !self.board.resume(order.probe.request_id, Some(since_us.unwrap_or(since))) {
            return Ok(false);
        }
        observer.wait_until_settled(order, Some(since), timeout).await;
        observer.wait_until_all_settled(REACTION_TIMEOUT).await;

        let position = observer.position(order);
        let rejection = match position.rejected_writes() > rejected_writes {
            true => observer.row().await?,
            false => None,
        };
        let waits_for = match position.waits_for(game.rules) {
            Some(Waits::Lock) if observer.have_all_holders_lost() => Some(Waits::EndedLease),
            waits_for => waits_for,
        };
        let read = position.last_read();
        let shown = StepState {
            who,
            did: Some(next_action(game.rules.strategy, from, read)),
            saw: read.filter(|_| position.at == Some(Point::Read)),
            waits_for,
            rejection,
            result: position.result,
        };
        self.finish_step(game, GameStep { shown, lost_by: Vec::new(), before }).await?;
        Ok(true)
    }

    /// Ends the lease of the item's lock now: Redis deletes its key, as when a lease expires.
    pub async fn expire_lease(&self, game: &Game) -> Result<(), GameError> {
        let _turn = game.turn.lock().await;
        game.check_step()?;

        let observer = self.observe(game);
        let (before, lost_by) = (observer.points(), observer.holders());
        self.delete_lock(game).await?;
        observer.wait_until_all_settled(REACTION_TIMEOUT).await;
        let step = GameStep { shown: StepState::expiry(), lost_by, before };
        Ok(self.finish_step(game, step).await?)
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
        let undone = steps.pop();
        // If it is not completed, dropping the new game releases its orders.
        let again = match timeout(UNDO_TIMEOUT, self.replay_all(game, steps, undone)).await {
            // A row that stays locked keeps the new game from its item.
            Err(_)
            | Ok(Err(GameError::Failed(Failure::Error(Error::Postgres(
                ErrorClass::LockTimeout,
                _,
            ))))) => {
                return Err(ActionRejection::NotReplayed.into());
            }
            Ok(replayed) => replayed?,
        };

        // This game may have ended since; then the other one must not take a place either.
        let mut games = self.games.lock();
        games.remove(&game.id).ok_or_else(game_has_ended)?;
        games.insert(again.id, Arc::clone(&again));
        game.release();
        Ok(again)
    }

    /// Repeats steps in a new game, until its orders are where they were before the undone one.
    async fn replay_all(
        &self,
        game: &Game,
        steps: Vec<GameStep>,
        undone: Option<GameStep>,
    ) -> Result<Arc<Game>, GameError> {
        let _turn = match game.rules.transactions() {
            0 => None,
            _ => Some(self.undo_turn.lock().await),
        };
        let again = self.start(&game.player, game.rules).await?;
        let observer = self.observe(&again);
        observer.wait_until_all_settled(STEP_TIMEOUT).await;
        for step in steps {
            self.replay(&again, step).await?;
        }
        if let Some(undone) = undone {
            observer.wait_until_paused_at(&undone.before).await;
        }
        Ok(again)
    }

    async fn replay(&self, game: &Game, step: GameStep) -> Result<(), GameError> {
        let observer = self.observe(game);
        // An order that waited for a lock had it when the visitor went on.
        observer.wait_until_paused_at(&step.before).await;

        match game.orders.iter().find(|order| order.name == step.shown.who) {
            Some(order) => {
                let (_, since) = observer.paused_at(order).ok_or(ActionRejection::NotReplayed)?;
                let _ = self.board.resume(order.probe.request_id, Some(since));
                // An order that waits does not settle: it gets as long as it needs to ask.
                let waits = step.shown.waits_for.is_some();
                let timeout = if waits { REACTION_TIMEOUT } else { UNDO_TIMEOUT };
                observer.wait_until_settled(order, Some(since), timeout).await;
            }
            None => self.delete_lock(game).await?,
        }
        Ok(self.finish_step(game, step).await?)
    }

    async fn finish_step(&self, game: &Game, step: GameStep) -> Result<(), Error> {
        let steps = {
            let mut steps = game.steps.lock();
            steps.push(step);
            steps.len()
        };
        *game.last_used.lock() = Instant::now();

        let observer = self.observe(game);
        let mut rejected = RejectedWrites::default();
        for order in observer.orders().iter().filter(|order| order.rejection.is_some()) {
            rejected.any = true;
            rejected.stale |= order.result == Some(OrderResult::Stale);
        }
        let is_reached = game.rules.is_reached(&observer.audit().await?, rejected);

        let mut reached_at = game.reached_at.lock();
        if is_reached && reached_at.is_none() {
            *reached_at = Some(steps);
        }
        Ok(())
    }

    /// Returns the state of a game, which counts as its use.
    pub async fn state(&self, game: &Game) -> Result<GameState, Error> {
        *game.last_used.lock() = Instant::now();
        self.observe(game).state().await
    }

    /// Returns the start of each pause by its order: it identifies the pause in [`Games::step`].
    pub fn pauses(&self, game: &Game) -> BTreeMap<char, u64> {
        self.observe(game).pauses()
    }

    fn observe<'a>(&'a self, game: &'a Game) -> GameObserver<'a> {
        GameObserver { game, shop: &self.shop, board: &self.board }
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
        let context = RequestContext {
            strategy: rules.strategy,
            ttl: rules.lease(),
            deadline,
            ..RequestContext::new(&self.shop, request_id)
        };
        let context = context.probed(Probe::Lab(Arc::clone(&probe)));

        let shop = match rules.is_autocommit() {
            true => self.shop.clone(),
            false => self.shop_of_transactions.clone(),
        };
        let lines = [RequestedLine { sku: sku.clone(), quantity: 1 }];
        let result = SharedOrderResult::default();
        let shared = Arc::clone(&result);
        self.shop.tasks.spawn(async move {
            let key = IdempotencyKey::generate();
            let result = engine::place_order(&shop, &context, user, key, &lines, None).await;
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
}

fn game_has_ended() -> Rejection {
    Rejection::NotFound(message!("problem-missing-game"))
}

//! The visitor chooses the interleaving of two or three real orders that compete for the last
//! units: each is paused at every probe point until the visitor resumes it.
//!
//! The orders use the shop's own locks and transactions, with longer timeouts. They live in the
//! process that started them, and end after [`GAME_DURATION`], which releases what they hold.
//! Tests: `tests/it/scheduler.rs`.

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::probe::{Pause, PauseBoard, Point, Probe, RequestProbe, TraceEvent};
use crate::shop::audit::{self, ItemAudit};
use crate::shop::model::{Item, LedgerEntry, Order, RequestedLine};
use crate::shop::query::ledger;
use crate::shop::store::items::{self, ItemKind};
use crate::shop::{
    Error, Execution, Failure, IdempotencyKey, Rejection, RequestOptions, Shop, Sku,
    StoredResponse, UserId, engine,
};

pub use rules::{GAME_DURATION, GameRules, PLAYABLE};

/// Timeout of a step; after it, the page says what the request waits for.
const STEP_TIMEOUT: Duration = Duration::from_millis(600);
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Upper bound of the games per replica. Each order of a game uses a connection, in addition to the
/// replica's own.
const MAX_GAMES: usize = 2;
const CONNECTIONS: u32 = 8;
const MAX_ENTRIES: i64 = 20;

#[derive(Debug)]
pub struct Games {
    shop: Shop,
    board: PauseBoard,
    games: Mutex<BTreeMap<Uuid, Arc<Game>>>,
    permits: Arc<Semaphore>,
}

#[derive(Debug)]
pub struct Game {
    pub id: Uuid,
    pub user: UserId,
    pub rules: GameRules,
    pub sku: Sku,
    pub stock: i64,
    begun: Instant,
    orders: Vec<GameOrder>,
    steps: Mutex<Vec<GameStep>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct GameOrder {
    name: char,
    request_id: Uuid,
    probe: Arc<RequestProbe>,
    result: SharedOrderResult,
}

/// Result of an order; `None` until it ends.
type SharedOrderResult = Arc<Mutex<Option<Result<Execution, Failure>>>>;

#[derive(Debug, Clone)]
pub struct GameStep {
    /// Order that was resumed; `None` if the lock was deleted in Redis.
    pub who: Option<char>,
    /// Point at which it is paused now, if any.
    pub at: Option<Point>,
    pub from: String,
    /// Result of the step, as text.
    pub to: String,
}

#[derive(Debug, Clone)]
pub struct OrderPosition {
    pub name: char,
    pub held: Option<Point>,
    /// Start of the pause, in µs of the monotonic clock; identifies the pause.
    pub since_us: Option<u64>,
    /// Result of the order, once it ended: whether it was placed, and a description.
    pub result: Option<(bool, String)>,
    pub events: Vec<TraceEvent>,
}

impl OrderPosition {
    /// Returns the value that it read last.
    pub fn last_read(&self) -> Option<i64> {
        self.events.iter().rev().find(|event| event.event == "read").and_then(|event| event.value)
    }
}

#[derive(Debug)]
pub struct GameView {
    pub positions: Vec<OrderPosition>,
    pub audit: ItemAudit,
    /// Ledger entries, oldest first.
    pub entries: Vec<LedgerEntry>,
    pub steps: Vec<GameStep>,
    /// Remaining time of the game, in seconds.
    pub left_s: u64,
}

impl Games {
    /// Creates the games of a shop. Must be called on the main runtime.
    pub fn new(shop: &Shop, board: &PauseBoard) -> Self {
        let mut shop = shop.clone();
        shop.pool = shop.pool.with_session_timeout(CONNECTIONS, GAME_DURATION);
        shop.locks = shop.locks.with_acquire_timeout(GAME_DURATION);
        let permits = Arc::new(Semaphore::new(MAX_GAMES));
        Self { shop, board: board.clone(), games: Mutex::default(), permits }
    }

    /// Starts a game, with its orders paused at their first point, and ends the user's previous
    /// game.
    ///
    /// # Errors
    /// A [`Rejection`] if too many games are in progress at this replica.
    pub async fn begin(&self, user: UserId, rules: GameRules) -> Result<Arc<Game>, Failure> {
        self.end(|game| game.user == user || game.begun.elapsed() > GAME_DURATION);
        self.games.lock().retain(|_, game| !game.orders.iter().all(GameOrder::is_over));
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let busy =
                format!("{MAX_GAMES} games are in progress at this replica; try again later");
            return Err(Rejection::Exists(busy).into());
        };
        let stock = i64::try_from(rules.orders).unwrap_or(2) - 1;
        let item = Item {
            sku: Sku::try_from(format!("lab-{}", Uuid::now_v7().simple()))
                .map_err(|error| Error::Bug(error.to_owned()))?,
            name: "The last units".to_owned(),
            price_cents: 100,
            stock,
            limit_per_user: None,
        };
        let sku = item.sku.clone();
        items::create(&self.shop, item, ItemKind::Lab, Uuid::now_v7()).await?;
        let orders =
            ('A'..).take(rules.orders).map(|name| self.start_order(name, user, rules, &sku));
        let game = Arc::new(Game {
            id: Uuid::now_v7(),
            user,
            rules,
            sku: sku.clone(),
            stock,
            begun: Instant::now(),
            orders: orders.collect(),
            steps: Mutex::default(),
            _permit: permit,
        });
        self.games.lock().insert(game.id, Arc::clone(&game));
        self.wait_until_all_settled(&game).await;
        Ok(game)
    }

    /// Returns the game `id` if it belongs to `user`.
    pub fn game(&self, id: Uuid, user: UserId) -> Option<Arc<Game>> {
        self.games.lock().get(&id).filter(|game| game.user == user).cloned()
    }

    /// Resumes an order until its next point. Returns `false` if it is not paused, or if `since_us`
    /// names an earlier pause: a second click is not a second step.
    pub async fn step(&self, game: &Game, who: char, since_us: Option<u64>) -> bool {
        let Some(order) = game.orders.iter().find(|order| order.name == who) else { return false };
        let Some((point, since)) = self.paused_at(order) else { return false };
        if !self.board.resume(order.request_id, Some(since_us.unwrap_or(since))) {
            return false;
        }
        self.wait_until_settled(order, Some(since)).await;
        // The other orders may have waited for what this one released.
        self.wait_until_all_settled(game).await;
        let position = self.position(order);
        let to = match (&position.result, position.held) {
            (Some((_, words)), _) => words.clone(),
            (None, Some(point)) => game.rules.describe_arrival(point, position.last_read()),
            (None, None) => "it waits for the others".to_owned(),
        };
        let from = game.rules.describe_next(point);
        game.steps.lock().push(GameStep { who: Some(who), at: position.held, from, to });
        true
    }

    /// Deletes the item's lock in Redis.
    pub async fn delete_lock(&self, game: &Game) -> Result<(), Error> {
        self.shop.locks.leases().force_release(&game.sku.lock_key()).await?;
        let to = "whoever waits may have it next".to_owned();
        let from = "Redis forgets the lock".to_owned();
        game.steps.lock().push(GameStep { who: None, at: None, from, to });
        self.wait_until_all_settled(game).await;
        Ok(())
    }

    pub async fn view(&self, game: &Game) -> Result<GameView, Error> {
        let gone = || Error::Bug("the game's item has gone".to_owned());
        Ok(GameView {
            positions: game.orders.iter().map(|order| self.position(order)).collect(),
            audit: audit::check_item(&self.shop.pool, &game.sku).await?.ok_or_else(gone)?,
            entries: ledger::stock_entries(&self.shop, &game.sku, 0, MAX_ENTRIES).await?,
            steps: game.steps.lock().clone(),
            left_s: GAME_DURATION.saturating_sub(game.begun.elapsed()).as_secs(),
        })
    }

    fn start_order(&self, name: char, user: UserId, rules: GameRules, sku: &Sku) -> GameOrder {
        let request_id = Uuid::now_v7();
        let deadline = Instant::now() + GAME_DURATION;
        let probe = Arc::new(RequestProbe {
            replica: name.to_string(),
            work: Duration::ZERO,
            record: true,
            pause: Some(Pause { at: None, length: None, until: deadline }),
            request_id,
            board: self.board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        });
        let options = RequestOptions {
            strategy: rules.strategy,
            ttl: rules.lease(),
            probe: Probe::Lab(Arc::clone(&probe)),
            deadline,
            ..RequestOptions::new(&self.shop, request_id)
        };
        let result = SharedOrderResult::default();
        let (shop, shared, sku) = (self.shop.clone(), Arc::clone(&result), sku.clone());
        self.shop.tasks.spawn(async move {
            let lines = [RequestedLine { sku, quantity: 1 }];
            let key = IdempotencyKey::generate();
            let result = engine::place_order(&shop, &options, user, key, &lines).await;
            *shared.lock() = Some(result);
        });
        GameOrder { name, request_id, probe, result }
    }

    /// Ends all games: their orders run to completion.
    pub fn end_all(&self) {
        self.end(|_| true);
    }

    /// Ends the games that `which` selects: their orders pause no more, and run to completion.
    fn end(&self, which: impl Fn(&Game) -> bool) {
        self.games.lock().retain(|_, game| {
            let ends = which(game);
            if ends {
                game.orders.iter().for_each(|order| order.probe.release());
            }
            !ends
        });
    }

    fn paused_at(&self, order: &GameOrder) -> Option<(Point, u64)> {
        let paused = self.board.paused();
        let paused = paused.iter().find(|paused| paused.request_id == order.request_id)?;
        Some((paused.point, paused.since_us))
    }

    /// Waits until every order ends or is paused, each up to [`STEP_TIMEOUT`].
    async fn wait_until_all_settled(&self, game: &Game) {
        for order in &game.orders {
            self.wait_until_settled(order, None).await;
        }
    }

    /// Waits until the order ends or is paused by another pause than `since`, up to
    /// [`STEP_TIMEOUT`].
    async fn wait_until_settled(&self, order: &GameOrder, since: Option<u64>) {
        let end = Instant::now() + STEP_TIMEOUT;
        while Instant::now() < end && !order.is_over() {
            match self.paused_at(order) {
                Some((_, since_us)) if Some(since_us) != since => return,
                _ => sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn position(&self, order: &GameOrder) -> OrderPosition {
        let result = order.result.lock();
        let events = order.probe.events.lock().clone();
        let (held, since_us) = self.paused_at(order).unzip();
        OrderPosition {
            name: order.name,
            held,
            since_us,
            result: result.as_ref().map(describe_result),
            events,
        }
    }
}

impl GameOrder {
    fn is_over(&self) -> bool {
        self.result.lock().is_some()
    }
}

/// Returns whether an order was placed, and describes its result.
fn describe_result(result: &Result<Execution, Failure>) -> (bool, String) {
    let why = match result {
        Ok(executed) => return (true, describe_sale(&executed.response)),
        Err(Failure::Rejected(Rejection::SoldOut { .. })) => "sold out".to_owned(),
        Err(Failure::Rejected(Rejection::LockTimeout { .. } | Rejection::LockBusy(_))) => {
            "it did not get the lock".to_owned()
        }
        Err(Failure::Rejected(other)) => format!("rejected: {other:?}"),
        Err(Failure::Error(Error::LockLost(_))) => {
            "rejected as a stale write: its lock was lost, and a later holder wrote".to_owned()
        }
        Err(Failure::Error(error)) => format!("it failed: {error}"),
    };
    (false, why)
}

fn describe_sale(response: &StoredResponse) -> String {
    let order: Result<Order, _> = response.read();
    match order.ok().and_then(|order| order.lines.first().map(|line| line.stock)) {
        Some(stock) => format!("sold: {} → {}", stock.before, stock.after),
        None => "sold".to_owned(),
    }
}

//! The scheduler game: interleavings that are possible without a lock, and impossible with one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_lab::scheduler_game::{
    Game, GameError, GameRules, GameView, Games, Level, Refusal, playable_named,
};
use holdfast_shop::probe::{PauseBoard, Point};
use holdfast_testkit::{Shop, until};

/// The address of the visitor.
const PLAYER: &str = "192.0.2.1";

/// A shop in this process with a visitor.
struct TestGame {
    scheduler: Games,
    game: Arc<Game>,
    shop: Shop,
}

impl TestGame {
    async fn begin(strategy: &str, orders: usize) -> Self {
        let strategy = playable_named(strategy).unwrap();
        Self::with_rules(GameRules { strategy, orders, level: None }).await
    }

    async fn with_rules(rules: GameRules) -> Self {
        let shop = Shop::start(1).await;
        let domain = shop.in_process("batched");
        let scheduler = Games::new(&domain, &PauseBoard::default());
        let game = scheduler.begin(PLAYER, rules, None).await.unwrap();
        Self { scheduler, game, shop }
    }

    async fn view(&self) -> GameView {
        self.scheduler.view(&self.game).await.unwrap()
    }

    /// Steps the requests in this order, each as soon as it can be; `X` ends the lease.
    async fn run_script(&self, script: &str) {
        for who in script.chars() {
            if who == 'X' {
                self.scheduler.expire_lease(&self.game).await.unwrap();
                continue;
            }
            // It may wait for a lock that is just being released.
            until("it is paused", async || {
                self.paused_at(who as usize - 'A' as usize).await.is_some()
            })
            .await;
            let stepped = self.scheduler.step(&self.game, who, None).await.unwrap();
            assert!(stepped, "{who} of {script} is not held");
        }
    }

    async fn paused_at(&self, who: usize) -> Option<Point> {
        self.view().await.positions[who].held
    }

    /// Steps all requests in turn until each has a response.
    async fn finish(&self) -> GameView {
        loop {
            let view = self.view().await;
            if view.positions.iter().all(|position| position.result.is_some()) {
                return view;
            }
            for position in view.positions {
                let _ = self.scheduler.step(&self.game, position.name, None).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn six_steps_oversell_without_a_lock() {
    let game = TestGame::begin("none", 2).await;
    assert_eq!(game.paused_at(0).await, Some(Point::Wait));
    game.run_script("ABAAB").await;
    let view = game.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "five steps are not enough");
    game.run_script("B").await;
    let view = game.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (2, 1));
    assert_eq!(view.audit.forks.len(), 1);
    assert_eq!(view.steps.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_order_waits_under_a_lock() {
    for strategy in ["owner", "fenced", "row-lock"] {
        let game = TestGame::begin(strategy, 2).await;
        // A up to its read; B until it waits.
        let reads = if strategy == "row-lock" { "A" } else { "AA" };
        game.run_script(reads).await;
        assert_eq!(game.paused_at(0).await, Some(Point::Read), "{strategy}");
        game.run_script("B").await;
        assert_eq!(game.paused_at(1).await, None, "{strategy}: B waits");
        let view = game.finish().await;
        assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "{strategy}");
        assert!(view.audit.ok, "{strategy}");
    }
}

/// The best solutions: the goal is reached by their last step, and by the number of steps that
/// gives three stars.
#[tokio::test(flavor = "multi_thread")]
async fn levels_are_solved_in_best_steps() {
    for (level, script) in [
        (Level::Oversell, "ABAABB"),
        (Level::UselessLock, "AAXBBAABB"),
        (Level::Fence, "AAXBBBBAAA"),
    ] {
        let game = TestGame::with_rules(level.rules().unwrap()).await;
        let (before, last) = script.split_at(script.len() - 1);
        game.run_script(before).await;
        assert_eq!(game.view().await.reached_at, None, "{level:?}: {:?}", game.view().await.steps);
        game.run_script(last).await;
        let view = game.view().await;
        assert_eq!(view.reached_at, Some(level.best_steps()), "{level:?}: {:?}", view.steps);
        assert_eq!(level.stars(script.len()), 3);
        let view = game.finish().await;
        assert_eq!(view.audit.oversold, i64::from(level != Level::Fence), "{level:?}");
        assert_eq!(view.reached_at, Some(level.best_steps()), "later steps do not count");
        let newest_first = view.entries.is_sorted_by(|one, other| one.seq > other.seq);
        assert!(newest_first, "{:?}", view.entries);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_lease_breaks_owner_but_not_fenced() {
    for (strategy, oversold) in [("owner", 1), ("fenced", 0)] {
        let game = TestGame::begin(strategy, 2).await;
        game.run_script("AABX").await;
        until("B has the lock", async || game.paused_at(1).await == Some(Point::Held)).await;
        let view = game.finish().await;
        assert_eq!(view.audit.oversold, oversold, "{strategy}: {:?}", view.steps);
        assert_eq!(view.audit.sold, 1 + oversold, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_replays_all_steps_but_last() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script("AABXBA").await;
    let (view, held) = (game.view().await, |view: &GameView| {
        view.positions.iter().map(|order| (order.held, order.last_read())).collect::<Vec<_>>()
    });
    game.run_script("A").await;
    let again = game.scheduler.undo(&game.game).await.unwrap();
    assert_ne!(again.id, game.game.id);
    assert_ne!(again.sku, game.game.sku, "the orders are new ones");
    assert!(game.scheduler.game(game.game.id).is_none());
    let replayed = game.scheduler.view(&again).await.unwrap();
    assert_eq!(held(&replayed), held(&view));
    assert_eq!(replayed.steps.len(), view.steps.len());
    assert!(game.scheduler.undo(&game.game).await.is_err(), "a second click undoes nothing more");
    assert!(game.scheduler.game(again.id).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn game_stays_if_undo_fails() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script("AABA").await;
    let held =
        async || game.view().await.positions.iter().map(|order| order.held).collect::<Vec<_>>();
    let before = held().await;
    // The new game cannot create its item.
    let mut blocker = game.shop.pool.begin().await.unwrap();
    sqlx::query("lock table items in share mode").execute(&mut *blocker).await.unwrap();
    let begun = Instant::now();
    let rejected = game.scheduler.undo(&game.game).await.unwrap_err();
    assert!(matches!(rejected, GameError::Refused(Refusal::NotReplayed)), "{rejected:?}");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(game.scheduler.game(game.game.id).is_some());
    assert_eq!(held().await, before);
    blocker.rollback().await.unwrap();
    let again = game.scheduler.undo(&game.game).await.unwrap();
    assert_eq!(game.scheduler.view(&again).await.unwrap().steps.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_a_game_are_bounded() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script(&"X".repeat(100)).await;
    let rejected = game.scheduler.expire_lease(&game.game).await;
    assert!(matches!(rejected, Err(GameError::Refused(Refusal::TooManySteps))), "{rejected:?}");
    let rejected = game.scheduler.step(&game.game, 'A', None).await;
    assert!(matches!(rejected, Err(GameError::Refused(Refusal::TooManySteps))), "{rejected:?}");
    assert_eq!(game.view().await.steps.len(), 100);
    // Even the longest game can be undone in time.
    let again = game.scheduler.undo(&game.game).await.unwrap();
    assert_eq!(game.scheduler.view(&again).await.unwrap().steps.len(), 99);

    let game = TestGame::begin("owner", 2).await;
    let steps = game.finish().await.steps.len();
    let rejected = game.scheduler.expire_lease(&game.game).await;
    assert!(matches!(rejected, Err(GameError::Refused(Refusal::Over))), "{rejected:?}");
    assert_eq!(game.view().await.steps.len(), steps);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_click_is_one_step() {
    let game = TestGame::begin("none", 2).await;
    let since = game.view().await.positions[0].since_us;
    assert!(game.scheduler.step(&game.game, 'A', since).await.unwrap());
    assert!(!game.scheduler.step(&game.game, 'A', since).await.unwrap());
    assert_eq!(game.paused_at(0).await, Some(Point::Read));
    assert_eq!(game.view().await.steps.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_game_ends_the_previous_one() {
    let game = TestGame::begin("owner", 3).await;
    game.run_script("AA").await;
    let (rules, previous) = (game.game.rules, Some(game.game.id));
    let again = game.scheduler.begin(PLAYER, rules, previous).await.unwrap();
    assert_ne!(again.id, game.game.id);
    assert!(game.scheduler.game(game.game.id).is_none());
    until("the first game is over", async || {
        game.view().await.positions.iter().all(|position| position.result.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_games_of_replicas_share_their_buyer() {
    let shop = Shop::start(1).await;
    let games = [(); 4].map(|()| Games::new(&shop.in_process("batched"), &PauseBoard::default()));
    let rules = Level::Oversell.rules().unwrap();
    let begun = join_all(games.iter().map(|games| games.begin(PLAYER, rules, None))).await;
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    assert_eq!(shop.number("select count(*) from users where name = 'lab-scheduler'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_games_hold_no_connection() {
    let shop = Shop::start(1).await;
    let domain = shop.in_process("batched");
    let games = Games::new(&domain, &PauseBoard::default());
    let rules = ["none", "owner", "fenced"].map(|strategy| {
        let strategy = playable_named(strategy).unwrap();
        GameRules { strategy, orders: 2, level: None }
    });
    let begun = join_all((0..30).map(|n| games.begin(PLAYER, rules[n % 3], None))).await;
    let begun: Vec<_> = begun.into_iter().map(Result::unwrap).collect();
    for game in &begun {
        for who in if game.rules.has_lock() { "AA".chars() } else { "AB".chars() } {
            assert!(games.step(game, who, None).await.unwrap());
        }
        let view = games.view(game).await.unwrap();
        assert_eq!(view.positions[0].held, Some(Point::Read), "{}", game.rules.strategy.name);
    }
    let transactions = "select count(*) from pg_stat_activity
                         where datname = current_database() and state like 'idle in transaction%'";
    until("no game has a connection", async || {
        domain.pool.connections().0 == 0 && shop.number(transactions).await == 0
    })
    .await;
    for game in &begun {
        assert!(games.step(game, 'A', None).await.unwrap());
    }
}

/// As long as the page allows, and longer than a request of the lab may be paused.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_survives_ten_seconds_of_pause() {
    let game = TestGame::begin("row-lock", 2).await;
    game.run_script("A").await;
    let idle = "select count(*) from pg_stat_activity
                 where datname = current_database() and state = 'idle in transaction'
                   and now() - state_change > interval '10.5 s'";
    until("A was paused for long", async || game.shop.number(idle).await == 1).await;
    let view = game.finish().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "{:?}", view.positions);
}

#[tokio::test(flavor = "multi_thread")]
async fn games_are_bounded_per_address_and_replica() {
    let game = TestGame::begin("none", 2).await;
    let begin = async |player: &str| game.scheduler.begin(player, game.game.rules, None).await;
    for n in 1..32 {
        assert!(begin(PLAYER).await.is_ok(), "{n}");
    }
    let one_more = begin(PLAYER).await.unwrap_err();
    assert!(format!("{one_more:?}").contains("too many games"), "{one_more:?}");
    for n in 0..32 {
        assert!(begin("192.0.2.2").await.is_ok(), "{n}");
    }
    let one_more = begin("192.0.2.4").await.unwrap_err();
    assert!(format!("{one_more:?}").contains("too many games"), "{one_more:?}");
    // A finished game no longer counts.
    game.finish().await;
    assert!(begin("192.0.2.4").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_games_are_bounded() {
    let game = TestGame::begin("row-lock", 2).await;
    let begin = async || game.scheduler.begin(PLAYER, game.game.rules, None).await;
    for _ in 0..2 {
        begin().await.unwrap();
    }
    let fourth = begin().await.unwrap_err();
    assert!(format!("{fourth:?}").contains("too many games"), "{fourth:?}");
    game.finish().await;
    begin().await.unwrap();
}

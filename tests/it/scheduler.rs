//! The visitor as the scheduler: interleavings that are possible without a lock, and not with one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast::lab::interleaving::{
    Game, GameError, GameRules, GameView, Games, Level, Refusal, playable_named,
};
use holdfast::probe::{PauseBoard, Point};

use crate::common::{Shop, until};

/// The address of the visitor.
const PLAYER: &str = "192.0.2.1";

/// A shop in this process with a visitor.
struct Play {
    scheduler: Games,
    game: Arc<Game>,
    shop: Shop,
}

impl Play {
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
    async fn go(&self, script: &str) {
        for who in script.chars() {
            if who == 'X' {
                self.scheduler.expire_lease(&self.game).await.unwrap();
                continue;
            }
            // It may wait for a lock that it is about to get.
            until("it is paused", async || self.at(who as usize - 'A' as usize).await.is_some())
                .await;
            let stepped = self.scheduler.step(&self.game, who, None).await.unwrap();
            assert!(stepped, "{who} of {script} is not held");
        }
    }

    async fn at(&self, who: usize) -> Option<Point> {
        self.view().await.positions[who].held
    }

    /// Steps all requests in turn until each has a response.
    async fn to_the_end(&self) -> GameView {
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
    let play = Play::begin("none", 2).await;
    assert_eq!(play.at(0).await, Some(Point::Wait));
    play.go("ABAAB").await;
    let view = play.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "five steps are not enough");
    play.go("B").await;
    let view = play.view().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (2, 1));
    assert_eq!(view.audit.forks.len(), 1);
    assert_eq!(view.steps.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_order_waits_under_a_lock() {
    for strategy in ["owner", "fenced", "row-lock"] {
        let play = Play::begin(strategy, 2).await;
        // A as far as its read; B as far as it comes.
        let reads = if strategy == "row-lock" { "A" } else { "AA" };
        play.go(reads).await;
        assert_eq!(play.at(0).await, Some(Point::Read), "{strategy}");
        play.go("B").await;
        assert_eq!(play.at(1).await, None, "{strategy}: B waits");
        let view = play.to_the_end().await;
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
        let play = Play::with_rules(level.rules().unwrap()).await;
        let (before, last) = script.split_at(script.len() - 1);
        play.go(before).await;
        assert_eq!(play.view().await.reached_at, None, "{level:?}: {:?}", play.view().await.steps);
        play.go(last).await;
        let view = play.view().await;
        assert_eq!(view.reached_at, Some(level.best_steps()), "{level:?}: {:?}", view.steps);
        assert_eq!(level.stars(script.len()), 3);
        let view = play.to_the_end().await;
        assert_eq!(view.audit.oversold, i64::from(level != Level::Fence), "{level:?}");
        assert_eq!(view.reached_at, Some(level.best_steps()), "later steps do not count");
        let newest_first = view.entries.is_sorted_by(|one, other| one.seq > other.seq);
        assert!(newest_first, "{:?}", view.entries);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_lease_breaks_owner_but_not_fenced() {
    for (strategy, oversold) in [("owner", 1), ("fenced", 0)] {
        let play = Play::begin(strategy, 2).await;
        play.go("AABX").await;
        until("B has the lock", async || play.at(1).await == Some(Point::Held)).await;
        let view = play.to_the_end().await;
        assert_eq!(view.audit.oversold, oversold, "{strategy}: {:?}", view.steps);
        assert_eq!(view.audit.sold, 1 + oversold, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_replays_all_steps_but_last() {
    let play = Play::begin("owner", 2).await;
    play.go("AABXBA").await;
    let (view, held) = (play.view().await, |view: &GameView| {
        view.positions.iter().map(|order| (order.held, order.last_read())).collect::<Vec<_>>()
    });
    play.go("A").await;
    let again = play.scheduler.undo(&play.game).await.unwrap();
    assert_ne!(again.id, play.game.id);
    assert_ne!(again.sku, play.game.sku, "the orders are new ones");
    assert!(play.scheduler.game(play.game.id).is_none());
    let replayed = play.scheduler.view(&again).await.unwrap();
    assert_eq!(held(&replayed), held(&view));
    assert_eq!(replayed.steps.len(), view.steps.len());
    assert!(play.scheduler.undo(&play.game).await.is_err(), "a second click undoes nothing more");
    assert!(play.scheduler.game(again.id).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn game_stays_if_undo_fails() {
    let play = Play::begin("owner", 2).await;
    play.go("AABA").await;
    let held =
        async || play.view().await.positions.iter().map(|order| order.held).collect::<Vec<_>>();
    let before = held().await;
    // The new game cannot create its item.
    let mut blocker = play.shop.pool.begin().await.unwrap();
    sqlx::query("lock table items in share mode").execute(&mut *blocker).await.unwrap();
    let begun = Instant::now();
    let refused = play.scheduler.undo(&play.game).await.unwrap_err();
    assert!(matches!(refused, GameError::Refused(Refusal::NotReplayed)), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(play.scheduler.game(play.game.id).is_some());
    assert_eq!(held().await, before);
    blocker.rollback().await.unwrap();
    let again = play.scheduler.undo(&play.game).await.unwrap();
    assert_eq!(play.scheduler.view(&again).await.unwrap().steps.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_a_game_are_bounded() {
    let play = Play::begin("owner", 2).await;
    play.go(&"X".repeat(100)).await;
    let refused = play.scheduler.expire_lease(&play.game).await;
    assert!(matches!(refused, Err(GameError::Refused(Refusal::TooManySteps))), "{refused:?}");
    let refused = play.scheduler.step(&play.game, 'A', None).await;
    assert!(matches!(refused, Err(GameError::Refused(Refusal::TooManySteps))), "{refused:?}");
    assert_eq!(play.view().await.steps.len(), 100);
    // Even the longest game can be undone in time.
    let again = play.scheduler.undo(&play.game).await.unwrap();
    assert_eq!(play.scheduler.view(&again).await.unwrap().steps.len(), 99);

    let play = Play::begin("owner", 2).await;
    let steps = play.to_the_end().await.steps.len();
    let refused = play.scheduler.expire_lease(&play.game).await;
    assert!(matches!(refused, Err(GameError::Refused(Refusal::Over))), "{refused:?}");
    assert_eq!(play.view().await.steps.len(), steps);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_click_is_one_step() {
    let play = Play::begin("none", 2).await;
    let since = play.view().await.positions[0].since_us;
    assert!(play.scheduler.step(&play.game, 'A', since).await.unwrap());
    assert!(!play.scheduler.step(&play.game, 'A', since).await.unwrap());
    assert_eq!(play.at(0).await, Some(Point::Read));
    assert_eq!(play.view().await.steps.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_game_ends_the_previous_one() {
    let play = Play::begin("owner", 3).await;
    play.go("AA").await;
    let (rules, previous) = (play.game.rules, Some(play.game.id));
    let again = play.scheduler.begin(PLAYER, rules, previous).await.unwrap();
    assert_ne!(again.id, play.game.id);
    assert!(play.scheduler.game(play.game.id).is_none());
    until("the first game is over", async || {
        play.view().await.positions.iter().all(|position| position.result.is_some())
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
async fn transaction_survives_ten_seconds_of_thought() {
    let play = Play::begin("row-lock", 2).await;
    play.go("A").await;
    let idle = "select count(*) from pg_stat_activity
                 where datname = current_database() and state = 'idle in transaction'
                   and now() - state_change > interval '10.5 s'";
    until("A has thought for long", async || play.shop.number(idle).await == 1).await;
    let view = play.to_the_end().await;
    assert_eq!((view.audit.sold, view.audit.oversold), (1, 0), "{:?}", view.positions);
}

#[tokio::test(flavor = "multi_thread")]
async fn games_are_bounded_per_address_and_replica() {
    let play = Play::begin("none", 2).await;
    let begin = async |player: &str| play.scheduler.begin(player, play.game.rules, None).await;
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
    // A game that is over leaves its place.
    play.to_the_end().await;
    assert!(begin("192.0.2.4").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_games_are_bounded() {
    let play = Play::begin("row-lock", 2).await;
    let begin = async || play.scheduler.begin(PLAYER, play.game.rules, None).await;
    for _ in 0..2 {
        begin().await.unwrap();
    }
    let fourth = begin().await.unwrap_err();
    assert!(format!("{fourth:?}").contains("too many games"), "{fourth:?}");
    play.to_the_end().await;
    begin().await.unwrap();
}

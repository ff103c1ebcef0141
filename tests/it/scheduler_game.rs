//! The scheduler game: interleavings that are possible without a lock, and impossible with one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_lab::progress::Visitor;
use holdfast_lab::scheduler_game::{
    ActionRejection, Game, GameError, GameRules, GameState, Games, Level, MAX_TRANSACTIONS, NoRoom,
    OrderResult, Player, Waits, playable_named,
};
use holdfast_shop::UserId;
use holdfast_shop::probe::{PauseBoard, Point};
use holdfast_testkit::{TestShop, until};
use uuid::Uuid;

/// Returns a browser without a session.
fn player(number: u128) -> Player {
    let visitor = Visitor { id: Uuid::from_u128(number), user: None };
    Player { visitor, address: "192.0.2.1".to_owned() }
}

fn signed_in(number: u128) -> Player {
    let id = Uuid::from_u128(number);
    Player { visitor: Visitor { id, user: Some(UserId(id)) }, ..player(number) }
}

fn games_of(shop: &TestShop) -> Games {
    Games::new(&shop.in_process("batched"), &PauseBoard::default(), MAX_TRANSACTIONS)
}

/// A shop in this process with a visitor.
struct TestGame {
    games: Arc<Games>,
    game: Arc<Game>,
    shop: Arc<TestShop>,
}

impl TestGame {
    async fn begin(strategy: &str, orders: usize) -> Self {
        let strategy = playable_named(strategy).unwrap();
        Self::with_rules(GameRules { strategy, orders, level: None }).await
    }

    async fn with_rules(rules: GameRules) -> Self {
        let shop = Arc::new(TestShop::start(1).await);
        let games = Arc::new(games_of(&shop));
        let game = games.begin(&player(1), rules, None).await.unwrap();
        Self { games, game, shop }
    }

    async fn state(&self) -> GameState {
        self.games.state(&self.game).await.unwrap()
    }

    /// Steps the requests in this order, each as soon as it can be; `X` ends the lease.
    async fn run_script(&self, script: &str) {
        for who in script.chars() {
            if who == 'X' {
                self.games.expire_lease(&self.game).await.unwrap();
                continue;
            }
            // It may wait for a lock that is just being released.
            until("it is paused", async || {
                self.paused_at(who as usize - 'A' as usize).await.is_some()
            })
            .await;
            let stepped = self.games.step(&self.game, who, None).await.unwrap();
            assert!(stepped, "{who} of {script} is not held");
        }
    }

    async fn paused_at(&self, who: usize) -> Option<Point> {
        self.state().await.orders[who].at
    }

    /// Steps all requests in turn until each has a response.
    async fn finish(&self) -> GameState {
        loop {
            let state = self.state().await;
            if state.orders.iter().all(|order| order.result.is_some()) {
                return state;
            }
            for order in state.orders {
                let _ = self.games.step(&self.game, order.name, None).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn six_steps_oversell_without_a_lock() {
    let game = TestGame::begin("none", 2).await;
    assert_eq!(game.paused_at(0).await, Some(Point::Wait));
    game.run_script("ABAAB").await;
    let state = game.state().await;
    assert_eq!((state.audit.sold, state.audit.oversold), (1, 0), "five steps are not enough");
    game.run_script("B").await;
    let state = game.state().await;
    assert_eq!((state.audit.sold, state.audit.oversold), (2, 1));
    assert_eq!(state.audit.forks, 1);
    assert_eq!(state.steps.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_order_waits_under_a_lock() {
    for strategy in ["owner", "fenced", "row-lock"] {
        let game = TestGame::begin(strategy, 2).await;
        // A up to its read; B until it waits.
        let reads = if strategy == "row-lock" { "A" } else { "AA" };
        game.run_script(reads).await;
        let has_read = async || game.paused_at(0).await == Some(Point::Read);
        until(&format!("{strategy}: A has read"), has_read).await;
        game.run_script("B").await;
        assert_eq!(game.paused_at(1).await, None, "{strategy}: B waits");
        let state = game.finish().await;
        assert_eq!((state.audit.sold, state.audit.oversold), (1, 0), "{strategy}");
        assert!(state.audit.adds_up(), "{strategy}");
    }
}

/// The best solutions: the goal is reached by their last step, and by the number of steps that
/// gives three stars.
#[tokio::test(flavor = "multi_thread")]
async fn levels_are_solved_in_best_steps() {
    for level in Level::ALL {
        let script = level.solution();
        let game = TestGame::with_rules(level.rules().unwrap()).await;
        let (before, last) = script.split_at(script.len() - 1);
        game.run_script(before).await;
        let state = game.state().await;
        assert_eq!(state.reached_at, None, "{level:?}: {:?}", state.steps);
        game.run_script(last).await;
        let state = game.state().await;
        assert_eq!(state.reached_at, Some(level.best_steps()), "{level:?}: {:?}", state.steps);
        assert_eq!(state.stars, 3);
        // Only the server of a lost lock keeps another order waiting, for as long as it believes.
        if let Some(ended) = script.find('X') {
            let next = &state.steps[ended + 1];
            let expected = [None, Some(Waits::EndedLease)];
            assert!(expected.contains(&next.waits_for), "{level:?}: {next:?}");
        }
        let state = game.finish().await;
        let oversells = matches!(level, Level::Oversell | Level::UselessLock);
        assert_eq!(state.audit.oversold, i64::from(oversells), "{level:?}");
        assert_eq!(state.reached_at, Some(level.best_steps()), "later steps do not count");
        let newest_first = state.entries.is_sorted_by(|one, other| one.seq > other.seq);
        assert!(newest_first, "{:?}", state.entries);
    }
}

/// The order that lost its lock has read nothing yet: no write was rejected.
#[tokio::test(flavor = "multi_thread")]
async fn stale_read_does_not_reach_the_goal_of_the_fence() {
    let game = TestGame::with_rules(Level::Fence.rules().unwrap()).await;
    game.run_script("AXBBBBAA").await;
    let state = game.state().await;
    assert_eq!(state.orders[0].result, Some(OrderResult::Stale));
    assert_eq!((state.orders[0].rejection, state.reached_at), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_lease_breaks_owner_but_not_fenced() {
    for (strategy, oversold) in [("owner", 1), ("fenced", 0)] {
        let game = TestGame::begin(strategy, 2).await;
        game.run_script("AABX").await;
        until("B has the lock", async || game.paused_at(1).await == Some(Point::Held)).await;
        let state = game.finish().await;
        assert_eq!(state.audit.oversold, oversold, "{strategy}: {:?}", state.steps);
        assert_eq!(state.audit.sold, 1 + oversold, "{strategy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_replays_all_steps_but_last() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script("AABXBA").await;
    let before = game.state().await;
    game.run_script("A").await;
    let again = game.games.undo(&game.game).await.unwrap();
    assert_ne!(again.id, game.game.id);
    assert_ne!(again.sku, game.game.sku, "the orders are new ones");
    assert!(game.games.game(game.game.id).is_none());
    let replayed = game.games.state(&again).await.unwrap();
    assert_eq!(replayed.orders, before.orders);
    assert_eq!(replayed.steps, before.steps);
    assert!(game.games.undo(&game.game).await.is_err(), "a second click undoes nothing more");
    assert!(game.games.game(again.id).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn game_stays_if_undo_fails() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script("AABA").await;
    let before = game.state().await.orders;
    // The new game cannot create its item.
    let mut blocker = game.shop.pool.begin().await.unwrap();
    sqlx::query("lock table items in share mode").execute(&mut *blocker).await.unwrap();
    let begun = Instant::now();
    let rejected = game.games.undo(&game.game).await.unwrap_err();
    assert!(matches!(rejected, GameError::Refused(ActionRejection::NotReplayed)), "{rejected:?}");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(game.games.game(game.game.id).is_some());
    assert_eq!(game.state().await.orders, before);
    blocker.rollback().await.unwrap();
    let again = game.games.undo(&game.game).await.unwrap();
    assert_eq!(game.games.state(&again).await.unwrap().steps.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_a_game_are_bounded() {
    let game = TestGame::begin("owner", 2).await;
    game.run_script(&"X".repeat(100)).await;
    let rejected = game.games.expire_lease(&game.game).await;
    assert!(
        matches!(rejected, Err(GameError::Refused(ActionRejection::TooManySteps))),
        "{rejected:?}"
    );
    let rejected = game.games.step(&game.game, 'A', None).await;
    assert!(
        matches!(rejected, Err(GameError::Refused(ActionRejection::TooManySteps))),
        "{rejected:?}"
    );
    assert_eq!(game.state().await.steps.len(), 100);
    // Even the longest game can be undone in time.
    let again = game.games.undo(&game.game).await.unwrap();
    assert_eq!(game.games.state(&again).await.unwrap().steps.len(), 99);

    let game = TestGame::begin("owner", 2).await;
    let steps = game.finish().await.steps.len();
    let rejected = game.games.expire_lease(&game.game).await;
    assert!(matches!(rejected, Err(GameError::Refused(ActionRejection::Over))), "{rejected:?}");
    assert_eq!(game.state().await.steps.len(), steps);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_click_is_one_step() {
    let game = TestGame::begin("none", 2).await;
    let since = game.games.pauses(&game.game).get(&'A').copied();
    assert!(since.is_some());
    assert!(game.games.step(&game.game, 'A', since).await.unwrap());
    assert!(!game.games.step(&game.game, 'A', since).await.unwrap());
    assert_eq!(game.paused_at(0).await, Some(Point::Read));
    assert_eq!(game.state().await.steps.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_game_ends_the_previous_one() {
    let game = TestGame::begin("owner", 3).await;
    game.run_script("AA").await;
    let (rules, previous) = (game.game.rules, Some(game.game.id));
    let again = game.games.begin(&player(1), rules, previous).await.unwrap();
    assert_ne!(again.id, game.game.id);
    assert!(game.games.game(game.game.id).is_none());
    until("the first game is over", async || {
        game.state().await.orders.iter().all(|order| order.result.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_games_of_replicas_share_their_buyer() {
    let shop = TestShop::start(1).await;
    let games = [(); 4].map(|()| games_of(&shop));
    let rules = Level::Oversell.rules().unwrap();
    let first = player(1);
    let begun = join_all(games.iter().map(|games| games.begin(&first, rules, None))).await;
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    assert_eq!(shop.number("select count(*) from users where name = 'lab-scheduler'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_games_hold_no_connection() {
    let shop = TestShop::start(1).await;
    let domain = shop.in_process("batched");
    let games = Games::new(&domain, &PauseBoard::default(), MAX_TRANSACTIONS);
    let rules = ["none", "owner", "fenced"].map(|strategy| {
        let strategy = playable_named(strategy).unwrap();
        GameRules { strategy, orders: 2, level: None }
    });
    let players: Vec<Player> = (0..30).map(player).collect();
    let begin = players.iter().zip(rules.iter().cycle());
    let begun = join_all(begin.map(|(player, rules)| games.begin(player, *rules, None))).await;
    let begun: Vec<_> = begun.into_iter().map(Result::unwrap).collect();
    for game in &begun {
        for who in if game.rules.has_lock() { "AA".chars() } else { "AB".chars() } {
            assert!(games.step(game, who, None).await.unwrap());
        }
        let state = games.state(game).await.unwrap();
        assert_eq!(state.orders[0].at, Some(Point::Read), "{}", game.rules.strategy.name);
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

/// A class that plays, and undoes its last step in the same second.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_games_step_and_undo_at_once() {
    let shop = Arc::new(TestShop::start(1).await);
    let games = Arc::new(games_of(&shop));
    let play = async |number: u128| {
        let (level, script) = [
            (Level::Oversell, "ABAABB"),
            (Level::UselessLock, "AAXBBAABB"),
            (Level::Fence, "AAXBBBBAAA"),
        ][usize::try_from(number % 3).unwrap()];
        let player = signed_in(number);
        let begun = games.begin(&player, level.rules().unwrap(), None).await.unwrap();
        let game = TestGame { games: games.clone(), game: begun, shop: shop.clone() };
        game.run_script(script).await;
        (player, game.game, script.len())
    };
    let played = join_all((0..30).map(play)).await;

    let undo = async |game: &Game| {
        let begun = Instant::now();
        (games.undo(game).await, begun.elapsed())
    };
    let undone = join_all(played.iter().map(|(_, game, _)| undo(game))).await;
    println!("{:?}", undone.iter().map(|(_, took)| took).max());
    for ((player, game, steps), (again, _)) in played.iter().zip(undone) {
        let again = again.unwrap();
        assert_eq!(games.state(&again).await.unwrap().steps.len(), steps - 1);
        let listed: Vec<_> = games.of(player.visitor).iter().map(|game| game.id).collect();
        assert_eq!(listed, [again.id], "in place of {}", game.id);
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
    let state = game.finish().await;
    assert_eq!((state.audit.sold, state.audit.oversold), (1, 0), "{:?}", state.orders);
}

#[tokio::test(flavor = "multi_thread")]
async fn games_are_bounded_per_player_address_and_replica() {
    let game = TestGame::begin("none", 2).await;
    let begin = async |player: Player| {
        let begun = game.games.begin(&player, game.game.rules, None).await;
        begun.map(|game| game.id).map_err(|error| match error {
            GameError::NoRoom(why) => why,
            other => panic!("{other:?}"),
        })
    };
    for _ in 1..4 {
        begin(player(1)).await.unwrap();
    }
    assert_eq!(begin(player(1)).await, Err(NoRoom::OfPlayer));
    // One that the player ends, or that is over, no longer counts.
    let listed = game.games.of(player(1).visitor);
    assert_eq!((listed.len(), listed[0].id), (4, game.game.id), "the oldest first");
    game.games.end_game(listed[3].id);
    begin(player(1)).await.unwrap();
    game.finish().await;
    assert_eq!(game.games.of(player(1).visitor).len(), 3);
    begin(player(1)).await.unwrap();

    // A browser without a cookie is a new visitor each time.
    for n in 4..32 {
        begin(player(100 + n)).await.unwrap();
    }
    assert_eq!(begin(player(200)).await, Err(NoRoom::OfReplica));
    for n in 32..64 {
        begin(signed_in(n)).await.unwrap();
    }
    assert_eq!(begin(signed_in(200)).await, Err(NoRoom::OfReplica));
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_games_are_bounded() {
    let game = TestGame::begin("row-lock", 2).await;
    let begin = async |number| game.games.begin(&player(number), game.game.rules, None).await;
    for number in 2..4 {
        begin(number).await.unwrap();
    }
    let fourth = begin(4).await.unwrap_err();
    assert!(matches!(fourth, GameError::NoRoom(NoRoom::RowLock)), "{fourth:?}");
    game.finish().await;
    begin(4).await.unwrap();
}

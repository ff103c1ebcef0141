//! The scheduler game has two ends, the shop's server and a Postgres in the browser (here in Node):
//! after the same steps both return the same state.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use holdfast_base::messages::Language;
use holdfast_lab::progress::Visitor;
use holdfast_lab::scheduler_game::{
    ActionRejection, Game, GameCatalogue, GameError, GameState, Games, Level, LockBelief,
    MAX_TRANSACTIONS, Player, Waits,
};
use holdfast_shop::probe::PauseBoard;
use holdfast_shop::store::shared::shared_sql;
use holdfast_testkit::{TestShop, until};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use uuid::Uuid;

/// Of each of four levels, two for each player.
const RANDOM_GAMES: u64 = 8 * PLAYERS;
const MAX_STEPS: usize = 14;
/// Games that are played at a time: they mostly wait.
const PLAYERS: u64 = 16;
/// Every so many games end with an undo.
const UNDO_EVERY: u64 = 5;

/// The end on PGlite; its games take turns.
struct PostgresEnd {
    pipe: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    _node: Child,
}

impl PostgresEnd {
    async fn start() -> Self {
        let pglite = Command::new("script/pglite").output().unwrap();
        assert!(pglite.status.success(), "{}", String::from_utf8_lossy(&pglite.stderr));
        let pglite = String::from_utf8(pglite.stdout).unwrap();

        let mut node = tokio::process::Command::new("node");
        node.args(["tests/it/scheduler_game_end.mjs", pglite.trim()]).kill_on_drop(true);
        let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(node.stdout.take().unwrap()).lines();
        let mut input = node.stdin.take().unwrap();

        let catalogue = GameCatalogue::new(Language::English, &[]);
        let first = json!({ "catalogue": catalogue, "sql": shared_sql() });
        input.write_all(format!("{first}\n").as_bytes()).await.unwrap();
        Self { pipe: Mutex::new((input, lines)), _node: node }
    }

    async fn act(&self, action: Value) -> Value {
        let (input, lines) = &mut *self.pipe.lock().await;
        input.write_all(format!("{action}\n").as_bytes()).await.unwrap();
        let line = lines.next_line().await.unwrap();
        serde_json::from_str(&line.expect("the end on PGlite has stopped")).unwrap()
    }
}

/// The end in this process.
struct ServerEnd<'a> {
    games: &'a Games,
    game: Arc<Game>,
}

impl<'a> ServerEnd<'a> {
    async fn begin(games: &'a Games, level: Level) -> Self {
        let visitor = Visitor { id: Uuid::new_v4(), user: None };
        let player = Player { visitor, address: "192.0.2.1".to_owned() };
        let game = games.begin(&player, level.rules().unwrap(), None).await.unwrap();
        Self { games, game }
    }

    async fn act(&mut self, who: &str) {
        match who {
            "X" => self.games.expire_lease(&self.game).await.unwrap(),
            "undo" => self.undo().await,
            order => {
                let name = order.chars().next().unwrap();
                self.games.step(&self.game, name, None).await.unwrap();
            }
        }
    }

    /// On a busy machine, the steps may not have the same effects in time.
    async fn undo(&mut self) {
        let mut again = None;
        until("the game is undone", async || match self.games.undo(&self.game).await {
            Ok(game) => again.insert(game).id != self.game.id,
            Err(GameError::Refused(ActionRejection::NotReplayed)) => false,
            Err(other) => panic!("{other:?}"),
        })
        .await;
        self.game = again.unwrap();
    }

    /// Returns the state once no order is on its way, or waits for a lock that nobody has: its
    /// server learns of an ended lease at the next renewal.
    async fn settled(&self) -> GameState {
        let mut settled = None;
        until("the game is settled", async || {
            let state = self.games.state(&self.game).await.unwrap();
            let is_held = state.orders.iter().any(|it| it.lock == Some(LockBelief::Held));
            let waits = state.orders.iter().filter_map(|order| order.waits_for);
            let is_settled = waits.into_iter().all(|for_what| for_what == Waits::Lock && is_held);
            settled = Some(state);
            is_settled
        })
        .await;
        settled.unwrap()
    }
}

/// Leaves out what differs from game to game: the numbers of entries, and for how long an order
/// waited for a lock that was free.
fn comparable(mut state: Value) -> Value {
    for (number, entry) in state["entries"].as_array_mut().unwrap().iter_mut().rev().enumerate() {
        entry["seq"] = number.into();
    }
    for step in state["steps"].as_array_mut().unwrap() {
        if step["waits_for"] == "ended-lease" {
            step["waits_for"] = Value::Null;
        }
    }
    state
}

/// Plays a game at both ends, with the steps that `choose` makes of the states, and compares each
/// state. Returns the last one.
async fn play(
    games: &Games,
    postgres: &PostgresEnd,
    (name, level): (&str, Level),
    mut choose: impl FnMut(&GameState) -> Option<String>,
) -> GameState {
    let mut server = ServerEnd::begin(games, level).await;
    let mut there = postgres.act(json!({ "game": name, "level": level })).await;
    let mut taken = Vec::new();
    loop {
        let here = server.settled().await;
        let expected = comparable(serde_json::to_value(&here).unwrap());
        assert_eq!(comparable(there), expected, "{name}, {level:?}: after {}", taken.join(" "));

        let Some(who) = choose(&here) else {
            games.end_game(server.game.id);
            return here;
        };
        server.act(&who).await;
        there = postgres.act(json!({ "game": name, "who": who })).await;
        taken.push(who);
    }
}

/// Chooses steps at random, also of orders that cannot take one, until all have ended.
fn random_steps(seed: u64, level: Level) -> impl FnMut(&GameState) -> Option<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    // Rarely the end of the lease, so that locks are also released and handed off.
    let mut choices = vec!["A", "A", "A", "B", "B", "B"];
    choices.extend(level.has_lock().then_some("X"));
    let mut left = MAX_STEPS;
    let mut undoes = seed.is_multiple_of(UNDO_EVERY);
    move |state| {
        let is_over = state.orders.iter().all(|order| order.result.is_some());
        if is_over || left == 0 {
            return std::mem::take(&mut undoes).then(|| "undo".to_owned());
        }
        left -= 1;
        Some(choices[rng.random_range(0..choices.len())].to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_return_the_same_states() {
    let shop = TestShop::start(1).await;
    // Each player has a replica's games: they share nothing but the servers.
    let new_games =
        || Games::new(&shop.in_process("batched"), &PauseBoard::default(), MAX_TRANSACTIONS);
    let postgres = PostgresEnd::start().await;

    for level in Level::ALL {
        let mut solution = level.solution().chars();
        let next_step = |_: &GameState| solution.next().map(String::from);
        let last = play(&new_games(), &postgres, (level.name(), level), next_step).await;
        assert_eq!((last.reached_at, last.stars), (Some(level.best_steps()), 3), "{level:?}");
    }

    let play_some = async |player: u64| {
        let games = new_games();
        let mut played = BTreeMap::new();
        for seed in (0..RANDOM_GAMES).filter(|seed| seed % PLAYERS == player) {
            let level = Level::ALL[usize::try_from(seed / PLAYERS % 4).unwrap()];
            let name = format!("seed {seed}");
            let last = play(&games, &postgres, (&name, level), random_steps(seed, level)).await;
            *played.entry(last.stars).or_insert(0) += 1;
        }
        played
    };
    let mut stars = BTreeMap::new();
    for (count, games) in join_all((0..PLAYERS).map(play_some)).await.into_iter().flatten() {
        *stars.entry(count).or_insert(0) += games;
    }
    println!("games by their stars: {stars:?}");
}

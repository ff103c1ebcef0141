//! You are the scheduler: the visitor steps real orders from probe point to probe point.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::layout::Layout;
use super::{html, see_other};
use crate::lab::scheduler::{self, PLAYED, Rules, Stand, View};
use crate::probe::Point;
use crate::shop::Strategy;
use crate::shop::model::Entry;
use crate::web::api::lab::require_lab;
use crate::web::middleware::csrf;
use crate::web::problems::{Problem, ProblemType};
use crate::web::{AppState, HttpResult};

/// The probe points of an order, in order, and their names on the page.
const WAY: [(Point, &str); 7] = [
    (Point::Wait, "arrived"),
    (Point::Held, "has the lock"),
    (Point::Read, "has read"),
    (Point::Write, "has written"),
    (Point::Commit, "before commit"),
    (Point::Committed, "committed"),
    (Point::Release, "lock released"),
];
/// The points under autocommit: the write is the commit, so it comes after `Point::Commit`.
const AUTOCOMMIT: [(Point, &str); 2] =
    [(Point::Commit, "before its statement"), (Point::Write, "has written")];

#[derive(Debug, Template)]
#[template(path = "scheduler_choose.html")]
struct ChoosePage {
    layout: Layout,
    strategies: Vec<&'static Strategy>,
}

#[derive(Debug, Template)]
#[template(path = "scheduler.html")]
struct GamePage {
    layout: Layout,
    id: Uuid,
    rules: Rules,
    lease: String,
    stock: i64,
    sku: String,
    players: Vec<Player>,
    view: View,
    forked: Vec<i64>,
    over: bool,
    let_go: usize,
    /// The order that was stepped last; it has the keyboard focus.
    last: Option<char>,
}

#[derive(Debug)]
struct Player {
    name: char,
    /// The probe points: name, observed value, and whether the order has passed or is at it.
    way: Vec<Stop>,
    /// The next action, if the order can be stepped.
    next: Option<String>,
    /// The cause of the wait, if the order is neither held nor finished.
    waits_for: &'static str,
    since_us: u64,
    came: Option<(bool, String)>,
}

#[derive(Debug)]
struct Stop {
    name: &'static str,
    seen: Option<String>,
    passed: bool,
    here: bool,
}

#[derive(Debug, Deserialize)]
pub struct Choice {
    csrf: String,
    strategy: String,
    #[serde(default)]
    orders: Option<usize>,
    #[serde(default)]
    lease: Option<String>,
}

/// One step: an order's name, or `redis`.
#[derive(Debug, Deserialize)]
pub struct Go {
    csrf: String,
    who: String,
    #[serde(default)]
    since: Option<u64>,
}

/// Shows the strategies that can be played.
pub async fn choose(state: web::Data<AppState>, request: HttpRequest) -> HttpResult {
    csrf::require_admin(&request).await?;
    require_lab(&state)?;
    let strategies = PLAYED.iter().filter_map(|name| Strategy::named(name)).collect();
    html(StatusCode::OK, &ChoosePage { layout: Layout::of(&request).await?, strategies })
}

pub async fn begin(
    state: web::Data<AppState>,
    request: HttpRequest,
    choice: web::Form<Choice>,
) -> HttpResult {
    let who = csrf::check_admin_form(&request, &choice.csrf).await?;
    require_lab(&state)?;
    let played = PLAYED.iter().find(|name| **name == choice.strategy);
    let strategy = played.and_then(|name| Strategy::named(name));
    let strategy = strategy
        .ok_or_else(|| Problem::field("strategy", format!("one of {}", PLAYED.join(", "))))?;
    let orders = choice.orders.unwrap_or(2);
    if !(2..=3).contains(&orders) {
        return Err(Problem::field("orders", "2 or 3"));
    }
    let short_lease = choice.lease.as_deref() == Some("short");
    let rules = Rules { strategy, short_lease, orders };
    let game = state.games.begin(who.caller.id, rules).await?;
    Ok(see_other(&format!("/lab/scheduler/{}", game.id)))
}

pub async fn show(
    state: web::Data<AppState>,
    request: HttpRequest,
    id: web::Path<String>,
) -> HttpResult {
    let who = csrf::require_admin(&request).await?;
    require_lab(&state)?;
    let game = Uuid::parse_str(&id).ok().and_then(|id| state.games.game(id, who.caller.id));
    let game = game.ok_or_else(gone)?;
    let view = state.games.view(&game).await?;
    let players: Vec<Player> = view.stands.iter().map(|stand| player(stand, game.rules)).collect();
    let forked = view.audit.forks.iter().flat_map(|fork| fork.entries.clone()).collect();
    let last = view.steps.last().and_then(|step| step.who);
    let over = players.iter().all(|player| player.came.is_some());
    // Steps after the last commit changed nothing.
    let commit = view.steps.iter().rposition(|step| step.at == Some(Point::Committed));
    let let_go = commit.map_or(view.steps.len(), |last| last + 1);
    let page = GamePage {
        layout: Layout::of(&request).await?,
        id: game.id,
        rules: game.rules,
        lease: scheduler::lease_words(game.rules),
        stock: game.stock,
        sku: game.sku.to_string(),
        players,
        view,
        forked,
        over,
        let_go,
        last,
    };
    html(StatusCode::OK, &page)
}

/// Steps one order to its next point, or deletes the lock in Redis.
pub async fn step(
    state: web::Data<AppState>,
    request: HttpRequest,
    id: web::Path<String>,
    go: web::Form<Go>,
) -> HttpResult {
    let who = csrf::check_admin_form(&request, &go.csrf).await?;
    require_lab(&state)?;
    let game = Uuid::parse_str(&id).ok().and_then(|id| state.games.game(id, who.caller.id));
    let game = game.ok_or_else(gone)?;
    let mut letters = go.who.chars();
    match (go.who.as_str(), letters.next(), letters.next()) {
        ("redis", ..) => state.games.forget(&game).await?,
        // An order that is no longer held was stepped by another click: the page shows it.
        (_, Some(name), None) => {
            let _ = state.games.step(&game, name, go.since).await;
        }
        _ => return Err(Problem::field("who", "the letter of an order, or redis")),
    }
    Ok(see_other(&format!("/lab/scheduler/{}?who={}", game.id, go.who)))
}

fn gone() -> Problem {
    let detail = "this game is over: another one was begun, or ten minutes have passed. Begin \
                  again at /lab/scheduler";
    Problem::new(ProblemType::NotFound, detail)
}

fn player(stand: &Stand, rules: Rules) -> Player {
    let locked = rules.strategy.lock.is_some();
    let mut points = WAY;
    if rules.is_autocommit() {
        points[3..5].copy_from_slice(&AUTOCOMMIT);
    }
    let at = stand.held.and_then(|held| points.iter().position(|(point, _)| *point == held));
    let way = points
        .iter()
        .enumerate()
        .filter(|(_, (point, _))| locked || !matches!(point, Point::Held | Point::Release));
    let stop = |(place, (point, name)): (usize, &(Point, &'static str))| {
        let event = stand.events.iter().rev().find(|event| event.event == point.name());
        let value = event.and_then(|event| event.value);
        let fence = event.and_then(|event| event.fence);
        Stop {
            name,
            seen: value.map(|value| value.to_string()).or(fence.map(|f| format!("fence {f}"))),
            passed: event.is_some(),
            here: at == Some(place),
        }
    };
    Player {
        name: stand.name,
        way: way.map(stop).collect(),
        waits_for: match (locked, stand.events.iter().any(|event| event.event == "held")) {
            (true, false) => "the lock",
            _ => "Postgres: another order has locked the row, and has not committed yet",
        },
        since_us: stand.since_us.unwrap_or_default(),
        next: stand.held.map(|point| scheduler::leaving(point, rules)),
        came: stand.came.clone(),
    }
}

impl GamePage {
    fn is_forked(&self, entry: &Entry) -> bool {
        self.forked.contains(&entry.seq)
    }
}

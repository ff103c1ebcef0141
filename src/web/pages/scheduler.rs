//! You are the scheduler: the visitor steps real orders from probe point to probe point.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::layout::Layout;
use super::{html, see_other};
use crate::lab::interleaving::{GameRules, GameView, OrderPosition, PLAYABLE};
use crate::probe::Point;
use crate::shop::Strategy;
use crate::shop::model::LedgerEntry;
use crate::web::api::lab::require_lab;
use crate::web::middleware::csrf;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

/// The probe points of an order, in order, and their names on the page.
const POINTS: [(Point, &str); 7] = [
    (Point::Wait, "arrived"),
    (Point::Held, "has the lock"),
    (Point::Read, "has read"),
    (Point::Write, "has written"),
    (Point::Commit, "before commit"),
    (Point::Committed, "committed"),
    (Point::Release, "lock released"),
];
/// The points under autocommit: the write is the commit, so it comes after `Point::Commit`.
const AUTOCOMMIT_POINTS: [(Point, &str); 2] =
    [(Point::Commit, "before its statement"), (Point::Write, "has written")];

#[derive(Debug, Template)]
#[template(path = "scheduler_choose.html")]
struct SchedulerStartPage {
    layout: Layout,
    strategies: Vec<&'static Strategy>,
}

#[derive(Debug, Template)]
#[template(path = "scheduler.html")]
struct SchedulerPage {
    layout: Layout,
    id: Uuid,
    rules: GameRules,
    lease: String,
    stock: i64,
    sku: String,
    players: Vec<PlayerView>,
    view: GameView,
    forked: Vec<i64>,
    over: bool,
    steps_taken: usize,
    /// The order that was stepped last; it has the keyboard focus.
    last: Option<char>,
}

#[derive(Debug)]
struct PlayerView {
    name: char,
    /// The probe points: name, observed value, and whether the order has passed or is at it.
    points: Vec<PointView>,
    /// The next action, if the order can be stepped.
    next: Option<String>,
    /// The cause of the wait, if the order is neither held nor finished.
    waits_for: &'static str,
    since_us: u64,
    result: Option<(bool, String)>,
}

#[derive(Debug)]
struct PointView {
    name: &'static str,
    observed: Option<String>,
    is_passed: bool,
    is_current: bool,
}

#[derive(Debug, Deserialize)]
pub struct GameForm {
    csrf: String,
    strategy: String,
    #[serde(default)]
    orders: Option<usize>,
    #[serde(default)]
    lease: Option<String>,
}

/// One step: an order's name, or `redis`.
#[derive(Debug, Deserialize)]
pub struct StepForm {
    csrf: String,
    who: String,
    #[serde(default)]
    since: Option<u64>,
}

/// Shows the strategies that can be played.
pub async fn choose(state: web::Data<AppState>, request: HttpRequest) -> HttpResult {
    csrf::require_admin(&request).await?;
    require_lab(&state)?;
    let strategies = PLAYABLE.iter().filter_map(|name| Strategy::named(name)).collect();
    html(StatusCode::OK, &SchedulerStartPage { layout: Layout::of(&request).await?, strategies })
}

pub async fn begin(
    state: web::Data<AppState>,
    request: HttpRequest,
    form: web::Form<GameForm>,
) -> HttpResult {
    let who = csrf::check_admin_form(&request, &form.csrf).await?;
    require_lab(&state)?;
    let played = PLAYABLE.iter().find(|name| **name == form.strategy);
    let strategy = played.and_then(|name| Strategy::named(name));
    let strategy = strategy
        .ok_or_else(|| Problem::field("strategy", format!("one of {}", PLAYABLE.join(", "))))?;
    let orders = form.orders.unwrap_or(2);
    if !(2..=3).contains(&orders) {
        return Err(Problem::field("orders", "2 or 3"));
    }
    let short_lease = form.lease.as_deref() == Some("short");
    let rules = GameRules { strategy, short_lease, orders };
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
    let game = game.ok_or_else(game_over)?;
    let view = state.games.view(&game).await?;
    let players: Vec<PlayerView> =
        view.positions.iter().map(|position| player_view(position, game.rules)).collect();
    let forked = view.audit.forks.iter().flat_map(|fork| fork.entries.clone()).collect();
    let last = view.steps.last().and_then(|step| step.who);
    let over = players.iter().all(|player_view| player_view.result.is_some());
    // Steps after the last commit changed nothing.
    let commit = view.steps.iter().rposition(|step| step.at == Some(Point::Committed));
    let steps_taken = commit.map_or(view.steps.len(), |last| last + 1);
    let page = SchedulerPage {
        layout: Layout::of(&request).await?,
        id: game.id,
        rules: game.rules,
        lease: game.rules.describe_lease(),
        stock: game.stock,
        sku: game.sku.to_string(),
        players,
        view,
        forked,
        over,
        steps_taken,
        last,
    };
    html(StatusCode::OK, &page)
}

/// Steps one order to its next point, or deletes the lock in Redis.
pub async fn step(
    state: web::Data<AppState>,
    request: HttpRequest,
    id: web::Path<String>,
    form: web::Form<StepForm>,
) -> HttpResult {
    let who = csrf::check_admin_form(&request, &form.csrf).await?;
    require_lab(&state)?;
    let game = Uuid::parse_str(&id).ok().and_then(|id| state.games.game(id, who.caller.id));
    let game = game.ok_or_else(game_over)?;
    let mut letters = form.who.chars();
    match (form.who.as_str(), letters.next(), letters.next()) {
        ("redis", ..) => state.games.delete_lock(&game).await?,
        // An order that is no longer held was stepped by another click: the page shows it.
        (_, Some(name), None) => {
            let _ = state.games.step(&game, name, form.since).await;
        }
        _ => return Err(Problem::field("who", "the letter of an order, or redis")),
    }
    Ok(see_other(&format!("/lab/scheduler/{}?who={}", game.id, form.who)))
}

fn game_over() -> Problem {
    let detail = "this game is over: another one was begun, or ten minutes have passed. Begin \
                  again at /lab/scheduler";
    Problem::not_found(detail)
}

fn player_view(position: &OrderPosition, rules: GameRules) -> PlayerView {
    let locked = rules.strategy.lock.is_some();
    let mut points = POINTS;
    if rules.is_autocommit() {
        points[3..5].copy_from_slice(&AUTOCOMMIT_POINTS);
    }
    let at = position.held.and_then(|held| points.iter().position(|(point, _)| *point == held));
    let shown = points
        .iter()
        .enumerate()
        .filter(|(_, (point, _))| locked || !matches!(point, Point::Held | Point::Release));
    let point_view = |(place, (point, name)): (usize, &(Point, &'static str))| {
        let event = position.events.iter().rev().find(|event| event.event == point.name());
        let value = event.and_then(|event| event.value);
        let fence = event.and_then(|event| event.fence);
        PointView {
            name,
            observed: value.map(|value| value.to_string()).or(fence.map(|f| format!("fence {f}"))),
            is_passed: event.is_some(),
            is_current: at == Some(place),
        }
    };
    PlayerView {
        name: position.name,
        points: shown.map(point_view).collect(),
        waits_for: match (locked, position.events.iter().any(|event| event.event == "held")) {
            (true, false) => "the lock",
            _ => "Postgres: another order has locked the row, and has not committed yet",
        },
        since_us: position.since_us.unwrap_or_default(),
        next: position.held.map(|point| rules.describe_next(point)),
        result: position.result.clone(),
    }
}

impl SchedulerPage {
    fn is_forked(&self, entry: &LedgerEntry) -> bool {
        self.forked.contains(&entry.seq)
    }
}

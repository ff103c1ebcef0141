//! You are the scheduler: the visitor steps real orders from probe point to probe point.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use uuid::Uuid;

use super::layout::Layout;
use super::respond::html;
use crate::lab::interleaving::{Game, GameRules, GameView, OrderPosition, PLAYABLE};
use crate::probe::Point;
use crate::shop::model::LedgerEntry;
use crate::shop::{Strategy, UserId};
use crate::web::middleware::{FormFields, LabAdmin, csrf};
use crate::web::{AppState, HttpResult, Problem, State, see_other};

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
    game: Arc<Game>,
    view: GameView,
}

#[derive(Debug)]
struct PointView {
    name: &'static str,
    observed: Option<String>,
    is_passed: bool,
    is_current: bool,
}

impl SchedulerPage {
    fn lease(&self) -> String {
        self.game.rules.describe_lease()
    }

    fn is_over(&self) -> bool {
        self.view.positions.iter().all(|order| order.result.is_some())
    }

    /// Counts the steps up to the last commit; those after it changed nothing.
    fn steps_taken(&self) -> usize {
        let steps = &self.view.steps;
        let commit = steps.iter().rposition(|step| step.at == Some(Point::Committed));
        commit.map_or(steps.len(), |last| last + 1)
    }

    fn is_forked(&self, entry: &LedgerEntry) -> bool {
        self.view.audit.forks.iter().any(|fork| fork.entries.contains(&entry.seq))
    }

    /// Returns whether the order was stepped last; it has the keyboard focus.
    fn was_last(&self, order: &OrderPosition) -> bool {
        self.view.steps.last().is_some_and(|step| step.who == Some(order.name))
    }

    /// Returns the next action, if the order can be stepped.
    fn next(&self, order: &OrderPosition) -> Option<String> {
        order.held.map(|point| self.game.rules.describe_next(point))
    }

    /// Returns the cause of the wait of an order that is neither held nor finished.
    fn waits_for(&self, order: &OrderPosition) -> &'static str {
        let has_lock = order.events.iter().any(|event| event.event == "held");
        if self.game.rules.strategy.lock.is_some() && !has_lock {
            "the lock"
        } else {
            "Postgres: another order has locked the row, and has not committed yet"
        }
    }

    /// Returns the probe points of the order's way.
    fn points(&self, order: &OrderPosition) -> Vec<PointView> {
        let locked = self.game.rules.strategy.lock.is_some();
        let mut points = POINTS;
        if self.game.rules.is_autocommit() {
            points[3..5].copy_from_slice(&AUTOCOMMIT_POINTS);
        }
        let shown = points
            .into_iter()
            .filter(|(point, _)| locked || !matches!(point, Point::Held | Point::Release));
        let point_view = |(point, name): (Point, &'static str)| {
            let event = order.events.iter().rev().find(|event| event.event == point.name());
            let value = event.and_then(|event| event.value);
            let fence = event.and_then(|event| event.fence);
            let fence = fence.map(|fence| format!("fence {fence}"));
            PointView {
                name,
                observed: value.map(|value| value.to_string()).or(fence),
                is_passed: event.is_some(),
                is_current: order.held == Some(point),
            }
        };
        shown.map(point_view).collect()
    }
}

pub async fn choose(request: HttpRequest, _: LabAdmin) -> HttpResult {
    let strategies = PLAYABLE.iter().filter_map(|name| Strategy::named(name)).collect();
    html(StatusCode::OK, &SchedulerStartPage { layout: Layout::of(&request).await?, strategies })
}

pub async fn begin(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let user = csrf::check_lab_form(&request, form.csrf()).await?.caller.id;
    let name = form.text("strategy");
    let strategy = Strategy::named(name)
        .filter(|_| PLAYABLE.contains(&name))
        .ok_or_else(|| Problem::field("strategy", format!("one of {}", PLAYABLE.join(", "))))?;
    let orders = match form.text("orders") {
        "" | "2" => 2,
        "3" => 3,
        _ => return Err(Problem::field("orders", "2 or 3")),
    };
    let rules = GameRules { strategy, short_lease: form.text("lease") == "short", orders };
    let game = state.games.begin(user, rules).await?;
    Ok(see_other(&format!("/lab/scheduler/{}", game.id)))
}

pub async fn show(
    state: State,
    request: HttpRequest,
    admin: LabAdmin,
    id: Path<String>,
) -> HttpResult {
    let game = find_game(&state, &id, admin.0.caller.id)?;
    let view = state.games.view(&game).await?;
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &SchedulerPage { layout, game, view })
}

/// Steps one order, named by its letter, to its next point; or with `redis` deletes the lock.
pub async fn step(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    let user = csrf::check_lab_form(&request, form.csrf()).await?.caller.id;
    let game = find_game(&state, &id, user)?;
    let who = form.text("who");
    let mut letters = who.chars();
    match (who, letters.next(), letters.next()) {
        ("redis", ..) => state.games.delete_lock(&game).await?,
        // An order that is no longer held was stepped by another click: the page shows it.
        (_, Some(name), None) => {
            let _ = state.games.step(&game, name, form.text("since").parse().ok()).await;
        }
        _ => return Err(Problem::field("who", "the letter of an order, or redis")),
    }
    Ok(see_other(&format!("/lab/scheduler/{}?who={who}", game.id)))
}

fn find_game(state: &AppState, id: &str, user: UserId) -> Result<Arc<Game>, Problem> {
    let game = Uuid::parse_str(id).ok().and_then(|id| state.games.game(id, user));
    game.ok_or_else(|| {
        let detail = "this game is over: another one was begun, or ten minutes have passed. Begin \
                      again at /lab/scheduler";
        Problem::not_found(detail)
    })
}

//! You are the scheduler: the visitor steps real orders from probe point to probe point.
//!
//! Every action is a form; a script sends the forms without loading a page. Knowing the id of a
//! game is the permission to play it. Tests: `tests/pages/scheduler.rs`.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde::Deserialize;
use uuid::Uuid;

use super::layout::Layout;
use super::respond::{html, set_cookie};
use super::visitor::{visitor, visitor_of_form};
use crate::web::middleware::lab_access::{Action, check_run_form};
use crate::web::middleware::{FormFields, LabReader, Query};
use crate::web::{AppState, HttpResult, Problem, ProblemType, State, app_state, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_lab::progress;
use holdfast_lab::scheduler_game::{
    Game, GameError, GameRules, GameStep, GameView, Level, NoRoom, OrderPosition, OrderResult,
    Player, Refusal, playable, playable_named,
};
use holdfast_lab::timeline::statement;
use holdfast_lock::fenced::FENCES_PER_GRANT;
use holdfast_shop::model::LedgerEntry;
use holdfast_shop::probe::Point;
use holdfast_story::{Detail, Value};

#[derive(Debug, Template)]
#[template(path = "scheduler_choose.html")]
struct SchedulerStartPage {
    layout: Layout,
    previous: String,
    no_room: Option<NoRoom>,
    /// Those that the visitor can go on with.
    games: Vec<Arc<Game>>,
}

impl SchedulerStartPage {
    fn notice(&self) -> Option<String> {
        let message = match self.no_room? {
            NoRoom::OfPlayer => "scheduler-full-player",
            NoRoom::OfReplica => "scheduler-full-replica",
            NoRoom::RowLock => "scheduler-full-row-lock",
        };
        Some(self.layout.text_with(message, &[("games", self.games.len().into())]))
    }

    fn summary(&self, game: &Game) -> String {
        let minutes = game.left().as_secs().div_ceil(60);
        let variables = [("steps", game.steps_taken().into()), ("minutes", minutes.into())];
        self.layout.text_with("scheduler-open-game", &variables)
    }
}

#[derive(Debug, Template)]
#[template(path = "scheduler.html")]
struct SchedulerPage {
    layout: Layout,
    refusal: Option<String>,
    game: Arc<Game>,
    view: GameView,
}

impl SchedulerPage {
    fn keys(&self) -> String {
        let rules = &self.game.rules;
        let leases = if rules.has_lock() { "yes" } else { "no" };
        let variables = [("orders", rules.orders.into()), ("leases", leases.into())];
        self.layout.text_with("scheduler-keys", &variables)
    }

    fn is_over(&self) -> bool {
        self.view.positions.iter().all(|order| order.result.is_some())
    }

    /// Returns whether an order is in progress, but not paused: it waits for another one.
    fn is_waiting(&self) -> bool {
        self.view.positions.iter().any(|order| order.result.is_none() && order.held.is_none())
    }

    fn stars(&self) -> usize {
        match (self.game.rules.level, self.view.reached_at) {
            (Some(level), Some(steps)) => level.stars(steps),
            _ => 0,
        }
    }

    fn is_forked(&self, entry: &LedgerEntry) -> bool {
        self.view.audit.forks.iter().any(|fork| fork.entries.contains(&entry.seq))
    }

    fn waits_for(&self, order: &OrderPosition) -> String {
        let asks = self.game.rules.has_lock() && order.event(Point::Held).is_none();
        self.layout.text(if asks { "scheduler-waits-lock" } else { "scheduler-waits-row" })
    }

    fn next(&self, order: &OrderPosition, point: &Point) -> String {
        self.layout.text(next_message(self.game.rules, *point, order.last_read()))
    }

    /// Returns how many fences a lease reserves, if the ledger shows any.
    fn fences_per_lease(&self) -> Option<i64> {
        let mut fences = self.view.entries.iter().filter_map(|entry| entry.fence);
        fences.next().map(|_| FENCES_PER_GRANT)
    }

    fn is_goal(&self, number: &usize) -> bool {
        self.view.reached_at == Some(*number)
    }

    fn step(&self, step: &GameStep) -> String {
        let language = self.layout.language;
        let (Some(who), Some(from)) = (step.who, step.from) else {
            return language.text("scheduler-step-expired");
        };

        let after = match (&step.result, step.at, step.read) {
            (Some(result), ..) => Some(result_text(result, language)),
            (None, Some(Point::Read), Some(read)) => {
                let saw =
                    if step.is_conflict { "scheduler-step-conflict" } else { "scheduler-saw" };
                Some(language.text_with(saw, &[("value", read.to_string().into())]))
            }
            (None, None, _) if step.waits_for_ended_lease => {
                Some(language.text("scheduler-step-waits-notice"))
            }
            (None, None, _) => Some(language.text("scheduler-step-waits")),
            _ => None,
        };

        let did = language.text(next_message(self.game.rules, from, step.read));
        let variables = [("order", who.to_string().into()), ("did", did.into())];
        let step = language.text_with("scheduler-step", &variables);
        after.map_or(step.clone(), |after| format!("{step} → {after}"))
    }

    fn last_step(&self) -> String {
        self.view.steps.last().map_or_else(String::new, |step| self.step(step))
    }
}

fn level_text(game: &Game, part: &str, language: Language) -> String {
    let level = game.rules.level.map_or("free", Level::name);
    language.text(&format!("scheduler-level-{level}-{part}"))
}

fn result_text(result: &OrderResult, language: Language) -> String {
    match result {
        OrderResult::Sold { before, after } => language.text_with(
            "scheduler-result-sold",
            &[("before", before.to_string().into()), ("after", after.to_string().into())],
        ),
        OrderResult::SoldOut => language.text("scheduler-result-sold-out"),
        OrderResult::LockTimeout => language.text("scheduler-result-timeout"),
        OrderResult::StaleWrite => language.text("scheduler-result-stale"),
        OrderResult::Failed(why) => {
            language.text_with("scheduler-result-failed", &[("why", why.as_str().into())])
        }
    }
}

/// Returns what an order does next at a point, where it has last read this.
fn next_message(rules: GameRules, point: Point, read: Option<i64>) -> &'static str {
    let autocommit = rules.is_autocommit();
    match point {
        Point::Read if is_sold_out(read) => "scheduler-next-sold-out",
        Point::Wait if rules.has_lock() => "scheduler-next-lock",
        Point::Wait | Point::Held => "scheduler-next-read",
        Point::Read if autocommit => "scheduler-next-compute",
        Point::Commit if autocommit => "scheduler-next-write-commit",
        Point::Write if autocommit => "scheduler-next-acknowledge",
        Point::Read => "scheduler-next-write",
        Point::Write => "scheduler-next-prepare",
        Point::Commit => "scheduler-next-commit",
        Point::Committed if rules.has_lock() => "scheduler-next-unlock",
        Point::Committed => "scheduler-next-finish",
        // No playable strategy passes the last ones.
        Point::Release | Point::Claimed | Point::Expire | Point::Delete | Point::Deducted => {
            "scheduler-next-respond"
        }
    }
}

/// An order that finds nothing in stock writes nothing.
fn is_sold_out(read: Option<i64>) -> bool {
    read.is_some_and(|read| read < 1)
}

#[derive(Debug, Deserialize)]
pub struct StartQuery {
    #[serde(default)]
    previous: String,
}

pub async fn choose(request: HttpRequest, _: LabReader, query: Query<StartQuery>) -> HttpResult {
    start_page(&request, query.read()?.previous, None).await
}

async fn start_page(
    request: &HttpRequest,
    previous: String,
    no_room: Option<NoRoom>,
) -> HttpResult {
    let layout = Layout::of(request).await?;
    let games = match visitor(request).await? {
        Some(visitor) => app_state(request)?.games.of(visitor),
        None => Vec::new(),
    };
    let status = if no_room.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    html(status, &SchedulerStartPage { layout, previous, no_room, games })
}

pub async fn begin(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    check_run_form(&request, form.csrf(), Action::Lesson).await?;
    let rules = rules(&form)?;
    let (visitor, cookie) = visitor_of_form(&request).await?;
    let address = state.rate_limits.address_name(&request);
    let previous = Uuid::parse_str(form.text("previous")).ok();

    let game = match state.games.begin(&Player { visitor, address }, rules, previous).await {
        Ok(game) => game,
        Err(GameError::NoRoom(why)) => {
            return start_page(&request, form.text("previous").to_owned(), Some(why)).await;
        }
        Err(error) => return Err(problem(error)),
    };

    let mut response = see_other(&game_address(&game));
    if let Some(cookie) = cookie {
        set_cookie(&mut response, &cookie)?;
    }
    Ok(response)
}

pub async fn end(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    check_run_form(&request, form.csrf(), Action::Lesson).await?;
    // One that has ended is as the visitor wants it.
    if let Ok(game) = find_game(&state, &id) {
        state.games.end_game(game.id);
    }
    Ok(see_other("/lab/scheduler"))
}

fn game_address(game: &Game) -> String {
    format!("/lab/scheduler/{}", game.id)
}

fn rules(form: &FormFields) -> Result<GameRules, Problem> {
    if let Some(level) = Level::named(form.text("level")) {
        let unplayable = || Problem::field("level", message!("problem-unplayable-level"));
        return level.rules().ok_or_else(unplayable);
    }

    let name = form.text("strategy");
    let names = || playable().iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ");
    let strategy = playable_named(name)
        .ok_or_else(|| Problem::field("strategy", message!("problem-one-of", names = names())))?;

    let orders = match form.text("orders") {
        "" | "2" => 2,
        "3" => 3,
        _ => return Err(Problem::field("orders", message!("problem-two-or-three"))),
    };

    Ok(GameRules { strategy, orders, level: None })
}

pub async fn show(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    page(&state, &request, find_game(&state, &id)?, None).await
}

async fn page(
    state: &AppState,
    request: &HttpRequest,
    game: Arc<Game>,
    refusal: Option<Refusal>,
) -> HttpResult {
    let view = state.games.view(&game).await?;
    let layout = Layout::of(request).await?;
    let status = if refusal.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let refusal = refusal.map(|refusal| layout.text(refusal_message(refusal)));
    html(status, &SchedulerPage { layout, refusal, game, view })
}

fn refusal_message(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Over => "scheduler-refused-over",
        Refusal::TooManySteps => "scheduler-refused-steps",
        Refusal::NotReplayed => "scheduler-refused-undo",
    }
}

/// Acts in a game: `who` is the letter of the order that takes a step, `expire` to end the lease in
/// Redis, or `undo`. A refusal is shown above the game.
pub async fn step(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    check_run_form(&request, form.csrf(), Action::Lesson).await?;
    let game = find_game(&state, &id)?;

    let who = form.text("who");
    let mut letters = who.chars();
    let next = match (who, letters.next(), letters.next()) {
        ("expire", ..) => state.games.expire_lease(&game).await.map(|()| Arc::clone(&game)),
        ("undo", ..) => state.games.undo(&game).await,
        // An order that is no longer paused was stepped by another click: the page shows it.
        (_, Some(name), None) => {
            let since = form.text("since").parse().ok();
            state.games.step(&game, name, since).await.map(|_| Arc::clone(&game))
        }
        _ => return Err(Problem::field("who", message!("problem-who-steps"))),
    };

    match next {
        Ok(next) => {
            store_stars(&state, &request, &next).await?;
            Ok(see_other(&game_address(&next)))
        }
        Err(GameError::Refused(refusal)) => page(&state, &request, game, Some(refusal)).await,
        Err(error) => Err(problem(error)),
    }
}

fn problem(error: GameError) -> Problem {
    match error {
        GameError::Failed(failure) => failure.into(),
        other => {
            tracing::error!(error = ?other, "a step of a game failed");
            Problem::new(ProblemType::InternalError, message!("problem-bug"))
        }
    }
}

/// Stores the stars of a user; a browser without a session keeps its own.
async fn store_stars(state: &AppState, request: &HttpRequest, game: &Game) -> Result<(), Problem> {
    let visitor = visitor(request).await?.filter(|visitor| visitor.user.is_some());
    if let (Some(visitor), Some(level), Some(steps)) =
        (visitor, game.rules.level, game.reached_at())
    {
        let (pool, stars) = (&state.shop.pool, level.stars(steps));
        if !progress::set_stars(pool, level.name(), visitor, stars).await? {
            return Err(Problem::session_over());
        }
    }
    Ok(())
}

fn find_game(state: &AppState, id: &str) -> Result<Arc<Game>, Problem> {
    let game = Uuid::parse_str(id).ok().and_then(|id| state.games.game(id));
    game.ok_or_else(|| Problem::missing(message!("problem-missing-game-page")))
}

/// What a step of an order sends to Redis and Postgres, and where the order is.
#[derive(Debug)]
struct CodeSegment {
    code: String,
    /// What the step saw or wrote, once it was taken.
    observed: Option<String>,
    is_passed: bool,
    /// True if the order is paused before this step.
    is_next: bool,
    /// `lock`, `read`, `write` or `plain`; the color of the segment.
    kind: &'static str,
}

/// Returns the steps of an order: each begins at a point, and ends at the next one.
fn code_segments(rules: GameRules, order: &OrderPosition, language: Language) -> Vec<CodeSegment> {
    let points = rules.points();
    let next = |at: usize| points.get(at + 1).copied();
    points
        .iter()
        .enumerate()
        .map(|(at, from)| {
            let to = next(at);
            let is_next = order.held == Some(*from);
            let reached = to.and_then(|to| order.event(to));
            CodeSegment {
                code: code(rules, order, (*from, to), language),
                observed: to.and_then(|to| observed(order, to, language)),
                is_passed: reached.is_some() || to.is_none() && order.result.is_some(),
                is_next,
                kind: kind(rules, to),
            }
        })
        .collect()
}

fn kind(rules: GameRules, to: Option<Point>) -> &'static str {
    match to {
        Some(Point::Held | Point::Release) if rules.has_lock() => "lock",
        Some(Point::Read) => "read",
        Some(Point::Write) => "write",
        _ => "plain",
    }
}

fn code(
    rules: GameRules,
    order: &OrderPosition,
    (from, to): (Point, Option<Point>),
    language: Language,
) -> String {
    let comment = |message: &str| format!("-- {}", language.text(message));
    let sent = to.and_then(|to| sent(rules, order, to));

    match (sent, from, to) {
        (_, Point::Read, _) if is_sold_out(order.last_read()) => comment("scheduler-code-sold-out"),
        // Under autocommit, the value is computed before the statement is sent.
        (_, Point::Read, Some(Point::Commit)) => match order.last_read() {
            Some(read) => format!("-- {read} − 1 = {}", read - 1),
            None => comment("scheduler-code-compute"),
        },
        (_, Point::Write, Some(Point::Commit)) => comment("scheduler-code-uncommitted"),
        (Some(statement), ..) => statement,
        (None, Point::Write, _) => comment("scheduler-code-acknowledged"),
        (None, Point::Committed, _) => comment("scheduler-code-finish"),
        _ => comment("scheduler-code-respond"),
    }
}

/// Returns the statement whose effect the order has had at the point `to`.
fn sent(rules: GameRules, order: &OrderPosition, to: Point) -> Option<String> {
    // `commit` is sent between these two points, except under autocommit.
    let event = match to {
        Point::Committed if !rules.is_autocommit() => Point::Commit,
        Point::Committed => return None,
        to => to,
    };
    let value = order.last_read().map(|read| read - 1);
    let value = value.filter(|value| to == Point::Write && *value >= 0);
    let fence = order.event(Point::Held).and_then(|event| event.fence);
    let detail = Detail { value: value.map(Value::Units), fence, ..Detail::default() };
    statement(rules.strategy, event, &detail)
}

fn observed(order: &OrderPosition, to: Point, language: Language) -> Option<String> {
    let event = order.event(to)?;
    let (message, value) = match (to, event.value, event.fence) {
        (Point::Read, Some(value), _) => ("scheduler-saw", value),
        (Point::Held, _, Some(fence)) => ("scheduler-fence", fence),
        _ => return None,
    };
    Some(language.text_with(message, &[("value", value.to_string().into())]))
}

//! You are the scheduler: the visitor steps real orders from probe point to probe point.
//!
//! A script draws the state of a game, which these routes return as JSON, and takes its steps; on
//! the site, which has no server, a Postgres in the browser returns the same. Knowing the id of a
//! game is the permission to play it. Tests: `tests/pages/scheduler_game.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error_pages::accepts_html;
use super::layout::Layout;
use super::respond::{html, script_data, set_cookie};
use super::visitor::{visitor, visitor_of_form};
use crate::web::middleware::lab_access::{Action, check_run_form};
use crate::web::middleware::{FormFields, LabReader, Query};
use crate::web::page_place::render;
use crate::web::{AppState, HttpResult, Problem, ProblemType, State, app_state, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_lab::progress;
use holdfast_lab::scheduler_game::{
    ActionRejection, Game, GameCatalogue, GameError, GameRules, GameState, Level, NoRoom, Player,
    playable, playable_named,
};

/// The texts that the script fills in.
const TEXTS: [&str; 3] = ["scheduler-", "shop-ledger-", "shop-reason-"];
const TEXTS_OF_SITE: [&str; 4] = [TEXTS[0], TEXTS[1], TEXTS[2], "site-scheduler-"];

#[derive(Debug, Template)]
#[template(path = "scheduler_game_choose.html")]
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
        let variables =
            [("steps", game.steps_taken().into()), ("minutes", minutes_left(game).into())];
        self.layout.text_with("scheduler-open-game", &variables)
    }
}

#[derive(Debug, Template)]
#[template(path = "scheduler_game.html")]
struct SchedulerPage {
    layout: Layout,
    id: Uuid,
    stage: GameStage,
}

/// The site's page: the levels, to play and to watch.
#[derive(Debug, Template)]
#[template(path = "site/scheduler_game.html")]
struct RecordedSchedulerPage {
    layout: Layout,
    size: String,
    stage: GameStage,
}

/// Where a game is drawn.
#[derive(Debug)]
struct GameStage {
    language: Language,
    /// The title and the goal of the game that is there already.
    begun: Option<[String; 2]>,
    /// The folder of the files that the site's script loads.
    assets: Option<String>,
    /// For the script, as JSON that is safe within a script element.
    data: String,
}

/// The data that the shop's script gets with its page.
#[derive(Debug, Serialize)]
struct PageData<'a> {
    #[serde(flatten)]
    catalogue: GameCatalogue,
    csrf: &'a str,
    state: ServedState,
}

/// The state of a game, and what belongs to this server.
#[derive(Debug, Serialize)]
struct ServedState {
    #[serde(flatten)]
    state: GameState,
    id: Uuid,
    /// The start of each pause by its order: a step names the one that it ends.
    pauses: BTreeMap<char, u64>,
    minutes_left: u64,
    /// Why the last action changed nothing.
    refusal: Option<ActionRejection>,
}

impl ServedState {
    async fn of(
        state: &AppState,
        game: &Game,
        refusal: Option<ActionRejection>,
    ) -> Result<Self, Problem> {
        // Before the state: a step that names an older pause than the shown one ends none.
        let pauses = state.games.pauses(game);
        Ok(Self {
            state: state.games.state(game).await?,
            id: game.id,
            pauses,
            minutes_left: minutes_left(game),
            refusal,
        })
    }
}

/// Sizes of the files that the site's page loads on demand, in bytes.
#[derive(Debug)]
pub struct FileSizes {
    /// Of PGlite's files beside its scripts, by their names: the page shows how much is here.
    pub of_pglite: BTreeMap<String, u64>,
    /// Of all that playing loads, as it is and compressed.
    pub played: u64,
    pub played_compressed: u64,
    pub recordings: u64,
}

/// The data that the site's script gets with its page.
#[derive(Debug, Serialize)]
struct SitePageData<'a> {
    #[serde(flatten)]
    catalogue: GameCatalogue,
    bytes: &'a BTreeMap<String, u64>,
}

/// Renders the page of the site.
pub fn site_page(layout: Layout, sizes: &FileSizes) -> Result<String, Problem> {
    let language = layout.language;
    let catalogue = GameCatalogue::new(language, &TEXTS_OF_SITE);
    let data = script_data(&SitePageData { catalogue, bytes: &sizes.of_pglite })?;

    let rounded = |bytes: u64, unit: u64| (bytes + unit / 2) / unit;
    let variables = [
        ("mb", rounded(sizes.played, 1_000_000).into()),
        ("packed", rounded(sizes.played_compressed, 1_000_000).into()),
        ("kb", rounded(sizes.recordings, 1_000).into()),
    ];
    let size = layout.text_with("site-scheduler-size", &variables);

    let stage = GameStage { language, begun: None, assets: Some(layout.links.asset("")), data };
    render(&RecordedSchedulerPage { layout, size, stage })
}

fn minutes_left(game: &Game) -> u64 {
    game.left().as_secs().div_ceil(60)
}

fn level_text(level: &str, part: &str, language: Language) -> String {
    language.text(&format!("scheduler-level-{level}-{part}"))
}

/// Returns the name of the level that is played, or of the free game.
fn level_name(game: &Game) -> &'static str {
    game.rules.level.map_or("free", Level::name)
}

#[derive(Debug, Deserialize)]
pub struct StartQuery {
    #[serde(default)]
    previous: String,
}

pub(crate) async fn choose(
    request: HttpRequest,
    _: LabReader,
    query: Query<StartQuery>,
) -> HttpResult {
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

/// Begins a game: a form leads to its page, a script gets its state.
pub(crate) async fn begin(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
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

    let mut response = match accepts_html(&request) {
        true => see_other(&format!("/lab/scheduler/{}", game.id)),
        false => HttpResponse::Ok().json(ServedState::of(&state, &game, None).await?),
    };
    if let Some(cookie) = cookie {
        set_cookie(&mut response, &cookie)?;
    }
    Ok(response)
}

pub(crate) async fn end(
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

/// Shows a game: a page for a person, its state for the script.
pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let game = find_game(&state, &id)?;
    let served = ServedState::of(&state, &game, None).await?;
    if !accepts_html(&request) {
        return Ok(HttpResponse::Ok().json(served));
    }

    let layout = Layout::of(&request).await?;
    let language = layout.language;
    let catalogue = GameCatalogue::new(language, &TEXTS);
    let data = script_data(&PageData { catalogue, csrf: layout.csrf(), state: served })?;

    let begun = ["title", "goal"].map(|part| level_text(level_name(&game), part, language));
    let stage = GameStage { language, begun: Some(begun), assets: None, data };
    html(StatusCode::OK, &SchedulerPage { layout, id: game.id, stage })
}

/// Acts in a game: `who` is the letter of the order that takes a step, `expire` to end the lease in
/// Redis, or `undo`. Returns the state after it; with `409`, the reason why nothing has changed.
pub(crate) async fn step(
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
        // An order that is no longer paused was stepped by another click: the state shows it.
        (_, Some(name), None) => {
            let since = match form.text("since") {
                "" => None,
                // No pause begins at what is no time: then nothing is stepped.
                since => Some(since.parse().unwrap_or_default()),
            };
            state.games.step(&game, name, since).await.map(|_| Arc::clone(&game))
        }
        _ => return Err(Problem::field("who", message!("problem-who-steps"))),
    };

    match next {
        Ok(next) => {
            store_stars(&state, &request, &next).await?;
            Ok(HttpResponse::Ok().json(ServedState::of(&state, &next, None).await?))
        }
        Err(GameError::Refused(refusal)) => {
            let served = ServedState::of(&state, &game, Some(refusal)).await?;
            Ok(HttpResponse::Conflict().json(served))
        }
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

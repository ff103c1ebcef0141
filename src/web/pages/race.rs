//! The first page while the lab is on: a race for the last unit; and the permanent page of a race.

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue};
use actix_web::web::{Form, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;

use super::assets;
use super::item::{self, ShopQuery};
use super::layout::{Layout, language_of};
use super::race_entries::RaceEntries;
use super::race_film;
use super::race_picture;
use super::race_view::{self, RaceView};
use super::respond::{html, script_json};
use super::timeline::TimelineView;
use crate::web::api::race::{find_race, run_race};
use crate::web::middleware::{FormFields, Query};
use crate::web::page_place::{PagePlace, render};
use crate::web::{AppState, HttpResult, Problem, State, see_other};
use holdfast_base::messages::{Language, message};
use holdfast_lab::race::model::{MAX_RACE_BUYERS, Race, RaceRequest, WITH_LOCK, WITHOUT_LOCK};
use holdfast_lab::run::LabRunState;

/// The lock that its switch means, until another one is chosen; the switch of the fence adds one to
/// it.
const DEFAULT_LOCK: &str = "owner";
const LOCKS: [&str; 3] = [DEFAULT_LOCK, "row-lock", "local"];
/// On the site: the locks that can be chosen beside none, and the numbers of buyers.
const RECORDED_LOCKS: [&str; 2] = [DEFAULT_LOCK, "local"];
const RECORDED_BUYERS: [u16; 2] = [2, 40];
/// The links of the site's first page: address, title and sentence.
const WAYS: [(&str, &str, &str); 6] = [
    ("/lab/scheduler", "lab-scheduler-title", "site-scheduler-about"),
    ("/lab/judged", "judge-title", "site-judged-about"),
    ("/docs/service", "service-own-title", "service-own-about"),
    ("/lab/lessons", "site-lessons-title", "site-lessons-about"),
    ("/lab/course", "course-title", "site-course-about"),
    ("/docs", "site-docs-title", "site-docs-about"),
];

#[derive(Debug, Template)]
#[template(path = "race.html")]
struct RacePage {
    layout: Layout,
    stage: RaceStage,
    recorded: RecordedDrawings,
    preview: RacePreview,
}

/// The site's first page.
#[derive(Debug, Template)]
#[template(path = "site/index.html")]
struct RecordedRacePage {
    layout: Layout,
    /// True for the race alone, in a frame of another page.
    is_embedded: bool,
    stage: RaceStage,
    recorded: RecordedDrawings,
    preview: RacePreview,
}

#[derive(Debug, Template)]
#[template(path = "race_result.html")]
struct RaceResultPage<'a> {
    layout: Layout,
    stage: RaceStage,
    view: RaceView<'a>,
    ledger: RaceEntries,
    preview: RacePreview,
}

#[derive(Debug, Template)]
#[template(path = "race_waiting.html")]
struct RaceWaitingPage {
    layout: Layout,
    message: String,
    is_over: bool,
}

/// The preview of a link to a race: one of two pictures, which `script/race-picture` draws.
#[derive(Debug)]
struct RacePreview {
    /// The absolute address of the picture.
    image: String,
    /// The text in the picture.
    text: String,
}

impl RacePreview {
    fn new(
        state: &AppState,
        request: &HttpRequest,
        language: Language,
        is_sold_twice: bool,
    ) -> Self {
        let preview = Self::of(language, is_sold_twice);
        let image = own_address(state, request, assets::address(&preview.image));
        Self { image, ..preview }
    }

    /// Returns the preview, with the name of its picture as the address.
    fn of(language: Language, is_sold_twice: bool) -> Self {
        let [title, why] = match is_sold_twice {
            true => ["race-preview-twice", "race-preview-twice-why"],
            false => ["race-preview-once", "race-preview-once-why"],
        };
        let texts =
            [("verdict", language.text(title).into()), ("caption", language.text(why).into())];
        let image = format!("{title}-{}.png", language.tag());
        Self { image, text: language.text_with("race-announced", &texts) }
    }
}

/// The drawings of a race without the lock and of one with it, each with its caption.
type RecordedDrawings = [(Option<TimelineView>, &'static str); 2];

fn recorded_drawings(language: Language) -> RecordedDrawings {
    let drawing = |race: &Race| RaceView::of(race, language).and_then(|view| view.drawing());
    [(drawing(&WITHOUT_LOCK), "race-recorded-off"), (drawing(&WITH_LOCK), "race-recorded-on")]
}

/// The phones, the shelf and the controls, which both pages have.
#[derive(Debug)]
struct RaceStage {
    language: Language,
    phones: Vec<(char, String)>,
    lock: String,
    pause: bool,
    buyers: u16,
    /// Name of the lesson that explains the race.
    lesson: &'static str,
    /// Texts and race for the script, as JSON that is safe within a script element.
    texts: String,
    race: String,
    /// On the site, the recorded races that can be chosen, as JSON; empty where orders are sent.
    films: String,
}

impl RaceStage {
    fn new(state: &AppState, language: Language, race: Option<&Race>) -> Self {
        let view = race.and_then(|race| RaceView::of(race, language));
        let [a, b] = state.races.servers();
        let lock = race.map_or("none", |race| race.lock.as_str());
        let pause = race.is_some_and(|race| race.pause);
        Self {
            language,
            phones: vec![('A', a), ('B', b)],
            lock: lock.to_owned(),
            pause,
            // The slider has even numbers only.
            buyers: race.map_or(2, |race| race.buyers.next_multiple_of(2)),
            lesson: race_view::lesson_of(lock, pause),
            texts: script_json(&race_film::script_texts(language)),
            race: view.map_or_else(String::new, |view| script_json(&view.film())),
            films: String::new(),
        }
    }

    /// Returns the stage on which recorded races play.
    fn recorded(language: Language, races: &[Race]) -> Self {
        let views = races.iter().filter_map(|race| RaceView::of(race, language));
        let films = views.map(|view| view.film()).collect();
        let lanes = races.first().and_then(|race| race.result.as_ref()).map(|it| it.lanes.iter());
        let servers = lanes.into_iter().flatten().map(|lane| lane.replica.clone());
        Self {
            language,
            phones: ['A', 'B'].into_iter().zip(servers).collect(),
            lock: "none".to_owned(),
            pause: false,
            buyers: 2,
            // The site does not have those of all its races.
            lesson: "outlived",
            texts: script_json(&race_film::script_texts(language)),
            race: String::new(),
            films: script_json(&films),
        }
    }

    /// Returns the numbers of buyers that were recorded, with their words.
    fn recorded_crowds(&self) -> [(u16, String); 2] {
        RECORDED_BUYERS.map(|buyers| (buyers, self.crowd_of(buyers)))
    }

    fn is_on(&self) -> bool {
        self.lock != "none"
    }

    /// Returns the names of the switches, in the order of their story, and which are on.
    fn switches(&self) -> [(&'static str, bool); 3] {
        [("on", self.is_on()), ("pause", self.pause), ("fence", self.lock == "fenced")]
    }

    fn lesson_path(&self) -> String {
        format!("/lab/lessons/{}", self.lesson)
    }

    fn why(&self) -> String {
        race_view::why(self.lesson, self.language)
    }

    /// Returns what the orders will do.
    fn intro(&self) -> String {
        self.language.text(match self.lock.as_str() {
            "none" => "race-intro-off",
            "local" => "race-intro-local",
            _ => "race-intro-on",
        })
    }

    fn crowd_of(&self, buyers: u16) -> String {
        if buyers == 2 {
            return self.language.text("race-crowd-two");
        }
        let figures = [("buyers", buyers.into()), ("stock", stock_for(buyers).into())];
        self.language.text_with("race-crowd", &figures)
    }

    fn is_chosen(&self, lock: &str) -> bool {
        let is_listed = LOCKS.contains(&self.lock.as_str());
        let chosen = if is_listed { self.lock.as_str() } else { DEFAULT_LOCK };
        lock == chosen
    }
}

/// Returns the races that the site plays, the first of which is shown at first. With a pause there
/// are those of the story.
pub fn recorded_races() -> Vec<RaceRequest> {
    let race = |lock: &str, buyers, pause| RaceRequest {
        lock: lock.to_owned(),
        buyers,
        stock: stock_for(buyers),
        seed: Some(1),
        pause,
    };
    let locks = ["none"].into_iter().chain(RECORDED_LOCKS);
    let chosen = locks.flat_map(|lock| RECORDED_BUYERS.map(|buyers| race(lock, buyers, false)));
    chosen.chain([race(DEFAULT_LOCK, 2, true), race("fenced", 2, true)]).collect()
}

/// Returns the units of a race: half as many as its buyers, so that it is sold out.
fn stock_for(buyers: u16) -> i64 {
    i64::from(buyers / 2).max(1)
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    query: Query<ShopQuery>,
) -> HttpResult {
    if !state.lab {
        return item::list(request, query).await;
    }

    let layout = Layout::of(&request).await?;
    layout.lead(&request).await;
    let language = layout.language;
    let page = RacePage {
        stage: RaceStage::new(&state, language, None),
        recorded: recorded_drawings(language),
        preview: RacePreview::new(&state, &request, language, true),
        layout,
    };
    html(StatusCode::OK, &page)
}

/// Renders the site's first page with recorded races, or the race alone, for a frame.
pub(in crate::web) fn site_page(
    layout: Layout,
    races: &[Race],
    url: &str,
    is_embedded: bool,
) -> Result<String, Problem> {
    let language = layout.language;
    let mut preview = RacePreview::of(language, true);
    // Without an address of its own, a preview of the site has no picture anyway.
    preview.image = if url.is_empty() {
        layout.links.asset(&preview.image)
    } else {
        format!("{url}assets/{}", preview.image)
    };

    render(&RecordedRacePage {
        stage: RaceStage::recorded(language, races),
        recorded: recorded_drawings(language),
        preview,
        is_embedded,
        layout,
    })
}

pub(crate) async fn run(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let race = run_race(&state, &request, || parse_form(&form)).await?;
    Ok(see_other(&format!("/race/{}", race.id)))
}

fn parse_form(form: &FormFields) -> Result<RaceRequest, Problem> {
    let is_on = |name: &str| !form.text(name).is_empty();
    let lock = match (is_on("on"), is_on("fence")) {
        // There is no fence without a lock.
        (_, true) => "fenced",
        (true, false) => form.required("lock")?,
        (false, false) => "none",
    };
    let buyers: u16 = match form.trimmed("buyers") {
        "" => 2,
        number => number.parse().map_err(|_| {
            Problem::field("buyers", message!("problem-number", least = 2, most = MAX_RACE_BUYERS))
        })?,
    };
    let stock = stock_for(buyers);
    Ok(RaceRequest { lock: lock.to_owned(), buyers, stock, seed: None, pause: is_on("pause") })
}

pub(crate) async fn result(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let race = find_race(&state, &id).await?;
    let layout = Layout::of(&request).await?;
    layout.lead(&request).await;
    let language = layout.language;

    let Some(result) = &race.result else {
        return waiting_page(layout, &race);
    };

    let ledger = RaceEntries::of(&state, result, language).await?;
    let preview = RacePreview::new(&state, &request, language, result.doubled() > 0);
    let draw = move || {
        let view = RaceView::of(&race, language).ok_or_else(|| no_result(&race))?;
        let page = RaceResultPage {
            stage: RaceStage::new(&state, language, Some(&race)),
            view,
            ledger,
            preview,
            layout,
        };
        render(&page)
    };
    place.page(StatusCode::OK, draw).await
}

/// Returns the absolute address of `path`, by the host that the request names and the shop admits.
pub(super) fn own_address(state: &AppState, request: &HttpRequest, path: &str) -> String {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let scheme = if state.secure_cookies { "https" } else { "http" };
    host.map_or_else(|| path.to_owned(), |host| format!("{scheme}://{host}{path}"))
}

/// The page of a race without a result, which reloads itself while the race waits or runs.
fn waiting_page(layout: Layout, race: &Race) -> HttpResult {
    let is_over = race.state == LabRunState::Failed;
    let position = race.position.unwrap_or(0);
    let message = match race.state {
        LabRunState::Failed => layout.text("race-failed"),
        LabRunState::Queued => layout.text_with("race-queued", &[("position", position.into())]),
        LabRunState::Running | LabRunState::Done => layout.text("race-starting"),
    };

    let mut response = html(StatusCode::OK, &RaceWaitingPage { layout, message, is_over })?;
    if !is_over {
        let refresh = HeaderName::from_static("refresh");
        response.headers_mut().insert(refresh, HeaderValue::from_static("1"));
    }
    Ok(response)
}

/// Returns the film that the script plays, once the race is done.
pub(crate) async fn film(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let race = find_race(&state, &id).await?;
    let language = language_of(&request);
    let film = move || -> Result<String, Problem> {
        let view = RaceView::of(&race, language).ok_or_else(|| no_result(&race))?;
        Ok(view.film().to_string())
    };
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    place.respond(response, film).await
}

pub(crate) async fn picture(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let race = find_race(&state, &id).await?;
    let language = language_of(&request);
    let draw = move || race_picture::draw(&race, language).ok_or_else(|| no_result(&race));
    let mut response = HttpResponse::Ok();
    response.content_type("image/svg+xml");
    response.insert_header((CONTENT_SECURITY_POLICY, race_picture::policy()));
    place.respond(response, draw).await
}

pub(super) fn no_result(race: &Race) -> Problem {
    Problem::missing(message!("problem-no-result", race = race.id))
}

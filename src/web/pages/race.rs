//! The first page while the lab is on: a race for the last unit; and the permanent page of a race.

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName};
use actix_web::web::{Form, Path};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use askama::Template;
use tokio::sync::Semaphore;

use super::layout::Layout;
use super::race_film::{self, RaceCell};
use super::race_picture;
use super::race_texts;
use super::respond::html;
use super::storefront::{self, ShopQuery};
use super::timeline::TimelineView;
use crate::lab::race::model::{Race, RaceRequest, RaceResult, WITH_LOCK, WITHOUT_LOCK};
use crate::lab::run::LabRunState;
use crate::messages::Language;
use crate::shop::Sku;
use crate::shop::model::LedgerEntry;
use crate::shop::query::ledger;
use crate::web::api::race::{find_race, run_race};
use crate::web::middleware::{FormFields, Query};
use crate::web::{AppState, HttpResult, Problem, State, see_other};

/// The lock that *on* means, unless another one is chosen.
const DEFAULT_LOCK: &str = "fenced";
/// Entries of a ledger that a race's page reads.
const MAX_ENTRIES: i64 = 500;
const REFRESH: HeaderName = HeaderName::from_static("refresh");

#[derive(Debug, Template)]
#[template(path = "race.html")]
struct RacePage {
    layout: Layout,
    stage: RaceStage,
    demo_user: Option<String>,
    demo_next: &'static str,
    /// Recorded races, for pages without scripts.
    recorded: Vec<RecordedPicture>,
}

/// A race as a picture with a description.
#[derive(Debug)]
struct RecordedPicture {
    drawing: Option<TimelineView>,
    caption: String,
}

#[derive(Debug, Template)]
#[template(path = "race_result.html")]
struct RaceResultPage {
    layout: Layout,
    stage: RaceStage,
    title: String,
    /// The timeline of two orders; else the receipts of a crowd.
    drawing: Option<TimelineView>,
    cells: Vec<RaceCell>,
    footer: String,
    /// Explanation of the result, in one or two sentences.
    why: String,
    is_loss: bool,
    entries: Vec<ComparedEntry>,
    comparison: String,
    is_fork: bool,
    ledger: String,
    /// Address of the image for link previews.
    image: String,
}

/// One of the two ledger entries that stand side by side.
#[derive(Debug)]
struct ComparedEntry {
    title: String,
    before: i64,
    after: i64,
    note: String,
}

impl ComparedEntry {
    fn new(entry: &LedgerEntry, language: Language) -> Self {
        let text =
            |id, name, value: i64| language.text_with(id, &[(name, value.to_string().into())]);
        let version = text("race-entry-version", "version", entry.version);
        let fence = entry.fence.map(|fence| text("race-entry-fence", "fence", fence));
        Self {
            title: text("race-entry", "seq", entry.seq),
            before: entry.before,
            after: entry.after,
            note: [Some(version), fence].into_iter().flatten().collect::<Vec<_>>().join(" · "),
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "race_waiting.html")]
struct RaceWaitingPage {
    layout: Layout,
    message: String,
    is_over: bool,
}

/// The phones, the shelf and the controls, which both pages have.
#[derive(Debug)]
struct RaceStage {
    language: Language,
    phones: Vec<BuyerPhone>,
    lock: String,
    buyers: u16,
    /// Texts and race for the script, as JSON that is safe within a script element.
    texts: String,
    race: String,
}

impl RaceStage {
    fn new(state: &AppState, language: Language, race: Option<&Race>) -> Self {
        let film = race.and_then(|race| {
            race.result.as_ref().map(|result| race_film::film(race, result, language))
        });
        Self {
            language,
            phones: phones(state, language),
            lock: race.map_or("none", |race| race.lock.as_str()).to_owned(),
            // The slider has even numbers only.
            buyers: race.map_or(2, |race| race.buyers.next_multiple_of(2)),
            texts: script_json(&race_texts::for_script(language)),
            race: film.map_or_else(String::new, |film| script_json(&film)),
        }
    }

    fn is_on(&self) -> bool {
        self.lock != "none"
    }

    /// Returns the units on the shelf.
    fn stock(&self) -> i64 {
        stock_for(self.buyers)
    }

    /// Returns the size of the crowd in words.
    fn crowd(&self) -> String {
        if self.buyers == 2 {
            return self.language.text("race-crowd-two");
        }
        let figures = [("buyers", self.buyers.into()), ("stock", self.stock().into())];
        self.language.text_with("race-crowd", &figures)
    }

    /// Returns the locks that *on* can mean.
    fn locks(&self) -> [LockChoice; 4] {
        let chosen = if self.is_on() { self.lock.as_str() } else { DEFAULT_LOCK };
        ["fenced", "row-lock", "owner", "local"].map(|name| LockChoice {
            name,
            label: self.language.text(&format!("race-lock-{name}")),
            is_chosen: name == chosen,
        })
    }
}

#[derive(Debug)]
struct LockChoice {
    name: &'static str,
    label: String,
    is_chosen: bool,
}

#[derive(Debug)]
struct BuyerPhone {
    side: char,
    buyer: String,
    server: String,
}

fn phones(state: &AppState, language: Language) -> Vec<BuyerPhone> {
    let phone = |(name, server): (&str, String)| BuyerPhone {
        side: if name == "A" { 'a' } else { 'b' },
        buyer: language.text_with("race-buyer", &[("name", name.into())]),
        server: language.text_with("race-server", &[("name", server.into())]),
    };
    ["A", "B"].into_iter().zip(state.races.servers()).map(phone).collect()
}

/// Returns the units of a race: half as many as its buyers, so that it is sold out.
fn stock_for(buyers: u16) -> i64 {
    i64::from(buyers / 2).max(1)
}

/// Shows the race; the shop while the lab is off.
pub async fn show(state: State, request: HttpRequest, query: Query<ShopQuery>) -> HttpResult {
    if !state.lab {
        return storefront::show(request, query).await;
    }
    let layout = Layout::of(&request).await?;
    let language = layout.language;
    let picture = |race: &Race, caption: &str| {
        let drawing = race.result.as_ref().map(|result| draw(race, result, language));
        RecordedPicture { drawing, caption: language.text(caption) }
    };
    let page = RacePage {
        stage: RaceStage::new(&state, language, None),
        demo_user: layout.demo_user(&state).await,
        demo_next: "/shop",
        recorded: vec![
            picture(&WITHOUT_LOCK, "race-recorded-off"),
            picture(&WITH_LOCK, "race-recorded-on"),
        ],
        layout,
    };
    html(StatusCode::OK, &page)
}

/// Runs the race of the form, without a script.
pub async fn run(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    let race = run_race(&state, &request, || parse_form(&form)).await?;
    Ok(see_other(&format!("/race/{}", race.id)))
}

fn parse_form(form: &FormFields) -> Result<RaceRequest, Problem> {
    let is_on = !form.text("on").is_empty();
    let lock = if is_on { form.required("lock")? } else { "none" };
    let buyers: u16 = match form.trimmed("buyers") {
        "" => 2,
        number => number.parse().map_err(|_| Problem::field("buyers", "a number, 2 to 200"))?,
    };
    let stock = stock_for(buyers);
    Ok(RaceRequest { lock: lock.to_owned(), buyers, stock, seed: None })
}

/// The permanent page of a race.
pub async fn result(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let race = find_race(&state, &id).await?;
    let layout = Layout::of(&request).await?;
    let language = layout.language;
    let Some(result) = &race.result else {
        return waiting_page(layout, &race);
    };
    let (entries, is_fork) = entries(&state, result).await?;
    let comparison = match entries.first().filter(|_| is_fork) {
        Some(entry) => {
            let version = entry.version.to_string();
            language.text_with("race-entries-fork", &[("version", version.into())])
        }
        None => language.text("race-entries-chain"),
    };
    let title = race_film::verdict(&race, language);
    let is_duel = result.lanes.len() == 2;
    let page = RaceResultPage {
        stage: RaceStage::new(&state, language, Some(&race)),
        drawing: is_duel.then(|| draw(&race, result, language)),
        cells: if is_duel { Vec::new() } else { race_film::cells(&race, result, language) },
        footer: race_picture::footer(result, language),
        why: race_texts::explain(language, &race, result),
        is_loss: result.doubled() > 0,
        entries: entries.iter().map(|entry| ComparedEntry::new(entry, language)).collect(),
        comparison,
        is_fork,
        ledger: result.ledger.clone(),
        image: own_address(&state, &request, &format!("/race/{}/image.png", race.id)),
        title,
        layout,
    };
    html(StatusCode::OK, &page)
}

/// Returns the absolute address of `path`, by the host that the request names and the shop admits.
fn own_address(state: &AppState, request: &HttpRequest, path: &str) -> String {
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
        let again = actix_web::http::header::HeaderValue::from_static("1");
        response.headers_mut().insert(REFRESH, again);
    }
    Ok(response)
}

/// Returns two entries to compare, and whether they were computed from the same version: the first
/// fork of the item's ledger, else its first two entries of orders.
async fn entries(
    state: &AppState,
    result: &RaceResult,
) -> Result<(Vec<LedgerEntry>, bool), Problem> {
    let sku = result.ledger.rsplit('/').next().unwrap_or_default().to_owned();
    let Ok(sku) = Sku::try_from(sku) else { return Ok((Vec::new(), false)) };
    let mut entries = ledger::stock_entries(&state.shop, &sku, 0, MAX_ENTRIES).await?;
    entries.retain(|entry| entry.reason == "order");
    let fork = entries.iter().enumerate().find_map(|(at, first)| {
        let later = entries.iter().skip(at + 1);
        let second = later.clone().find(|entry| entry.version == first.version)?;
        Some(vec![first.clone(), second.clone()])
    });
    let is_fork = fork.is_some();
    entries.truncate(2);
    Ok((fork.unwrap_or(entries), is_fork))
}

fn draw(race: &Race, result: &RaceResult, language: Language) -> TimelineView {
    TimelineView::fitting(race_film::timeline(race, result, language), language)
}

/// What the script plays, once the race is done.
pub async fn film(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let race = done(find_race(&state, &id).await?)?;
    let language = Layout::minimal(&request)?.language;
    let film = race.result.as_ref().map(|result| race_film::film(&race, result, language));
    Ok(HttpResponse::Ok().json(film))
}

/// Permits of the pictures that are drawn at a time: each takes a core and 3 MB.
static DRAWINGS: Semaphore = Semaphore::const_new(2);

/// The picture of a race for link previews.
pub async fn image(state: State, id: Path<String>) -> HttpResult {
    let race = done(find_race(&state, &id).await?)?;
    // Drawing takes some milliseconds; a worker serves other requests too.
    let permit = DRAWINGS.acquire().await.ok();
    let draw = move || {
        let _permit = permit;
        race_picture::png(&race)
    };
    let png = actix_web::web::block(draw).await;
    let png = png.ok().flatten();
    let png = png.ok_or_else(|| Problem::not_found("the picture can't be drawn"))?;
    Ok(picture_response("image/png").body(png))
}

/// The animated picture of a race, for documents.
pub async fn picture(state: State, id: Path<String>) -> HttpResult {
    let race = done(find_race(&state, &id).await?)?;
    let mut response = picture_response("image/svg+xml");
    response.insert_header((CONTENT_SECURITY_POLICY, race_picture::animated_policy()));
    Ok(response.body(race_picture::animated(&race)))
}

fn done(race: Race) -> Result<Race, Problem> {
    if race.result.is_some() {
        return Ok(race);
    }
    Err(Problem::not_found(format!("race {} has no result yet", race.id)))
}

fn picture_response(kind: &'static str) -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response.content_type(kind).insert_header((CACHE_CONTROL, "public, max-age=86400"));
    response
}

/// Formats JSON that cannot end the script element that it is in.
fn script_json(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

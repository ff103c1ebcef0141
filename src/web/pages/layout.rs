//! The layout around every page: replica, strategy, state of the books, navigation and language.
//!
//! A failed query never fails the page: the layout says that the books can't be read.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{AcceptLanguage, Header as _, HeaderName};
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::format::format_relative;
use super::kept_basket::Basket;
use super::links::{Links, PROVE};
use super::respond::{html, set_cookie};
use crate::web::api::race::find_race;
use crate::web::middleware::lab_access::{self, Action, RunAccess};
use crate::web::middleware::{LANGUAGE_COOKIE, Query, csrf, find_caller};
use crate::web::{HttpResult, Problem, app_state, see_other};
use holdfast_base::log_limit;
use holdfast_base::messages::{FluentValue, Language, Message};
use holdfast_lab::{class, lessons, source, store};
use holdfast_shop::audit::StockConservation;
use holdfast_shop::model::Item;
use holdfast_shop::query::next_return::NextReturn;
use holdfast_shop::sessions::Caller;
use holdfast_shop::strategy::{STRATEGIES, Strategy};
use holdfast_shop::{Error, Shop};

/// Pages of the administration.
const ADMIN_PAGES: [&str; 4] = ["/admin", "/audit", "/locks", "/jobs"];
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
/// Time for which a projector offers the run of a class after its end.
pub(super) const OFFERED_FOR: Duration = Duration::from_mins(5);

/// A run of the class.
#[derive(Debug)]
pub struct ClassRun {
    pub id: Uuid,
    pub is_over: bool,
    /// The title of its lesson.
    pub title: String,
}

#[derive(Debug)]
pub struct Layout {
    pub language: Language,
    pub replica: String,
    pub strategy: &'static Strategy,
    /// The sums of the books, if they can be read now.
    pub books: Option<Arc<StockConservation>>,
    pub caller: Option<Arc<Caller>>,
    pub lab: bool,
    /// True in the shop of a class.
    pub class: bool,
    pub basket_units: i64,
    /// True while Postgres responds, and accepts or ends no write.
    pub is_read_only: bool,
    /// While Postgres is away: when the items of the page were read.
    pub as_of: Option<OffsetDateTime>,
    /// The address of the page, for the way back after signing in.
    pub path: String,
    /// True for a page of the lab on a projector (`?present`): large text, only the content.
    pub is_presented: bool,
    /// In a class, only the teacher presents.
    pub may_present: bool,
    /// Where its links lead.
    pub links: Links,
    /// On a projector: the newest run of the class, if the page is not about it.
    pub class_run: Option<ClassRun>,
    /// For a student: the page that the teacher shows.
    pub teacher_page: Option<String>,
}

impl Layout {
    pub async fn of(request: &HttpRequest) -> Result<Self, Problem> {
        let mut layout = Self::minimal(request)?;
        let shop = &app_state(request)?.shop;

        // After a failed look-up Postgres is not queried again: a page must respond within 2 s.
        let Ok(caller) = find_caller(request).await else { return Ok(layout) };
        layout.caller = caller;
        if layout.class {
            layout.join_class(request, shop).await;
        }

        layout.books = shop
            .audits
            .books()
            .await
            .inspect_err(|error| {
                if let Some(left_out) = log_limit::admit("books") {
                    tracing::warn!(%error, left_out, "the books can't be read");
                }
            })
            .ok();

        if let (Some(caller), Some(_)) = (&layout.caller, &layout.books) {
            let basket = Basket::of_account(shop, caller.id).await;
            layout.basket_units = basket.map_or(0, |basket| basket.units());
        }
        Ok(layout)
    }

    /// Finds out which run the teacher's projector offers, or where the teacher is.
    async fn join_class(&mut self, request: &HttpRequest, shop: &Shop) {
        // As loads are, presenting is the teacher's.
        let access = lab_access::run_access(request, Action::Load).await;
        self.may_present = matches!(access, Ok(RunAccess::Granted));
        self.is_presented &= self.may_present;

        if self.is_presented {
            self.class_run = self.find_class_run(shop).await.ok().flatten();
        } else if self.is_student() {
            self.teacher_page = class::page(&shop.pool).await.ok().flatten();
        }
    }

    /// Leads the class to the page, to be called once it is known to exist: if the teacher opens it
    /// on a projector.
    pub async fn lead(&self, request: &HttpRequest) {
        if is_opened(request) {
            self.lead_to(request, request.path()).await;
        }
    }

    async fn lead_to(&self, request: &HttpRequest, page: &str) {
        let Ok(state) = app_state(request) else { return };
        if !self.leads() {
            return;
        }
        if let Err(error) = class::lead(&state.shop.pool, page).await {
            tracing::warn!(%error, "the class is not led to the teacher's page");
        }
    }

    fn leads(&self) -> bool {
        self.class && self.is_presented && self.may_present
    }

    async fn find_class_run(&self, shop: &Shop) -> Result<Option<ClassRun>, Error> {
        let since = OffsetDateTime::now_utc() - OFFERED_FOR;
        let run = store::newest_run_of_lesson(&shop.pool, since).await?;
        Ok(run.and_then(|(run, lesson)| {
            // The page of a lesson offers its run beside the votes.
            let pages = [format!("/lab/runs/{}", run.id), format!("/lab/lessons/{lesson}")];
            let lesson = lessons::named(&lesson)?;
            let is_elsewhere = !pages.iter().any(|page| self.is_at(page));
            let title = lesson.title(self.language);
            is_elsewhere.then_some(ClassRun { id: run.id, is_over: run.is_over, title })
        }))
    }

    pub fn minimal(request: &HttpRequest) -> Result<Self, Problem> {
        let state = app_state(request)?;
        Ok(Self {
            language: language_of(request),
            replica: state.replica.clone(),
            strategy: state.shop.strategy,
            books: None,
            caller: None,
            lab: state.lab,
            class: state.class,
            basket_units: Basket::of_cookie(request).units(),
            is_read_only: state.readiness.was_read_only() || state.shop.pool.do_commits_wait(),
            as_of: None,
            path: shown_path(request),
            is_presented: request.query_string().split('&').any(|name| name == "present"),
            may_present: !state.class,
            links: Links::Server,
            class_run: None,
            teacher_page: None,
        })
    }

    /// Returns the layout of a page of the site, which needs no server: `path` is that of the
    /// shop's page, `file` that of the site's.
    pub fn without_server(language: Language, path: &str, file: &str) -> Self {
        Self {
            language,
            replica: String::new(),
            // No page of the site names it.
            strategy: &STRATEGIES[0],
            books: None,
            caller: None,
            lab: true,
            class: false,
            basket_units: 0,
            is_read_only: false,
            as_of: None,
            path: path.to_owned(),
            is_presented: false,
            may_present: false,
            links: Links::Static { file: file.to_owned(), language },
            class_run: None,
            teacher_page: None,
        }
    }

    /// Returns the name of a demo user whose password is known, for a visitor without a session who
    /// goes to `next`. None of them is an admin.
    pub async fn demo_user(&self, request: &HttpRequest, next: &str) -> Option<String> {
        let state = app_state(request).ok()?;
        // If Postgres did not respond for the layout, it is not queried again.
        match (&self.caller, &self.books) {
            (None, Some(_)) if !is_for_admins(request, next) => {
                state.demo_user.name(&state.shop).await
            }
            _ => None,
        }
    }

    pub fn text(&self, id: &str) -> String {
        self.language.text(id)
    }

    pub fn text_with(&self, id: &str, variables: &[(&'static str, FluentValue<'_>)]) -> String {
        self.language.text_with(id, variables)
    }

    pub fn space(&self) -> &'static str {
        self.language.space()
    }

    pub fn colon(&self) -> &'static str {
        self.language.colon()
    }

    /// Names an item in the language of the page, and describes one of the demo catalogue in it,
    /// unless its description was edited.
    pub fn named(&self, mut item: Item) -> Item {
        if self.language == Language::Chinese
            && let Some(name) = &item.name_zh
        {
            item.name = name.clone();
        }
        let about = Message::new(&format!("goods-{}-about", item.sku));
        if about.format(Language::English).is_some_and(|english| english == item.description) {
            item.description = about.text(self.language);
        }
        item
    }

    pub fn order_status(&self, status: &str) -> String {
        self.text(&format!("shop-status-{status}"))
    }

    pub fn relative_time(&self, at: &OffsetDateTime) -> String {
        format_relative(*at, OffsetDateTime::now_utc(), self.language)
    }

    /// Says when a unit of a sold out item may return, as far as it is known.
    pub fn next_return(&self, next: &NextReturn) -> String {
        match next {
            NextReturn::NoneReserved => self.text("shop-none-reserved"),
            NextReturn::Unknown => self.text("shop-return-unknown"),
            // Also of one that is due, whose units return within seconds.
            NextReturn::At(at) if *at < OffsetDateTime::now_utc() + Duration::from_mins(1) => {
                self.text("shop-returns-soon")
            }
            NextReturn::At(at) => {
                self.text_with("shop-returns", &[("when", self.relative_time(at).into())])
            }
        }
    }

    /// Returns the query for links and forms of the lab, which keeps a page on a projector.
    pub fn present_query(&self) -> &'static str {
        if self.is_presented { "?present" } else { "" }
    }

    pub fn about(&self, strategy: &Strategy) -> String {
        source::about_strategy(strategy, self.language)
    }

    /// Returns whether an order has a chance now, as far as the replica knows.
    pub fn sells(&self) -> bool {
        !self.is_read_only && self.as_of.is_none()
    }

    pub fn csrf(&self) -> &str {
        self.caller.as_ref().map_or("", |caller| &caller.csrf)
    }

    pub fn is_admin(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.admin)
    }

    pub fn is_student(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.is_student)
    }

    /// Returns whether the page is the one that the teacher shows.
    pub fn is_at_teacher(&self) -> bool {
        self.teacher_page.as_ref() == Some(&self.path)
    }

    pub fn is_in_admin(&self) -> bool {
        ADMIN_PAGES.iter().any(|page| self.is_at(page))
    }

    pub fn is_at(&self, path: &str) -> bool {
        is_below(&self.path, path)
    }

    /// Returns whether an entry of the site's navigation leads to the page, itself or by a tab.
    pub fn is_behind(&self, entry: &str) -> bool {
        let is_in_room = entry == PROVE[0].0 && PROVE.iter().any(|(page, _)| self.is_at(page));
        is_in_room || self.is_at(entry)
    }
}

/// Returns whether one signs in as an admin to go on at that address, perhaps with a query.
fn is_for_admins(request: &HttpRequest, next: &str) -> bool {
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let is_to_run = is_below(path, "/lab") && lab_access::is_admins_alone(request);
    is_to_run || ADMIN_PAGES.iter().chain(&["/lab/class"]).any(|page| is_below(path, page))
}

fn is_below(path: &str, parent: &str) -> bool {
    path == parent || parent != "/" && path.starts_with(&format!("{parent}/"))
}

/// Returns the path of the page that is shown: an open page refreshes itself by that of the bar, or
/// of its votes.
fn shown_path(request: &HttpRequest) -> String {
    let path = request.path();
    let of_votes = path.strip_suffix("/votes").filter(|page| is_below(page, "/lab/lessons"));
    let shown = if path == "/bar" { csrf::referring_path(request) } else { None };
    let shown = shown.map(|shown| shown.split('?').take(1).collect());
    shown.unwrap_or_else(|| of_votes.unwrap_or(path).to_owned())
}

/// Returns whether a person opens the page, as far as the browser says: not what another site
/// embeds, as an image or a frame, nor what is loaded in advance.
fn is_opened(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let is_page = headers.get(SEC_FETCH_DEST).is_none_or(|dest| dest == "document");
    is_page && !headers.contains_key(SEC_PURPOSE)
}

/// Returns the race that a projector has played, which it names when it refreshes itself: a race
/// stays on the first page, and has a page of its own.
fn played_race(request: &HttpRequest) -> Option<&str> {
    request.query_string().split('&').find_map(|field| field.strip_prefix("race="))
}

/// The bar and the link to the basket, with which an open page refreshes itself.
#[derive(Debug, Template)]
#[template(path = "parts/live.html")]
struct LiveParts {
    layout: Layout,
}

pub(crate) async fn bar(request: HttpRequest) -> HttpResult {
    let layout = Layout::of(&request).await?;
    if let Some(race) = played_race(&request)
        && layout.leads()
        && csrf::check_origin(&request).is_ok()
        && find_race(app_state(&request)?, race).await.is_ok()
    {
        layout.lead_to(&request, &format!("/race/{race}")).await;
    }
    html(StatusCode::OK, &LiveParts { layout })
}

#[derive(Debug, Deserialize)]
pub struct ReturnQuery {
    #[serde(default)]
    pub next: String,
}

/// The action that a form has just done, for the page to say it.
#[derive(Debug, Deserialize)]
pub struct DoneQuery {
    #[serde(default)]
    pub done: String,
}

/// Returns the language of the cookie, else the first of `Accept-Language` with an edition.
pub(super) fn language_of(request: &HttpRequest) -> Language {
    let chosen = LANGUAGE_COOKIE.read(request).and_then(|tag| Language::of_tag(&tag));
    let preferred = || {
        let accepted = AcceptLanguage::parse(request).ok()?.ranked();
        accepted.iter().find_map(|tag| Language::of_tag(tag.item()?.as_str()))
    };
    chosen.or_else(preferred).unwrap_or_default()
}

pub(crate) async fn choose(
    request: HttpRequest,
    tag: Path<String>,
    query: Query<ReturnQuery>,
) -> HttpResult {
    let language = Language::of_tag(&tag);
    let language = language.ok_or_else(|| Problem::no_page(request.path()))?;
    let mut response = see_other(csrf::local_path(&query.read()?.next));
    let cookie = LANGUAGE_COOKIE.build(&request, language.tag().to_owned());
    set_cookie(&mut response, &cookie)?;
    Ok(response)
}

//! A lesson: its question, which is answered before the run, and then its claim. An answer is
//! stored whether or not a run is started, and the first one counts.

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, SET_COOKIE};
use actix_web::web::{Form, Path};
use askama::Template;

use super::run::{self, start_run};
use super::run_form::{self, RunForm, lesson_numbers};
use super::votes::Votes;
use crate::web::middleware::lab_access::{Action, RunAccess, check_run_form, run_access};
use crate::web::middleware::{FormFields, LabReader, csrf, find_caller};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::{html, set_cookie};
use crate::web::pages::visitor::visitor_of_form;
use crate::web::{AppState, HttpResult, Problem, State, app_state, see_other};
use holdfast_base::messages::message;
use holdfast_lab::class;
use holdfast_lab::lessons::{self, GUESSES, Lesson};
use holdfast_lab::progress::{self, Visitor};
use holdfast_lab::source::{self, LessonSource};
use holdfast_lab::store::{self, NewRun, RunSummary};

const MAX_LISTED_RUNS: i64 = 5;

#[derive(Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    access: RunAccess,
    lesson: &'static Lesson,
    shows: Vec<LessonSource>,
    form: RunForm,
    errors: FormErrors,
    votes: Votes,
    runs: Vec<RunSummary>,
}

impl LessonPage {
    fn has_input(&self) -> bool {
        lesson_numbers(self.lesson).iter().any(|(field, _)| !self.form.value(field).is_empty())
    }

    fn is_chosen(&self, place: &usize) -> bool {
        match self.votes.guesses.own {
            Some(own) => own == *place,
            None => self.form.value("guess") == place.to_string(),
        }
    }
}

/// The bar, the link to the basket and the votes, with which an open lesson refreshes itself.
#[derive(Debug, Template)]
#[template(path = "parts/live_votes.html")]
struct LiveVotes {
    layout: Layout,
    votes: Votes,
}

pub(crate) async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    page(&request, named(&name)?, RunForm::default()).await
}

pub(crate) async fn votes(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    let lesson = named(&name)?;
    let layout = Layout::of(&request).await?;
    let votes = Votes::of(&request, lesson, &layout).await?;
    html(StatusCode::OK, &LiveVotes { layout, votes })
}

/// Stores an answer, without a run.
pub(crate) async fn answer(
    state: State,
    request: HttpRequest,
    name: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    check_run_form(&request, form.csrf(), Action::Lesson).await?;
    let lesson = named(&name)?;
    let mut form = RunForm { input: form.into_inner(), ..RunForm::default() };
    let Some(guess) = read_guess(&form) else {
        form.wrong.push(("guess", message!("lab-wrong-guess")));
        return page(&request, lesson, form).await;
    };

    let (visitor, cookie) = visitor_of_form(&request).await?;
    store_answer(&state, lesson, visitor, guess).await?;
    let query = Layout::minimal(&request)?.present_query();
    with_cookie(Ok(see_other(&format!("/lab/lessons/{}{query}#votes", lesson.name))), cookie)
}

/// Shows the class how many chose each answer.
pub(crate) async fn show_votes(
    state: State,
    request: HttpRequest,
    name: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    state.require_class(&request)?;
    check_run_form(&request, form.csrf(), Action::Load).await?;
    let lesson = named(&name)?;
    class::show_votes(&state.shop.pool, lesson.name).await?;

    // The page of a result has the button, too. A form that was refused has no page.
    let page = csrf::referring_path(&request).filter(|page| page.starts_with("/lab/runs/"));
    Ok(see_other(&page.unwrap_or_else(|| format!("/lab/lessons/{}?present", lesson.name))))
}

pub(crate) async fn run(
    state: State,
    request: HttpRequest,
    name: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    let user = check_run_form(&request, form.csrf(), Action::Lesson).await?;
    let lesson = named(&name)?;
    let mut fields = form.into_inner();
    if find_caller(&request).await?.is_some_and(|caller| caller.is_student) {
        // The lesson as it is, so that all who start it watch one run.
        fields.0.retain(|(name, _)| name == "guess");
    }
    let (run, mut form) = run_form::lesson(lesson, fields);

    let guess = read_guess(&form);
    if guess.is_none() && !form.value("guess").is_empty() {
        form.wrong.push(("guess", message!("lab-wrong-guess")));
    }
    if !form.is_right() {
        return page(&request, lesson, form).await;
    }

    // Before the run is queued: an answer counts, also if the queue is full.
    let (visitor, cookie) = visitor_of_form(&request).await?;
    if let Some(guess) = guess {
        store_answer(&state, lesson, visitor, guess).await?;
    }

    let run = NewRun { request: &run, user, visitor: Some(visitor) };
    let query = Layout::minimal(&request)?.present_query();
    with_cookie(start_run(&state, run, query).await, cookie)
}

async fn store_answer(
    state: &AppState,
    lesson: &Lesson,
    visitor: Visitor,
    guess: usize,
) -> Result<(), Problem> {
    match progress::answer(&state.shop.pool, lesson.name, visitor, guess).await? {
        true => Ok(()),
        false => Err(Problem::session_over()),
    }
}

fn read_guess(form: &RunForm) -> Option<usize> {
    form.value("guess").parse().ok().filter(|guess| *guess < GUESSES)
}

/// Sets a cookie with a response, or with a problem in its place.
fn with_cookie(response: HttpResult, cookie: Option<Cookie<'static>>) -> HttpResult {
    let Some(cookie) = cookie else { return response };
    match response {
        Ok(mut response) => set_cookie(&mut response, &cookie).map(|()| response),
        Err(problem) => Err(match HeaderValue::from_str(&cookie.to_string()) {
            Ok(value) => problem.header(SET_COOKIE, value),
            Err(_) => problem,
        }),
    }
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name).ok_or_else(|| Problem::missing(message!("problem-missing-lesson", name)))
}

async fn page(request: &HttpRequest, lesson: &'static Lesson, form: RunForm) -> HttpResult {
    let pool = &app_state(request)?.shop.pool;
    let layout = Layout::of(request).await?;
    layout.lead(request).await;

    let page = LessonPage {
        access: run_access(request, Action::Lesson).await?,
        lesson,
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        errors: form.errors(layout.language),
        form,
        votes: Votes::of(request, lesson, &layout).await?,
        runs: store::newest(pool, None, Some(lesson.name), MAX_LISTED_RUNS).await?,
        layout,
    };
    html(page.errors.status(), &page)
}

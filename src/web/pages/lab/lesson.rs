//! A lesson: its question, which is answered before the run, and then its claim.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use super::progress::{Guesses, Progress};
use super::run::{self, start_run, stored_runs};
use super::run_form::{self, RunForm, lesson_numbers};
use crate::web::middleware::lab_access::{Action, RunAccess, check_run_form, run_access};
use crate::web::middleware::{FormFields, LabReader, find_caller};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::{html, set_cookie};
use crate::web::pages::visitor::visitor_of_form;
use crate::web::{HttpResult, Problem, State, app_state};
use holdfast_base::messages::message;
use holdfast_lab::lessons::{self, GUESSES, Lesson};
use holdfast_lab::progress;
use holdfast_lab::source::{self, Source};
use holdfast_lab::store::{NewRun, RunSummary};

const MAX_LISTED_RUNS: usize = 5;

#[derive(Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    access: RunAccess,
    lesson: &'static Lesson,
    shows: Vec<Source>,
    form: RunForm,
    /// Once the visitor has answered.
    guesses: Option<Guesses>,
    runs: Vec<RunSummary>,
}

impl LessonPage {
    fn has_input(&self) -> bool {
        lesson_numbers(self.lesson).iter().any(|(field, _)| !self.form.value(field).is_empty())
    }
}

pub async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    page(&request, named(&name)?, RunForm::default()).await
}

pub async fn run(
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

    let guess = form.value("guess").parse().ok().filter(|guess| *guess < GUESSES);
    if guess.is_none() && !form.value("guess").is_empty() {
        form.wrong.push(("guess", message!("lab-wrong-guess")));
    }
    if !form.is_right() {
        return page(&request, lesson, form).await;
    }

    let (visitor, cookie) = visitor_of_form(&request).await?;
    if let Some(guess) = guess {
        progress::answer(&state.shop.pool, lesson.name, visitor, guess).await?;
    }

    let run = NewRun { request: &run, user };
    let mut response = start_run(&state, run, Layout::minimal(&request)?.present_query()).await?;
    if let Some(cookie) = cookie {
        set_cookie(&mut response, &cookie)?;
    }
    Ok(response)
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name).ok_or_else(|| Problem::missing(message!("problem-missing-lesson", name)))
}

async fn page(request: &HttpRequest, lesson: &'static Lesson, form: RunForm) -> HttpResult {
    let state = app_state(request)?;
    let layout = Layout::of(request).await?;
    let guesses = match Progress::of(request).await?.guess(lesson) {
        Some(own) => Some(Guesses::of(state, lesson, Some(own), layout.language).await?),
        None => None,
    };

    let runs = stored_runs(state).await?;
    let of_lesson = |run: &RunSummary| run.request.lesson.as_deref() == Some(lesson.name);
    let status = if form.is_right() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };

    let page = LessonPage {
        access: run_access(request, Action::Lesson).await?,
        lesson,
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        form,
        guesses,
        runs: runs.into_iter().filter(of_lesson).take(MAX_LISTED_RUNS).collect(),
        layout,
    };
    html(status, &page)
}

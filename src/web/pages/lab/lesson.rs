//! A lesson: its question, which is answered before the run, and then its claim.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use super::guesses::{self, GuessBar};
use super::presentation::Presentation;
use super::progress::Progress;
use super::run_form::{self, FieldError, NumberField};
use super::run_list::{self, start_run, stored_runs};
use crate::lab::lessons::{self, GUESSES, Lesson};
use crate::lab::source::{self, Source};
use crate::lab::store::{NewRun, RunSummary};
use crate::messages::message;
use crate::web::middleware::lab_access::{RunAccess, check_run_form, run_access};
use crate::web::middleware::{FormFields, LabReader};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::{html, set_cookie};
use crate::web::{HttpResult, Problem, State, app_state};

const MAX_LISTED_RUNS: usize = 5;

#[derive(Debug, Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    presentation: Presentation,
    access: RunAccess,
    lesson: &'static Lesson,
    shows: Vec<Source>,
    fields: Vec<NumberField>,
    guess: Option<usize>,
    is_guess_wrong: bool,
    /// The visitor's answer of an earlier run, and those of all visitors; empty before it.
    earlier_guess: Option<String>,
    bars: Vec<GuessBar>,
    runs: Vec<RunSummary>,
}

impl LessonPage {
    fn has_input(&self) -> bool {
        self.fields.iter().any(|field| field.wrong.is_some() || !field.value.is_empty())
    }
}

pub async fn show(request: HttpRequest, _: LabReader, name: Path<String>) -> HttpResult {
    page(&request, named(&name)?, &FormFields::default(), &[]).await
}

pub async fn run(
    state: State,
    request: HttpRequest,
    name: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    let user = check_run_form(&request, form.csrf()).await?;
    let lesson = named(&name)?;
    let layout = Layout::minimal(&request)?;
    let (run, mut wrong) = run_form::lesson(lesson, &form, layout.language);
    let guess = selected_guess(&form);
    if guess.is_none() && !form.trimmed("guess").is_empty() {
        wrong.push(("guess", String::new()));
    }
    if !wrong.is_empty() {
        return page(&request, lesson, &form, &wrong).await;
    }
    let mut progress = Progress::of(&request);
    progress.record(lesson, guess);
    let run = NewRun { request: &run, guess, user };
    let mut response = start_run(&state, run, Presentation::of(&request).query()).await?;
    set_cookie(&mut response, &progress.cookie(&request))?;
    Ok(response)
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name).ok_or_else(|| Problem::missing(message!("problem-missing-lesson", name)))
}

fn selected_guess(input: &FormFields) -> Option<usize> {
    let place: usize = input.trimmed("guess").parse().ok()?;
    (place < GUESSES).then_some(place)
}

async fn page(
    request: &HttpRequest,
    lesson: &'static Lesson,
    input: &FormFields,
    wrong: &[FieldError],
) -> HttpResult {
    let state = app_state(request)?;
    let layout = Layout::of(request).await?;
    let language = layout.language;
    let own = Progress::of(request).guess(lesson);
    let bars = match own {
        Some(own) => guesses::bars(state, lesson, own, language).await?,
        None => Vec::new(),
    };
    let runs = stored_runs(state).await?;
    let page = LessonPage {
        presentation: Presentation::of(request),
        access: run_access(request).await?,
        lesson,
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        fields: run_form::lesson_fields(lesson, input, wrong, language),
        guess: selected_guess(input),
        is_guess_wrong: wrong.iter().any(|(field, _)| *field == "guess"),
        earlier_guess: own.map(|own| lesson.guesses(language).swap_remove(own)),
        bars,
        runs: runs.into_iter().filter(|run| run.is_of(lesson.name)).take(MAX_LISTED_RUNS).collect(),
        layout,
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    html(status, &page)
}

//! A lesson before it is run: its claim, a question, the code, and its fields.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use super::run_form::{self, FieldError, NumberField};
use super::run_list::{self, start_run, stored_runs};
use crate::lab::lessons::{self, Lesson};
use crate::lab::source::{self, Source};
use crate::lab::store::RunSummary;
use crate::messages::Language;
use crate::web::middleware::{FormFields, LabAdmin, csrf};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::language;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, Problem, State, app_state};

const MAX_LISTED_RUNS: usize = 5;

#[derive(Debug, Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    lesson: &'static Lesson,
    running: Option<RunSummary>,
    shows: Vec<Source>,
    fields: Vec<NumberField>,
    guess: Option<usize>,
    guess_wrong: Option<&'static str>,
    runs: Vec<RunSummary>,
}

impl LessonPage {
    fn has_input(&self) -> bool {
        self.fields.iter().any(|field| field.wrong.is_some() || !field.value.is_empty())
    }
}

pub async fn show(request: HttpRequest, _: LabAdmin, name: Path<String>) -> HttpResult {
    page(&request, named(&name)?, &FormFields::default(), &[]).await
}

pub async fn run(
    state: State,
    request: HttpRequest,
    name: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    csrf::check_lab_form(&request, form.csrf()).await?;
    let lesson = named(&name)?;
    let (run, mut wrong) = run_form::lesson(lesson, &form);
    let guess = selected_guess(lesson, &form);
    if guess.is_none() && !form.trimmed("guess").is_empty() {
        wrong.push(("guess", String::new()));
    }
    if !wrong.is_empty() {
        return page(&request, lesson, &form, &wrong).await;
    }
    let guesses = lesson.guesses(language::of_request(&request));
    start_run(&state, &run, guess.map(|place| guesses[place].as_str())).await
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name).ok_or_else(|| Problem::not_found(format!("there is no lesson {name}")))
}

fn selected_guess(lesson: &Lesson, input: &FormFields) -> Option<usize> {
    let place: usize = input.trimmed("guess").parse().ok()?;
    (place < lesson.guesses(Language::English).len()).then_some(place)
}

async fn page(
    request: &HttpRequest,
    lesson: &'static Lesson,
    input: &FormFields,
    wrong: &[FieldError],
) -> HttpResult {
    let runs = stored_runs(app_state(request)?).await?;
    let is_guess_wrong = wrong.iter().any(|(field, _)| *field == "guess");
    let page = LessonPage {
        layout: Layout::of(request).await?,
        lesson,
        running: runs.iter().find(|run| !run.is_over()).cloned(),
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        fields: run_form::lesson_fields(lesson, input, wrong),
        guess: selected_guess(lesson, input),
        guess_wrong: is_guess_wrong.then_some("Choose one of these."),
        runs: runs.into_iter().filter(|run| run.is_of(lesson.name)).take(MAX_LISTED_RUNS).collect(),
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    html(status, &page)
}

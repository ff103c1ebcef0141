//! A lesson before it is run: its claim, a question, the code, and its fields.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::run_form::{self, FieldError, FormFields, NumberField};
use super::views::RunListItem;
use super::{check_lab_form, custom_load, require_lab_admin, stored_runs};
use crate::lab::lessons::{self, Lesson};
use crate::lab::source::{self, Source};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::{html, see_other};
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

const LISTED: usize = 5;

#[derive(Debug, Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    lesson: &'static Lesson,
    running: Option<RunListItem>,
    shows: Vec<Source>,
    fields: Vec<NumberField>,
    guess: Option<usize>,
    guess_wrong: Option<&'static str>,
    runs: Vec<RunListItem>,
}

impl LessonPage {
    fn has_input(&self) -> bool {
        self.fields.iter().any(|field| field.wrong.is_some() || !field.value.is_empty())
    }
}

/// Shows the lesson.
pub async fn show(request: HttpRequest, name: web::Path<String>) -> HttpResult {
    require_lab_admin(&request).await?;
    page(&request, named(&name)?, &FormFields::new(), &[]).await
}

/// Redirects a GET of the form's address to the lesson.
pub async fn back(name: web::Path<String>) -> HttpResult {
    Ok(see_other(&format!("/lab/lessons/{}", named(&name)?.name)))
}

pub async fn ask(
    state: web::Data<AppState>,
    request: HttpRequest,
    name: web::Path<String>,
    form: web::Form<FormFields>,
) -> HttpResult {
    let input = form.into_inner();
    check_lab_form(&request, run_form::first_value(&input, "csrf")).await?;
    let lesson = named(&name)?;
    let (wanted, mut wrong) = run_form::lesson(lesson, &input);
    let guess = selected_guess(lesson, &input);
    if guess.is_none() && !run_form::first_value(&input, "guess").is_empty() {
        wrong.push(("guess", String::new()));
    }
    if !wrong.is_empty() {
        return page(&request, lesson, &input, &wrong).await;
    }
    custom_load::start_run(&state, &wanted, guess.map(|place| lesson.guesses[place])).await
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name).ok_or_else(|| Problem::not_found(format!("there is no lesson {name}")))
}

fn selected_guess(lesson: &Lesson, input: &FormFields) -> Option<usize> {
    let place: usize = run_form::first_value(input, "guess").parse().ok()?;
    (place < lesson.guesses.len()).then_some(place)
}

async fn page(
    request: &HttpRequest,
    lesson: &'static Lesson,
    input: &FormFields,
    wrong: &[FieldError],
) -> HttpResult {
    let heads = stored_runs(request).await?;
    let own = heads.iter().filter(|head| head.wanted.lesson.as_deref() == Some(lesson.name));
    let page = LessonPage {
        layout: Layout::of(request).await?,
        lesson,
        running: heads.iter().find(|head| !head.state.is_over()).map(RunListItem::from),
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        fields: run_form::lesson_fields(lesson, input, wrong),
        guess: selected_guess(lesson, input),
        guess_wrong: wrong
            .iter()
            .any(|(field, _)| *field == "guess")
            .then_some("Choose one of these."),
        runs: own.take(LISTED).map(RunListItem::from).collect(),
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    html(status, &page)
}

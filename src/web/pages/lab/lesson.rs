//! A lesson before it is run: its claim, a question, the code, and its fields.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::run_form::{self, Field, Sent, Wrong};
use super::views::Line;
use super::{admin, custom_load, kept, posted};
use crate::lab::lessons::{self, Lesson};
use crate::lab::source::{self, Source};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::{html, see_other};
use crate::web::problems::{Problem, ProblemType};
use crate::web::{AppState, HttpResult};

const LISTED: usize = 5;

#[derive(Debug, Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    layout: Layout,
    lesson: &'static Lesson,
    going: Option<Line>,
    shows: Vec<Source>,
    fields: Vec<Field>,
    guess: Option<usize>,
    guess_wrong: Option<&'static str>,
    runs: Vec<Line>,
}

impl LessonPage {
    fn turned(&self) -> bool {
        self.fields.iter().any(|field| field.wrong.is_some() || !field.value.is_empty())
    }
}

/// Shows the lesson.
pub async fn show(request: HttpRequest, name: web::Path<String>) -> HttpResult {
    admin(&request).await?;
    page(&request, named(&name)?, &Sent::new(), &[]).await
}

/// Redirects a GET of the form's address to the lesson.
pub async fn back(name: web::Path<String>) -> HttpResult {
    Ok(see_other(&format!("/lab/lessons/{}", named(&name)?.name)))
}

pub async fn ask(
    state: web::Data<AppState>,
    request: HttpRequest,
    name: web::Path<String>,
    form: web::Form<Sent>,
) -> HttpResult {
    let sent = form.into_inner();
    posted(&request, run_form::first(&sent, "csrf")).await?;
    let lesson = named(&name)?;
    let (wanted, mut wrong) = run_form::lesson(lesson, &sent);
    let guess = guessed(lesson, &sent);
    if guess.is_none() && !run_form::first(&sent, "guess").is_empty() {
        wrong.push(("guess", String::new()));
    }
    if !wrong.is_empty() {
        return page(&request, lesson, &sent, &wrong).await;
    }
    custom_load::began(&state, &wanted, guess.map(|place| lesson.guesses[place])).await
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name)
        .ok_or_else(|| Problem::new(ProblemType::NotFound, format!("there is no lesson {name}")))
}

fn guessed(lesson: &Lesson, sent: &Sent) -> Option<usize> {
    let place: usize = run_form::first(sent, "guess").parse().ok()?;
    (place < lesson.guesses.len()).then_some(place)
}

async fn page(
    request: &HttpRequest,
    lesson: &'static Lesson,
    sent: &Sent,
    wrong: &[Wrong],
) -> HttpResult {
    let heads = kept(request).await?;
    let own = heads.iter().filter(|head| head.wanted.lesson.as_deref() == Some(lesson.name));
    let page = LessonPage {
        layout: Layout::of(request).await?,
        lesson,
        going: heads.iter().find(|head| !head.state.is_over()).map(Line::from),
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        fields: run_form::fields_of_a_lesson(lesson, sent, wrong),
        guess: guessed(lesson, sent),
        guess_wrong: wrong
            .iter()
            .any(|(field, _)| *field == "guess")
            .then_some("Choose one of these."),
        runs: own.take(LISTED).map(Line::from).collect(),
    };
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    html(status, &page)
}

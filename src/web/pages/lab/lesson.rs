//! A lesson before it is run: its claim, a question, the code, and its fields.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;

use super::knobs::{self, Field, Sent, Wrong};
use super::views::Line;
use super::{admin, free, kept, posted};
use crate::lab::lessons::{self, Lesson};
use crate::lab::source::{self, Source};
use crate::web::pages::frame::Frame;
use crate::web::pages::words::Moment as _;
use crate::web::pages::{html, see_other};
use crate::web::problems::{Kind, Problem};
use crate::web::{HttpResult, Site};

const LISTED: usize = 5;

#[derive(Debug, Template)]
#[template(path = "lesson.html")]
struct LessonPage {
    frame: Frame,
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
    site: web::Data<Site>,
    request: HttpRequest,
    name: web::Path<String>,
    form: web::Form<Sent>,
) -> HttpResult {
    let sent = form.into_inner();
    posted(&request, knobs::first(&sent, "csrf")).await?;
    let lesson = named(&name)?;
    let (wanted, mut wrong) = knobs::lesson(lesson, &sent);
    let guess = guessed(lesson, &sent);
    if guess.is_none() && !knobs::first(&sent, "guess").is_empty() {
        wrong.push(("guess", String::new()));
    }
    if !wrong.is_empty() {
        return page(&request, lesson, &sent, &wrong).await;
    }
    free::began(&site, &wanted, guess.map(|place| lesson.guesses[place])).await
}

fn named(name: &str) -> Result<&'static Lesson, Problem> {
    lessons::named(name)
        .ok_or_else(|| Problem::new(Kind::NotFound, format!("there is no lesson {name}")))
}

fn guessed(lesson: &Lesson, sent: &Sent) -> Option<usize> {
    let place: usize = knobs::first(sent, "guess").parse().ok()?;
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
        frame: Frame::of(request).await?,
        lesson,
        going: heads.iter().find(|head| !head.state.is_over()).map(Line::from),
        shows: lesson.shows.iter().filter_map(|name| source::of(name)).collect(),
        fields: knobs::fields_of_a_lesson(lesson, sent, wrong),
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

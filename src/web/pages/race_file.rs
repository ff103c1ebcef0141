//! A race as one HTML file, which plays anywhere: no script, no network. Tests:
//! `tests/pages/race.rs`.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;

use super::layout::language_of;
use super::race::no_result;
use super::race_entries::RaceEntries;
use super::race_picture;
use super::race_view::RaceView;
use super::respond::{saved_policy, without_fonts};
use crate::web::api::race::find_race;
use crate::web::page_place::{PagePlace, render};
use crate::web::{HttpResult, State};
use holdfast_base::messages::Language;

const STYLES: [&str; 2] =
    [include_str!("../../../static/holdfast.css"), include_str!("../../../static/race.css")];

#[derive(Debug, Template)]
#[template(path = "race_file.html")]
struct RaceFile<'a> {
    language: Language,
    view: RaceView<'a>,
    /// The animated picture, an SVG document with its style.
    picture: String,
    ledger: RaceEntries,
    style: String,
}

impl RaceFile<'_> {
    fn policy(&self) -> String {
        format!("{} {}", saved_policy(&self.style), race_picture::style_source())
    }
}

pub(crate) async fn save(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let race = find_race(&state, &id).await?;
    let language = language_of(&request);
    let result = race.result.as_ref().ok_or_else(|| no_result(&race))?;
    let ledger = RaceEntries::of(&state, result, language).await?;

    let name = format!("attachment; filename=\"holdfast-race-{}.html\"", race.id);
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_DISPOSITION, name)).content_type("text/html; charset=utf-8");

    let draw = move || {
        let view = RaceView::of(&race, language).ok_or_else(|| no_result(&race))?;
        let file = RaceFile {
            language,
            view,
            picture: race_picture::draw(&race, language).ok_or_else(|| no_result(&race))?,
            ledger,
            style: without_fonts(&STYLES.concat()),
        };
        render(&file)
    };
    place.respond(response, draw).await
}

//! The lab: the lessons with their claims, a form for a custom load, the newest runs.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::custom_load::Form;
use super::views::{LessonLine, Line};
use super::{admin, kept};
use crate::lab::lessons::LESSONS;
use crate::web::HttpResult;
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::html;
use crate::web::pages::layout::Layout;

const LISTED: usize = 15;

#[derive(Debug, Template)]
#[template(path = "lab.html")]
struct LabPage {
    layout: Layout,
    going: Option<Line>,
    lessons: Vec<LessonLine>,
    form: Form,
    file_wrong: Option<String>,
    runs: Vec<Line>,
}

/// Shows the lab.
pub async fn show(request: HttpRequest) -> HttpResult {
    admin(&request).await?;
    page(&request, Form::default_of(&request)?, None).await
}

/// Renders the page, with the form's input, or with what is wrong with a file.
pub(super) async fn page(
    request: &HttpRequest,
    form: Form,
    file_wrong: Option<String>,
) -> HttpResult {
    let heads = kept(request).await?;
    let lessons = LESSONS.iter().map(|lesson| {
        let mut own =
            heads.iter().filter(|head| head.wanted.lesson.as_deref() == Some(lesson.name));
        LessonLine { lesson, last: own.find(|head| head.state.is_over()).map(Line::from) }
    });
    let status = if form.is_right() && file_wrong.is_none() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let page = LabPage {
        layout: Layout::of(request).await?,
        going: heads.iter().find(|head| !head.state.is_over()).map(Line::from),
        lessons: lessons.collect(),
        form,
        file_wrong,
        runs: heads.iter().take(LISTED).map(Line::from).collect(),
    };
    html(status, &page)
}

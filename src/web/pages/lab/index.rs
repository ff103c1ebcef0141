//! The lab: the lessons with their claims, a form for a custom load, the newest runs.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::custom_load::LoadForm;
use super::views::{LessonSummary, RunListItem};
use super::{require_lab_admin, stored_runs};
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
    running: Option<RunListItem>,
    lessons: Vec<LessonSummary>,
    form: LoadForm,
    file_wrong: Option<String>,
    runs: Vec<RunListItem>,
}

/// Shows the lab.
pub async fn show(request: HttpRequest) -> HttpResult {
    require_lab_admin(&request).await?;
    page(&request, LoadForm::default_of(&request)?, None).await
}

/// Renders the page, with the form's input, or with what is wrong with a file.
pub(super) async fn page(
    request: &HttpRequest,
    form: LoadForm,
    file_wrong: Option<String>,
) -> HttpResult {
    let heads = stored_runs(request).await?;
    let lessons = LESSONS.iter().map(|lesson| {
        let mut own =
            heads.iter().filter(|head| head.wanted.lesson.as_deref() == Some(lesson.name));
        LessonSummary { lesson, last: own.find(|head| head.state.is_over()).map(RunListItem::from) }
    });
    let status = if form.is_right() && file_wrong.is_none() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let page = LabPage {
        layout: Layout::of(request).await?,
        running: heads.iter().find(|head| !head.state.is_over()).map(RunListItem::from),
        lessons: lessons.collect(),
        form,
        file_wrong,
        runs: heads.iter().take(LISTED).map(RunListItem::from).collect(),
    };
    html(status, &page)
}

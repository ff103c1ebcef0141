//! The lab: a map of the lessons, and what else there is.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use super::progress::Progress;
use crate::web::HttpResult;
use crate::web::middleware::LabReader;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use holdfast_lab::lessons::{Chapter, LESSONS, Lesson};

#[derive(Template)]
#[template(path = "lab.html")]
struct LabPage {
    layout: Layout,
    progress: Progress,
}

impl LabPage {
    fn lessons(&self, chapter: &Chapter) -> Vec<&'static Lesson> {
        LESSONS.iter().copied().filter(|lesson| lesson.chapter == *chapter).collect()
    }

    /// Returns where to begin or to go on; `None` if all lessons are done.
    fn first_open(&self) -> Option<&'static Lesson> {
        LESSONS.iter().copied().find(|lesson| !self.progress.is_done(lesson))
    }

    /// Lists the numbers of the lessons that a lesson needs.
    fn needs(&self, lesson: &Lesson) -> String {
        let numbers: Vec<String> = lesson.after_numbers().iter().map(usize::to_string).collect();
        self.layout.language.list(&numbers)
    }

    fn done(&self, lessons: &[&Lesson]) -> usize {
        lessons.iter().filter(|lesson| self.progress.is_done(lesson)).count()
    }
}

pub(crate) async fn show(request: HttpRequest, _: LabReader) -> HttpResult {
    let layout = Layout::of(&request).await?;
    layout.lead(&request).await;
    let progress = Progress::of(&request).await?;
    html(StatusCode::OK, &LabPage { layout, progress })
}

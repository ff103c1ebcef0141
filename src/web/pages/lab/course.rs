//! The course: what it is, how to begin, and the task of each level. It runs in a terminal.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::HttpResult;
use crate::web::middleware::LabReader;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use holdfast_base::messages::message;
use holdfast_judge::course::{LAST_LEVEL, task_text};

#[derive(Debug, Template)]
#[template(path = "course.html")]
pub(in crate::web) struct CoursePage {
    levels: Vec<LevelView>,
    layout: Layout,
}

#[derive(Debug)]
struct LevelView {
    heading: String,
    fault: String,
    task: String,
}

pub async fn show(request: HttpRequest, _: LabReader) -> HttpResult {
    html(StatusCode::OK, &page(Layout::of(&request).await?))
}

pub(in crate::web) fn page(layout: Layout) -> CoursePage {
    let levels = (1..=LAST_LEVEL).map(|level| {
        let part = |part: &str| layout.text(&format!("course-{level}-{part}"));
        let title = part("title");
        LevelView {
            heading: message!("course-level", level, title).text(layout.language),
            fault: part("fault"),
            task: task_text(level, layout.language),
        }
    });
    CoursePage { levels: levels.collect(), layout }
}

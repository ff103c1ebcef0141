//! The course: what it is, how to begin, and the task of each level. It runs in a terminal.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::HttpResult;
use crate::web::middleware::LabReader;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use holdfast_judge::course::LAST_LEVEL;

#[derive(Debug, Template)]
#[template(path = "course.html")]
struct CoursePage {
    layout: Layout,
}

impl CoursePage {
    fn of_level(&self, level: u32, part: &str) -> String {
        self.layout.text(&format!("course-{level}-{part}"))
    }
}

pub async fn show(request: HttpRequest, _: LabReader) -> HttpResult {
    html(StatusCode::OK, &CoursePage { layout: Layout::of(&request).await? })
}

//! The course: what it is, how level 1 was solved, how to begin, and the task of each level. It
//! runs in a terminal.

use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::HttpResult;
use crate::web::middleware::LabReader;
use crate::web::pages::judgement::draw;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::pages::timeline::TimelineView;
use crate::web::site::documents;
use holdfast_base::messages::{Language, message};
use holdfast_judge::course::{LAST_LEVEL, document, task_text};
use holdfast_judge::report::Violation;

/// The two requests of the check that is recorded in the document of the course.
static COLLISION: LazyLock<Option<Violation>> =
    LazyLock::new(|| serde_json::from_str(include_str!("course.json")).ok());

#[derive(Debug, Template)]
#[template(path = "course.html")]
pub(in crate::web) struct CoursePage {
    track: Option<TimelineView>,
    /// A sentence about the two requests of the drawing.
    collision: String,
    /// The recording, as HTML.
    solved: String,
    levels: Vec<LevelView>,
    layout: Layout,
}

#[derive(Debug)]
struct LevelView {
    heading: String,
    fault: String,
    task: String,
}

pub(crate) async fn show(request: HttpRequest, _: LabReader) -> HttpResult {
    html(StatusCode::OK, &page(Layout::of(&request).await?))
}

pub(in crate::web) fn page(layout: Layout) -> CoursePage {
    let language = layout.language;
    let levels = (1..=LAST_LEVEL).map(|level| {
        let part = |part: &str| layout.text(&format!("course-{level}-{part}"));
        let title = part("title");
        LevelView {
            heading: message!("course-level", level, title).text(language),
            fault: part("fault"),
            task: task_text(level, language),
        }
    });
    CoursePage {
        track: COLLISION.as_ref().map(|violation| draw(violation, "collision", language)),
        collision: COLLISION.as_ref().map(|it| sentence(it, language)).unwrap_or_default(),
        solved: documents::html_of(solved(language)),
        levels: levels.collect(),
        layout,
    }
}

/// Returns what a check says of a violation.
fn sentence(violation: &Violation, language: Language) -> String {
    let found = violation.text_in(language).unwrap_or_default();
    message!("course-violation", fault = "none", found).text(language)
}

/// Returns the section of the document in which level 1 is solved, with its heading.
fn solved(language: Language) -> &'static str {
    let document = document(language);
    let heading = format!("## {}\n", language.text("course-solved"));
    let section = document.find(&heading).map_or("", |begin| &document[begin..]);
    section.split("\n## ").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use holdfast_base::output::grouped;

    use super::*;

    #[test]
    fn recording_has_the_words_of_a_check() {
        let violation = COLLISION.as_ref().unwrap();
        for language in Language::ALL {
            let story = violation.events.iter().map(|event| {
                let ms = grouped(event.at_us / 1_000);
                format!("{ms:>8} ms  {}  {}\n", event.lane, event.text(language))
            });
            let rules = ["redis", "store", "lost", "held", "burn"];
            let rules = rules.map(|rule| language.text(&format!("course-rule-{rule}")));
            let sentence = sentence(violation, language);
            let recording = solved(language);
            for expected in story.chain(rules).chain([sentence]) {
                assert!(recording.contains(&expected), "{expected:?}: {recording}");
            }
        }
    }
}

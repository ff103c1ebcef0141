//! A run as one HTML file that plays without the server: style, script and data are inside.
//!
//! The run is embedded as JSON, so the lab opens the file again ([`embedded_json`]). The content
//! of a run is untrusted: the file's policy admits no script but its own, and no network.
//! Tests: `tests/pages/saved_run.rs`.

use actix_web::HttpRequest;
use askama::Template;

use super::forks::{self, ArmForks, ForkView};
use super::run_list;
use super::scenes::{Scene, scenes};
use super::views;
use crate::lab::lessons::{self, Lesson};
use crate::lab::run::LabRun;
use crate::web::Problem;
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::{hash_source, without_fonts};

const STYLES: [&str; 3] = [
    include_str!("../../../../static/holdfast.css"),
    include_str!("../../../../static/lab.css"),
    include_str!("../../../../static/swimlane.css"),
];
const SCRIPT: &str = include_str!("../../../../static/swimlane.js");
/// Start of the embedded run; it ends at the next tag.
const DATA_START: &str = "<script type=\"application/json\" id=\"holdfast-run\">";

#[derive(Debug, Template)]
#[template(path = "saved_run.html")]
struct SavedRun {
    layout: Layout,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    scenes: Vec<Scene>,
    style: String,
    json: String,
}

impl SavedRun {
    fn title(&self) -> String {
        run_list::title(&self.run.request, self.layout.language)
    }

    fn has_loss(&self) -> bool {
        self.run.outcome.arms.iter().any(|arm| !views::is_sound(arm))
    }

    fn policy(&self) -> String {
        let (style, script) = (hash_source(&self.style), hash_source(SCRIPT));
        format!("default-src 'none'; style-src {style}; script-src {script}")
    }
}

/// Renders the file of a run that is over, in the language of the request.
pub fn render(request: &HttpRequest, run: LabRun) -> Result<String, Problem> {
    let layout = Layout::minimal(request)?;
    let lesson = run.request.lesson.as_deref().and_then(lessons::named);
    let failed = |error: String| {
        tracing::error!(%error, "a run can't be saved");
        Problem::new(crate::web::ProblemType::InternalError, "the run can't be saved")
    };
    // In JSON, `<` occurs only inside texts, where the escape means the same.
    let json = serde_json::to_string(&run).map_err(|error| failed(error.to_string()))?;
    let json = json.replace('<', "\\u003c");
    let scenes = scenes(&run, layout.language);
    let style = without_fonts(&STYLES.concat());
    let page = SavedRun { layout, run, lesson, scenes, style, json };
    page.render().map_err(|error| failed(error.to_string()))
}

/// Returns the run in a file: the JSON that is embedded in a saved page, or the whole file.
pub fn embedded_json(file: &[u8]) -> &[u8] {
    let find = |bytes: &[u8], text: &str| {
        bytes.windows(text.len()).position(|window| window == text.as_bytes())
    };
    let Some(start) = find(file, DATA_START) else { return file };
    let json = &file[start + DATA_START.len()..];
    find(json, "<").map_or(json, |end| &json[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_in_page() {
        let page = format!("<title>x</title>{DATA_START}{{\"a\":\"\\u003c\"}}</script><p>");
        assert_eq!(embedded_json(page.as_bytes()), b"{\"a\":\"\\u003c\"}");
        assert_eq!(embedded_json(b"{}"), b"{}");
    }
}

//! A run as one HTML file that plays without the server and can be opened again. It is untrusted
//! input: checked against a run's limits, shown as text, and its policy admits no script but its
//! own, and no network. Tests: `tests/pages/saved_run.rs`.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::web::{Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use time::OffsetDateTime;

use super::compare;
use super::index;
use super::run::{self, run_address};
use super::traces::{self, MAX_DRAWN_FORKS, Player, Scene, player, scenes};
use super::upload;
use super::views;
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::LabReader;
use crate::web::middleware::lab_access::{Action, check_file_access, check_run_form};
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::{hash_source, without_fonts};
use crate::web::{HttpResult, Problem, ProblemType, State, see_other};
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::run::{LabRun, LabRunState};
use holdfast_lab::store;

const STYLES: [&str; 3] = [
    include_str!("../../../../static/holdfast.css"),
    include_str!("../../../../static/lab.css"),
    include_str!("../../../../static/swimlane.css"),
];
const SCRIPT: &str = include_str!("../../../../static/swimlane.js");
const DATA_START: &str = "<script type=\"application/json\" id=\"holdfast-run\">";

#[derive(Debug, Template)]
#[template(path = "saved_run.html")]
struct SavedRun {
    layout: Layout,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    player: Option<Player>,
    scenes: Vec<Scene>,
    style: String,
    json: String,
}

impl SavedRun {
    fn has_loss(&self) -> bool {
        self.run.outcome.arms.iter().any(|arm| !views::is_sound(arm))
    }

    fn policy(&self) -> String {
        let (style, script) = (hash_source(&self.style), hash_source(SCRIPT));
        format!("default-src 'none'; style-src {style}; script-src {script}")
    }
}

pub async fn save(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let run = find_run(&state, &id).await?;
    if !run.state.is_over() {
        return Ok(see_other(&run_address(&run.id)));
    }

    let name = format!("attachment; filename=\"holdfast-run-{}.html\"", run.id);
    let page = render(&request, run).map_err(|error| {
        tracing::error!(%error, "a run can't be saved");
        Problem::new(ProblemType::InternalError, "the run can't be saved")
    })?;

    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_DISPOSITION, name)).content_type("text/html; charset=utf-8");
    Ok(response.body(page))
}

fn render(request: &HttpRequest, run: LabRun) -> Result<String, Box<dyn std::error::Error>> {
    let layout = Layout::minimal(request)?;
    // In JSON, `<` occurs only inside texts, where the escape means the same.
    let json = serde_json::to_string(&run)?.replace('<', "\\u003c");
    let lesson = run.request.lesson.as_deref().and_then(lessons::named);
    let page = SavedRun {
        lesson,
        player: compare::player(&run, lesson, layout.language)
            .or_else(|| player(&run, lesson, &[], layout.language)),
        scenes: scenes(&run, layout.language),
        style: without_fonts(&STYLES.concat()),
        json,
        layout,
        run,
    };
    Ok(page.render()?)
}

pub async fn open(state: State, request: HttpRequest, body: Payload) -> HttpResult {
    check_file_access(&request).await?;
    let upload = upload::read(&request, body).await?;
    check_run_form(&request, &upload.csrf, Action::Load).await?;
    let run = upload::parse(embedded_json(&upload.file));
    match run.filter(is_possible) {
        Some(run) => {
            // One that is stored already stays as it is.
            store::import(&state.shop.pool, &run).await?;
            Ok(see_other(&run_address(&run.id)))
        }
        None => index::refuse_file(&request, "lab-file-invalid").await,
    }
}

/// Returns whether a lab can have saved this run: it is over, and its time possible.
fn is_possible(run: &LabRun) -> bool {
    // Clocks differ.
    let latest = OffsetDateTime::now_utc() + time::Duration::days(1);
    run.state.is_over() && run.created_at <= latest && run.created_at.year() >= 2000
}

/// Returns the run in a file: the JSON that is embedded in a saved page, or the whole file.
fn embedded_json(file: &[u8]) -> &[u8] {
    let find = |bytes: &[u8], text: &str| {
        bytes.windows(text.len()).position(|window| window == text.as_bytes())
    };
    let Some(start) = find(file, DATA_START) else { return file };
    let json = &file[start + DATA_START.len()..];
    find(json, "<").map_or(json, |end| &json[..end])
}

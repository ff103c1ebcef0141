//! A run as one HTML file that plays without the server and can be opened again. It is untrusted
//! input: checked against a run's limits, shown as text, and its policy admits no script but its
//! own, and no network. Tests: `tests/pages/saved_run.rs`.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::web::{Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use time::OffsetDateTime;

use super::compare;
use super::run;
use super::runs;
use super::traces::{self, DrawingBudget, DrawingPlayer, MAX_DRAWN_FORKS, Scene, player, scenes};
use super::upload::{self, FileError, MAX_FILE_BYTES};
use super::views;
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::LabReader;
use crate::web::middleware::lab_access::{Action, check_file_access, check_run_form};
use crate::web::offload::offload;
use crate::web::page_place::{PagePlace, render_within};
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::Layout;
use crate::web::pages::links::RECORDED_LESSONS;
use crate::web::pages::respond::{hash_source, saved_policy, without_fonts};
use crate::web::{HttpResult, Problem, ProblemType, State, see_other};
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::run::{LabRun, LabRunState};
use holdfast_shop::Error;

const STYLES: [&str; 3] = [
    include_str!("../../../../static/holdfast.css"),
    include_str!("../../../../static/lab.css"),
    include_str!("../../../../static/swimlane.css"),
];
const SCRIPT: &str = concat!(
    include_str!("../../../../static/tabs.js"),
    include_str!("../../../../static/swimlane.js"),
);

#[derive(Debug, Template)]
#[template(path = "saved_run.html")]
struct SavedRun {
    layout: Layout,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    player: Option<DrawingPlayer>,
    scenes: Vec<Scene>,
    crowds: Vec<Scene>,
    budget: DrawingBudget,
    style: String,
    json: String,
}

impl SavedRun {
    fn has_loss(&self) -> bool {
        self.run.outcome.arms.iter().any(|arm| !views::is_sound(arm))
    }

    /// Returns the next lesson of the site.
    fn next_recorded(&self) -> Option<&'static Lesson> {
        let mut names = RECORDED_LESSONS.iter();
        names.find(|name| self.lesson.is_some_and(|lesson| lesson.name == **name))?;
        lessons::named(names.next()?)
    }

    fn policy(&self) -> String {
        format!("{}; script-src {}", saved_policy(&self.style), hash_source(SCRIPT))
    }
}

pub(crate) async fn save(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let run = find_run(&state, &request, &id).await?;
    if !run.state.is_over() {
        return Ok(see_other(&format!("/lab/runs/{}", run.id)));
    }

    let name = format!("attachment; filename=\"holdfast-run-{}.html\"", run.id);
    let layout = Layout::minimal(&request)?;
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_DISPOSITION, name)).content_type("text/html; charset=utf-8");
    place.respond(response, move || draw(layout, run)).await
}

/// Draws the file of a run, to be called off the workers; without drawings if it could not be
/// opened again with them.
pub(in crate::web) fn draw(layout: Layout, run: LabRun) -> Result<String, Problem> {
    let json = serde_json::to_string(&run);
    let json = json.map_err(|error| Error::Bug(format!("no JSON of a run: {error}")))?;
    let (lesson, language) =
        (run.request.lesson.as_deref().and_then(lessons::named), layout.language);
    let budget = DrawingBudget::default();
    let player = compare::player(&run, lesson, language)
        .or_else(|| player(&run, lesson, &[], &budget, language));
    let (scenes, crowds) = scenes(&run, lesson, player.as_ref(), &budget, language);
    let mut page = SavedRun {
        lesson,
        player,
        scenes,
        crowds,
        budget,
        style: without_fonts(&STYLES.concat()),
        // In JSON, `<` occurs only inside texts, where the escape means the same.
        json: json.replace('<', "\\u003c"),
        layout,
        run,
    };

    match render_within(&page, MAX_FILE_BYTES) {
        Err(problem) if problem.problem_type() == ProblemType::PayloadTooLarge => {
            page.budget.close();
            page.player = None;
            (page.scenes, page.crowds) = (Vec::new(), Vec::new());
            render_within(&page, MAX_FILE_BYTES)
        }
        drawn => drawn,
    }
}

pub(crate) async fn open(state: State, request: HttpRequest, body: Payload) -> HttpResult {
    check_file_access(&request).await?;
    state.rate_limits.check_lab_file(&request).await?;
    let upload = upload::read(&request, body).await?;
    check_run_form(&request, &upload.csrf, Action::Load).await?;

    let parse = move || upload::parse_run(upload::embedded_json(&upload.file));
    match offload(parse).await? {
        Ok(imported) if is_possible(&imported.run) => {
            // One that is stored already stays as it is.
            imported.store(&state.shop.pool).await?;
            Ok(see_other(&format!("/lab/runs/{}", imported.run.id)))
        }
        Err(FileError::TooLong) => runs::refuse_file(&request, "lab-file-too-long").await,
        Ok(_) | Err(FileError::Invalid) => runs::refuse_file(&request, "lab-file-invalid").await,
    }
}

/// Returns whether a lab can have saved this run: it is over, and its time possible.
fn is_possible(run: &LabRun) -> bool {
    // Clocks differ.
    let latest = OffsetDateTime::now_utc() + time::Duration::days(1);
    run.state.is_over() && run.created_at <= latest && run.created_at.year() >= 2000
}

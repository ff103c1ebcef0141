//! The scene of a run with other causes, which a visitor drags: computed from the durations that
//! were recorded. It replaces the drawing of the run's page. While the run's load goes on, its
//! first scene as it was.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;

use super::traces::{DrawingBudget, draw_computed, first_scene};
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::LabReader;
use crate::web::page_place::{PagePlace, render};
use crate::web::pages::layout::Layout;
use crate::web::pages::timeline::TimelineView;
use crate::web::{HttpResult, Problem, State};
use holdfast_lab::what_if;

#[derive(Debug, Template)]
#[template(path = "parts/picture.html")]
struct Picture {
    layout: Layout,
    track: TimelineView,
    open_steps: bool,
    /// The result of its orders, with other causes.
    outcome: String,
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let run = find_run(&state, &request, &id).await?;
    let layout = Layout::minimal(&request)?;
    let values: Vec<(String, String)> =
        serde_urlencoded::from_str(request.query_string()).unwrap_or_default();
    // What is no number leaves the cause as it was; too large a one is bounded.
    let wanted = move |field: &str| values.iter().find(|(name, _)| name == field)?.1.parse().ok();

    let no_picture = Problem::no_page(request.path());
    let draw = move || {
        let language = layout.language;
        let (track, outcome) = if run.state.is_over() {
            let lanes = what_if::picture(&run, wanted).ok_or(no_picture)?;
            let outcome = what_if::outcome(&run, &lanes).text(language);
            (draw_computed(&lanes, &what_if::handles(&run), language), outcome)
        } else {
            let first = first_scene(&run, &DrawingBudget::default(), language);
            (first.ok_or(no_picture)?, String::new())
        };
        render(&Picture { layout, track, open_steps: false, outcome })
    };
    place.page(StatusCode::OK, draw).await
}

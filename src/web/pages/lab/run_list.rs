//! The stored runs in lists, and requests for new ones.

use crate::lab::run::{LabRunState, RunRequest};
use crate::lab::store::{self, RunSummary};
use crate::web::api::lab_runs::queue_run;
use crate::web::{AppState, HttpResult, Problem, see_other};

/// The state of a run, as a word and a symbol.
#[derive(Debug, Clone, Copy)]
pub struct RunStatusLabel {
    pub word: &'static str,
    pub symbol: &'static str,
}

pub fn run_address(id: &uuid::Uuid) -> String {
    format!("/lab/runs/{id}")
}

pub fn title(request: &RunRequest) -> String {
    match &request.lesson {
        Some(name) => name.clone(),
        None => format!("A load of your own: {}", request.strategies.join(", ")),
    }
}

pub fn status(state: LabRunState, claim_shown: Option<bool>) -> RunStatusLabel {
    let (word, symbol) = match (state, claim_shown) {
        (LabRunState::Queued, _) => ("waits to begin", "◔"),
        (LabRunState::Running, _) => ("goes on", "◑"),
        (LabRunState::Failed, _) => ("failed", "▲"),
        (LabRunState::Done, Some(true)) => ("claim shown", "✓"),
        (LabRunState::Done, Some(false)) => ("claim not shown", "✗"),
        (LabRunState::Done, None) => ("done", "●"),
    };
    RunStatusLabel { word, symbol }
}

pub async fn stored_runs(state: &AppState) -> Result<Vec<RunSummary>, Problem> {
    Ok(store::newest(&state.shop.pool, None, store::MAX_KEPT_RUNS).await?)
}

/// Queues a run and redirects to it, or to the run in progress, with a notice.
pub async fn start_run(state: &AppState, request: &RunRequest, guess: Option<&str>) -> HttpResult {
    Ok(see_other(&match queue_run(state, request, guess).await? {
        Ok(id) => run_address(&id),
        Err(other) => format!("{}?instead=1", run_address(&other)),
    }))
}

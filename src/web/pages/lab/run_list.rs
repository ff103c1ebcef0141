//! The stored runs in lists, and requests for new ones.

use crate::lab::lessons::Lesson;
use crate::lab::run::{LabRunState, RunRequest};
use crate::lab::store::{self, RunSummary};
use crate::web::api::lab_runs::queue_run;
use crate::web::{AppState, HttpResult, Problem, see_other};

/// A run in a list.
#[derive(Debug, Clone)]
pub struct RunListItem(pub RunSummary);

/// The state of a run, as a word and a symbol.
#[derive(Debug, Clone, Copy)]
pub struct RunStatusLabel {
    pub word: &'static str,
    pub symbol: &'static str,
}

impl RunListItem {
    pub fn address(&self) -> String {
        run_address(&self.0.id)
    }

    pub fn title(&self) -> String {
        title(&self.0.request)
    }

    pub fn status(&self) -> RunStatusLabel {
        status(self.0.state, self.0.claim_shown)
    }

    pub fn is_of(&self, lesson: &Lesson) -> bool {
        self.0.request.lesson.as_deref() == Some(lesson.name)
    }

    pub fn is_over(&self) -> bool {
        self.0.state.is_over()
    }
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

/// Returns the stored runs, newest first.
pub async fn stored_runs(state: &AppState) -> Result<Vec<RunListItem>, Problem> {
    let runs = store::newest(&state.shop.pool, None, store::MAX_KEPT_RUNS).await?;
    Ok(runs.into_iter().map(RunListItem).collect())
}

/// Queues a run and redirects to it, or to the run in progress, with a notice.
pub async fn start_run(state: &AppState, request: &RunRequest, guess: Option<&str>) -> HttpResult {
    Ok(see_other(&match queue_run(state, request, guess).await? {
        Ok(id) => run_address(&id),
        Err(other) => format!("{}?instead=1", run_address(&other)),
    }))
}

//! The stored runs in lists, and requests for new ones.

use crate::lab::lessons;
use crate::lab::run::{LabRunState, RunRequest};
use crate::lab::store::{self, NewRun, RunSummary};
use crate::messages::Language;
use crate::web::api::lab_runs::queue_run;
use crate::web::{AppState, HttpResult, Problem, see_other};

/// The state of a run, as a word and a symbol.
#[derive(Debug, Clone)]
pub struct RunStatusLabel {
    pub word: String,
    pub symbol: &'static str,
}

pub fn run_address(id: &uuid::Uuid) -> String {
    format!("/lab/runs/{id}")
}

pub fn title(request: &RunRequest, language: Language) -> String {
    match &request.lesson {
        Some(name) => lessons::named(name).map_or_else(|| name.clone(), |l| l.title(language)),
        None => {
            let strategies = language.list(&request.strategies);
            language.text_with("lab-own-run", &[("strategies", strategies.into())])
        }
    }
}

/// Returns the label of a state. Whether the run showed the claim has neutral symbols: the claim
/// may be that the books break.
pub fn status(state: LabRunState, claim_shown: Option<bool>, language: Language) -> RunStatusLabel {
    let (name, symbol) = match (state, claim_shown) {
        (LabRunState::Queued, _) => ("queued", "◔"),
        (LabRunState::Running, _) => ("running", "◑"),
        (LabRunState::Failed, _) => ("failed", "▲"),
        (LabRunState::Done, Some(true)) => ("shown", "●"),
        (LabRunState::Done, Some(false)) => ("not-shown", "○"),
        (LabRunState::Done, None) => ("done", "●"),
    };
    RunStatusLabel { word: language.text(&format!("lab-state-{name}")), symbol }
}

pub async fn stored_runs(state: &AppState) -> Result<Vec<RunSummary>, Problem> {
    Ok(store::newest(&state.shop.pool, None, store::MAX_KEPT_RUNS).await?)
}

/// Queues a run and redirects to it.
pub async fn start_run(state: &AppState, run: NewRun<'_>, query: &str) -> HttpResult {
    let id = queue_run(state, run).await?;
    Ok(see_other(&format!("{}{query}", run_address(&id))))
}

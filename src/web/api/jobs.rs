//! Scheduled jobs and order expiry: their state, retries, and the lab's tick.

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::responses::{json, no_content};
use crate::web::middleware::{AdminUser, Json, LabAdmin, body, lab_context};
use crate::web::{HttpResult, Problem, ProblemType, State};
use holdfast_base::messages::message;
use holdfast_shop::jobs::lab_tick::{self, OncePolicy};
use holdfast_shop::jobs::order_expiry::failures;
use holdfast_shop::jobs::{JobsStatus, RunOutcome};

/// Returns the state of all scheduled jobs and of order expiry (admin).
#[utoipa::path(get, path = "/api/jobs", tag = "proof",
    responses((status = 200, body = JobsStatus), (status = 403)))]
pub(crate) async fn read(state: State, _: AdminUser) -> HttpResult {
    json(state.jobs.status().await?)
}

/// Retries the failed expiry of an unpaid order now, with a new count of attempts (admin).
#[utoipa::path(post, path = "/api/jobs/expiry/{id}/retry", tag = "proof",
    responses((status = 204)))]
pub(crate) async fn retry_expiry(state: State, _: AdminUser, id: Path<String>) -> HttpResult {
    if failures::try_again(&state.shop, body::parse_order_id(&id)?).await? {
        no_content()
    } else {
        Err(Problem::missing(message!("problem-no-failed-expiry", order = id)))
    }
}

/// A tick of the lab's job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TickRequest {
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    pub once: OncePolicy,
}

/// The result of a tick at a replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct TickResult {
    /// `done`, `busy` (another replica runs it, or it waits for a retry), `already` (it was done
    /// before), `stale` (a later holder took over before the end was recorded), `failed` or
    /// `stopped` (the replica shuts down).
    pub outcome: &'static str,
    /// The job's result, or the reason of a failure.
    pub detail: Value,
    /// The probe points that were passed, if a trace was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub trace: Option<Vec<holdfast_shop::probe::TraceEvent>>,
}

/// Runs a tick of the lab's own job at this replica; the job records a mark (admin).
#[utoipa::path(post, path = "/api/lab/ticks", tag = "lab",
    responses((status = 200, body = TickResult)))]
pub(crate) async fn tick(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    tick: Json<TickRequest>,
) -> HttpResult {
    let context = lab_context(&request)?;
    let TickRequest { due_at, once } = tick.read()?;
    if !state.jobs.is_on() {
        return Err(Problem::new(ProblemType::Forbidden, message!("problem-jobs-off")));
    }

    let outcome = lab_tick::tick(&state.jobs, due_at, once, context.probe()).await?;
    let label = outcome.into_str();
    let detail = match outcome {
        RunOutcome::Done(result) => result,
        RunOutcome::Failed(why) => why.into(),
        _ => Value::Null,
    };

    json(TickResult { outcome: label, detail, trace: context.probe().trace() })
}

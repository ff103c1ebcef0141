//! Scheduled jobs and order expiry: their state, retries, and the lab's tick.

use actix_web::HttpRequest;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::responses::{json, no_content};
use crate::jobs::lab_tick;
use crate::jobs::order_expiry::failures;
use crate::jobs::status::{self, JobsStatus};
use crate::jobs::{OncePolicy, RunOutcome, store};
use crate::web::middleware::{AdminUser, Json, LabAdmin, body, lab_options};
use crate::web::{HttpResult, Problem, ProblemType, State};

/// Returns the state of all scheduled jobs and their latest runs, with replica, times, fence and
/// result (admin).
#[utoipa::path(get, path = "/api/jobs", tag = "proof",
    responses((status = 200, body = JobsStatus), (status = 403)))]
pub async fn read(state: State, _: AdminUser) -> HttpResult {
    json(status::jobs_status(&state.shop, &state.jobs).await?)
}

/// Retries a parked run now; it has all its attempts again (admin).
#[utoipa::path(post, path = "/api/jobs/runs/{id}/retry", tag = "proof",
    responses((status = 204)))]
pub async fn try_again(state: State, _: AdminUser, id: Path<String>) -> HttpResult {
    match id.parse() {
        Ok(id) if store::try_again(&state.shop.pool, id).await? => no_content(),
        _ => Err(Problem::not_found(format!("no run {id} is parked"))),
    }
}

/// Retries the failed expiry of an unpaid order now, with a new count of attempts (admin).
#[utoipa::path(post, path = "/api/jobs/expiry/{id}/retry", tag = "proof",
    responses((status = 204)))]
pub async fn retry_expiry(state: State, _: AdminUser, id: Path<String>) -> HttpResult {
    if failures::try_again(&state.shop, body::parse_order_id(&id)?).await? {
        no_content()
    } else {
        Err(Problem::not_found(format!("no unpaid order {id} has failed")))
    }
}

/// A tick of the lab's job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TickRequest {
    /// The time of the tick.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// The mechanism that prevents a second run.
    pub once: OncePolicy,
}

/// The result of a tick at a replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct TickResult {
    /// `done`, `busy` (another process holds the lock), `already` (the tick was done before),
    /// `not-yet` (its run waits for a retry, or another tick's run is open), `late` (a later holder
    /// took over before the end was recorded), `failed`, `parked` (failed too often) or `stopped`
    /// (the replica shuts down).
    pub outcome: &'static str,
    /// The job's result, or the reason of a failure.
    pub detail: Value,
    /// The process that holds the lock, if `busy`.
    pub holder: Option<String>,
    /// The probe points that were passed, if a trace was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub trace: Option<Vec<crate::probe::TraceEvent>>,
}

/// Runs a tick of the lab's own job at this replica; the job records a mark (admin).
#[utoipa::path(post, path = "/api/lab/ticks", tag = "lab",
    responses((status = 200, body = TickResult)))]
pub async fn tick(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    tick: Json<TickRequest>,
) -> HttpResult {
    let (options, tick) = (lab_options(&request)?, tick.read()?);
    if !state.jobs.is_on() {
        let detail = "jobs are off at this replica (HOLDFAST_JOBS)";
        return Err(Problem::new(ProblemType::Forbidden, detail));
    }
    let probe = options.probe.clone();
    let outcome = state.jobs.offer(lab_tick::NAME, tick.due_at, tick.once, probe).await?;
    let Some(outcome) = outcome else {
        let detail = "the lab's job is not among the jobs";
        return Err(Problem::new(ProblemType::InternalError, detail));
    };
    let label = outcome.label();
    let (detail, holder) = match outcome {
        RunOutcome::Done(result) => (result, None),
        RunOutcome::Failed(why) | RunOutcome::Parked(why) => (why.into(), None),
        RunOutcome::Busy(holder) => (Value::Null, holder.process),
        RunOutcome::Stale | RunOutcome::Stopped | RunOutcome::AlreadyDone | RunOutcome::NotDue => {
            (Value::Null, None)
        }
    };
    json(TickResult { outcome: label, detail, holder, trace: options.probe.trace() })
}

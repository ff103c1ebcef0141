//! Scheduled jobs and order expiry: their state, retries, and the lab's tick.

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::lab::require_lab;
use crate::jobs::lab_tick;
use crate::jobs::order_expiry::failures;
use crate::jobs::status::{self, JobsStatus};
use crate::jobs::{OncePolicy, RunOutcome, store};
use crate::web::middleware::auth::AdminUser;
use crate::web::middleware::body::{self, Json};
use crate::web::middleware::request_options::LabOptions;
use crate::web::openapi::ErrorResponses;
use crate::web::problems::{Problem, ProblemType};
use crate::web::{AppState, HttpResult};

/// Returns the state of all scheduled jobs and their latest runs, with replica, times, fence and
/// result (admin).
#[utoipa::path(get, path = "/api/jobs", tag = "proof", security(("session" = [])),
    responses((status = 200, body = JobsStatus), ErrorResponses))]
pub async fn standing(state: web::Data<AppState>, _: AdminUser) -> HttpResult {
    Ok(HttpResponse::Ok().json(status::jobs_status(&state.shop, &state.jobs, &state.unpaid).await?))
}

/// Retries a parked run now; it has all its attempts again (admin).
#[utoipa::path(post, path = "/api/jobs/runs/{id}/try-again", tag = "proof",
    security(("session" = [])), params(("id" = String, Path)),
    responses((status = 204), ErrorResponses))]
pub async fn try_again(
    state: web::Data<AppState>,
    _: AdminUser,
    id: web::Path<String>,
) -> HttpResult {
    let parked = match id.parse() {
        Ok(id) => store::try_again(&state.shop.pool, id).await?,
        Err(_) => false,
    };
    if parked {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::not_found(format!("no run {id} is parked")))
    }
}

/// Retries the failed expiry of an unpaid order now, with a new count of attempts (admin).
#[utoipa::path(post, path = "/api/jobs/unpaid/{id}/try-again", tag = "proof",
    security(("session" = [])), params(("id" = String, Path)),
    responses((status = 204), ErrorResponses))]
pub async fn try_unpaid_again(
    state: web::Data<AppState>,
    _: AdminUser,
    id: web::Path<String>,
) -> HttpResult {
    if failures::try_again(&state.shop, body::parse_order_id(&id)?).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::not_found(format!("no unpaid order {id} has failed")))
    }
}

/// The mechanism that prevents a second run of a tick of the lab's job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TickProtection {
    /// None: each replica that receives the tick runs it.
    Nothing,
    /// A lock that is released at the end of the run.
    Lock,
    /// The lock, and a row with the job's name and time, as the shop's own jobs have.
    LockAndRow,
}

/// A tick of the lab's job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TickRequest {
    /// The time of the tick.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// The mechanism that prevents a second run.
    pub once: TickProtection,
}

/// The result of a tick at a replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct TickResult {
    /// `done`, `busy` (another process holds the lock), `already` (the tick was done before),
    /// `not-yet` (its run waits for a retry, or another tick's run is open), `late` (a later holder
    /// took over before the end was recorded), `failed`, `parked` (failed too often) or `stopped`
    /// (the replica shuts down).
    pub came: &'static str,
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
#[utoipa::path(post, path = "/api/lab/ticks", tag = "lab", security(("session" = [])),
    request_body = TickRequest, responses((status = 200, body = TickResult), ErrorResponses))]
pub async fn tick(
    state: web::Data<AppState>,
    _: AdminUser,
    options: LabOptions,
    tick: Json<TickRequest>,
) -> HttpResult {
    let options = options.read()?;
    let tick = tick.read()?;
    require_lab(&state)?;
    if !state.jobs.is_on() {
        let detail = "jobs are off at this replica (HOLDFAST_JOBS)";
        return Err(Problem::new(ProblemType::Forbidden, detail));
    }
    let once = match tick.once {
        TickProtection::Nothing => OncePolicy::Nothing,
        TickProtection::Lock => OncePolicy::Lock,
        TickProtection::LockAndRow => OncePolicy::LockAndRow,
    };
    let probe = options.probe.clone();
    let outcome = state.jobs.offer(lab_tick::NAME, tick.due_at, once, probe).await?;
    let Some(outcome) = outcome else {
        return Err(Problem::new(
            ProblemType::InternalError,
            "the lab's job is not among the jobs",
        ));
    };
    let word = outcome.label();
    let (detail, holder) = match outcome {
        RunOutcome::Done(result) => (result, None),
        RunOutcome::Failed(why) | RunOutcome::Parked(why) => (why.into(), None),
        RunOutcome::Busy(holder) => (Value::Null, holder.process),
        RunOutcome::Stale | RunOutcome::Stopped | RunOutcome::AlreadyDone | RunOutcome::NotDue => {
            (Value::Null, None)
        }
    };
    let trace = options.probe.trace();
    Ok(HttpResponse::Ok().json(TickResult { came: word, detail, holder, trace }))
}

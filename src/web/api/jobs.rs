//! What the shop does when nobody is asking: how it stands, a parked run that is to be tried again,
//! and a tick that the lab gives.

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::lab::lab_is_on;
use crate::jobs::lab_tick;
use crate::jobs::unpaid::failures;
use crate::jobs::view::{self, Standing};
use crate::jobs::{Came, Once, store};
use crate::web::auth::Admin;
use crate::web::body::{self, Json};
use crate::web::conditions::Wished;
use crate::web::openapi::Refusals;
use crate::web::problems::{Kind, Problem};
use crate::web::{HttpResult, Site};

/// How all scheduled jobs stand, and their latest runs: who, when, for how long, with which fence,
/// and what came of it (admin).
#[utoipa::path(get, path = "/api/jobs", tag = "proof", security(("session" = [])),
    responses((status = 200, body = Standing), Refusals))]
pub async fn standing(site: web::Data<Site>, _: Admin) -> HttpResult {
    Ok(HttpResponse::Ok().json(view::standing(&site.shop, &site.jobs, &site.unpaid).await?))
}

/// Tries a parked run again at once, with all its attempts before it (admin).
#[utoipa::path(post, path = "/api/jobs/runs/{id}/try-again", tag = "proof",
    security(("session" = [])), params(("id" = String, Path)),
    responses((status = 204), Refusals))]
pub async fn try_again(site: web::Data<Site>, _: Admin, id: web::Path<String>) -> HttpResult {
    let parked = match id.parse() {
        Ok(id) => store::try_again(&site.shop.pool, id).await?,
        Err(_) => false,
    };
    if parked {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::new(Kind::NotFound, format!("no run {id} is parked")))
    }
}

/// Lets an unpaid order that could not be given back be tried again now, as if for the first time
/// (admin).
#[utoipa::path(post, path = "/api/jobs/unpaid/{id}/try-again", tag = "proof",
    security(("session" = [])), params(("id" = String, Path)),
    responses((status = 204), Refusals))]
pub async fn try_unpaid_again(
    site: web::Data<Site>,
    _: Admin,
    id: web::Path<String>,
) -> HttpResult {
    if failures::try_again(&site.shop, body::order_id(&id)?).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::new(Kind::NotFound, format!("no unpaid order {id} has failed")))
    }
}

/// What keeps a tick of the lab's from being run twice.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keeper {
    /// Nothing.
    Nothing,
    /// A lock that is given back at the end.
    Lock,
    /// The lock, and a row of the job's name and time: what the shop's own jobs have.
    LockAndRow,
}

/// A tick.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tick {
    /// For which time.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// What keeps it from being run twice.
    pub once: Keeper,
}

/// What a replica did about it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ticked {
    /// `done`, `busy` (somebody else is at it), `already` (it was done before), `not-yet`, `late`
    /// (somebody else had followed by the time it ended), `failed`, `parked` or `stopped`.
    pub came: &'static str,
    /// What the job says, or why it failed.
    pub detail: Value,
    /// Who has the lock, where that is why.
    pub holder: Option<String>,
    /// What was passed on the way, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub trace: Option<Vec<crate::probe::Event>>,
}

/// Tells this replica that a tick of the lab's own job has come; the job leaves a mark (admin).
#[utoipa::path(post, path = "/api/lab/ticks", tag = "lab", security(("session" = [])),
    request_body = Tick, responses((status = 200, body = Ticked), Refusals))]
pub async fn tick(
    site: web::Data<Site>,
    _: Admin,
    conditions: Wished,
    tick: Json<Tick>,
) -> HttpResult {
    let conditions = conditions.read()?;
    let tick = tick.read()?;
    lab_is_on(&site)?;
    if !site.jobs.is_on() {
        let detail = "jobs are off at this replica (HOLDFAST_JOBS)";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let once = match tick.once {
        Keeper::Nothing => Once::Nothing,
        Keeper::Lock => Once::Lock,
        Keeper::LockAndRow => Once::LockAndRow,
    };
    let probe = conditions.probe.clone();
    let came = site.jobs.offer(lab_tick::NAME, tick.due_at, once, probe).await?;
    let Some(came) = came else {
        return Err(Problem::new(Kind::InternalError, "the lab's job is not among the jobs"));
    };
    let word = came.word();
    let (detail, holder) = match came {
        Came::Done(result) => (result, None),
        Came::Failed(why) | Came::Parked(why) => (why.into(), None),
        Came::Busy(holder) => (Value::Null, holder.process),
        Came::Late | Came::Stopped | Came::Already | Came::NotYet => (Value::Null, None),
    };
    let trace = conditions.probe.trace();
    Ok(HttpResponse::Ok().json(Ticked { came: word, detail, holder, trace }))
}

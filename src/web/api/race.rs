//! Races: two buyers or a crowd order the last units at the same time, without signing in.

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use uuid::Uuid;

use super::lab;
use super::lab_runs::parse_run;
use super::responses::json;
use crate::web::middleware::{Json, SignedInUser, begin_command, csrf, find_caller};
use crate::web::offload::offload;
use crate::web::page_place::PagePlace;
use crate::web::{AppState, HttpResult, Problem, State};
use holdfast_base::messages::message;
use holdfast_lab::race::model::{Race, RaceRequest};
use holdfast_lab::run::LabRunState;
use holdfast_lab::store::{self, StoredRun};
use holdfast_shop::Error;
use holdfast_shop::probe::PausedRequest;

const JSON: &str = "application/json";

/// Runs a race: throw-away buyers order a throw-away item over HTTP, spread over the replicas.
///
/// Needs no sign-in, and the lab must be on. A few races run at once; others are queued (202).
#[utoipa::path(post, path = "/api/race", tag = "race", security(()),
    responses((status = 200, body = Race), (status = 202, body = Race), (status = 403)))]
pub(crate) async fn create(
    state: State,
    request: HttpRequest,
    race: Json<RaceRequest>,
) -> HttpResult {
    let race = run_race(&state, &request, || race.read()).await?;
    let mut response = HttpResponse::Ok();
    if race.state != LabRunState::Done {
        response.status(StatusCode::ACCEPTED);
        response.insert_header((LOCATION, format!("/api/race/{}", race.id)));
    }
    let text = offload(move || race_json(&race)).await??;
    Ok(response.content_type(JSON).body(text))
}

/// Returns a race; with its result once it is done.
#[utoipa::path(get, path = "/api/race/{id}", tag = "race", security(()),
    responses((status = 200, body = Race), (status = 403)))]
pub(crate) async fn read(state: State, request: HttpRequest, id: Path<String>) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let race = find_race(&state, &id).await?;
    let mut response = HttpResponse::Ok();
    response.content_type(JSON);
    place.respond(response, move || race_json(&race)).await
}

/// Serializes a race, to be called off the workers: one of 200 buyers has hundreds of kilobytes.
fn race_json(race: &Race) -> Result<String, Problem> {
    let text = serde_json::to_string(race);
    text.map_err(|error| Error::Bug(format!("no JSON of a race: {error}")).into())
}

/// Lists the caller's own requests that are paused at this replica: a race resumes its buyers'.
#[utoipa::path(get, path = "/api/race/paused", tag = "race",
    responses((status = 200, body = [PausedRequest]), (status = 403)))]
pub(crate) async fn paused(state: State, user: SignedInUser) -> HttpResult {
    state.require_lab()?;
    json(state.board.paused(Some(user.caller.id.0)))
}

/// Resumes a paused request of the caller.
#[utoipa::path(post, path = "/api/race/paused/{id}", tag = "race", responses((status = 204)))]
pub(crate) async fn resume(state: State, user: SignedInUser, id: Path<String>) -> HttpResult {
    state.require_lab()?;
    lab::resume_of(&state, Some(user.caller.id), &id)
}

/// Runs the race that `read` returns, if the lab is on, the request comes from this site, and its
/// address is within the rate limit.
pub(crate) async fn run_race(
    state: &AppState,
    request: &HttpRequest,
    read: impl FnOnce() -> Result<RaceRequest, Problem>,
) -> Result<Race, Problem> {
    state.require_lab()?;
    csrf::check_origin(request)?;
    let race = read()?;
    if let Some((field, why)) = race.invalid_field() {
        return Err(Problem::field(field, why));
    }

    let student = find_caller(request).await?.filter(|caller| caller.is_student);
    state.rate_limits.check_race(request, student.map(|caller| caller.id)).await?;
    begin_command(request);
    let stored = state.races.run(race).await?;
    parse_run(stored).await.map(Race::from)
}

pub(crate) async fn find_race(state: &AppState, id: &str) -> Result<Race, Problem> {
    state.require_lab()?;
    let not_found = || Problem::missing(message!("problem-missing-race", id));
    let parsed = Uuid::parse_str(id).map_err(|_| not_found())?;
    let run = store::find_stored(&state.shop.pool, parsed).await?;
    let run = run.filter(StoredRun::is_race).ok_or_else(not_found)?;
    parse_run(run).await.map(Race::from)
}

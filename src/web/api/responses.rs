//! Responses of the API's handlers.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::web::{HttpResult, Problem};
use holdfast_shop::probe::Probe;
use holdfast_shop::{Execution, Failure, StoredResponse};

pub(super) fn json(body: impl Serialize) -> HttpResult {
    Ok(HttpResponse::Ok().json(body))
}

pub(super) fn no_content() -> HttpResult {
    Ok(HttpResponse::NoContent().finish())
}

/// Builds the response of a command from its stored bytes; replays carry `Idempotent-Replayed`. If
/// a trace was requested, the response of a command that was executed now, or the problem, has it.
/// The trace is not stored, so a replay has none.
pub(super) fn command_response(result: Result<Execution, Failure>, probe: &Probe) -> HttpResult {
    let executed = result.map_err(Problem::from).and_then(|executed| add_trace(executed, probe));
    let Execution { response, replayed, executed_by } =
        executed.map_err(|problem| match probe.trace() {
            Some(trace) => problem.with("trace", serde_json::json!(trace)),
            None => problem,
        })?;
    let mut response = stored_response(response);
    if let Some(Ok(replica)) = executed_by.as_deref().map(HeaderValue::from_str) {
        response.headers_mut().insert(HeaderName::from_static("holdfast-replica"), replica);
    }
    if replayed {
        let name = HeaderName::from_static("idempotent-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Builds the response of a command that creates something, with its address. A replay has it too:
/// `address` computes it from the stored body.
pub(super) fn creation_response<T: DeserializeOwned>(
    result: Result<Execution, Failure>,
    probe: &Probe,
    address: impl FnOnce(T) -> String,
) -> HttpResult {
    let created: Option<T> = result.as_ref().ok().and_then(|it| it.response.read().ok());
    let response = command_response(result, probe)?;
    Ok(match created {
        Some(created) => with_location(response, address(created)),
        None => response,
    })
}

pub(super) fn with_location(mut response: HttpResponse, address: String) -> HttpResponse {
    if let Ok(address) = HeaderValue::try_from(address) {
        response.headers_mut().insert(LOCATION, address);
    }
    response
}

fn add_trace(executed: Execution, probe: &Probe) -> Result<Execution, Problem> {
    match probe.trace() {
        Some(trace) if !executed.replayed => {
            let mut body: Value = executed.response.read()?;
            body["trace"] = serde_json::json!(trace);
            let response = StoredResponse::json(executed.response.status, &body)?;
            Ok(Execution { response, ..executed })
        }
        _ => Ok(executed),
    }
}

pub(super) fn stored_response(response: StoredResponse) -> HttpResponse {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::OK);
    HttpResponse::build(status).content_type("application/json").body(response.body)
}

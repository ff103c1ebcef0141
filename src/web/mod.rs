//! HTTP: the JSON API, the pages, and the parts they share.
//!
//! A handler parses the request, checks the caller, calls one function of the shop and renders its
//! result. No code in this module decides about stock or money.

pub mod api;
pub mod middleware;
pub mod openapi;
pub mod pages;
pub mod problems;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, Route};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::jobs::{self, order_expiry::OrderExpiry};
use crate::lab::interleaving::Games;
use crate::probe::PauseBoard;
use crate::shop::{Execution, Shop, StoredResponse};
use api::health::Readiness;
use middleware::admission::RateLimits;
use middleware::auth::SessionCache;
use middleware::body;
use problems::{Problem, ProblemType};

/// State that all handlers of one replica share.
#[derive(Debug)]
pub struct AppState {
    pub shop: Shop,
    pub unpaid: OrderExpiry,
    pub replica: String,
    pub lab: bool,
    /// The requests that the lab holds at a probe point.
    pub board: PauseBoard,
    pub games: Games,
    pub jobs: jobs::Scheduler,
    /// Cancelled when the replica shuts down; event streams end then.
    pub stop: CancellationToken,
    pub sessions: SessionCache,
    pub rate_limits: RateLimits,
    /// Cached result of the readiness check of Postgres and Redis.
    pub readiness: Readiness,
    pub metrics: PrometheusHandle,
}

/// Result of a handler.
pub type HttpResult = Result<HttpResponse, Problem>;

/// Registers all routes of the shop.
pub fn configure(config: &mut ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(body::MAX_BODY_BYTES))
        .app_data(body::query_config())
        .configure(api::configure)
        .configure(openapi::configure)
        .configure(pages::configure)
        .default_service(web::to(not_found));
}

/// A resource that responds 405 to a method without a route; `allowed` is the `Allow` header.
pub fn resource(path: &str, allowed: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        let detail = format!("{} is not for {}; {allowed} is", request.path(), request.method());
        Err::<HttpResponse, _>(
            Problem::new(ProblemType::InvalidRequest, detail)
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .header(ALLOW, HeaderValue::from_static(allowed)),
        )
    }))
}

/// A resource with a GET and a POST route: a page, or the address of its form.
pub fn get_post(path: &str, get: Route, post: Route) -> Resource {
    resource(path, "GET, POST").route(get).route(post)
}

async fn not_found(request: HttpRequest) -> HttpResult {
    Err(Problem::not_found(format!("there is nothing at {}", request.path())))
}

/// Builds the response of a command from its stored bytes; replays carry `Idempotent-Replayed`.
pub fn command_response(executed: Execution) -> HttpResponse {
    let Execution { response: StoredResponse { status, body }, replayed } = executed;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = HttpResponse::build(status);
    response.content_type("application/json");
    if replayed {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    response.body(body)
}

/// Returns the response of a request that has no idempotency key, and so is never a replay.
pub fn stored_response(response: StoredResponse) -> HttpResponse {
    command_response(Execution { response, replayed: false })
}

//! HTTP: the JSON API, the pages, and what both need.
//!
//! A handler parses, checks who asks, calls one function of the shop, and dresses its outcome.
//! Nothing here decides anything about stock or money.

pub mod address;
pub mod admission;
pub mod api;
pub mod auth;
pub mod body;
pub mod conditions;
pub mod envelope;
pub mod openapi;
pub mod pages;
pub mod problems;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, Route};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::jobs::{self, unpaid::Unpaid};
use crate::lab::scheduler::Games;
use crate::probe::Board;
use crate::shop::{Executed, Shop, StoredResponse};
use admission::Door;
use api::health::Readiness;
use auth::Sessions;
use problems::{Kind, Problem};

/// What every handler of one replica shares.
#[derive(Debug)]
pub struct Site {
    pub shop: Shop,
    pub unpaid: Unpaid,
    pub replica: String,
    pub lab: bool,
    /// Who is held at a point of the lab's.
    pub board: Board,
    pub games: Games,
    pub jobs: jobs::Scheduler,
    /// Cancelled when the replica is to end: whoever follows something is let go.
    pub stop: CancellationToken,
    pub sessions: Sessions,
    pub door: Door,
    /// Whether Postgres and Redis answered just now.
    pub readiness: Readiness,
    pub metrics: PrometheusHandle,
}

/// What a handler returns.
pub type HttpResult = Result<HttpResponse, Problem>;

/// All addresses of the shop.
pub fn configure(config: &mut ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(body::LARGEST_BODY))
        .app_data(body::query_config())
        .configure(api::configure)
        .configure(openapi::configure)
        .configure(pages::configure)
        .default_service(web::to(nowhere));
}

/// An address that answers 405 to every method it has no route for. `allowed` is what it says then.
pub fn resource(path: &str, allowed: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        let detail = format!("{} is not for {}; {allowed} is", request.path(), request.method());
        Err::<HttpResponse, _>(
            Problem::new(Kind::InvalidRequest, detail)
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .header(ALLOW, HeaderValue::from_static(allowed)),
        )
    }))
}

/// An address that is read and posted to: a page, or where its form is sent.
pub fn get_post(path: &str, get: Route, post: Route) -> Resource {
    resource(path, "GET, POST").route(get).route(post)
}

async fn nowhere(request: HttpRequest) -> HttpResult {
    Err(Problem::new(Kind::NotFound, format!("there is nothing at {}", request.path())))
}

/// Returns the stored bytes of an executed command, and a header if they are a replay.
pub fn answer(executed: Executed) -> HttpResponse {
    let Executed { response: StoredResponse { status, body }, replayed } = executed;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = HttpResponse::build(status);
    response.content_type("application/json");
    if replayed {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    response.body(body)
}

/// Returns the response of a request that has no idempotency key, and so is never a replay.
pub fn created(response: StoredResponse) -> HttpResponse {
    answer(Executed { response, replayed: false })
}

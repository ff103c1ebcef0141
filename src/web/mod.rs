//! HTTP: the JSON API, the pages, and the parts they share.
//!
//! A handler parses the request, checks the caller, calls one function of the shop and renders its
//! result. No code in this module decides about stock or money.

pub mod demo_user;
pub mod last_catalog;
pub mod problems;
pub mod state;

pub mod middleware;
mod paging;
pub mod readiness;
mod routes;
pub mod run_frames;

pub mod api;
pub mod openapi;
pub mod pages;

pub mod border;
mod client_stream;
mod offload;
mod page_place;
pub mod server;
pub mod site;

use actix_web::http::header::LOCATION;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use holdfast_base::metrics::MetricDefinition;

use api::health;
use middleware::{body, connections, request_notes};
pub use problems::{HttpResult, Problem, ProblemType};
pub(crate) use routes::see_other;
pub use state::{AppState, MAX_EVENT_STREAMS, State, app_state};

/// Registers all routes of the shop.
pub fn configure(config: &mut ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(body::MAX_BODY_BYTES))
        .configure(api::configure)
        .configure(openapi::configure)
        .configure(pages::configure)
        .default_service(web::to(not_found));
}

/// The metrics that the server and its endpoints record.
pub(crate) fn metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    [connections::METRICS, request_notes::METRICS, health::METRICS, readiness::METRICS]
        .into_iter()
        .flatten()
}

/// Redirects a page's address with a slash at its end to the one without.
async fn not_found(request: HttpRequest) -> HttpResult {
    let path = request.uri().path();
    if request.method().is_safe()
        && let Some(page) = path.strip_suffix('/')
        && !routes::is_under(page, &["/api", "/static"])
    {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let address = format!("{page}{query}");
        // `//evil.example/` is no address of this site.
        if middleware::csrf::local_path(&address) == address {
            return Ok(HttpResponse::PermanentRedirect()
                .insert_header((LOCATION, address))
                .finish());
        }
    }
    Err(Problem::no_page(request.path()))
}

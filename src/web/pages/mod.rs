//! The pages: one file per page, with its `Template` struct and its handlers.
//!
//! Everything a shopper does works without JavaScript: a form posts, and the response redirects to
//! a page that can be reloaded. A handler that fails returns a [`super::problems::Problem`];
//! [`error_pages`] renders it as a page for a browser.

pub mod account;
pub mod assets;
pub mod audit;
pub mod basket;
pub mod basket_cookie;
mod duplicate_submit;
pub mod error_pages;
mod form_errors;
pub mod format;
pub mod item;
pub mod jobs;
pub mod lab;
pub mod layout;
mod ledger_rows;
pub mod locks;
pub mod order;
pub mod orders;
pub mod place;
pub mod problems;
pub mod rejection;
pub mod scheduler;
pub mod sign_in;
pub mod sign_up;
pub mod storefront;

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::middleware::Compress;
use actix_web::web::{self, ServiceConfig, get, post};
use actix_web::{HttpRequest, HttpResponse, Route};
use askama::Template;

use super::middleware::{body, csrf};
use super::problems::{Problem, ProblemType};
use super::{HttpResult, get_post, resource};

pub fn configure(config: &mut ServiceConfig) {
    let form_config = web::FormConfig::default()
        .limit(body::MAX_BODY_BYTES)
        .error_handler(|error, _| csrf::form_problem(&error).into());
    config
        .app_data(form_config)
        .service(resource("/", "GET").route(get().to(storefront::show)))
        .service(resource("/bar", "GET").route(get().to(layout::bar)))
        .service(get_post("/basket", get().to(basket::show), post().to(basket::change)))
        .service(get_post("/basket/lines", back_to("/"), post().to(basket::add)))
        .service(get_post("/orders", get().to(orders::list), post().to(place::place)))
        .service(resource("/orders/{id}", "GET").route(get().to(order::show)))
        .service(get_post("/orders/{id}/pay", back_up(), post().to(order::pay)))
        .service(get_post("/orders/{id}/cancel", back_up(), post().to(order::cancel)))
        .service(get_post("/orders/{id}/refund", back_up(), post().to(order::refund)))
        .service(resource("/items/{sku}", "GET").route(get().to(item::show)))
        .service(get_post("/items/{sku}/stock", back_up(), post().to(item::restock)))
        .service(get_post("/items/{sku}/limit", back_up(), post().to(item::limit)))
        .service(resource("/account", "GET").route(get().to(account::show)))
        .service(get_post("/account/top-ups", back_up(), post().to(account::top_up)))
        .service(resource("/audit", "GET").route(get().to(audit::show)))
        .service(resource("/locks", "GET").route(get().to(locks::show)))
        .service(resource("/jobs", "GET").route(get().to(jobs::show)))
        .service(get_post("/jobs/{id}/try-again", back_to("/jobs"), post().to(jobs::try_again)))
        .service(get_post(
            "/jobs/unpaid/{id}/try-again",
            back_to("/jobs"),
            post().to(jobs::try_unpaid_again),
        ))
        .service(get_post(
            "/lab/scheduler",
            get().to(scheduler::choose),
            post().to(scheduler::begin),
        ))
        .service(resource("/lab/scheduler/{id}", "GET").route(get().to(scheduler::show)))
        .service(get_post("/lab/scheduler/{id}/steps", back_up(), post().to(scheduler::step)))
        .configure(lab::configure)
        .service(resource("/problems", "GET").route(get().to(problems::list)))
        .service(resource("/problems/{name}", "GET").route(get().to(problems::show)))
        .service(get_post("/sign-in", get().to(sign_in::show), post().to(sign_in::sign_in)))
        .service(get_post("/sign-up", get().to(sign_up::show), post().to(sign_up::sign_up)))
        .service(get_post("/sign-out", back_to("/"), post().to(sign_in::sign_out)))
        .service(
            resource("/static/{name}", "GET")
                .wrap(Compress::default())
                .route(get().to(assets::serve)),
        );
}

/// Redirects a GET of a form's address to the form's page. A browser sends it when a page with a
/// rejection is reloaded or bookmarked.
fn back_to(page: &'static str) -> Route {
    get().to(async move || see_other(page))
}

/// Redirects like [`back_to`], for a form whose address is one segment below its page's.
fn back_up() -> Route {
    get().to(async |request: HttpRequest| {
        // The raw path: its percent-encoding is kept.
        let path = request.uri().path();
        see_other(path.rsplit_once('/').map_or("/", |(page, _)| page))
    })
}

/// Renders a page as a response.
fn html(status: StatusCode, page: &impl Template) -> HttpResult {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a template failed");
        Problem::new(ProblemType::InternalError, "the page can't be drawn")
    })?;
    Ok(HttpResponse::build(status).content_type("text/html; charset=utf-8").body(text))
}

/// Redirects with 303: the response to every form that succeeded.
fn see_other(place: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, place)).finish()
}

//! The pages: a Template struct and its handler each, one file a page.
//!
//! Everything a shopper does works without JavaScript: a form posts, the answer is a redirect to a
//! page that can be reloaded. A handler that fails returns a [`super::problems::Problem`];
//! [`dress`] turns it into a page where a person is asking.

pub mod account;
pub mod assets;
pub mod audit;
pub mod basket;
pub mod basket_cookie;
mod copies;
pub mod door;
pub mod dress;
mod entries;
pub mod frame;
pub mod item;
pub mod jobs;
pub mod lab;
pub mod locks;
pub mod notice;
pub mod order;
pub mod orders;
pub mod place;
pub mod problems;
pub mod scheduler;
pub mod sign_in;
pub mod sign_up;
pub mod storefront;
pub mod words;

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::middleware::Compress;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, Route};
use askama::Template;

use super::problems::{Kind, Problem};
use super::{body, resource};

pub fn configure(config: &mut ServiceConfig) {
    let form_config = web::FormConfig::default()
        .limit(body::LARGEST_BODY)
        .error_handler(|error, _| door::unreadable(&error).into());
    config
        .app_data(form_config)
        .service(resource("/", "GET").route(web::get().to(storefront::show)))
        .service(resource("/bar", "GET").route(web::get().to(frame::bar)))
        .service(
            resource("/basket", "GET, POST")
                .route(web::get().to(basket::show))
                .route(web::post().to(basket::change)),
        )
        .service(form("/basket/lines", back_to("/"), web::post().to(basket::add)))
        .service(
            resource("/orders", "GET, POST")
                .route(web::get().to(orders::list))
                .route(web::post().to(place::place)),
        )
        .service(resource("/orders/{id}", "GET").route(web::get().to(order::show)))
        .service(form("/orders/{id}/pay", back_up(), web::post().to(order::pay)))
        .service(form("/orders/{id}/cancel", back_up(), web::post().to(order::cancel)))
        .service(form("/orders/{id}/refund", back_up(), web::post().to(order::refund)))
        .service(resource("/items/{sku}", "GET").route(web::get().to(item::show)))
        .service(form("/items/{sku}/stock", back_up(), web::post().to(item::restock)))
        .service(form("/items/{sku}/limit", back_up(), web::post().to(item::limit)))
        .service(resource("/account", "GET").route(web::get().to(account::show)))
        .service(form("/account/top-ups", back_up(), web::post().to(account::top_up)))
        .service(resource("/audit", "GET").route(web::get().to(audit::show)))
        .service(resource("/locks", "GET").route(web::get().to(locks::show)))
        .service(resource("/jobs", "GET").route(web::get().to(jobs::show)))
        .service(form("/jobs/{id}/try-again", back_to("/jobs"), web::post().to(jobs::try_again)))
        .service(form(
            "/jobs/unpaid/{id}/try-again",
            back_to("/jobs"),
            web::post().to(jobs::try_unpaid_again),
        ))
        .service(
            resource("/lab/scheduler", "GET, POST")
                .route(web::get().to(scheduler::choose))
                .route(web::post().to(scheduler::begin)),
        )
        .service(resource("/lab/scheduler/{id}", "GET").route(web::get().to(scheduler::show)))
        .service(form("/lab/scheduler/{id}/steps", back_up(), web::post().to(scheduler::step)))
        .configure(lab::configure)
        .service(resource("/problems", "GET").route(web::get().to(problems::list)))
        .service(resource("/problems/{name}", "GET").route(web::get().to(problems::show)))
        .service(
            resource("/sign-in", "GET, POST")
                .route(web::get().to(sign_in::show))
                .route(web::post().to(sign_in::enter)),
        )
        .service(
            resource("/sign-up", "GET, POST")
                .route(web::get().to(sign_up::show))
                .route(web::post().to(sign_up::join)),
        )
        .service(form("/sign-out", back_to("/"), web::post().to(sign_in::leave)))
        .service(
            resource("/static/{name}", "GET")
                .wrap(Compress::default())
                .route(web::get().to(assets::serve)),
        );
}

/// The address of a form that is not its page's own.
fn form(path: &str, back: Route, sent: Route) -> Resource {
    resource(path, "GET, POST").route(back).route(sent)
}

/// Leads whoever asks for the address of a form to the page that the form stands on: so does a
/// reload of a refusal, and a bookmark of one.
fn back_to(page: &'static str) -> Route {
    web::get().to(async move || see_other(page))
}

/// The same for a form whose address is one below its page's.
fn back_up() -> Route {
    web::get().to(async |request: HttpRequest| {
        // As it was asked for: what was encoded in it stays so.
        let path = request.uri().path();
        see_other(path.rsplit_once('/').map_or("/", |(page, _)| page))
    })
}

fn html(status: StatusCode, page: &impl Template) -> Result<HttpResponse, Problem> {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a template failed");
        Problem::new(Kind::InternalError, "the page can't be drawn")
    })?;
    Ok(HttpResponse::build(status).content_type("text/html; charset=utf-8").body(text))
}

/// "Look there": the answer to every form that did what it should.
fn see_other(place: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, place)).finish()
}

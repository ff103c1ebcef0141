//! Resources that reject other methods with 405, and the redirects of forms' addresses.

use actix_web::dev::HttpServiceFactory;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, LOCATION};
use actix_web::middleware::Compress;
use actix_web::web::{self, get};
use actix_web::{HttpRequest, HttpResponse, Resource, Route};

use super::problems::{Problem, ProblemType};
use holdfast_base::messages::message;

/// A resource that responds 405 to a method without a route; `allowed` is the `Allow` header.
pub fn resource(path: &str, allowed: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest| async move {
        let (path, method) = (request.path(), request.method());
        let detail = message!("problem-wrong-method", path, method, allowed);
        Err::<HttpResponse, _>(
            Problem::new(ProblemType::InvalidRequest, detail)
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .header(ALLOW, HeaderValue::from_static(allowed)),
        )
    }))
}

pub fn get_post(path: &str, get: Route, post: Route) -> Resource {
    resource(path, "GET, POST").route(get).route(post)
}

/// The address of a form, one segment below its page's.
pub fn form_resource(path: &str, post: Route) -> Resource {
    get_post(path, back_up(), post)
}

/// Returns a resource that is only read, and compressed, as it is long.
pub fn compressed_resource(path: &'static str, get: Route) -> impl HttpServiceFactory {
    resource(path, "GET").wrap(Compress::default()).route(get)
}

pub fn see_other(address: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, address)).finish()
}

/// Redirects a GET of a form's address to the form's page. A browser sends it when a page with a
/// rejection is reloaded or bookmarked.
pub fn back_to(page: &'static str) -> Route {
    get().to(async move || see_other(page))
}

/// Redirects like [`back_to`], for a form whose address is one segment below its page's.
pub fn back_up() -> Route {
    get().to(async |request: HttpRequest| {
        // The raw path: its percent-encoding is kept.
        let path = request.uri().path();
        see_other(path.rsplit_once('/').map_or("/", |(page, _)| page))
    })
}

pub fn is_under(path: &str, tops: &[&str]) -> bool {
    let under = |top: &&str| {
        path.strip_prefix(*top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    tops.iter().any(under)
}

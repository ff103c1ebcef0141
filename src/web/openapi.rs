//! The OpenAPI description, generated from the handlers, and a page to try the API.

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, middleware};
use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as OpenApiDocument, Ref, Response};
use utoipa::{OpenApi, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::api;
use super::routes::resource;

/// Content security policy of the Swagger UI page; it allows inline scripts and styles.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast",
        description = "A small web shop that never oversells, and a lab in which you can take its \
            lock away. Money is in integer cents, times are RFC 3339 UTC, ids are UUIDs. Refusals \
            are application/problem+json; their `type` is a page of this shop. Where limits are on, \
            every answer says by RateLimit-Policy and RateLimit \
            (draft-ietf-httpapi-ratelimit-headers-11) how the client stands.",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(
        api::users::create, api::users::sign_in, api::users::sign_out,
        api::users::list_sessions, api::users::end_session,
        api::items::list, api::items::read, api::items::create, api::items::restock,
        api::items::limit, api::items::ledger, api::items::audit,
        api::orders::mint_token, api::orders::place, api::orders::list, api::orders::read,
        api::orders::pay, api::orders::cancel, api::orders::refund,
        api::me::read, api::me::ledger, api::me::top_up, api::me::change_password,
        api::audit::everything, api::audit::locks,
        api::jobs::read, api::jobs::try_again, api::jobs::retry_expiry,
        api::jobs::tick,
        api::lab::create_item, api::lab::noop, api::lab::paused, api::lab::resume,
        api::lab::worker, api::lab::queues,
        api::lab_runs::list, api::lab_runs::create, api::lab_runs::read, api::lab_runs::follow,
        api::health::alive, api::health::ready, api::health::metrics,
    ),
    security(("session" = [])),
    components(schemas(ProblemBody)),
)]
struct ApiDescription;

/// A problem (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemBody {
    /// `/problems/NAME`: a page that explains the problem and what to do.
    #[schema(example = "/problems/sold-out")]
    r#type: String,
    /// Short summary of the problem type.
    title: String,
    /// The HTTP status code.
    status: u16,
    /// Explanation of this occurrence.
    detail: String,
}

/// Registers `/api/openapi.json` and `/api/docs/`.
pub fn configure(config: &mut ServiceConfig) {
    let to_docs = || async {
        HttpResponse::PermanentRedirect().insert_header(("Location", "/api/docs/")).finish()
    };
    config
        .service(resource("/api/openapi.json", "GET").route(web::get().to(serve_description)))
        .service(resource("/api/docs", "GET").route(web::get().to(to_docs)))
        .service(
            web::scope("/api/docs")
                .wrap(
                    middleware::DefaultHeaders::new().add(("Content-Security-Policy", DOCS_POLICY)),
                )
                .service(SwaggerUi::new("/{_:.*}").config(Config::from("/api/openapi.json"))),
        );
}

async fn serve_description() -> HttpResponse {
    HttpResponse::Ok().json(description())
}

/// Returns the description: of the handlers, of the session, and of the error responses of every
/// operation below `/api`.
fn description() -> OpenApiDocument {
    let mut document = ApiDescription::openapi();
    let session = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("the token of POST /api/sessions"))
        .build();
    let components = document.components.get_or_insert_with(Default::default);
    components.add_security_scheme("session", SecurityScheme::Http(session));
    let (too_many, other) = error_responses();
    let paths = document.paths.paths.iter_mut().filter(|(path, _)| path.starts_with("/api/"));
    for (_, item) in paths {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let responses = &mut operation.responses.responses;
            responses.insert("429".to_owned(), too_many.clone().into());
            responses.insert("default".to_owned(), other.clone().into());
        }
    }
    document
}

/// Describes the response 429, and all other problems.
fn error_responses() -> (Response, Response) {
    let schema = Ref::from_schema_name("ProblemBody");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = |description: &str| {
        ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content.clone())
    };
    let header = |description: &str, kind| {
        let schema = Some(Object::with_type(kind));
        HeaderBuilder::new().description(Some(description)).schema(schema).build()
    };
    let policy = header("`\"client\";q=200;w=4`: 200 in 4 s", Type::String);
    let status = header("`\"client\";r=0;t=4`: none left, all in 4 s", Type::String);
    let too_many = response("too-many-requests: nothing was done; come again later")
        .header("Retry-After", header("In how many seconds", Type::Integer))
        .header("RateLimit-Policy", policy)
        .header("RateLimit", status);
    (too_many.build(), response("A rejection or an error: see /problems").build())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lab::headers::LAB_HEADERS;

    #[test]
    fn description_has_inferred_and_shared_parts() {
        let document = serde_json::to_value(description()).unwrap();
        let names = |operation: &Value| -> Vec<String> {
            let parameters = operation["parameters"].as_array().unwrap();
            parameters.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
        };
        let place = &document["paths"]["/api/orders"]["post"];
        let expected = ["Idempotency-Key", "token"].into_iter();
        let expected: Vec<&str> =
            expected.chain(LAB_HEADERS.iter().map(|header| header.name)).collect();
        assert_eq!(names(place), expected);
        let schema = &place["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], "#/components/schemas/OrderRequest");
        assert!(names(&document["paths"]["/api/orders/{id}/pay"]["post"]).contains(&"id".into()));
        for (path, operations) in document["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                let has_errors = operation["responses"]["default"].is_object();
                assert_eq!(has_errors, path.starts_with("/api/"), "{path}");
            }
        }
        assert_eq!(document["paths"]["/api/items"]["get"]["security"], json!([{}]));
        assert_eq!(document["security"], json!([{ "session": [] }]));
        assert!(document["components"]["schemas"]["ProblemBody"].is_object());
    }
}

//! The OpenAPI description, generated from the handlers, and a page to try the API.

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, middleware};
use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, PartialSchema as _, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{api, resource};

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
        api::items::list, api::items::read, api::items::create, api::items::restock,
        api::items::limit, api::items::ledger, api::items::audit,
        api::orders::mint_token, api::orders::place, api::orders::list, api::orders::read,
        api::orders::pay, api::orders::cancel, api::orders::refund,
        api::me::read, api::me::ledger, api::me::top_up,
        api::audit::everything, api::audit::locks,
        api::jobs::standing, api::jobs::try_again, api::jobs::try_unpaid_again,
        api::jobs::tick,
        api::lab::create_item, api::lab::noop, api::lab::holds, api::lab::resume,
        api::lab::worker, api::lab::queues,
        api::lab_runs::list, api::lab_runs::ask, api::lab_runs::read, api::lab_runs::follow,
        api::health::alive, api::health::ready, api::health::metrics,
    ),
    modifiers(&SessionSecurity),
)]
struct ApiDescription;

struct SessionSecurity;

impl Modify for SessionSecurity {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("the token of POST /api/sessions"))
            .build();
        openapi
            .components
            .get_or_insert_with(Default::default)
            .add_security_scheme("session", SecurityScheme::Http(scheme));
    }
}

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

/// The error responses of every operation.
#[derive(Debug)]
pub struct ErrorResponses;

impl utoipa::IntoResponses for ErrorResponses {
    fn responses()
    -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
        let schema = utoipa::openapi::Ref::from_schema_name("ProblemBody");
        let content = utoipa::openapi::ContentBuilder::new().schema(Some(schema)).build();
        let response = |description: &str| {
            utoipa::openapi::ResponseBuilder::new()
                .description(description)
                .content("application/problem+json", content.clone())
        };
        let header = |description: &str, kind| {
            HeaderBuilder::new()
                .description(Some(description))
                .schema(Some(Object::with_type(kind)))
        };
        let too_many = response("too-many-requests: nothing was done; come again later")
            .header("Retry-After", header("In how many seconds", Type::Integer).build())
            .header(
                "RateLimit-Policy",
                header("`\"client\";q=200;w=4`: 200 in 4 s", Type::String).build(),
            )
            .header(
                "RateLimit",
                header("`\"client\";r=0;t=4`: none left, all in 4 s", Type::String).build(),
            );
        let other = response("A refusal, or trouble: see /problems");
        [("429".to_owned(), too_many.build().into()), ("default".to_owned(), other.build().into())]
            .into()
    }
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

pub fn description() -> utoipa::openapi::OpenApi {
    let mut description = ApiDescription::openapi();
    let components = description.components.get_or_insert_with(Default::default);
    components.schemas.insert(ProblemBody::name().into(), ProblemBody::schema());
    description
}

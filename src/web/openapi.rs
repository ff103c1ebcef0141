//! The OpenAPI description, generated from the handlers.

use actix_web::HttpResponse;
use actix_web::web::{self, ServiceConfig};
use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as OpenApiDocument, Ref, RefOr, Response};
use utoipa::{OpenApi, ToSchema};

use super::api;
use super::middleware::parameters::KEY_HEADER;
use super::problems::ProblemType;
use super::routes::resource;
use holdfast_lab::headers::{LAB_HEADERS, LabHeader};

const LAB_HEADER_OPERATIONS: [&str; 7] = [
    "items-restock",
    "orders-place",
    "orders-pay",
    "orders-cancel",
    "orders-refund",
    "lab-noop",
    "lab-tick",
];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast",
        description = "A small web shop that never oversells, and a lab in which you can take its \
            lock away. Money is in integer cents, times are RFC 3339 UTC, ids are UUIDs. Problems \
            are application/problem+json; their `type` is a page of this shop. Where limits are on, \
            every response states in RateLimit-Policy and RateLimit \
            (draft-ietf-httpapi-ratelimit-headers-11) how many requests are left.",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(
        api::users::create, api::users::sign_in, api::users::sign_out,
        api::users::list_sessions, api::users::end_session,
        api::items::list, api::items::read, api::items::create, api::items::restock,
        api::items::edit, api::items::limit, api::items::ledger, api::items::audit,
        api::admin::items, api::admin::log,
        api::orders::mint_token, api::orders::place, api::orders::list, api::orders::read,
        api::orders::pay, api::orders::cancel, api::orders::refund,
        api::me::read, api::me::ledger, api::me::top_up, api::me::change_password,
        api::admin_orders::list_orders, api::admin_orders::read_order,
        api::admin_users::list_users, api::admin_users::read_user, api::admin_users::change_user,
        api::admin_users::end_user_sessions, api::admin_users::set_user_password,
        api::audit::everything, api::audit::locks,
        api::jobs::read, api::jobs::retry_expiry,
        api::jobs::tick,
        api::lab::create_item, api::lab::reconcile, api::lab::noop,
        api::lab::paused, api::lab::resume,
        api::lab::worker, api::lab::queues,
        api::lab_runs::list, api::lab_runs::create, api::lab_runs::read, api::lab_runs::follow,
        api::race::create, api::race::read, api::race::paused, api::race::resume,
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

pub fn configure(config: &mut ServiceConfig) {
    config.service(resource("/api/openapi.json", "GET").route(web::get().to(serve_description)));
}

async fn serve_description() -> HttpResponse {
    HttpResponse::Ok().json(description())
}

pub(super) fn description() -> OpenApiDocument {
    let mut document = ApiDescription::openapi();
    let session = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("the token of POST /api/sessions"))
        .build();

    let components = document.components.get_or_insert_with(Default::default);
    components.add_security_scheme("session", SecurityScheme::Http(session));

    let paths = document.paths.paths.iter_mut().filter(|(path, _)| path.starts_with("/api/"));
    for (_, item) in paths {
        let writes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        let writes = writes.into_iter().flatten().map(|operation| (operation, true));
        for (operation, is_write) in item.get.iter_mut().map(|read| (read, false)).chain(writes) {
            name_uniquely(operation);
            add_lab_headers(operation);
            add_problems(operation, is_write);
            operation.responses.responses.iter_mut().for_each(|(status, response)| {
                if let RefOr::T(response) = response {
                    add_headers(status, response);
                }
            });
        }
    }

    document
}

/// Names the operation by its tag and its handler: several handlers are called `list`.
fn name_uniquely(operation: &mut Operation) {
    let tag = operation.tags.iter().flatten().next();
    if let (Some(tag), Some(handler)) = (tag, &operation.operation_id) {
        operation.operation_id = Some(format!("{tag}-{handler}"));
    }
}

/// Adds the lab's headers to the text of an operation that reads them. They are no parameters: they
/// depend on each other and on the replica, which a schema of single parameters cannot express.
fn add_lab_headers(operation: &mut Operation) {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    if !LAB_HEADER_OPERATIONS.contains(&id) {
        return;
    }
    let text = operation.description.get_or_insert_default();
    text.push_str("\n\nWhile the lab is on, these headers change how the request is executed:\n");
    for LabHeader { name, values, meaning } in LAB_HEADERS {
        text.push_str(&format!("\n- `{name}` ({values}): {meaning}"));
    }
}

/// Adds the problems that follow from the parts of an operation to those that its handler lists.
fn add_problems(operation: &mut Operation, is_write: bool) {
    let has_parameter = |fits: &dyn Fn(&Parameter) -> bool| {
        let parameters = operation.parameters.iter().flatten();
        parameters.into_iter().any(|it| matches!(it, RefOr::T(parameter) if fits(parameter)))
    };
    let takes_key = has_parameter(&|it| it.name == KEY_HEADER);
    let takes_query = has_parameter(&|it| it.parameter_in == ParameterIn::Query);
    let is_open = operation.security.is_some();

    let cases: [(bool, &[u16]); 7] = [
        (true, &[400, 408, 413, 421, 429, 431, 500, 503]),
        (!is_open, &[401]),
        // With the browser's cookie, the CSRF token; reads that only an admin may do list it.
        (!is_open && is_write, &[403]),
        (has_parameter(&|it| it.parameter_in == ParameterIn::Path), &[404]),
        (operation.request_body.is_some(), &[415, 422]),
        (takes_query || takes_key, &[422]),
        (takes_key, &[409, 423]),
    ];

    let listed: Vec<u16> =
        operation.responses.responses.keys().filter_map(|status| status.parse().ok()).collect();
    let listed = listed.into_iter().filter(|status| *status >= 400);
    let inferred = cases.iter().filter(|(applies, _)| *applies).flat_map(|(_, all)| all.iter());
    for status in listed.chain(inferred.copied()) {
        operation.responses.responses.insert(status.to_string(), problem(status).into());
    }
}

fn problem(status: u16) -> Response {
    let all = ProblemType::ALL.into_iter().map(ProblemType::definition);
    let with_status = all.filter(|definition| definition.has_status(status));
    let names: Vec<&str> = with_status.map(|definition| definition.name).collect();
    let schema = Ref::from_schema_name("ProblemBody");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(format!("A problem: {}", names.join(", ")))
        .content("application/problem+json", content)
        .build()
}

fn add_headers(status: &str, response: &mut Response) {
    let headers: &[(&str, Type, &str)] = match status {
        "200" => &[
            ("Link", Type::String, "Of a list: the address of the next page, `rel=\"next\"`"),
            ("Idempotent-Replayed", Type::String, "`true` if the command was executed before"),
        ],
        "201" => &[
            ("Location", Type::String, "The address of what was created"),
            ("Idempotent-Replayed", Type::String, "`true` if the command was executed before"),
        ],
        "202" => &[
            ("Location", Type::String, "Of a lab run: its address"),
            ("Retry-After", Type::Integer, "Of an audit: in how many seconds to ask again"),
        ],
        "401" => &[("WWW-Authenticate", Type::String, "How to authenticate (RFC 6750)")],
        "429" => &[
            ("Retry-After", Type::Integer, "In how many seconds"),
            ("RateLimit-Policy", Type::String, "`\"client\";q=200;w=4`: 200 in 4 s"),
            ("RateLimit", Type::String, "`\"client\";r=0;t=4`: none left, all in 4 s"),
        ],
        "423" | "503" => &[("Retry-After", Type::Integer, "In how many seconds")],
        _ => &[],
    };

    for (name, kind, meaning) in headers {
        let schema = Some(Object::with_type(kind.clone()));
        let header = HeaderBuilder::new().description(Some(*meaning)).schema(schema).build();
        response.headers.insert((*name).to_owned(), header.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;

    fn names(operation: &Value) -> Vec<&str> {
        let parameters = operation["parameters"].as_array().unwrap();
        parameters.iter().map(|it| it["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn description_has_inferred_and_shared_parts() {
        let document = serde_json::to_value(description()).unwrap();
        let place = &document["paths"]["/api/orders"]["post"];
        assert_eq!(names(place), [KEY_HEADER]);
        assert_eq!(place["parameters"][0]["required"], true);
        let text = place["description"].as_str().unwrap();
        assert!(LAB_HEADERS.iter().all(|header| text.contains(header.name)), "{text}");
        let schema = &place["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], "#/components/schemas/OrderRequest");
        assert_eq!(names(&document["paths"]["/api/orders/{id}/pay"]["post"]), [KEY_HEADER, "id"]);
        let cancel = &document["paths"]["/api/orders/{id}/cancel"]["post"];
        assert_eq!(cancel["parameters"][0]["required"], false);
        let text = cancel["description"].as_str().unwrap();
        assert!(LAB_HEADERS.iter().all(|header| text.contains(header.name)), "{text}");
        let search = &document["paths"]["/api/admin/orders"]["get"];
        assert_eq!(names(search), ["after", "limit", "id", "user", "sku", "lab", "status"]);
        assert_eq!(document["paths"]["/api/items"]["get"]["security"], json!([{}]));
        assert_eq!(document["security"], json!([{ "session": [] }]));
        assert!(document["components"]["schemas"]["ProblemBody"].is_object());
    }

    #[test]
    fn every_operation_lists_its_statuses() {
        let document = serde_json::to_value(description()).unwrap();
        let mut ids = HashSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                assert!(!responses.contains_key("default"), "{method} {path}");
                assert!(ids.insert(operation["operationId"].clone()), "{method} {path}");
                let names = operation.get("parameters").map_or(vec![], |_| names(operation));
                let in_path = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
                assert!(in_path.clone().all(|name| names.contains(&name)), "{method} {path}");
                for (status, response) in responses {
                    let is_problem = status.starts_with(['4', '5']) && path.starts_with("/api/");
                    let content = &response["content"]["application/problem+json"];
                    assert_eq!(content.is_object(), is_problem, "{method} {path} {status}");
                }
            }
        }
        let statuses = |path: &str, method: &str| -> Vec<u16> {
            let responses = document["paths"][path][method]["responses"].as_object().unwrap();
            responses.keys().map(|status| status.parse().unwrap()).collect()
        };
        assert_eq!(
            statuses("/api/items", "get"),
            [200, 400, 408, 413, 421, 422, 429, 431, 500, 503]
        );
        let pay = [200, 400, 401, 402, 403, 404, 408, 409, 413, 421, 422, 423, 429, 431, 500, 503];
        assert_eq!(statuses("/api/orders/{id}/pay", "post"), pay);
        let locks = &document["paths"]["/api/locks"]["get"]["responses"];
        assert!(locks["401"]["headers"]["WWW-Authenticate"].is_object());
        assert!(locks["403"]["description"].as_str().unwrap().contains("forbidden"));
        let created = &document["paths"]["/api/orders"]["post"]["responses"]["201"];
        assert!(created["headers"]["Location"].is_object());
    }

    #[test]
    fn bounds_are_described() {
        let document = serde_json::to_value(description()).unwrap();
        let limit = &document["paths"]["/api/orders"]["get"]["parameters"][1]["schema"];
        assert_eq!((&limit["minimum"], &limit["maximum"]), (&json!(1), &json!(1_000)));
        let schemas = &document["components"]["schemas"];
        let lines = &schemas["OrderRequest"]["properties"]["lines"];
        assert_eq!((&lines["minItems"], &lines["maxItems"]), (&json!(1), &json!(50)));
        let amount = &schemas["TopUpRequest"]["properties"]["amount_cents"];
        assert_eq!(amount["maximum"], 1_000_000_000);
        let delta = &schemas["RestockRequest"]["properties"]["delta"]["oneOf"];
        assert_eq!((&delta[0]["maximum"], &delta[1]["minimum"]), (&json!(-1), &json!(1)));
        assert_eq!(schemas["NewItem"]["properties"]["stock"]["minimum"], 0);
        assert_eq!(schemas["Credentials"]["properties"]["password"]["maxLength"], 256);
    }
}

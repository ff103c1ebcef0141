//! Parses JSON bodies and path segments; errors become problems.

use std::fmt::Display;

use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web};
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::json_value::{FieldError, JsonValue};
use crate::messages::message;
use crate::shop::{OrderId, Sku};
use crate::web::{Problem, ProblemType};

/// Upper bound of a body, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// A JSON body. Its type decides about unknown fields (`deny_unknown_fields`).
///
/// An invalid body is reported when the handler calls [`Json::read`], not by the extractor: actix
/// awaits all extractors of a handler together, and an authentication error takes precedence.
#[derive(Debug)]
pub struct Json<T>(Result<T, Problem>);

impl<T> Json<T> {
    /// Returns the value.
    ///
    /// # Errors
    /// `payload-too-large` above [`MAX_BODY_BYTES`]; `invalid-request` if the content type is not
    /// JSON, or the body is not JSON or not a `T`.
    pub fn read(self) -> Result<T, Problem> {
        self.0
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let json = is_json(request);
        let bytes = web::Bytes::from_request(request, payload);
        Box::pin(async move {
            if !json {
                let problem =
                    Problem::new(ProblemType::InvalidRequest, "send application/json in UTF-8");
                return Ok(Json(Err(problem.status(StatusCode::UNSUPPORTED_MEDIA_TYPE))));
            }

            // `read_body` has read it already, and answered what went wrong then.
            let bytes = bytes.await.map_err(|error| Problem::unreadable_body(&error));
            Ok(Json(bytes.and_then(|bytes| parse(&bytes))))
        })
    }
}

/// Returns whether the body is JSON in UTF-8, which is what a missing `charset` means.
fn is_json(request: &HttpRequest) -> bool {
    let Ok(Some(mime)) = request.mime_type() else { return false };
    let charset = mime.get_param("charset");
    mime.essence_str() == "application/json" && charset.is_none_or(|charset| charset == "utf-8")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value: JsonValue = serde_json::from_slice(bytes).map_err(|error| syntax_problem(&error))?;

    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = match error.path().to_string() {
            path if path == "." => None,
            path => Some(path),
        };
        match (path, error.into_inner()) {
            // The path ends at the object that lacks the field.
            (None, FieldError::Missing(name)) => Problem::field(name, "it is missing"),
            (Some(path), FieldError::Missing(name)) => {
                Problem::field(&format!("{path}.{name}"), "it is missing")
            }
            (path, error) => Problem::field(path.as_deref().unwrap_or("body"), error.to_string()),
        }
    })
}

fn syntax_problem(error: &serde_json::Error) -> Problem {
    let detail = if error.is_eof() {
        "the body is not JSON: it ends too early".to_owned()
    } else {
        format!("the body is not JSON: see line {}, column {}", error.line(), error.column())
    };
    Problem::new(ProblemType::InvalidRequest, detail).status(StatusCode::BAD_REQUEST)
}

/// Parses a sku; `not-found` if it is not a valid sku.
pub fn parse_sku(text: &str) -> Result<Sku, Problem> {
    Sku::try_from(text.to_owned()).map_err(|_| unknown_item(&text))
}

/// Returns the problem of a sku that no item has.
pub fn unknown_item(sku: &impl Display) -> Problem {
    Problem::missing(message!("problem-missing-item", sku))
}

/// Parses an order id in a path; `not-found` if it is not a UUID.
pub fn parse_order_id(text: &str) -> Result<OrderId, Problem> {
    Uuid::parse_str(text).map(OrderId).map_err(|_| unknown_order(&text))
}

/// Returns the problem of an order that does not exist, or is another user's.
pub fn unknown_order(id: &impl Display) -> Problem {
    Problem::missing(message!("problem-missing-order", order = id))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::lab::run::RunRequest;
    use crate::web::api::orders::OrderRequest;

    fn order_problem(body: &str) -> (u16, String) {
        let problem = parse::<OrderRequest>(body.as_bytes()).unwrap_err();
        (problem.code().as_u16(), problem.detail().to_owned())
    }

    #[test]
    fn wrong_field_is_named_with_its_reason() {
        for (body, detail) in [
            ("{}", "lines: it is missing"),
            ("7", "body: struct OrderRequest is expected, not integer `7`"),
            ("{\"lines\":7}", "lines: a sequence is expected, not integer `7`"),
            ("{\"coupon\":1}", "coupon: there is no such field"),
            ("{\"lines\":[],\"lines\":[]}", "body: lines is given twice"),
            ("{\"lines\":[{\"sku\":\"tea\"}]}", "lines[0].quantity: it is missing"),
        ] {
            assert_eq!(order_problem(body), (422, detail.to_owned()), "{body}");
        }
        let fault = parse::<RunRequest>(b"{\"fault\":{\"kind\":\"fire\"}}").unwrap_err();
        assert!(fault.detail().starts_with("fault.kind: it must be one of pause-replica, "));
    }

    #[test]
    fn array_is_not_an_object() {
        let line = "{\"sku\":\"tea\",\"quantity\":1}";
        for (body, field) in [
            ("[[[\"tea\",1]]]".to_owned(), "body"),
            (format!("[[{line}]]"), "body"),
            (format!("{{\"lines\":[{line},[\"tea\",1]]}}"), "lines[1]"),
        ] {
            let detail = format!("{field}: an object is expected, not sequence");
            assert_eq!(order_problem(&body), (422, detail));
        }
    }

    /// A wrong field may precede a syntax error.
    #[test]
    fn syntax_error_is_reported_first() {
        for body in ["", "{\"lines\":7,", "{\"lines\":7} x", "{\"lines\":1e999}"] {
            assert_eq!(order_problem(body).0, 400, "{body}");
        }
    }

    #[test]
    fn options_enums_and_lists_are_parsed() {
        let body = "{\"strategies\":[\"none\"],\"journey\":\"pay\",\"stock\":5,\"seed\":null}";
        let parsed = parse::<RunRequest>(body.as_bytes()).unwrap();
        assert_eq!(parsed, serde_json::from_str(body).unwrap());
    }

    #[test]
    fn json_must_be_in_utf8() {
        let accepted = |kind: &str| {
            let request = TestRequest::default().insert_header(("content-type", kind));
            is_json(&request.to_http_request())
        };
        for kind in ["application/json", "Application/JSON; charset=UTF-8", "application/json;v=1"]
        {
            assert!(accepted(kind), "{kind}");
        }
        assert!(accepted("application/json; charset=\"utf-8\""));
        for kind in ["text/json", "application/json; charset=utf-16", "application/jsonx", ""] {
            assert!(!accepted(kind), "{kind}");
        }
    }
}

//! Parses JSON bodies and path segments; errors become problems.

use std::fmt::Display;

use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web};
use futures_util::future::LocalBoxFuture;
use serde::de::{DeserializeOwned, IgnoredAny};
use uuid::Uuid;

use super::json_objects::StrictValue;
use super::parser_errors::explain;
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
            let bytes = bytes.await.map_err(|error| body_problem(&error));
            if !json {
                let detail = "send application/json in UTF-8";
                let problem = Problem::new(ProblemType::InvalidRequest, detail)
                    .status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
                return Ok(Json(Err(problem)));
            }
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

fn body_problem(error: &actix_web::Error) -> Problem {
    if error.as_response_error().status_code() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(
            ProblemType::PayloadTooLarge,
            format!("{MAX_BODY_BYTES} bytes are the most"),
        );
    }
    Problem::new(ProblemType::InvalidRequest, format!("the body can't be read: {error}"))
        .status(StatusCode::BAD_REQUEST)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json);
    let parsed = parsed.map_err(|error| {
        let field = error.path().to_string();
        let error = error.into_inner();
        // A wrong field may precede a syntax error: the syntax error is reported first.
        match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) if error.is_data() => field_problem(&field, &error.to_string()),
            Ok(_) => syntax_problem(&error),
            Err(error) => syntax_problem(&error),
        }
    })?;
    json.end().map_err(|error| syntax_problem(&error))?;
    check_objects::<T>(bytes)?;
    Ok(parsed)
}

/// Checks that the body, which is a `T`, has no array in the place of an object.
fn check_objects<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), Problem> {
    let value = serde_json::from_slice(bytes).map_err(|error| syntax_problem(&error))?;
    match serde_path_to_error::deserialize::<_, T>(StrictValue(value)) {
        Ok(_) => Ok(()),
        Err(error) => {
            let field = error.path().to_string();
            Err(field_problem(&field, &error.into_inner().to_string()))
        }
    }
}

/// Reports the wrong field by its own name. For a missing field, the path ends at its parent (`.`
/// is the whole body), and the field's name is in serde's message only.
pub(super) fn field_problem(path: &str, why: &str) -> Problem {
    let missing = why.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    match (path, missing) {
        (".", Some((name, _))) => Problem::field(name, "it is missing"),
        (path, Some((name, _))) => Problem::field(&format!("{path}.{name}"), "it is missing"),
        (".", None) => Problem::field("body", explain(why)),
        (path, None) => Problem::field(path, explain(why)),
    }
}

fn syntax_problem(error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let detail = if error.is_eof() {
        "the body is not JSON: it ends too early".to_owned()
    } else {
        format!("the body is not JSON: see line {line}, column {column}")
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

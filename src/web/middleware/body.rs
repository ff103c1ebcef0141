//! Parses JSON bodies, forms, queries and path segments; errors become problems.

use std::fmt::{self, Display, Formatter};
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::str::FromStr;

use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::web::FormConfig;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web};
use futures_util::future::LocalBoxFuture;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use crate::web::{Problem, ProblemType};
use holdfast_base::messages::{Message, message};
use holdfast_shop::{IdempotencyKey, OrderId, Sku};

pub const MAX_BODY_BYTES: usize = 64 * 1024;
pub const MAX_LIST_LENGTH: i64 = 1_000;
const DEFAULT_LIST_LENGTH: i64 = 100;

/// A JSON body. Its type decides about unknown fields (`deny_unknown_fields`).
///
/// An invalid body is reported when the handler calls [`Json::read`], not by the extractor: actix
/// awaits all extractors of a handler together, and an authentication error takes precedence.
#[derive(Debug)]
pub struct Json<T>(Result<T, Problem>);

impl<T> Json<T> {
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
                return Ok(Json(Err(not_sent_as_json())));
            }
            // `read_body` has read it already, and answered what went wrong then.
            let bytes = bytes.await.map_err(|error| Problem::unreadable_body(&error));
            Ok(Json(bytes.and_then(|bytes| parse(&bytes))))
        })
    }
}

/// A JSON body that may be absent: a request without any content has none, with any media type.
#[derive(Debug)]
pub struct OptionalJson<T>(Result<Option<T>, Problem>);

impl<T> OptionalJson<T> {
    pub fn read(self) -> Result<Option<T>, Problem> {
        self.0
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for OptionalJson<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let json = is_json(request);
        let bytes = web::Bytes::from_request(request, payload);
        Box::pin(async move {
            let bytes = bytes.await.map_err(|error| Problem::unreadable_body(&error));
            Ok(OptionalJson(match bytes {
                Ok(bytes) if bytes.is_empty() => Ok(None),
                Ok(_) if !json => Err(not_sent_as_json()),
                Ok(bytes) => parse(&bytes).map(Some),
                Err(problem) => Err(problem),
            }))
        })
    }
}

fn not_sent_as_json() -> Problem {
    wrong_media_type(message!("problem-send-json"))
}

pub(super) fn wrong_media_type(detail: Message) -> Problem {
    Problem::new(ProblemType::InvalidRequest, detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// Returns whether the body is JSON in UTF-8, which is what a missing `charset` means.
fn is_json(request: &HttpRequest) -> bool {
    let Ok(Some(mime)) = request.mime_type() else { return false };
    let charset = mime.get_param("charset");
    mime.essence_str() == "application/json" && charset.is_none_or(|charset| charset == "utf-8")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A wrong field may precede a syntax error, which is reported first.
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| not_json(&error))?;
    // As in `objects`.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::field("body", message!("problem-object-expected")));
    }

    let mut json = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() {
            return not_json(&error);
        }
        let why = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let why = in_words(why.strip_suffix(&position).unwrap_or(&why));
        Problem::unparsed_field(if path == "." { "body" } else { &path }, why)
    })
}

/// Replaces the name of a Rust type, which serde gives as what it expected.
fn in_words(why: &str) -> String {
    let Some((found, expected)) = why.rsplit_once(", expected ") else { return why.to_owned() };
    let expected = match expected {
        "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => {
            let is_out_of_range = found.starts_with("invalid value");
            if is_out_of_range { "a whole number in its range" } else { "a whole number" }
        }
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    };
    format!("{found}, expected {expected}")
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::unreadable_body(message!("problem-not-json", error))
}

/// Deserializes structs from objects only: serde reads one from an array, too, as its fields in
/// order, and `[["tea", 1]]` would be the lines of an order.
pub fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// The parsed query. Like a body, an invalid one is reported when the handler calls
/// [`Query::read`].
#[derive(Debug)]
pub struct Query<T>(Result<T, Problem>);

impl<T> Query<T> {
    pub fn read(self) -> Result<T, Problem> {
        self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(parse_query(request.query_string()))))
    }
}

fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let parsed = serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs));
    parsed.map_err(|error| match error.path().to_string().as_str() {
        "." => Problem::unparsed_field("query", error.inner()),
        field => Problem::unparsed_field(field, error.inner()),
    })
}

/// Deserializes where the list of a page continues. One that cannot be read is as if absent: a
/// person who edits an address wants the list.
pub fn cursor<'de, D: Deserializer<'de>, T: FromStr>(text: D) -> Result<Option<T>, D::Error> {
    String::deserialize(text).map(|text| text.parse().ok())
}

#[derive(Debug, Deserialize)]
struct ListQuery<After> {
    after: Option<After>,
    limit: Option<i64>,
}

/// Parses the query `?after=&limit=` of a list: the cursor after which it continues, and its
/// maximum length.
pub fn list_query<After: DeserializeOwned>(
    request: &HttpRequest,
) -> Result<(Option<After>, i64), Problem> {
    let ListQuery { after, limit } = parse_query(request.query_string())?;
    let limit = limit.unwrap_or(DEFAULT_LIST_LENGTH);
    if !(1..=MAX_LIST_LENGTH).contains(&limit) {
        let why = message!("problem-range", least = 1, most = MAX_LIST_LENGTH);
        return Err(Problem::field("limit", why));
    }
    Ok((after, limit))
}

/// The fields of a form: names and values, in the order received. Not `Debug`: one may be a
/// password.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct FormFields(pub Vec<(String, String)>);

impl FormFields {
    /// Returns the first value of a field; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    pub fn trimmed(&self, name: &str) -> &str {
        self.text(name).trim()
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &str) -> Result<&str, Problem> {
        self.all(name).next().ok_or_else(|| Problem::field(name, message!("problem-missing-field")))
    }

    /// Replaces all values of a field by one.
    pub fn set(&mut self, name: &str, value: String) {
        self.0.retain(|(field, _)| field != name);
        self.0.push((name.to_owned(), value));
    }

    pub fn csrf(&self) -> &str {
        self.text("csrf")
    }

    pub fn key(&self, name: &str) -> Result<IdempotencyKey, Problem> {
        let key = self.required(name)?.to_owned();
        IdempotencyKey::try_from(key).map_err(|why| Problem::unparsed_field(name, why))
    }
}

pub fn form_config() -> FormConfig {
    FormConfig::default()
        .limit(MAX_BODY_BYTES)
        .error_handler(|error, _| form_problem(&error).into())
}

fn form_problem(error: &UrlencodedError) -> Problem {
    match error {
        UrlencodedError::ContentType => wrong_media_type(message!("problem-send-form")),
        error => Problem::unreadable_body(error),
    }
}

/// Parses a sku; `not-found` if it is not a valid sku.
pub fn parse_sku(text: &str) -> Result<Sku, Problem> {
    Sku::try_from(text.to_owned()).map_err(|_| unknown_item(&text))
}

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
    use crate::web::api::orders::OrderRequest;
    use holdfast_lab::run::{FaultKind, RunRequest};

    fn order_problem(body: &str) -> (u16, String) {
        let problem = parse::<OrderRequest>(body.as_bytes()).unwrap_err();
        (problem.code().as_u16(), problem.detail().english())
    }

    #[test]
    fn wrong_field_is_named_with_its_reason() {
        for (body, detail) in [
            ("{}", "body: missing field `lines`"),
            ("7", "body: an object is expected"),
            ("[[[\"tea\",1]]]", "body: an object is expected"),
            ("{\"lines\":7}", "lines: invalid type: integer `7`, expected a sequence"),
            (
                "{\"coupon\":1}",
                "coupon: unknown field `coupon`, expected `lines` or `expected_total_cents`",
            ),
            ("{\"lines\":[],\"lines\":[]}", "body: duplicate field `lines`"),
            ("{\"lines\":[{\"sku\":\"tea\"}]}", "lines[0]: missing field `quantity`"),
            (
                "{\"lines\":[{\"sku\":\"tea\",\"quantity\":\"1\"}]}",
                "lines[0].quantity: invalid type: string \"1\", expected a whole number",
            ),
            ("{\"lines\":[[\"tea\",1]]}", "lines[0]: invalid type: sequence, expected an object"),
        ] {
            assert_eq!(order_problem(body), (422, detail.to_owned()), "{body}");
        }
        let fault = parse::<RunRequest>(b"{\"fault\":{\"kind\":\"fire\"}}").unwrap_err();
        let why = fault.detail().english();
        assert!(why.starts_with("fault.kind: unknown variant `fire`, expected one of "), "{why}");
        let fault = parse::<RunRequest>(b"{\"fault\":\"fire\"}").unwrap_err();
        let why = fault.detail().english();
        assert!(why.contains("expected an object with `kind`: one of "), "{why}");
        assert!(FaultKind::ALL.iter().all(|kind| why.contains(kind.name())), "{why}");
    }

    #[test]
    fn syntax_error_is_reported_first() {
        for body in ["", "{\"lines\":7,", "{\"lines\":7} x", "{\"lines\":1e999}"] {
            assert_eq!(order_problem(body).0, 400, "{body}");
        }
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

    #[test]
    fn invalid_query_names_its_field() {
        for (query, detail) in [
            ("limit=x", "limit: invalid digit found in string"),
            ("after=&limit=1", "after: cannot parse integer from empty string"),
            ("limit=1&limit=2", "query: duplicate field `limit`"),
        ] {
            let problem = parse_query::<ListQuery<i64>>(query).unwrap_err();
            assert_eq!(problem.detail().english(), detail, "{query}");
        }
        assert_eq!(parse_query::<ListQuery<i64>>("after=7&color=red").unwrap().after, Some(7));
    }
}

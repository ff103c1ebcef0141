//! Extracts the context of a command: its id, its idempotency key and the lab's headers.

use std::future::{Ready, ready};
use std::ops::Deref;
use std::rc::Rc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use uuid::Uuid;

use super::auth::known_caller;
use super::request_notes::RequestNotes;
use crate::web::{Problem, ProblemType, app_state};
use holdfast_base::messages::message;
use holdfast_lab::headers::unknown_header;
use holdfast_lab::{LabHeaderError, LabHeaders};
use holdfast_shop::{IdempotencyKey, RequestContext};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Extracts the context with the replica's own settings, and ignores the lab headers.
#[derive(Debug)]
pub struct DefaultContext(RequestContext);

impl Deref for DefaultContext {
    type Target = RequestContext;

    fn deref(&self) -> &RequestContext {
        &self.0
    }
}

impl FromRequest for DefaultContext {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let context = app_state(request)
            .map(|state| Self(RequestContext::new(&state.shop, begin_command(request))));
        ready(context)
    }
}

/// Returns the context with what the request's lab headers ask for. It is called by handlers rather
/// than an extractor: the user must be known.
pub fn lab_context(request: &HttpRequest) -> Result<RequestContext, Problem> {
    let state = app_state(request)?;
    let names = request.headers().keys().map(HeaderName::as_str);
    if state.lab
        && let Some((name, why)) = unknown_header(names)
    {
        return Err(Problem::field(name, why));
    }

    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value));
    let lab_headers = LabHeaders::read(headers, visible_text)?;

    let id = begin_command(request);
    if lab_headers.is_empty() {
        return Ok(RequestContext::new(&state.shop, id));
    }
    if !state.lab {
        return Err(Problem::new(ProblemType::Forbidden, message!("problem-lab-headers-off")));
    }

    let caller = known_caller(request);
    if caller.as_ref().is_some_and(|caller| caller.is_student) {
        let detail = message!("problem-lab-headers-in-class");
        return Err(Problem::new(ProblemType::Forbidden, detail));
    }
    let context = lab_headers
        .context(&state.shop, &state.replica, &state.board, id, caller.as_deref())
        .map_err(|LabHeaderError(header, why)| Problem::field(header, why))?;

    if let Some(notes) = request.extensions().get::<Rc<RequestNotes>>() {
        notes.strategy.set(context.strategy.name);
    }

    Ok(context)
}

fn visible_text(name: &str, value: &HeaderValue) -> Result<String, Problem> {
    let text = value.to_str().map_err(|_| Problem::field(name, message!("problem-ascii-only")))?;
    Ok(text.to_owned())
}

/// Notes that the request begins a change: if it takes too long, its outcome is unknown. Returns
/// the id that [`request_notes`](super::request_notes) assigned to it.
pub fn begin_command(request: &HttpRequest) -> Uuid {
    let extensions = request.extensions();
    let Some(notes) = extensions.get::<Rc<RequestNotes>>() else { return Uuid::now_v7() };
    notes.command_route.replace(Some(request.match_pattern().unwrap_or_default()));
    notes.id
}

pub fn idempotency_key(request: &HttpRequest) -> Result<IdempotencyKey, Problem> {
    optional_idempotency_key(request)?.ok_or_else(|| {
        Problem::new(ProblemType::IdempotencyKeyMissing, message!("problem-send-key"))
    })
}

/// Returns the request's idempotency key, if it carries one: from the header, or from `?token=` for
/// tools that cannot vary a header.
///
/// # Errors
/// `invalid-request`: 400 if there are several that differ, 422 if a key is invalid.
pub fn optional_idempotency_key(request: &HttpRequest) -> Result<Option<IdempotencyKey>, Problem> {
    let parse = |name: &str, text: String| {
        IdempotencyKey::try_from(text).map_err(|why| Problem::unparsed_field(name, why))
    };

    let mut keys = Vec::new();
    for value in request.headers().get_all(KEY) {
        keys.push(parse("Idempotency-Key", visible_text("Idempotency-Key", value)?)?);
    }
    for (name, text) in form_urlencoded::parse(request.query_string().as_bytes()) {
        if name == "token" {
            keys.push(parse("token", text.into_owned())?);
        }
    }

    if keys.windows(2).any(|pair| pair[0] != pair[1]) {
        let detail = message!("problem-different-keys");
        return Err(
            Problem::new(ProblemType::InvalidRequest, detail).status(StatusCode::BAD_REQUEST)
        );
    }

    Ok(keys.pop())
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn different_keys_in_one_request_are_rejected() {
        let [one, other] = ["00000000-0000-0001", "00000000-0000-0002"];
        let status = |uri: &str, headers: &[&str]| {
            let mut request = TestRequest::with_uri(uri);
            for value in headers {
                request = request.append_header(("Idempotency-Key", *value));
            }
            let key = optional_idempotency_key(&request.to_http_request());
            key.map(|key| key.is_some()).map_err(|problem| problem.status_code())
        };
        let with_token = format!("/?token={one}");
        let (same, different) =
            (format!("/?token={one}&token={one}"), format!("/?token={one}&token={other}"));
        assert_eq!(status("/", &[]), Ok(false));
        assert_eq!(status(&with_token, &[one, &format!("\"{one}\"")]), Ok(true));
        assert_eq!(status(&same, &[]), Ok(true));
        for (uri, headers) in
            [("/", vec![one, other]), (&different, vec![]), (&with_token, vec![one, other])]
        {
            assert_eq!(status(uri, &headers), Err(StatusCode::BAD_REQUEST), "{uri} {headers:?}");
        }
    }
}

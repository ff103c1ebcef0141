//! Extracts the options of a request: its id, its idempotency key and the lab's headers.

use std::cell::RefCell;
use std::future::{Ready, ready};
use std::rc::Rc;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use uuid::Uuid;

use super::auth::known_caller;
use crate::lab::{LabHeaderError, LabHeaders};
use crate::shop::{IdempotencyKey, RequestOptions};
use crate::web::{Problem, ProblemType, app_state};

/// The id of a request, in logs and ledgers.
#[derive(Debug, Clone, Copy)]
pub struct RequestId(pub Uuid);

/// The route of a request that began a command; empty for other requests. Clones share it: the
/// command's outcome is unknown if the request then takes too long.
#[derive(Debug, Clone, Default)]
pub struct CommandRoute(Rc<RefCell<Option<String>>>);

impl CommandRoute {
    pub fn take(&self) -> Option<String> {
        self.0.take()
    }
}

/// The strategy of a request with lab headers, reported in `Holdfast-Strategy`.
#[derive(Debug, Clone, Copy)]
pub struct EffectiveStrategy(pub &'static str);

/// The options that the request's lab headers select. The headers are read, and an invalid one is
/// reported, when the handler calls [`LabOptions::read`]: the user is known by then.
#[derive(Debug)]
pub struct LabOptions(HttpRequest);

impl LabOptions {
    pub fn read(self) -> Result<RequestOptions, Problem> {
        lab_options(&self.0)
    }
}

/// The replica's own options, whatever the request's lab headers.
impl FromRequest for RequestOptions {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(app_state(request).map(|state| Self::new(&state.shop, begin_command(request))))
    }
}

impl FromRequest for LabOptions {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(LabOptions(request.clone())))
    }
}

fn lab_options(request: &HttpRequest) -> Result<RequestOptions, Problem> {
    let state = app_state(request)?;
    let lab_headers = LabHeaders::read(|header| header_text(request.headers(), header))?;
    let id = begin_command(request);
    if lab_headers.is_empty() {
        return Ok(RequestOptions::new(&state.shop, id));
    }
    if !state.lab {
        let detail = "Holdfast-* headers are the lab's, and the lab is off";
        return Err(Problem::new(ProblemType::Forbidden, detail));
    }
    let caller = known_caller(request);
    let owner = caller.as_ref().map(|caller| caller.id);
    let mut options = lab_headers
        .options(&state.shop, &state.replica, &state.board, id, owner)
        .map_err(|LabHeaderError(header, why)| Problem::field(header, why))?;
    options.lab_items_only = caller.is_none_or(|caller| !caller.admin);
    request.extensions_mut().insert(EffectiveStrategy(options.strategy.name));
    Ok(options)
}

fn header_text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    match headers.get(name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value.to_owned())),
        Some(Err(_)) => Err(Problem::field(name, "visible ASCII only")),
    }
}

/// Notes that the request begins a change: if it takes too long, its outcome is unknown. Returns
/// the id that [`request_context`](super::request_context) assigned to it.
pub fn begin_command(request: &HttpRequest) -> Uuid {
    let extensions = request.extensions();
    if let Some(route) = extensions.get::<CommandRoute>() {
        route.0.replace(Some(request.match_pattern().unwrap_or_default()));
    }
    extensions.get::<RequestId>().map_or_else(Uuid::now_v7, |id| id.0)
}

/// Returns the request's idempotency key, or `idempotency-key-missing`; see
/// [`optional_idempotency_key`].
pub fn idempotency_key(request: &HttpRequest) -> Result<IdempotencyKey, Problem> {
    optional_idempotency_key(request)?.ok_or_else(|| {
        let detail = "send a header Idempotency-Key with a fresh UUID";
        Problem::new(ProblemType::IdempotencyKeyMissing, detail)
    })
}

/// Returns the request's idempotency key, if it carries one: from the header, or from `?token=` for
/// tools that cannot vary a header.
///
/// # Errors
/// `invalid-request`: 400 if both are present and differ, 422 if the key is invalid.
pub fn optional_idempotency_key(request: &HttpRequest) -> Result<Option<IdempotencyKey>, Problem> {
    let key = |name: &str, text: Option<String>| {
        let key = text.map(IdempotencyKey::try_from).transpose();
        key.map_err(|why| Problem::field(name, why))
    };
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    let token = query.find(|(name, _)| name == "token").map(|(_, text)| text.into_owned());
    let header = key("Idempotency-Key", header_text(request.headers(), "Idempotency-Key")?)?;
    let token = key("token", token)?;
    match (header, token) {
        (Some(header), Some(token)) if header != token => {
            let detail = "Idempotency-Key and ?token= differ; send one";
            Err(Problem::new(ProblemType::InvalidRequest, detail).status(StatusCode::BAD_REQUEST))
        }
        (header, token) => Ok(header.or(token)),
    }
}

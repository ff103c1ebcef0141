//! How the shop says no over HTTP: `application/problem+json` (RFC 9457).
//!
//! Every `type` is an address of this shop, `/problems/NAME`, a page that says what it means and
//! what to do. The set is closed: [`Kind::ALL`].

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use serde_json::{Map, Value, json};

use crate::shop::{Error, Refusal};

/// What kind of no it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "`meaning` says it, for people too")]
pub enum Kind {
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    Exists,
    SoldOut,
    InsufficientFunds,
    OrderState,
    OrderExpired,
    IdempotencyKeyMissing,
    IdempotencyKeyInFlight,
    IdempotencyKeyMismatch,
    IdempotencyKeyUsed,
    LockBusy,
    LockTimeout,
    LockLost,
    Overloaded,
    Unavailable,
    TooManyRequests,
    PayloadTooLarge,
    InternalError,
}

/// What is said about a kind: its name, usual status, title, meaning, and what to do.
type Words = (&'static str, u16, &'static str, &'static str, &'static str);

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 21] = [
        Kind::InvalidRequest,
        Kind::Unauthenticated,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::Exists,
        Kind::SoldOut,
        Kind::InsufficientFunds,
        Kind::OrderState,
        Kind::OrderExpired,
        Kind::IdempotencyKeyMissing,
        Kind::IdempotencyKeyInFlight,
        Kind::IdempotencyKeyMismatch,
        Kind::IdempotencyKeyUsed,
        Kind::LockBusy,
        Kind::LockTimeout,
        Kind::LockLost,
        Kind::Overloaded,
        Kind::Unavailable,
        Kind::TooManyRequests,
        Kind::PayloadTooLarge,
        Kind::InternalError,
    ];

    /// The last part of its address.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// The status it usually has.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.words().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// In a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.words().2
    }

    /// What happened.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.words().3
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        self.words().4
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn words(self) -> Words {
        match self {
            Kind::InvalidRequest => (
                "invalid-request",
                422,
                "The request makes no sense as it is",
                "Something in it is missing, misspelt or out of range. Nothing was changed.",
                "Look at `errors`: each names a field and what it should be. Then send it again.",
            ),
            Kind::Unauthenticated => (
                "unauthenticated",
                401,
                "Sign in first",
                "The request carries no session, or one that is over.",
                "Get a token from POST /api/sessions and send it as `Authorization: Bearer …`.",
            ),
            Kind::Forbidden => (
                "forbidden",
                403,
                "Not allowed",
                "You are known, and this is not yours to do; or it is the lab's, and the lab is off.",
                "Sign in as somebody who may, or start the shop with the lab on.",
            ),
            Kind::NotFound => (
                "not-found",
                404,
                "There is no such thing",
                "It does not exist, or it is somebody else's; the shop does not say which.",
                "Check the name or the id.",
            ),
            Kind::Exists => (
                "exists",
                409,
                "The name is taken",
                "There is one of that name already.",
                "Choose another name.",
            ),
            Kind::SoldOut => (
                "sold-out",
                409,
                "Not enough on the shelf",
                "Fewer are left than were asked for. Nothing was ordered, not even the other lines.",
                "Order fewer, or wait for a restock. The same key may try again.",
            ),
            Kind::InsufficientFunds => (
                "insufficient-funds",
                402,
                "Not enough on the account",
                "The balance is smaller than what is to be paid. Nothing was paid.",
                "Top the account up, then pay again. The same key may try again.",
            ),
            Kind::OrderState => (
                "order-state",
                409,
                "The order is past that",
                "An order is paid or cancelled once, and refunded once after it was paid.",
                "Read the order to see how it stands.",
            ),
            Kind::OrderExpired => (
                "order-expired",
                409,
                "The order was not paid in time",
                "Its units were held for a while, and that while is over.",
                "Place a new order.",
            ),
            Kind::IdempotencyKeyMissing => (
                "idempotency-key-missing",
                400,
                "An idempotency key is missing",
                "This request changes something, so it must be safe to send twice.",
                "Send a header `Idempotency-Key` with a fresh UUID (or `?token=`), and the same one \
                 again when you ask again.",
            ),
            Kind::IdempotencyKeyInFlight => (
                "idempotency-key-in-flight",
                409,
                "The same request is being worked on",
                "Another request with this key has not finished yet.",
                "Wait as long as `Retry-After` says and send the same request: you will get its answer.",
            ),
            Kind::IdempotencyKeyMismatch => (
                "idempotency-key-mismatch",
                422,
                "The key was used for another request",
                "A key stands for one request. This one came with another payload before.",
                "Mint a new key for a new request.",
            ),
            Kind::IdempotencyKeyUsed => (
                "idempotency-key-used",
                409,
                "The key was used long ago",
                "It did its work more than a day ago, and the answer is not kept so long.",
                "Read the order named in `order_id`; for a new order mint a new key.",
            ),
            Kind::LockBusy => (
                "lock-busy",
                423,
                "Somebody else is changing this",
                "The lock is taken, and the request did not want to wait for it.",
                "Try again after `retry_after_ms`.",
            ),
            Kind::LockTimeout => (
                "lock-timeout",
                503,
                "Waited for the lock in vain",
                "The lock stayed taken for as long as the request could wait. Nothing was changed.",
                "Try again after `Retry-After`, with the same key.",
            ),
            Kind::LockLost => (
                "lock-lost",
                503,
                "The lock was lost on the way",
                "The lease ended before the work was done, so the work was not written.",
                "Try again with the same key.",
            ),
            Kind::Overloaded => (
                "overloaded",
                503,
                "Too much at once",
                "The shop can't take more work at this moment. Nothing was changed.",
                "Try again after `Retry-After`, with the same key.",
            ),
            Kind::Unavailable => (
                "unavailable",
                503,
                "Postgres or Redis is away",
                "Without them the shop can't promise that nothing is sold twice, so it does not sell. \
                 With `outcome: unknown`, the change may have been made.",
                "Try again after `Retry-After`, with the same key: you will get the truth.",
            ),
            Kind::TooManyRequests => (
                "too-many-requests",
                429,
                "Slower, please",
                "More requests came from you than the shop takes from one hand.",
                "Wait as long as `Retry-After` says.",
            ),
            Kind::PayloadTooLarge => (
                "payload-too-large",
                413,
                "The request is too large",
                "A body may have 64 KiB.",
                "Send less.",
            ),
            Kind::InternalError => (
                "internal-error",
                500,
                "A mistake of ours",
                "The shop met a case it was not written for. Nothing was changed.",
                "Try again with the same key; tell us the `X-Request-Id`.",
            ),
        }
    }
}

/// One no. Small, because every handler's `Result` has room for it.
#[derive(Debug, Clone)]
pub struct Problem(Box<Particulars>);

#[derive(Debug, Clone)]
struct Particulars {
    kind: Kind,
    status: StatusCode,
    detail: String,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// That kind of no, because of `detail`.
    #[must_use]
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after_s = matches!(kind.status().as_u16(), 429 | 503).then_some(1);
        Self(Box::new(Particulars {
            kind,
            status: kind.status(),
            detail: detail.into(),
            members: Map::new(),
            retry_after_s,
            headers: Vec::new(),
        }))
    }

    /// A field that is not as it should be.
    #[must_use]
    pub fn field(field: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = json!([{ "field": field, "detail": detail }]);
        Self::new(Kind::InvalidRequest, format!("{field}: {detail}")).with("errors", errors)
    }

    /// With another status than usual.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// With one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What exactly is wrong.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Its status.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        self.0.status
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.name(), self.0.detail)
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut body = json!({
            "type": format!("/problems/{}", self.0.kind.name()),
            "title": self.0.kind.title(),
            "status": self.0.status.as_u16(),
            "detail": self.0.detail,
        });
        if let Value::Object(body) = &mut body {
            body.extend(self.0.members.clone());
        }
        let mut response = HttpResponse::build(self.0.status);
        response.content_type("application/problem+json");
        if let Some(seconds) = self.0.retry_after_s {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        for header in &self.0.headers {
            response.append_header(header.clone());
        }
        response.body(body.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(field, why) => Problem::field(field, why),
            Refusal::Forbidden(why) => Problem::new(Kind::Forbidden, why),
            Refusal::NotFound(what) => Problem::new(Kind::NotFound, what),
            Refusal::Exists(what) => Problem::new(Kind::Exists, what),
            Refusal::SoldOut { sku, requested, available } => {
                let detail = format!("{requested} of {sku} were asked for, {available} are left");
                Problem::new(Kind::SoldOut, detail)
                    .with("sku", sku.as_str())
                    .with("requested", requested)
                    .with("available", available)
            }
            Refusal::InsufficientFunds { needed_cents, balance_cents } => {
                let detail = format!("{needed_cents} cents are due, {balance_cents} are there");
                Problem::new(Kind::InsufficientFunds, detail)
                    .with("needed_cents", needed_cents)
                    .with("balance_cents", balance_cents)
            }
            Refusal::OrderState { status, action } => {
                let detail = format!("can't {action} an order that is {status}");
                Problem::new(Kind::OrderState, detail).with("order_status", status)
            }
            Refusal::OrderExpired => {
                Problem::new(Kind::OrderExpired, "it was held, and no longer is")
            }
            Refusal::KeyInFlight => {
                Problem::new(Kind::IdempotencyKeyInFlight, "ask again in a moment").retry_after(1)
            }
            Refusal::KeyMismatch => {
                let detail = "this key came with another payload before";
                Problem::new(Kind::IdempotencyKeyMismatch, detail)
            }
            Refusal::KeyUsed { order_id } => {
                let problem = Problem::new(Kind::IdempotencyKeyUsed, "it did its work long ago");
                match order_id {
                    Some(order) => problem.with("order_id", order.to_string()),
                    None => problem,
                }
            }
            Refusal::LockBusy(holder) => {
                let retry_after_ms =
                    holder.remaining.map_or(50, |left| left.as_millis().min(1_000));
                Problem::new(Kind::LockBusy, "the lock is taken")
                    .with("holder_since", since(holder.since_ms))
                    .with("retry_after_ms", u64::try_from(retry_after_ms).unwrap_or(1_000))
            }
            Refusal::LockTimeout { waited, holder } => {
                let detail = format!("waited {} ms", waited.as_millis());
                Problem::new(Kind::LockTimeout, detail).with("holder_since", since(holder.since_ms))
            }
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { what, cause, outcome_unknown } => {
                tracing::warn!(what, cause, outcome_unknown, "unavailable");
                let problem = Problem::new(Kind::Unavailable, format!("{what} does not answer"));
                if outcome_unknown { problem.with("outcome", "unknown") } else { problem }
            }
            Error::Overloaded(cause) | Error::Conflict(cause) => {
                tracing::debug!(cause, "overloaded");
                Problem::new(Kind::Overloaded, "more is asked than can be done at this moment")
            }
            Error::RowLocked(cause) => {
                tracing::debug!(cause, "a row stayed locked");
                Problem::new(Kind::LockTimeout, "the row stayed locked in Postgres")
            }
            Error::Bug(cause) => {
                tracing::error!(cause, "a mistake of ours");
                Problem::new(Kind::InternalError, "the shop's log says what went wrong")
            }
        }
    }
}

fn since(unix_ms: Option<i64>) -> Value {
    unix_ms
        .and_then(|ms| {
            let nanos = i128::from(ms) * 1_000_000;
            time::OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
        })
        .and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok())
        .map_or(Value::Null, Value::String)
}

//! Problem responses: `application/problem+json` (RFC 9457).
//!
//! Every `type` is an address of this shop, `/problems/NAME`, which leads to what the problem means
//! and what to do. The set of types is closed: [`ProblemType::ALL`]. The `detail` is a message of
//! the catalogue: programs get it in English, a page shows it in the language of its visitor.

mod problem_type;

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use holdfast_lock::Holder;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use holdfast_base::log_limit;
use holdfast_base::messages::{Language, Message, Text, message};
use holdfast_shop::db::ErrorClass;
use holdfast_shop::{Cents, Error, Failure, Rejection};
pub use problem_type::ProblemType;

const CHALLENGE: &str = "Bearer realm=\"holdfast\"";

pub type HttpResult = Result<HttpResponse, Problem>;

/// A problem response. Boxed, to keep the `Result` of every handler small.
#[derive(Debug, Clone)]
pub struct Problem(Box<ProblemFields>);

#[derive(Debug, Clone)]
struct ProblemFields {
    problem_type: ProblemType,
    status: StatusCode,
    detail: Message,
    is_admin_only: bool,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub fn new(problem_type: ProblemType, detail: Message) -> Self {
        Self(Box::new(ProblemFields {
            problem_type,
            status: problem_type.status(),
            detail,
            is_admin_only: false,
            members: Map::new(),
            retry_after_s: problem_type.definition().retry_after_s,
            headers: Vec::new(),
        }))
    }

    pub fn missing(what: Message) -> Self {
        Self::new(ProblemType::NotFound, what)
    }

    pub fn session_over() -> Self {
        Self::new(ProblemType::Unauthenticated, message!("problem-session-over"))
    }

    pub fn admin_only() -> Self {
        Self::for_admin(message!("problem-admin-only"))
    }

    /// As [`Self::admin_only`], in a class.
    pub fn teacher_only() -> Self {
        Self::for_admin(message!("class-teacher-only"))
    }

    fn for_admin(detail: Message) -> Self {
        let mut problem = Self::new(ProblemType::Forbidden, detail);
        problem.0.is_admin_only = true;
        problem
    }

    /// Returns whether only an admin, in a class the teacher, may do it.
    pub fn is_admin_only(&self) -> bool {
        self.0.is_admin_only
    }

    /// Returns the problem of a template or a drawing that failed; the log says why.
    pub fn undrawn_page() -> Self {
        Self::new(ProblemType::InternalError, message!("problem-undrawn-page"))
    }

    pub fn no_page(path: &str) -> Self {
        Self::missing(message!("problem-missing-page", path))
    }

    pub fn unreadable_body(error: impl Into<Text>) -> Self {
        let detail = message!("problem-unreadable-body", error = error);
        Self::new(ProblemType::InvalidRequest, detail).status(StatusCode::BAD_REQUEST)
    }

    pub fn field(field: &str, why: Message) -> Self {
        Self::invalid_field(field, &why.into())
    }

    /// Returns the problem of a field that a parser refused, in the parser's words.
    pub fn unparsed_field(field: &str, why: impl fmt::Display) -> Self {
        Self::invalid_field(field, &why.into())
    }

    fn invalid_field(field: &str, why: &Text) -> Self {
        let errors = json!([{ "field": field, "detail": why.english() }]);
        let detail = message!("problem-field", field, why = why);
        Self::new(ProblemType::InvalidRequest, detail).with("errors", errors)
    }

    /// Names the item of a problem as a person knows it, in place of its sku.
    #[must_use]
    pub fn with_item_name(mut self, name: &str) -> Self {
        self.0.detail = self.0.detail.with("sku", name);
        self
    }

    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    pub fn problem_type(&self) -> ProblemType {
        self.0.problem_type
    }

    pub fn detail(&self) -> &Message {
        &self.0.detail
    }

    /// Returns what a page says: of amounts, in the form of the pages.
    pub fn page_detail(&self, language: Language) -> String {
        let name = self.0.problem_type.definition().name;
        let for_pages = self.0.detail.with_id(&format!("problem-{name}-detail-page"));
        for_pages.format(language).unwrap_or_else(|| self.0.detail.text(language))
    }

    pub fn member(&self, name: &str) -> Option<&Value> {
        self.0.members.get(name)
    }

    pub fn code(&self) -> StatusCode {
        self.0.status
    }

    /// Adds the lock's holder, named as in `GET /api/locks`; null where it is unknown.
    fn held_by(self, holder: Holder) -> Self {
        self.with("holder_since", since(holder.since_ms))
            .with("holder_process", holder.process)
            .with("holder_fence", holder.fence)
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.problem_type.definition().name, self.0.detail.english())
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let definition = self.0.problem_type.definition();
        let mut body = json!({
            "type": format!("/problems/{}", definition.name),
            "title": definition.title(Language::English),
            "status": self.0.status.as_u16(),
            "detail": self.0.detail.english(),
        });
        if let Value::Object(body) = &mut body {
            body.extend(self.0.members.clone());
        }

        let mut response = HttpResponse::build(self.0.status);
        response.content_type("application/problem+json");
        if let Some(seconds) = self.0.retry_after_s {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }

        let challenged = self.0.headers.iter().any(|(name, _)| name == WWW_AUTHENTICATE);
        if self.0.status == StatusCode::UNAUTHORIZED && !challenged {
            response.insert_header((WWW_AUTHENTICATE, CHALLENGE));
        }

        for header in &self.0.headers {
            response.append_header(header.clone());
        }

        response.body(body.to_string())
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Invalid(field, why) => Problem::field(&field, why),
            Rejection::AdminOnly => Problem::admin_only(),
            Rejection::Forbidden(why) => Problem::new(ProblemType::Forbidden, why),
            Rejection::NotFound(what) => Problem::missing(what),
            Rejection::Exists(what) => Problem::new(ProblemType::Exists, what),
            Rejection::SoldOut { sku, requested, available } => {
                let detail = message!("problem-sold-out-detail", requested, sku, available);
                Problem::new(ProblemType::SoldOut, detail)
                    .with("sku", sku.as_str())
                    .with("requested", requested)
                    .with("available", available)
            }
            Rejection::PriceChanged { expected_total_cents, total_cents } => {
                price_changed(expected_total_cents, total_cents)
            }
            Rejection::LimitReached { sku, limit, already, requested } => {
                let detail =
                    message!("problem-limit-reached-detail", limit, sku, already, requested);
                Problem::new(ProblemType::LimitReached, detail)
                    .with("sku", sku.as_str())
                    .with("limit", limit)
                    .with("already", already)
                    .with("requested", requested)
            }
            Rejection::TooManyUnpaid { max, wait } => {
                let detail = message!("problem-too-many-unpaid", max);
                Problem::new(ProblemType::TooManyRequests, detail)
                    .retry_after(wait.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX))
                    .with("limit", "unpaid")
            }
            Rejection::InsufficientFunds { needed_cents, balance_cents, in_lab } => {
                insufficient_funds(needed_cents, balance_cents, in_lab)
            }
            Rejection::OrderState { status, action } => {
                let status = status.name();
                let detail = message!("problem-order-state-detail", action, status);
                Problem::new(ProblemType::OrderState, detail).with("order_status", status)
            }
            Rejection::OrderExpired => {
                Problem::new(ProblemType::OrderExpired, message!("problem-order-expired-detail"))
            }
            Rejection::KeyInFlight => {
                let detail = message!("problem-key-in-flight");
                Problem::new(ProblemType::IdempotencyKeyInFlight, detail).retry_after(1)
            }
            Rejection::KeyMismatch => {
                let detail = message!("problem-key-mismatch");
                Problem::new(ProblemType::IdempotencyKeyMismatch, detail)
            }
            Rejection::KeyUsed { order_id } => {
                let detail = message!("problem-key-used");
                let problem = Problem::new(ProblemType::IdempotencyKeyUsed, detail);
                match order_id {
                    Some(order) => problem.with("order_id", order.to_string()),
                    None => problem,
                }
            }
            Rejection::LockBusy(holder) => lock_busy(holder),
            Rejection::LockTimeout { waited, holder } => {
                let detail = message!("problem-lock-waited", ms = waited.as_millis());
                Problem::new(ProblemType::LockTimeout, detail).held_by(holder)
            }
            Rejection::LabBusy => overloaded(message!("problem-lab-connections")),
            Rejection::TooManyPauses => overloaded(message!("problem-lab-pauses")),
        }
    }
}

fn overloaded(detail: Message) -> Problem {
    Problem::new(ProblemType::Overloaded, detail)
}

fn price_changed(expected_total_cents: i64, total_cents: i64) -> Problem {
    let detail = message!(
        "problem-price-changed-detail",
        total_cents,
        expected_cents = expected_total_cents,
        total = Cents(total_cents).money(),
        expected = Cents(expected_total_cents).money(),
    );
    Problem::new(ProblemType::PriceChanged, detail)
        .with("expected_total_cents", expected_total_cents)
        .with("total_cents", total_cents)
}

fn insufficient_funds(needed_cents: i64, balance_cents: i64, in_lab: bool) -> Problem {
    let account = if in_lab { "lab" } else { "shop" };
    let detail = message!(
        "problem-insufficient-funds-detail",
        needed_cents,
        balance_cents,
        account,
        needed = Cents(needed_cents).money(),
        balance = Cents(balance_cents).money(),
    );
    Problem::new(ProblemType::InsufficientFunds, detail)
        .with("needed_cents", needed_cents)
        .with("balance_cents", balance_cents)
        .with("account", account)
}

fn lock_busy(holder: Holder) -> Problem {
    let remaining_ms = holder.remaining.map_or(50, |left| left.as_millis().min(1_000));
    let retry_after_ms = u64::try_from(remaining_ms).unwrap_or(1_000);
    Problem::new(ProblemType::LockBusy, message!("problem-lock-held"))
        .held_by(holder)
        .with("retry_after_ms", retry_after_ms)
        .retry_after(retry_after_ms.div_ceil(1_000).max(1))
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(rejection) => rejection.into(),
            Failure::Error(error) => error.into(),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        log(&error);
        match error {
            Error::Unavailable { what, outcome_unknown, .. } => {
                let what = Message::new(what.id());
                let problem = unavailable(message!("problem-no-response", what));
                if outcome_unknown { problem.with("outcome", "unknown") } else { problem }
            }
            Error::RedisRefuses { refusal, .. } => {
                unavailable(message!("problem-redis-refused", code = refusal.code()))
            }
            Error::Postgres(class, _) => of_postgres(class),
            Error::Overloaded(_) => overloaded(message!("problem-overloaded-queue")),
            Error::GivenUp(_) => overloaded(message!("problem-overloaded-given-up")),
            Error::Conflict(_) => {
                overloaded(message!("problem-overloaded-conflicts", attempts = 1_u32))
            }
            Error::Conflicts { attempts, .. } => {
                overloaded(message!("problem-overloaded-conflicts", attempts))
            }
            Error::LockLost(_) => {
                Problem::new(ProblemType::LockLost, message!("problem-lock-lost-detail"))
            }
            Error::Bug(_) => Problem::new(ProblemType::InternalError, message!("problem-bug")),
        }
    }
}

fn of_postgres(class: ErrorClass) -> Problem {
    match class {
        ErrorClass::CannotWrite => unavailable(message!("problem-no-writes")),
        ErrorClass::Refused => unavailable(message!("problem-postgres-refuses")),
        ErrorClass::SessionEnded => unavailable(message!("problem-session-ended")),
        ErrorClass::LockTimeout => {
            Problem::new(ProblemType::LockTimeout, message!("problem-row-locked"))
        }
        ErrorClass::NoConnection => overloaded(message!("problem-overloaded-connections")),
        ErrorClass::Cancelled => overloaded(message!("problem-overloaded-cancelled")),
        ErrorClass::Conflict | ErrorClass::Unavailable | ErrorClass::Bug => {
            overloaded(message!("problem-overloaded-queue"))
        }
    }
}

fn unavailable(detail: Message) -> Problem {
    Problem::new(ProblemType::Unavailable, detail)
}

/// Writes to the log what an operator must mend, one line per kind and interval.
fn log(error: &Error) {
    let kind = match error {
        Error::Unavailable { what, .. } => what.id(),
        Error::RedisRefuses { .. } => "Redis refuses",
        Error::Postgres(ErrorClass::CannotWrite, _) => "Postgres cannot write",
        Error::Postgres(ErrorClass::Refused, _) => "Postgres refuses",
        Error::Bug(_) => "bug",
        _ => return tracing::debug!(%error, "the command is not executed"),
    };

    match (log_limit::admit(kind), error) {
        (Some(left_out), Error::Postgres(ErrorClass::Refused, _) | Error::Bug(_)) => {
            tracing::error!(%error, left_out, "a request failed");
        }
        (Some(left_out), _) => tracing::warn!(%error, left_out, "unavailable"),
        (None, _) => {}
    }
}

fn since(unix_ms: Option<i64>) -> Value {
    unix_ms
        .and_then(time_of_unix_ms)
        .and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok())
        .map_or(Value::Null, Value::String)
}

pub(super) fn time_of_unix_ms(ms: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()
}

//! Problem responses: `application/problem+json` (RFC 9457).
//!
//! Every `type` is an address of this shop, `/problems/NAME`: a page that explains the problem and
//! what to do. The set of types is closed: [`ProblemType::ALL`].

mod problem_type;

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use holdfast_lock::Holder;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use holdfast_base::log_limit;
use holdfast_base::messages::{Language, Message, message};
use holdfast_shop::db::ErrorClass;
use holdfast_shop::{Error, Failure, Rejection, Sku};
pub use problem_type::{ProblemDefinition, ProblemType};

const ADMIN_ONLY: &str = "only an admin can do this";
const CHALLENGE: &str = "Bearer realm=\"holdfast\"";

pub type HttpResult = Result<HttpResponse, Problem>;

/// A problem response. Boxed, to keep the `Result` of every handler small.
#[derive(Debug, Clone)]
pub struct Problem(Box<ProblemFields>);

#[derive(Debug, Clone)]
struct ProblemFields {
    problem_type: ProblemType,
    status: StatusCode,
    detail: String,
    message: Option<Message>,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub fn new(problem_type: ProblemType, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemFields {
            problem_type,
            status: problem_type.status(),
            detail: detail.into(),
            message: None,
            members: Map::new(),
            retry_after_s: problem_type.definition().retry_after_s,
            headers: Vec::new(),
        }))
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::NotFound, detail)
    }

    /// Creates a problem whose detail exists in every language; the API has it in English.
    pub fn with_message(problem_type: ProblemType, message: Message) -> Self {
        let mut problem = Self::new(problem_type, message.english());
        problem.0.message = Some(message);
        problem
    }

    pub fn session_over() -> Self {
        Self::new(ProblemType::Unauthenticated, "no session, or one that is over")
    }

    pub fn admin_only() -> Self {
        Self::new(ProblemType::Forbidden, ADMIN_ONLY)
    }

    /// Whether an admin, in a class the teacher, may do it.
    pub fn is_admin_only(&self) -> bool {
        let message = self.0.message.as_ref().map(Message::id);
        self.0.detail == ADMIN_ONLY || message == Some("class-teacher-only")
    }

    pub fn missing(message: Message) -> Self {
        Self::with_message(ProblemType::NotFound, message)
    }

    pub fn no_page(path: &str) -> Self {
        Self::missing(message!("problem-missing-page", path))
    }

    pub fn unreadable_body(error: &impl fmt::Display) -> Self {
        let detail = format!("the body can't be read: {error}");
        Self::new(ProblemType::InvalidRequest, detail).status(StatusCode::BAD_REQUEST)
    }

    pub fn field(field: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = json!([{ "field": field, "detail": detail }]);
        Self::new(ProblemType::InvalidRequest, format!("{field}: {detail}")).with("errors", errors)
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

    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    pub fn message(&self) -> Option<&Message> {
        self.0.message.as_ref()
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
        write!(f, "{}: {}", self.0.problem_type.definition().name, self.0.detail)
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
            Rejection::Forbidden(why) => Problem::new(ProblemType::Forbidden, why),
            Rejection::NotFound(message) => Problem::missing(message),
            Rejection::Exists(what) => Problem::new(ProblemType::Exists, what),
            Rejection::SoldOut { sku, requested, available } => {
                let detail = format!("{requested} of {sku} requested, {available} left");
                Problem::new(ProblemType::SoldOut, detail)
                    .with("sku", sku.as_str())
                    .with("requested", requested)
                    .with("available", available)
            }
            Rejection::PriceChanged { expected_total_cents, total_cents } => {
                price_changed(expected_total_cents, total_cents)
            }
            Rejection::LimitReached { sku, limit, already, requested } => {
                limit_reached(&sku, limit, already, requested)
            }
            Rejection::TooManyUnpaid { max, wait } => {
                let detail = format!(
                    "you have {max} unpaid orders, the limit; pay or cancel one, or wait until one \
                     expires"
                );
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
                Problem::with_message(ProblemType::OrderState, detail).with("order_status", status)
            }
            Rejection::OrderExpired => {
                let detail = "it can no longer be paid; nothing was paid";
                Problem::new(ProblemType::OrderExpired, detail)
            }
            Rejection::KeyInFlight => {
                let detail = "a request with this key is still running";
                Problem::new(ProblemType::IdempotencyKeyInFlight, detail).retry_after(1)
            }
            Rejection::KeyMismatch => {
                let detail = "this key was sent with a different payload before";
                Problem::new(ProblemType::IdempotencyKeyMismatch, detail)
            }
            Rejection::KeyUsed { order_id } => {
                let detail = "this key was used more than a day ago";
                let problem = Problem::new(ProblemType::IdempotencyKeyUsed, detail);
                match order_id {
                    Some(order) => problem.with("order_id", order.to_string()),
                    None => problem,
                }
            }
            Rejection::LockBusy(holder) => lock_busy(holder),
            Rejection::LockTimeout { waited, holder } => {
                let detail = format!("waited {} ms", waited.as_millis());
                Problem::new(ProblemType::LockTimeout, detail).held_by(holder)
            }
            Rejection::LabBusy => overloaded(message!("problem-lab-connections")),
            Rejection::TooManyPauses => overloaded(message!("problem-lab-pauses")),
        }
    }
}

fn overloaded(detail: Message) -> Problem {
    Problem::with_message(ProblemType::Overloaded, detail)
}

fn price_changed(expected_total_cents: i64, total_cents: i64) -> Problem {
    let detail =
        format!("it costs {total_cents} cents now, and {expected_total_cents} are expected");
    Problem::new(ProblemType::PriceChanged, detail)
        .with("expected_total_cents", expected_total_cents)
        .with("total_cents", total_cents)
}

fn limit_reached(sku: &Sku, limit: i64, already: i64, requested: i64) -> Problem {
    let detail = format!(
        "at most {limit} of {sku} per customer: you have {already}, and requested {requested}"
    );
    Problem::new(ProblemType::LimitReached, detail)
        .with("sku", sku.as_str())
        .with("limit", limit)
        .with("already", already)
        .with("requested", requested)
}

fn insufficient_funds(needed_cents: i64, balance_cents: i64, in_lab: bool) -> Problem {
    let account = if in_lab {
        "lab account, which pays for lab items; refund one to get its price back"
    } else {
        "account"
    };
    let detail = format!("{needed_cents} cents due, {balance_cents} cents in the {account}");
    Problem::new(ProblemType::InsufficientFunds, detail)
        .with("needed_cents", needed_cents)
        .with("balance_cents", balance_cents)
        .with("account", if in_lab { "lab" } else { "shop" })
}

fn lock_busy(holder: Holder) -> Problem {
    let remaining_ms = holder.remaining.map_or(50, |left| left.as_millis().min(1_000));
    let retry_after_ms = u64::try_from(remaining_ms).unwrap_or(1_000);
    Problem::new(ProblemType::LockBusy, "another request holds the lock")
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
                let problem = unavailable(format!("{what} does not respond"));
                if outcome_unknown { problem.with("outcome", "unknown") } else { problem }
            }
            Error::RedisRefuses { refusal, .. } => {
                let detail = message!("problem-redis-refused", code = refusal.code());
                Problem::with_message(ProblemType::Unavailable, detail)
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
                let detail = "the lock was lost before the write; nothing was written";
                Problem::new(ProblemType::LockLost, detail)
            }
            Error::Bug(_) => {
                Problem::new(ProblemType::InternalError, "the shop's log has the details")
            }
        }
    }
}

fn of_postgres(class: ErrorClass) -> Problem {
    match class {
        ErrorClass::CannotWrite => {
            unavailable("Postgres accepts no writes now; nothing was written")
        }
        ErrorClass::Refused => unavailable("Postgres refuses the shop's user; nothing was written"),
        ErrorClass::SessionEnded => {
            Problem::with_message(ProblemType::Unavailable, message!("problem-session-ended"))
        }
        ErrorClass::LockTimeout => {
            let detail = "a row stayed locked in Postgres; nothing was changed";
            Problem::new(ProblemType::LockTimeout, detail)
        }
        ErrorClass::NoConnection => overloaded(message!("problem-overloaded-connections")),
        ErrorClass::Cancelled => overloaded(message!("problem-overloaded-cancelled")),
        ErrorClass::Conflict | ErrorClass::Unavailable | ErrorClass::Bug => {
            overloaded(message!("problem-overloaded-queue"))
        }
    }
}

fn unavailable(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemType::Unavailable, detail)
}

/// Writes to the log what an operator must mend, one line per kind and interval.
fn log(error: &Error) {
    let kind = match error {
        Error::Unavailable { what, .. } => what,
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

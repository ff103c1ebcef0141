//! Reads a form with a file, which may be larger than other bodies.
//!
//! Guarantees: at most [`MAX_UPLOADS`] are in memory at a time, each read for at most
//! [`UPLOAD_TIMEOUT`]. The caller checks first who sends it.

use std::sync::LazyLock;
use std::time::Duration;

use actix_multipart::{Multipart, MultipartError};
use actix_web::HttpRequest;
use actix_web::error::PayloadError;
use actix_web::web::{Bytes, Payload};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::web::middleware::body::MAX_BODY_BYTES;
use crate::web::middleware::read_body::declared_length;
use crate::web::{Problem, ProblemType, app_state};
use holdfast_base::messages::message;
use holdfast_lab::run::LabRun;
use holdfast_lab::store::ImportedRun;
use holdfast_shop::budget::{Budget, BudgetPermit};

pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Upper bound of the form, a file and its fields; `deploy/nginx.conf` has the same.
const MAX_FORM_BYTES: usize = MAX_FILE_BYTES + MAX_BODY_BYTES;
/// Less than [`REQUEST_TIMEOUT`](holdfast_shop::REQUEST_TIMEOUT), with [`PERMIT_TIMEOUT`].
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(6);
/// Upper bound of the forms that are read or shown at a time; others wait, unread. Those of one
/// address leave a place for others, however slowly it sends them.
const MAX_UPLOADS: usize = 4;
const MAX_UPLOADS_OF_ADDRESS: usize = 3;
const PERMIT_TIMEOUT: Duration = Duration::from_millis(1_500);

static PERMITS: LazyLock<Budget<String>> =
    LazyLock::new(|| Budget::new(MAX_UPLOADS, MAX_UPLOADS_OF_ADDRESS));

/// Upper bound of the events of a run over all its lists, and of those that its page draws.
pub use holdfast_lab::run::MAX_EVENTS;
/// Upper bound of the JSON of a run, which each of its pages reads: three times that of six arms
/// with all their forks.
const MAX_RUN_BYTES: usize = 2_000_000;

/// How the JSON in a saved page begins: with the element that has it.
const DATA_START: &[u8] = b"<script type=\"application/json\" id=\"holdfast-";

/// Upper bounds of the lists and maps in a file, by name.
const MAX_LENGTHS: [(&str, usize); 17] = [
    ("arms", 24),
    ("lanes", 600),
    ("events", 1_000),
    ("scenes", 100),
    ("evidence", 200),
    ("said", 500),
    ("strategies", 24),
    ("samples", 1_000),
    ("waits", 100),
    ("forked", 100),
    ("entries", 2_000),
    ("faults", 40),
    ("violations", 100),
    ("statuses", 100),
    ("arguments", 50),
    ("passes", 40),
    ("statements", 20),
];
const MAX_TEXT_LENGTH: usize = 2_000;
/// Messages within messages. One may have the same argument twice, so each may double the text.
const MAX_NESTED_MESSAGES: usize = 3;

pub struct UploadedForm {
    pub csrf: String,
    pub file: Vec<u8>,
    /// Until the file is parsed.
    _permit: BudgetPermit,
}

/// Why a file is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// This program cannot have written it.
    Invalid,
    /// A run that is longer than any that the lab writes.
    TooLong,
}

/// Reads a form with a file. A larger one is refused before its body is read, or where it exceeds
/// the bound.
///
/// # Errors
/// `payload-too-large`, `request-timeout`, `overloaded` or `invalid-request`.
pub(crate) async fn read(request: &HttpRequest, body: Payload) -> Result<UploadedForm, Problem> {
    let too_large = || Problem::new(ProblemType::PayloadTooLarge, message!("problem-large-file"));
    if declared_length(request.headers()) > MAX_FORM_BYTES {
        return Err(too_large());
    }
    let address = app_state(request)?.rate_limits.address_name(request);
    let permit = timeout(PERMIT_TIMEOUT, PERMITS.acquire(address)).await;
    let Ok(Some(permit)) = permit else {
        return Err(Problem::new(ProblemType::Overloaded, message!("problem-other-files")));
    };

    let body = timeout(UPLOAD_TIMEOUT, body.to_bytes_limited(MAX_FORM_BYTES)).await;
    let body = body.map_err(|_| {
        let detail = message!("problem-late-file", seconds = UPLOAD_TIMEOUT.as_secs());
        Problem::new(ProblemType::RequestTimeout, detail)
    })?;
    let body = body.map_err(|_| too_large())?;
    let body = body.map_err(|error| Problem::unreadable_body(&error))?;

    let fields = read_fields(request, body).await;
    let [csrf, file] = fields.map_err(|error| Problem::unreadable_body(&error))?;
    Ok(UploadedForm { csrf: String::from_utf8_lossy(&csrf).into_owned(), file, _permit: permit })
}

async fn read_fields(request: &HttpRequest, body: Bytes) -> Result<[Vec<u8>; 2], MultipartError> {
    let body = stream::iter([Ok::<_, PayloadError>(body)]);
    // No form has more fields than these, and each costs a worker time.
    let mut form = Multipart::new(request.headers(), body).take(2);
    let mut fields = [Vec::new(), Vec::new()];

    while let Some(field) = form.next().await {
        let mut field = field?;
        let place = ["csrf", "file"].iter().position(|name| field.name() == Some(*name));
        while let Some(chunk) = field.next().await {
            let chunk = chunk?;
            if let Some(place) = place {
                fields[place].extend_from_slice(&chunk);
            }
        }
    }

    Ok(fields)
}

/// Returns the JSON in a file: that which is embedded in a saved page, or the whole file.
pub fn embedded_json(file: &[u8]) -> &[u8] {
    let find = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|it| it == text);
    let Some(start) = find(file, DATA_START) else { return file };
    let element = &file[start + DATA_START.len()..];
    let json = find(element, b">").map_or(element, |end| &element[end + 1..]);
    find(json, b"<").map_or(json, |end| &json[..end])
}

/// Parses a run, and makes the JSON that is stored.
pub fn parse_run(json: &[u8]) -> Result<ImportedRun, FileError> {
    let run: LabRun = parse(json)?;
    let events: usize = run.outcome.lanes.iter().map(|lane| lane.events.len()).sum();
    if events > MAX_EVENTS {
        return Err(FileError::TooLong);
    }

    let run = ImportedRun::new(run).map_err(|_| FileError::Invalid)?;
    if run.length() > MAX_RUN_BYTES { Err(FileError::TooLong) } else { Ok(run) }
}

/// Parses JSON that this program wrote.
pub fn parse<T: DeserializeOwned + Serialize>(json: &[u8]) -> Result<T, FileError> {
    // First by its type, because a value of any JSON may need a hundred times the file's memory.
    let parsed: T = serde_json::from_slice(json).map_err(|error| {
        tracing::debug!(%error, "a file can't be opened");
        FileError::Invalid
    })?;
    let value = serde_json::to_value(&parsed).map_err(|_| FileError::Invalid)?;
    if is_plausible("", &value, 0) { Ok(parsed) } else { Err(FileError::Invalid) }
}

/// Returns whether lists, texts and measurements are within bounds, and no text has a zero byte,
/// which Postgres cannot store in JSON. `messages` are those around the value.
fn is_plausible(name: &str, value: &Value, messages: usize) -> bool {
    match value {
        Value::Object(_) if name == "arguments" && messages == MAX_NESTED_MESSAGES => false,
        Value::Array(items) => {
            let limit = MAX_LENGTHS.iter().find(|(list, _)| *list == name);
            limit.is_none_or(|(_, limit)| items.len() <= *limit)
                && items.iter().all(|item| is_plausible(name, item, messages))
        }
        Value::Object(fields) => {
            let limit = MAX_LENGTHS.iter().find(|(map, _)| *map == name);
            if limit.is_some_and(|(_, limit)| fields.len() > *limit) {
                return false;
            }
            let messages = messages + usize::from(name == "arguments");
            let is_fine = |name, value| is_plain(name) && is_plausible(name, value, messages);
            fields.iter().all(|(name, value)| is_fine(name, value))
        }
        Value::String(text) => is_plain(text),
        Value::Number(number) if number.is_f64() => {
            number.as_f64().is_some_and(|number| (0.0..=1e9).contains(&number))
        }
        _ => true,
    }
}

fn is_plain(text: &str) -> bool {
    text.chars().count() <= MAX_TEXT_LENGTH && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn implausible_file_is_refused() {
        let is_read = |value: Value| parse::<Value>(value.to_string().as_bytes()).is_ok();
        assert!(is_read(
            json!({ "faults": vec![0; 40], "p99_ms": 1.5, "name": "x".repeat(2_000) })
        ));
        let nested = |depth| {
            (0..depth).fold(json!("x"), |text, _| json!({ "id": "a", "arguments": { "b": text } }))
        };
        assert!(is_read(nested(3)));
        for refused in [
            nested(4),
            json!({ "faults": vec![0; 41] }),
            json!([{ "name": "x".repeat(2_001) }]),
            json!({ "p99_ms": 1e12 }),
            json!({ "name": "a\0b" }),
        ] {
            assert!(!is_read(refused.clone()), "{refused}");
        }
    }

    #[test]
    fn balancer_admits_the_largest_form() {
        let config = include_str!("../../../../deploy/nginx.conf");
        let expected = format!("client_max_body_size {};", MAX_FORM_BYTES);
        assert!(config.contains(&expected), "{expected}");
    }
}

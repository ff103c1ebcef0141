//! A run as a file: saved as one HTML page, and opened again in this shop or in another one. A file
//! is untrusted input: it is parsed as a run, checked against a run's limits, and shown as text.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::web::{Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::Value;
use time::OffsetDateTime;

use super::index;
use super::run_list::run_address;
use super::saved_run::{self, embedded_json};
use super::upload::{self, UploadedForm};
use crate::lab::run::LabRun;
use crate::lab::store;
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::LabReader;
use crate::web::middleware::lab_access::{check_file_access, check_run_form};
use crate::web::pages::layout::Layout;
use crate::web::{HttpResult, State, see_other};

/// Upper bounds of the lists in a run, by name.
const MAX_LENGTHS: [(&str, usize); 10] = [
    ("arms", 24),
    ("lanes", 600),
    ("events", 200),
    ("evidence", 200),
    ("said", 500),
    ("strategies", 24),
    ("samples", 3_000),
    ("waits", 100),
    ("forked", 2_000),
    ("entries", 2_000),
];
/// Upper bound of a text, in characters.
const MAX_TEXT_LENGTH: usize = 2_000;

pub async fn save(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let run = find_run(&state, &id).await?;
    if !run.state.is_over() {
        return Ok(see_other(&run_address(&run.id)));
    }
    let name = format!("attachment; filename=\"holdfast-run-{}.html\"", run.id);
    let page = saved_run::render(&request, run)?;
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_DISPOSITION, name)).content_type("text/html; charset=utf-8");
    Ok(response.body(page))
}

/// Opens a file: stores its run and redirects to it.
pub async fn open(state: State, request: HttpRequest, body: Payload) -> HttpResult {
    check_file_access(&request).await?;
    let upload = upload::read(&request, body).await?;
    check_run_form(&request, upload.as_ref().map_or("", |upload| &upload.csrf)).await?;
    let upload = upload.as_ref().ok_or("lab-file-unreadable");
    match upload.and_then(parse) {
        Ok(run) => {
            let address = run_address(&run.id);
            let is_new = store::import(&state.shop.pool, &run).await?;
            Ok(see_other(&if is_new { address } else { format!("{address}?known=1") }))
        }
        Err(why) => {
            let language = Layout::minimal(&request)?.language;
            let form = index::LoadForm::default_of(&state, language);
            index::page(&request, form, Some(language.text(why))).await
        }
    }
}

/// Parses the run of a file; the error is the message that explains it to a person.
fn parse(upload: &UploadedForm) -> Result<LabRun, &'static str> {
    if upload.file.is_empty() {
        return Err("lab-file-none");
    }
    let run = serde_json::from_slice(embedded_json(&upload.file));
    let run: LabRun = run.map_err(|_| "lab-file-invalid")?;
    match invalid_run(&run) {
        None => Ok(run),
        Some(why) => {
            tracing::debug!(why, "the file of a run is invalid");
            Err("lab-file-invalid")
        }
    }
}

/// Returns the reason why no lab can have written this run, if there is one.
fn invalid_run(run: &LabRun) -> Option<String> {
    if !run.state.is_over() {
        return Some("it is not over".to_owned());
    }
    // Clocks differ.
    let latest = OffsetDateTime::now_utc() + time::Duration::days(1);
    if run.created_at > latest || run.created_at.year() < 2000 {
        return Some("created_at is no time at which a run could be asked for".to_owned());
    }
    match serde_json::to_value(run) {
        Ok(value) => invalid_value("run", &value, &MAX_LENGTHS),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the reason why a part of a file is invalid, if it is: a list or a text is too long, a
/// measurement is out of range, or a text has a zero byte, which Postgres cannot store in JSON.
pub(super) fn invalid_value(
    name: &str,
    value: &Value,
    max_lengths: &[(&str, usize)],
) -> Option<String> {
    match value {
        Value::Array(items) => {
            let limit = max_lengths.iter().find(|(list, _)| *list == name);
            if limit.is_some_and(|(_, limit)| items.len() > *limit) {
                return Some(format!("it has too many {name}"));
            }
            items.iter().find_map(|item| invalid_value(name, item, max_lengths))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            invalid_text(name).or_else(|| invalid_value(name, value, max_lengths))
        }),
        Value::String(text) => invalid_text(text),
        Value::Number(number) if number.is_f64() => {
            let in_range = number.as_f64().is_some_and(|number| (0.0..=1e9).contains(&number));
            (!in_range).then(|| format!("{name} is out of range"))
        }
        _ => None,
    }
}

fn invalid_text(text: &str) -> Option<String> {
    let invalid = text.chars().count() > MAX_TEXT_LENGTH || text.contains('\0');
    invalid.then(|| "a text in it is too long, or has a zero byte".to_owned())
}

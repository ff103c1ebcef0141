//! The jobs page, for admins: scheduled jobs, their runs and results, order expiry, and what has
//! failed too often. An open page refreshes itself.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde::Deserialize as _;
use serde_json::Value;
use time::OffsetDateTime;

use super::format::{FormatTime as _, format_count};
use super::layout::Layout;
use super::respond::html;
use crate::jobs::audit::AuditResult;
use crate::jobs::history::JobRun;
use crate::jobs::order_expiry::failures;
use crate::jobs::status::{self, JobStatus, JobsStatus};
use crate::jobs::store::{self, RunState};
use crate::web::middleware::{AdminUser, FormFields, body, csrf};
use crate::web::{HttpResult, State, see_other};

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    layout: Layout,
    status: JobsStatus,
}

impl JobsPage {
    fn time_limit(&self, job: &JobStatus) -> String {
        short_duration(i64::try_from(job.at_most_for_s).unwrap_or(0) * 1_000)
    }

    /// Returns the result of the latest completed run, and when it began, if that is not the last
    /// run.
    fn previous(&self, job: &JobStatus) -> Option<(ResultText, OffsetDateTime)> {
        let (last, done) = (job.last.as_ref()?, job.last_done.as_ref()?);
        let result = result_text(done.result.as_ref()).filter(|_| last.id != done.id)?;
        Some((result, done.started_at))
    }

    /// Returns the state of a run, as a symbol and a word.
    fn state(&self, run: &JobRun) -> (&'static str, &'static str) {
        match run.state {
            RunState::Running => ("◔", "running"),
            RunState::Done => ("●", "done"),
            RunState::Failed => ("↻", "failed"),
            RunState::Parked => ("▲", "parked"),
        }
    }

    fn took(&self, run: &JobRun) -> String {
        run.took_ms().map_or_else(|| "not over".to_owned(), short_duration)
    }

    fn result(&self, run: &JobRun) -> Option<ResultText> {
        result_text(run.result.as_ref())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ResultText {
    text: String,
    /// True if units or money do not add up.
    is_unsound: bool,
}

pub async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let status = status::jobs_status(&state.shop, &state.jobs, &state.order_expiry).await?;
    html(StatusCode::OK, &JobsPage { layout: Layout::of(&request).await?, status })
}

/// The extracted parts of a form of this page, whose path has an id.
type RetryForm = (State, HttpRequest, Path<String>, Form<FormFields>);

/// Retries a parked run; does nothing if it is no longer parked (a second click).
pub async fn try_again((state, request, id, form): RetryForm) -> HttpResult {
    csrf::check_admin_form(&request, form.csrf()).await?;
    if let Ok(id) = id.parse() {
        store::try_again(&state.shop.pool, id).await?;
    }
    Ok(see_other("/jobs"))
}

/// Retries an unpaid order whose expiry failed; does nothing if it is no longer unpaid.
pub async fn retry_expiry((state, request, id, form): RetryForm) -> HttpResult {
    csrf::check_admin_form(&request, form.csrf()).await?;
    failures::try_again(&state.shop, body::parse_order_id(&id)?).await?;
    Ok(see_other("/jobs"))
}

/// Formats a duration: `12 ms`, `3.4 s`, `2 min 05 s`.
fn short_duration(ms: i64) -> String {
    match ms {
        ..=999 => format!("{ms} ms"),
        1_000..=59_999 if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        _ => format!("{} min {:02} s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// Counts in a job's result: their field, and their text for 1 and for more. Counts that only
/// measure the amount of work have no text and are not shown.
const COUNT_TEXTS: [(&str, &str, &str); 9] = [
    (
        "due_soon",
        "unpaid order is due within five minutes",
        "unpaid orders are due within five minutes",
    ),
    ("no_room", "of them found no room in the queue", "of them found no room in the queue"),
    ("forgotten", "note about a failure deleted", "notes about failures deleted"),
    ("keys", "idempotency key deleted", "idempotency keys deleted"),
    ("answers", "stored answer deleted", "stored answers deleted"),
    ("sessions", "session deleted", "sessions deleted"),
    ("runs", "old run deleted", "old runs deleted"),
    ("marks", "mark of the lab", "marks of the lab"),
    ("blocks", "", ""),
];

/// Formats a job's result: the audit's verdict, or all counts of another job that are not 0.
fn result_text(result: Option<&Value>) -> Option<ResultText> {
    let result = result?;
    if let Ok(found) = AuditResult::deserialize(result) {
        let AuditResult { sound, checks, failing, .. } = found;
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        let text = if sound {
            format!("sound: all {checks} checks hold")
        } else {
            format!("not sound: {} of {checks} fail: {}", names.len(), names.join(", "))
        };
        return Some(ResultText { text, is_unsound: !sound });
    }
    let Value::Object(fields) = result else { return None };
    let known = COUNT_TEXTS.iter().filter_map(|(name, one, more)| {
        let count = fields.get(*name)?.as_i64().filter(|_| !more.is_empty())?;
        count_text(count, one, more)
    });
    let unknown = fields.iter().filter_map(|(name, value)| {
        let is_known = COUNT_TEXTS.iter().any(|(known, ..)| known == name);
        let (count, name) = (value.as_i64().filter(|_| !is_known)?, name.replace('_', " "));
        count_text(count, &name, &name)
    });
    let mut texts: Vec<String> = known.chain(unknown).collect();
    if fields.get("all") == Some(&Value::Bool(false)) {
        texts.push("the rest is left to the next run".to_owned());
    }
    let text = if texts.is_empty() { "nothing to do".to_owned() } else { texts.join(", ") };
    Some(ResultText { text, is_unsound: false })
}

fn count_text(count: i64, one: &str, more: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{} {more}", format_count(count))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_result_is_described_in_words() {
        let text = |result: Value| {
            result_text(Some(&result)).map(|result_text| (result_text.text, result_text.is_unsound))
        };
        let sound = json!({ "sound": true, "checks": 18, "failing": [], "notes": [] });
        assert_eq!(text(sound), Some(("sound: all 18 checks hold".to_owned(), false)));
        let failing = json!([{ "name": "stock-drift", "ok": false, "detail": "tea" }]);
        let is_unsound = json!({ "sound": false, "checks": 18, "failing": failing, "notes": [] });
        assert_eq!(
            text(is_unsound),
            Some(("not sound: 1 of 18 fail: stock-drift".to_owned(), true))
        );
        let texts = |result: Value| text(result).unwrap().0;
        let purged = json!({ "keys": 3_000, "answers": 1, "runs": 0, "blocks": 9, "all": false });
        assert_eq!(
            texts(purged),
            "3,000 idempotency keys deleted, 1 stored answer deleted, the rest is left to the \
             next run"
        );
        let swept = json!({ "due_soon": 2, "no_room": 1, "forgotten": 0 });
        assert_eq!(
            texts(swept),
            "2 unpaid orders are due within five minutes, 1 of them found no room in the queue"
        );
        assert_eq!(texts(json!({ "due_soon": 0, "no_room": 0, "forgotten": 0 })), "nothing to do");
        assert_eq!(texts(json!({ "keys": 0, "blocks": 9, "all": true })), "nothing to do");
        assert_eq!(texts(json!({ "new_things": 4, "old": 0, "other": "words" })), "4 new things");
    }

    #[test]
    fn duration_is_formatted_compactly() {
        assert_eq!(
            [12, 30_000, 3_450, 125_000, 600_000].map(short_duration),
            ["12 ms", "30 s", "3.4 s", "2 min 05 s", "10 min"].map(str::to_owned)
        );
    }
}

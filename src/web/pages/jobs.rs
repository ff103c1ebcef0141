//! The jobs page, for admins: scheduled jobs and their results, and order expiry. An open page
//! refreshes itself.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde::Deserialize as _;
use serde_json::Value;

use super::format::{FormatTime as _, format_count};
use super::layout::Layout;
use super::respond::html;
use crate::jobs::audit::AuditResult;
use crate::jobs::order_expiry::failures;
use crate::jobs::runs::{JobRun, RunState};
use crate::jobs::{JobStatus, JobsStatus};
use crate::messages::Language;
use crate::web::middleware::{AdminUser, FormFields, body, csrf};
use crate::web::{HttpResult, State, see_other};

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    layout: Layout,
    status: JobsStatus,
}

impl JobsPage {
    fn about(&self, job: &JobStatus) -> String {
        self.layout.text(&format!("admin-job-{}", job.name))
    }

    /// Returns the state of a run, as a symbol and a word.
    fn state(&self, run: &JobRun) -> (&'static str, String) {
        let (symbol, word) = match run.state {
            RunState::Running => ("◔", "admin-jobs-running"),
            RunState::Done => ("●", "admin-jobs-done"),
            RunState::Failed => ("↻", "admin-jobs-failed-state"),
        };
        (symbol, self.layout.text(word))
    }

    /// Returns the result of the newest completed run.
    fn result(&self, job: &JobStatus) -> Option<ResultText> {
        result_text(job.last_done.as_ref()?.result.as_ref()?, self.layout.language)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ResultText {
    text: String,
    /// True if units or money do not add up.
    is_unsound: bool,
}

pub async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let status = state.jobs.status().await?;
    html(StatusCode::OK, &JobsPage { layout: Layout::of(&request).await?, status })
}

/// Retries an unpaid order whose expiry failed; does nothing if it is no longer unpaid.
pub async fn retry_expiry(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    csrf::check_admin_form(&request, form.csrf()).await?;
    failures::try_again(&state.shop, body::parse_order_id(&id)?).await?;
    Ok(see_other("/jobs"))
}

/// Counts in a job's result that the page shows, in this order; others measure only the amount of
/// work.
const COUNTS: [&str; 6] = ["forgotten", "keys", "responses", "sessions", "runs", "marks"];

/// Formats a job's result: the audit's verdict, or all counts of another job that are not 0.
fn result_text(result: &Value, language: Language) -> Option<ResultText> {
    if let Ok(found) = AuditResult::deserialize(result) {
        let AuditResult { sound, checks, failing, .. } = found;
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        let checks = ("checks", checks.into());
        let text = if sound {
            language.text_with("admin-result-sound", &[checks])
        } else {
            let (failed, names) = (names.len().into(), language.list(&names).into());
            let variables = [checks, ("failed", failed), ("names", names)];
            language.text_with("admin-result-unsound", &variables)
        };
        return Some(ResultText { text, is_unsound: !sound });
    }
    let Value::Object(fields) = result else { return None };
    let counts = COUNTS.iter().filter_map(|name| {
        let count = fields.get(*name)?.as_i64().filter(|count| *count != 0)?;
        let variables = [("number", count.into()), ("count", format_count(count).into())];
        let id = format!("admin-result-{}", name.replace('_', "-"));
        Some(language.text_with(&id, &variables))
    });
    let mut texts: Vec<String> = counts.collect();
    if fields.get("all") == Some(&Value::Bool(false)) {
        texts.push(language.text("admin-result-rest"));
    }
    if texts.is_empty() {
        texts.push(language.text("admin-result-nothing"));
    }
    Some(ResultText { text: language.list(&texts), is_unsound: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_result_is_described_in_words() {
        let text = |result: Value| {
            let described = result_text(&result, Language::English);
            described.map(|described| (described.text, described.is_unsound))
        };
        let sound = json!({ "sound": true, "checks": 18, "failing": [] });
        assert_eq!(text(sound), Some(("sound: all 18 checks hold".to_owned(), false)));
        let failing = json!([{ "name": "stock-drift", "ok": false, "detail": "tea" }]);
        let is_unsound = json!({ "sound": false, "checks": 18, "failing": failing });
        assert_eq!(
            text(is_unsound),
            Some(("not sound: 1 of 18 checks fail: stock-drift".to_owned(), true))
        );
        let texts = |result: Value| text(result).unwrap().0;
        let purged = json!({ "keys": 3_000, "responses": 1, "runs": 0, "blocks": 9, "all": false });
        assert_eq!(
            texts(purged),
            "3,000 idempotency keys deleted, 1 stored response deleted, the next run does \
             the rest"
        );
        assert_eq!(texts(json!({ "keys": 0, "blocks": 9, "all": true })), "nothing to do");
    }
}

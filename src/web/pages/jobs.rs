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
use crate::web::middleware::{AdminUser, FormFields, body, csrf};
use crate::web::{HttpResult, State, see_other};
use holdfast_base::messages::Language;
use holdfast_shop::jobs::audit::AuditResult;
use holdfast_shop::jobs::order_expiry::failures;
use holdfast_shop::jobs::runs::{JobRun, RunState};
use holdfast_shop::jobs::{JobStatus, JobsStatus};

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    layout: Layout,
    status: JobsStatus,
}

impl JobsPage {
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
        let result = job.last_done.as_ref()?.result.as_ref()?;
        Some(result_text(result, self.layout.language))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ResultText {
    text: String,
    /// True if units or money do not add up.
    is_unsound: bool,
}

pub(crate) async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let status = state.jobs.status().await?;
    html(StatusCode::OK, &JobsPage { layout: Layout::of(&request).await?, status })
}

/// Retries an unpaid order whose expiry failed; does nothing if it is no longer unpaid.
pub(crate) async fn retry_expiry(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    csrf::check_admin_form(&request, form.csrf()).await?;
    failures::try_again(&state.shop, body::parse_order_id(&id)?).await?;
    Ok(see_other("/jobs"))
}

/// Formats a job's result: the audit's verdict, or how much another job deleted.
fn result_text(result: &Value, language: Language) -> ResultText {
    if let Ok(AuditResult { sound, checks, failing }) = AuditResult::deserialize(result) {
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        let checks = ("checks", checks.into());
        let text = if sound {
            language.text_with("admin-result-sound", &[checks])
        } else {
            let (failed, names) = (names.len().into(), language.list(&names).into());
            let variables = [checks, ("failed", failed), ("names", names)];
            language.text_with("admin-result-unsound", &variables)
        };
        return ResultText { text, is_unsound: !sound };
    }

    let counts = result.as_object().into_iter().flatten();
    let deleted: i64 = counts.filter_map(|(_, count)| count.as_i64()).sum();

    let mut text = match deleted {
        0 => language.text("admin-result-nothing"),
        _ => {
            let count = format_count(deleted);
            let variables = [("number", deleted.into()), ("count", count.into())];
            language.text_with("admin-result-deleted", &variables)
        }
    };

    if result.get("all") == Some(&Value::Bool(false)) {
        text = language.list(&[text, language.text("admin-result-rest")]);
    }
    ResultText { text, is_unsound: false }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_result_is_described_in_words() {
        let text = |result: Value| {
            let ResultText { text, is_unsound } = result_text(&result, Language::English);
            (text, is_unsound)
        };
        let sound = json!({ "sound": true, "checks": 18, "failing": [] });
        assert_eq!(text(sound), ("sound: all 18 checks hold".to_owned(), false));
        let failing = json!([{ "name": "stock-drift", "ok": false, "detail": "tea" }]);
        let is_unsound = json!({ "sound": false, "checks": 18, "failing": failing });
        assert_eq!(
            text(is_unsound),
            ("not sound: 1 of 18 checks fail: stock-drift".to_owned(), true)
        );
        let texts = |result: Value| text(result).0;
        let purged = json!({ "keys": 3_000, "responses": 1, "runs": 0, "all": false });
        assert_eq!(texts(purged), "3,001 records deleted, the next run does the rest");
        assert_eq!(texts(json!({ "keys": 0, "all": true })), "nothing to do");
    }
}

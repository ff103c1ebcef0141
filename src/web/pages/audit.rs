//! The audit page, for admins: every check with its result, or the progress of the audit.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use askama::Template;

use super::layout::Layout;
use super::respond::html;
use crate::messages::Message;
use crate::shop::audit::{AuditCheck, AuditProgress, AuditReport, AuditStatus};
use crate::web::middleware::AdminUser;
use crate::web::{HttpResult, State};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    layout: Layout,
    audit: Arc<AuditReport>,
    failed: usize,
}

impl AuditPage {
    /// Returns the rule of a check; empty for one that the catalogue does not have.
    fn rule(&self, check: &AuditCheck) -> String {
        let rule = Message::new(&format!("audit-check-{}", check.name));
        rule.format(self.layout.language).unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        let language = self.layout.language;
        let note = |note: &Message| note.text(language);
        self.audit.noted.iter().map(note).collect()
    }
}

/// The page while the audit runs.
#[derive(Debug, Template)]
#[template(path = "audit_running.html")]
struct AuditProgressPage {
    layout: Layout,
    progress: AuditProgress,
}

/// Time for which the page waits for the audit before it shows the progress.
const AUDIT_WAIT: Duration = Duration::from_secs(2);

pub async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let status = state.shop.audits.whole_audit(AUDIT_WAIT).await?;
    let layout = Layout::of(&request).await?;
    match status {
        AuditStatus::Done(audit) => {
            let failed = audit.checks.iter().filter(|check| !check.ok).count();
            html(StatusCode::OK, &AuditPage { layout, audit, failed })
        }
        AuditStatus::Running(progress) => {
            let mut page = html(StatusCode::OK, &AuditProgressPage { layout, progress })?;
            // The browser loads the page again after one second, which waits for the result.
            let refresh = (HeaderName::from_static("refresh"), HeaderValue::from_static("1"));
            page.headers_mut().insert(refresh.0, refresh.1);
            Ok(page)
        }
    }
}

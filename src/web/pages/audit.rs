//! Pages for admins: the audit, with every check and its result, and the locks that are held.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use askama::Template;
use holdfast_lock::inspect::HeldLock;
use time::OffsetDateTime;

use super::format::FormatTime as _;
use super::layout::Layout;
use super::respond::html;
use crate::web::middleware::AdminUser;
use crate::web::problems::time_of_unix_ms;
use crate::web::{HttpResult, State};
use holdfast_base::messages::Message;
use holdfast_shop::Error;
use holdfast_shop::audit::{AuditCheck, AuditProgress, AuditReport, AuditStatus};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    layout: Layout,
    audit: Arc<AuditReport>,
}

impl AuditPage {
    fn failed(&self) -> usize {
        self.audit.checks.iter().filter(|check| !check.ok).count()
    }

    /// Returns the notes without the time, which the page shows in the zone of the browser.
    fn notes(&self) -> Vec<String> {
        let notes = self.audit.noted.iter().map(|note| match note.id() {
            "admin-audit-note-checked" => note.with_id("admin-audit-read"),
            _ => note.clone(),
        });
        notes.map(|note| note.text(self.layout.language)).collect()
    }

    /// Returns the rule of a check; empty for one that the catalogue does not have.
    fn rule(&self, check: &AuditCheck) -> String {
        let rule = Message::new(&format!("audit-check-{}", check.name));
        rule.format(self.layout.language).unwrap_or_default()
    }
}

#[derive(Debug, Template)]
#[template(path = "audit_running.html")]
struct AuditProgressPage {
    layout: Layout,
    progress: AuditProgress,
}

/// Time for which the page waits for the audit before it shows the progress.
const AUDIT_WAIT: Duration = Duration::from_secs(2);

pub(crate) async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let status = state.shop.audits.whole_audit(AUDIT_WAIT).await?;
    let layout = Layout::of(&request).await?;
    match status {
        AuditStatus::Done(audit) => html(StatusCode::OK, &AuditPage { layout, audit }),
        AuditStatus::Running(progress) => {
            let mut page = html(StatusCode::OK, &AuditProgressPage { layout, progress })?;
            // The browser loads the page again after one second, which waits for the result.
            let refresh = HeaderName::from_static("refresh");
            page.headers_mut().insert(refresh, HeaderValue::from_static("1"));
            Ok(page)
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "locks.html")]
struct LocksPage {
    layout: Layout,
    locks: Vec<HeldLock>,
    prefix: String,
}

impl LocksPage {
    fn key<'l>(&self, lock: &'l HeldLock) -> &'l str {
        lock.key.strip_prefix(&self.prefix).unwrap_or(&lock.key)
    }

    fn owner<'l>(&self, lock: &'l HeldLock) -> &'l str {
        lock.owner.split([' ', '@']).next().unwrap_or_default()
    }

    fn holder<'l>(&self, lock: &'l HeldLock) -> &'l str {
        lock.process.as_deref().unwrap_or(self.owner(lock))
    }

    fn since(&self, lock: &HeldLock) -> Option<OffsetDateTime> {
        lock.since_ms.and_then(time_of_unix_ms)
    }

    fn remaining(&self, lock: &HeldLock) -> Option<String> {
        lock.remaining_ms.map(|ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100))
    }
}

pub(crate) async fn show_locks(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let locks = state.shop.locks.held_locks().await.map_err(Error::from)?;
    let prefix = state.shop.locks.leases().settings().key_prefix.clone();
    html(StatusCode::OK, &LocksPage { layout: Layout::of(&request).await?, locks, prefix })
}

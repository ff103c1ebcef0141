//! The locks page, for admins: holder, start and waiters of each lock. An open page refreshes
//! itself.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use holdfast_lock::inspect::HeldLock;
use time::OffsetDateTime;

use super::format::FormatTime as _;
use super::html;
use super::layout::Layout;
use crate::shop::Error;
use crate::web::middleware::csrf;
use crate::web::{AppState, HttpResult};

#[derive(Debug, Template)]
#[template(path = "locks.html")]
struct LocksPage {
    layout: Layout,
    locks: Vec<LockRow>,
}

#[derive(Debug)]
struct LockRow {
    key: String,
    /// The name of the process; the owner if it has none.
    holder: String,
    owner: String,
    since: Option<OffsetDateTime>,
    fence: Option<i64>,
    /// In seconds; `None` if the lock never expires.
    remaining: Option<String>,
    /// `None` for a lock without a queue.
    waiting: Option<u64>,
}

/// Shows the locks.
pub async fn show(state: web::Data<AppState>, request: HttpRequest) -> HttpResult {
    csrf::require_admin(&request).await?;
    let locks = &state.shop.locks;
    let held = locks.held_locks().await.map_err(Error::from)?;
    let prefix = &locks.leases().settings().key_prefix;
    let locks = held.into_iter().map(|lock| lock_row(lock, prefix)).collect();
    let layout = Layout::of(&request).await?;
    html(StatusCode::OK, &LocksPage { layout, locks })
}

fn lock_row(lock: HeldLock, prefix: &str) -> LockRow {
    let since = lock
        .since_ms
        .and_then(|ms| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok());
    let owner = lock.owner.split([' ', '@']).next().unwrap_or_default();
    let holder = lock.process.unwrap_or_else(|| owner.to_owned());
    LockRow {
        key: lock.key.strip_prefix(prefix).unwrap_or(&lock.key).to_owned(),
        holder,
        owner: owner.to_owned(),
        since,
        fence: lock.fence,
        remaining: lock.remaining_ms.map(format_seconds),
        waiting: lock.fence.map(|_| lock.waiting),
    }
}

fn format_seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

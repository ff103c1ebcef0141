//! The locks page, for admins: holder, start and waiters of each lock. An open page refreshes
//! itself.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use askama::Template;
use holdfast_lock::inspect::HeldLock;
use time::OffsetDateTime;

use super::format::FormatTime as _;
use super::layout::Layout;
use super::respond::html;
use crate::shop::Error;
use crate::web::middleware::AdminUser;
use crate::web::problems::time_of_unix_ms;
use crate::web::{HttpResult, State};

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

    /// Returns the name of the process; the owner if it has none.
    fn holder<'l>(&self, lock: &'l HeldLock) -> &'l str {
        lock.process.as_deref().unwrap_or(self.owner(lock))
    }

    fn since(&self, lock: &HeldLock) -> Option<OffsetDateTime> {
        lock.since_ms.and_then(time_of_unix_ms)
    }

    /// Returns the rest of the lease; `None` if the lock never expires.
    fn remaining(&self, lock: &HeldLock) -> Option<String> {
        lock.remaining_ms.map(|ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100))
    }
}

pub async fn show(state: State, request: HttpRequest, _: AdminUser) -> HttpResult {
    let locks = state.shop.locks.held_locks().await.map_err(Error::from)?;
    let prefix = state.shop.locks.leases().settings().key_prefix.clone();
    html(StatusCode::OK, &LocksPage { layout: Layout::of(&request).await?, locks, prefix })
}

//! Admin endpoints: the audit, and the locks that are held.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::RETRY_AFTER;
use holdfast_lock::inspect::HeldLock;
use serde::Serialize;
use utoipa::ToSchema;

use super::responses::json;
use crate::web::middleware::AdminUser;
use crate::web::{HttpResult, State};
use holdfast_shop::Error;
use holdfast_shop::audit::{AuditProgress, AuditReport, AuditStatus};

/// A held lock in Redis.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldLock)]
struct LockView {
    /// The Redis key.
    key: String,
    /// Name of the replica that holds it (without a name, the first digits of its process's UUID);
    /// the same as `holder_process` in a problem.
    process: Option<String>,
    /// The owner of the lock: the key's whole value.
    owner: String,
    /// Time of acquisition in milliseconds of Unix time, as recorded in the value.
    since_ms: Option<i64>,
    /// Time until it expires, unless it is renewed; absent if it never expires.
    remaining_ms: Option<u64>,
    /// The fence, if the lock has one.
    fence: Option<i64>,
    /// Number of processes in its queue. 0 for a lock without a fence: its waiters poll and are not
    /// counted.
    waiting: u64,
}

/// Time for which a request waits for the audit. Less than that of a request, which may also wait
/// for its session.
const AUDIT_WAIT: Duration = Duration::from_secs(5);

/// Checks ledgers, orders, accounts and Redis against each other (admin). If this takes longer than
/// 5 seconds, the response is 202 with the progress: the audit goes on, and the same request, sent
/// again, waits for its result.
#[utoipa::path(get, path = "/api/audit", tag = "proof",
    responses((status = 200, body = AuditReport), (status = 202, body = AuditProgress),
        (status = 403)))]
pub(crate) async fn everything(state: State, _: AdminUser) -> HttpResult {
    match state.shop.audits.whole_audit(AUDIT_WAIT).await? {
        AuditStatus::Done(report) => json(report),
        AuditStatus::Running(progress) => {
            Ok(HttpResponse::Accepted().insert_header((RETRY_AFTER, "1")).json(progress))
        }
    }
}

/// Lists the locks that are held, with holder and start (admin).
#[utoipa::path(get, path = "/api/locks", tag = "proof",
    responses((status = 200, body = [LockView]), (status = 403)))]
pub(crate) async fn locks(state: State, _: AdminUser) -> HttpResult {
    let held = state.shop.locks.held_locks().await.map_err(Error::from)?;
    let view = |lock: HeldLock| {
        let HeldLock { key, process, owner, since_ms, remaining_ms, fence, waiting, .. } = lock;
        LockView { key, process, owner, since_ms, remaining_ms, fence, waiting }
    };
    json(held.into_iter().map(view).collect::<Vec<_>>())
}

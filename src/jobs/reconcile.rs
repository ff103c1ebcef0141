//! Runs the audit every hour and stores its result.
//!
//! It only reads, in one snapshot, so it can be repeated. Unsound books do not fail the job: its
//! result lists the failed checks.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Job, Turn};
use crate::shop::audit::{self, AuditCheck};

pub(super) const JOB: Job = Job {
    name: "reconcile",
    about: "The audit: holds ledgers, orders and accounts against each other, and keeps what it finds.",
    timetable: Some("7 * * * *"),
    // A statement of the audit may take a minute on a long ledger.
    at_most_for: Duration::from_mins(10),
    at_least_for: Duration::from_secs(5),
    run_once: |turn| Box::pin(run_once(turn)),
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub sound: bool,
    pub checks: usize,
    pub failing: Vec<AuditCheck>,
    pub notes: Vec<String>,
}

pub async fn run_once(turn: Turn) -> anyhow::Result<Value> {
    let audit = audit::check_all(&turn.shop.pool, Some(&turn.shop.locks)).await?;
    let checks = audit.checks.len();
    let failing: Vec<AuditCheck> = audit.checks.into_iter().filter(|check| !check.ok).collect();
    if !failing.is_empty() {
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        tracing::error!(checks = names.join(", "), "the books are not sound");
    }
    let found = Found { sound: audit.ok, checks, failing, notes: audit.notes };
    serde_json::to_value(found).context("what was found")
}

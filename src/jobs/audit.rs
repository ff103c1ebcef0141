//! The job `audit`: runs the audit every hour and stores its result.
//!
//! It only reads, in one snapshot, so it can be repeated. A failed check does not fail the job: its
//! result lists the failed checks.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{Job, JobContext};
use crate::shop::audit::{self, AuditCheck};

pub(super) const JOB: Job = Job {
    name: "audit",
    about: "Compares ledgers, orders and accounts with each other, and stores the result.",
    cron: Some("7 * * * *"),
    // A statement of the audit may take a minute on a long ledger.
    timeout: Duration::from_mins(10),
    min_lock_time: Duration::from_secs(5),
    run_once: |context| Box::pin(run_once(context)),
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditResult {
    pub sound: bool,
    pub checks: usize,
    pub failing: Vec<AuditCheck>,
    pub notes: Vec<String>,
}

async fn run_once(context: JobContext) -> anyhow::Result<Value> {
    let audit = audit::check_all(&context.shop.pool, Some(&context.shop.locks)).await?;
    let checks = audit.checks.len();
    let failing: Vec<AuditCheck> = audit.checks.into_iter().filter(|check| !check.ok).collect();
    if !failing.is_empty() {
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        tracing::error!(
            checks = names.join(", "),
            "the audit failed: stock, money or orders do not agree"
        );
    }
    let result = AuditResult { sound: audit.ok, checks, failing, notes: audit.notes };
    serde_json::to_value(result).context("the result of the audit")
}

//! The job `audit`: runs the audit every hour and stores its result.
//!
//! It only reads, in one snapshot, so it can be repeated. A failed check does not fail the job: its
//! result lists the failed checks.

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{Job, JobContext};
use super::runs::{JobRun, RunState};
use super::timetable::Timetable;
use crate::audit::{AUDIT_TIMEOUT, AuditCheck, AuditStatus};
use holdfast_base::metrics::define_metrics;

define_metrics! {
    AUDIT_SOUND: "holdfast_audit_sound", Gauge [] &[],
        "Result of the newest completed audit job: 1 if the books are sound, 0 if not";
    AUDIT_TIME: "holdfast_audit_timestamp_seconds", Gauge [] &[],
        "End of the newest completed audit job, in seconds since 1970";
}

pub(super) const JOB: Job = Job {
    name: "audit",
    timetable: Some(Timetable::hourly(7)),
    timeout: AUDIT_TIMEOUT,
    work: |context| Box::pin(work(context)),
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditResult {
    pub sound: bool,
    pub checks: usize,
    pub failing: Vec<AuditCheck>,
}

/// Records the newest completed audit among `runs`, newest first.
pub(super) fn record_newest(runs: &[JobRun]) {
    let done = runs.iter().find(|run| run.job == JOB.name && run.state == RunState::Done);
    let Some(JobRun { result: Some(result), ended_at: Some(ended_at), .. }) = done else { return };

    let sound = result.get("sound").and_then(Value::as_bool).unwrap_or(false);
    metrics::gauge!(AUDIT_SOUND).set(f64::from(u8::from(sound)));
    metrics::gauge!(AUDIT_TIME).set(ended_at.unix_timestamp() as f64);
}

async fn work(context: JobContext) -> anyhow::Result<Value> {
    let status = context.shop.audits.whole_audit(AUDIT_TIMEOUT).await?;
    let AuditStatus::Done(audit) = status else { bail!("the audit did not end in time") };

    let failing: Vec<AuditCheck> = audit.checks.iter().filter(|check| !check.ok).cloned().collect();
    if !failing.is_empty() {
        let names: Vec<&str> = failing.iter().map(|check| check.name.as_str()).collect();
        tracing::error!(
            checks = names.join(", "),
            "the audit failed: stock, money or orders do not agree"
        );
    }
    let result = AuditResult { sound: audit.ok, checks: audit.checks.len(), failing };
    serde_json::to_value(result).context("the result of the audit")
}

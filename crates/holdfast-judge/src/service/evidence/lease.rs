//! Whether a request has outlived the lease of its lock, by the times of the statements.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::Line;
use crate::service::pass::Pass;
use crate::service::sql::Access;

/// Returns whether one request read the stock for its write only when the lease of the other was
/// over: the gate is held for longer, too.
pub(super) fn is_lease_outlived(lease_ms: Option<u64>, pass: Pass, lines: &[Line]) -> bool {
    // A lock that Redis has lost was not outlived.
    let Some(lease_ms) = lease_ms.filter(|_| !pass.strikes_redis()) else { return false };

    let mut written = BTreeSet::new();
    let mut last_reads = BTreeMap::new();
    for Line { step, report, .. } in lines {
        match step.access {
            Some(Access::Read) if !written.contains(&step.request) => {
                last_reads.insert(step.request, report.sent_ms);
            }
            Some(Access::Write) => {
                written.insert(step.request);
            }
            _ => {}
        }
    }
    let times = || last_reads.values().copied();
    let between = times().fold(0.0, f64::max) - times().fold(f64::INFINITY, f64::min);
    // The lease of the first one had begun before it read.
    last_reads.len() > 1 && between >= 0.8 * lease_ms as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::pattern::Step;
    use crate::service::report::StatementReport;

    fn line(request: usize, sent_ms: f64, access: Access) -> Line {
        let step = Step { request, access: Some(access), ..Step::default() };
        let report = StatementReport { sent_ms, ..StatementReport::default() };
        Line { weight: 1, step, report, has_failed: false }
    }

    #[test]
    fn lock_that_redis_loses_is_not_outlived() {
        // What it reads after its write decides nothing.
        let lines = [
            line(0, 10.0, Access::Read),
            line(1, 910.0, Access::Read),
            line(1, 915.0, Access::Write),
            line(1, 9_000.0, Access::Read),
        ];
        let is_outlived = |lease_ms, pass| is_lease_outlived(lease_ms, pass, &lines);
        assert!(is_outlived(Some(1_000), Pass::Gate));
        assert!(!is_outlived(Some(2_000), Pass::Gate) && !is_outlived(None, Pass::Gate));
        for pass in [Pass::RedisFlush, Pass::RedisRestart, Pass::RedisAway] {
            assert!(!is_outlived(Some(1_000), pass), "{pass:?}");
        }
    }
}

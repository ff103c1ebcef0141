//! Every metric of a replica: name, type, labels, buckets and help, as `/metrics` shows them.
//! Labels have few values, never a key or a user, so that the number of series is bounded. A test
//! compares the table with the code. The crate `metrics-process` adds those of the process.

/// Upper bounds of the buckets of durations, in seconds.
pub const SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

pub const COUNTS: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, Copy)]
pub struct MetricDefinition {
    pub constant: &'static str,
    pub name: &'static str,
    pub metric_type: MetricType,
    pub labels: &'static [&'static str],
    pub buckets: &'static [f64],
    pub help: &'static str,
}

macro_rules! metrics_table {
    ($($constant:ident: $name:literal, $type:ident $labels:tt $buckets:expr, $help:literal;)*) => {
        $(pub const $constant: &str = $name;)*

        pub const METRICS: &[MetricDefinition] = &[$(MetricDefinition {
            constant: stringify!($constant),
            name: $name,
            metric_type: MetricType::$type,
            labels: &$labels,
            buckets: $buckets,
            help: $help,
        }),*];
    };
}

metrics_table! {
    BUILD_INFO: "holdfast_build_info", Gauge ["version"] &[],
        "Always 1; the label is the version";

    LOG_LINES_DROPPED: "holdfast_log_lines_dropped_total", Counter [] &[],
        "Lines of the log that were dropped, because their reader did not read";

    HTTP_REQUEST_DURATION: "holdfast_http_request_duration_seconds",
        Histogram ["method", "route", "status"] SECONDS,
        "From the arrival of a request to its response";
    HTTP_CONNECTIONS_REJECTED: "holdfast_http_connections_rejected_total", Counter ["limit"] &[],
        "Connections closed because their address, or the process, had too many";

    LOCK_WAIT: "holdfast_lock_wait_seconds", Histogram ["strategy"] SECONDS,
        "From the request for a command's locks (batched: a batch's) until acquired or denied";
    LOCK_HOLD: "holdfast_lock_hold_seconds", Histogram ["strategy"] SECONDS,
        "From the acquisition of a command's locks until they are released";
    LOCK_WAITING_REQUESTS: "holdfast_lock_waiting_requests", Gauge ["strategy"] &[],
        "Requests that wait for locks now; batched: leaders, each for all commands of its queue";
    BATCH_REQUESTS: "holdfast_batch_requests", Histogram [] COUNTS,
        "batched: requests per batch";
    GROUP_COMMIT_REQUESTS: "holdfast_group_commit_requests", Histogram [] COUNTS,
        "batched: requests for several items per shared write";
    BATCH_QUEUE_FULL: "holdfast_batch_queue_full_total", Counter [] &[],
        "batched: requests that found their queue full: rejected, or replayed";
    STALE_FENCES: "holdfast_stale_fences_total", Counter [] &[],
        "Reads of a row with a higher fence than the lock: it was lost, or Redis lost its counter";

    IDEMPOTENCY_REPLAYS: "holdfast_idempotency_replays_total", Counter [] &[],
        "Stored responses that were found for a repeated idempotency key";

    POOL_CONNECTIONS: "holdfast_pool_connections", Gauge ["state"] &[],
        "Open connections of the main pool to Postgres by state: in-use, idle";
    POOL_MAX_CONNECTIONS: "holdfast_pool_max_connections", Gauge [] &[],
        "Upper bound of the main pool's connections (HOLDFAST_POOL_SIZE)";
    PASSWORD_WAITING: "holdfast_password_hash_waiting_requests", Gauge [] &[],
        "Sign-ins and other requests that wait for a password to be hashed";
    PASSWORD_MAX_WAITING: "holdfast_password_hash_max_waiting_requests", Gauge [] &[],
        "Upper bound of these requests; one beyond it is rejected";

    REDIS_OK: "holdfast_redis_ok", Gauge [] &[],
        "1 if Redis does what a lock does, 0 if not; absent under a strategy without Redis";

    RATE_LIMIT_REJECTIONS: "holdfast_rate_limit_rejections_total", Counter ["limit"] &[],
        "Requests rejected by a rate limit";
    RATE_LIMIT_CALLS: "holdfast_rate_limit_calls_total", Counter [] &[],
        "Calls to Redis for permits, each for all waiting requests";
    RATE_LIMIT_DEGRADED: "holdfast_rate_limit_degraded", Gauge [] &[],
        "1 while Redis grants no permits and this replica applies the rate limits alone, until a request asks it again";

    JOB_DURATION: "holdfast_job_duration_seconds", Histogram ["job"] SECONDS,
        "Duration of one attempt of a scheduled job";
    JOB_ATTEMPTS: "holdfast_job_attempts_total", Counter ["job", "outcome"] &[],
        "Attempts of scheduled jobs by outcome: done, failed (is retried), stale, stopped";

    AUDIT_SOUND: "holdfast_audit_sound", Gauge [] &[],
        "Result of the newest completed audit job: 1 if the books are sound, 0 if not";
    AUDIT_TIME: "holdfast_audit_timestamp_seconds", Gauge [] &[],
        "End of the newest completed audit job, in seconds since 1970";

    EXPIRY_DELAY: "holdfast_expiry_delay_seconds", Histogram [] SECONDS,
        "From the due time of an unpaid order until it has expired";
    EXPIRED_ORDERS: "holdfast_expiry_orders_total", Counter [] &[],
        "Unpaid orders that expired and returned their units";
    EXPIRY_FAILURES: "holdfast_expiry_failures_total", Counter [] &[],
        "Failed attempts to expire an unpaid order";

    // Recorded by the observer of `holdfast-lock`, under its names.
    LOCK_QUEUE_REQUESTS: "holdfast_lock_queue_requests", Histogram [] COUNTS,
        "fenced: requests of this process that were in the queue before a new one";
    LOCK_CONTENDED_KEYS: "holdfast_lock_contended_keys", Gauge [] &[],
        "fenced: keys this process holds while another process is known to wait for them";
    LOCK_ACQUISITIONS: "holdfast_lock_acquisitions_total", Counter ["source"] &[],
        "fenced: acquisitions: of a free lock, by a handoff (local or remote), or found by a poll";
    LOCK_RENEWALS: "holdfast_lock_renewals_total", Counter [] &[],
        "fenced: leases that were renewed";
    LOCK_LOST: "holdfast_lock_lost_total", Counter [] &[],
        "fenced: leases found lost before they were released: expired, or lost by Redis";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use holdfast_lock::observer::metric_names;

    use super::*;

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("src/metrics.rs") {
                continue;
            }
            if path.is_dir() {
                files.extend(sources(&path));
            } else {
                files.push(path);
            }
        }
        files
    }

    /// Returns the arguments of each call of `metrics::{name}!`.
    fn calls<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
        let start = format!("metrics::{name}!(");
        let calls = text.match_indices(&start).map(|(at, _)| &text[at + start.len()..]);
        calls.map(|rest| rest.split(')').next().unwrap().trim()).collect()
    }

    #[test]
    fn code_records_exactly_the_metrics_of_the_table() {
        let mut recorded = BTreeSet::new();
        for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            for (name, metric_type) in [
                ("counter", MetricType::Counter),
                ("gauge", MetricType::Gauge),
                ("histogram", MetricType::Histogram),
            ] {
                for call in calls(&text, name) {
                    let constant = call.split(',').next().unwrap();
                    let metric = METRICS.iter().find(|metric| metric.constant == constant);
                    let place = path.display();
                    let metric = metric.unwrap_or_else(|| panic!("{place}: {constant}"));
                    let labels: Vec<&str> = call
                        .split("=>")
                        .filter_map(|part| part.rsplit_once('"')?.0.rsplit_once('"'))
                        .map(|(_, label)| label)
                        .collect();
                    assert_eq!(metric.metric_type, metric_type, "{place}: {constant}");
                    assert_eq!(metric.labels, labels, "{place}: {constant}");
                    recorded.insert(constant.to_owned());
                }
            }
        }
        let by_lock = [
            (LOCK_QUEUE_REQUESTS, metric_names::QUEUE_LENGTH),
            (LOCK_CONTENDED_KEYS, metric_names::CONTENDED_KEYS),
            (LOCK_ACQUISITIONS, metric_names::ACQUISITIONS),
            (LOCK_RENEWALS, metric_names::RENEWALS),
            (LOCK_LOST, metric_names::LOST),
        ];
        for (name, recorded_name) in by_lock {
            assert_eq!(name, recorded_name);
            let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
            recorded.insert(metric.constant.to_owned());
        }
        assert!(METRICS.iter().all(|metric| recorded.contains(metric.constant)), "{recorded:?}");
    }

    #[test]
    fn names_follow_the_convention_of_prometheus() {
        let mut names = BTreeSet::new();
        for MetricDefinition { name, metric_type, buckets, .. } in METRICS {
            assert!(name.starts_with("holdfast_") && names.insert(name), "{name}");
            assert_eq!(name.ends_with("_total"), *metric_type == MetricType::Counter, "{name}");
            assert_eq!(!buckets.is_empty(), *metric_type == MetricType::Histogram, "{name}");
            let is_duration = name.ends_with("_seconds") && !name.ends_with("_timestamp_seconds");
            assert_eq!(is_duration, *buckets == SECONDS, "{name}");
        }
    }
}

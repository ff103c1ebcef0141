//! The recorder of the process, which `/metrics` shows: every metric of the program and its crates,
//! with its buckets and help.

use std::sync::OnceLock;

use holdfast_lock::LockKind;
use holdfast_lock::observer::metric_names;
use metrics::{Key, Level, Metadata};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::rate_limit;
use crate::telemetry::process;
use crate::web;
use holdfast_base::metrics::{COUNTS, MetricDefinition, MetricType, SECONDS, define_metrics};
use holdfast_base::output;
use holdfast_shop::engine;
use holdfast_shop::jobs;

const VERSION: &str = env!("CARGO_PKG_VERSION");

// Those of the lock crate stand here, since it knows no Prometheus: its observer records them.
define_metrics! {
    BUILD_INFO: "holdfast_build_info", Gauge ["version"] &[],
        "Always 1; the label is the version";
    QUEUE_LENGTH: metric_names::QUEUE_LENGTH, Histogram [] COUNTS,
        "fenced: requests of this process that were in the queue before a new one";
    CONTENDED_KEYS: metric_names::CONTENDED_KEYS, Gauge [] &[],
        "fenced: keys this process holds while another process is known to wait for them";
    ACQUISITIONS: metric_names::ACQUISITIONS, Counter ["kind", "source"] &[],
        "Acquisitions by kind of lock: of a free lock, by a handoff (local or remote), or found by a poll";
    RENEWALS: metric_names::RENEWALS, Counter ["kind"] &[],
        "Leases that were renewed, by kind of lock";
    LOST: metric_names::LOST, Counter ["kind"] &[],
        "Leases found lost before they were released, by kind of lock: expired, or lost by Redis";
    ACQUIRE_TIME: metric_names::ACQUIRE_TIME, Histogram ["kind"] SECONDS,
        "Time from the call until a lock was acquired, by kind of lock";
    HOLD_TIME: metric_names::HOLD_TIME, Histogram ["kind"] SECONDS,
        "Time for which a lock was held, by kind of lock";
}

/// Every metric of the program and its crates.
pub fn all_metrics() -> impl Iterator<Item = &'static MetricDefinition> {
    METRICS
        .iter()
        .chain(output::METRICS)
        // Defined, a counter would stay 0 where there is no /proc.
        .chain(if cfg!(target_os = "linux") { process::METRICS } else { &[] })
        .chain(web::metrics())
        .chain(rate_limit::METRICS)
        .chain(engine::metrics())
        .chain(jobs::metrics())
}

/// Returns the process's recorder, which all replicas of a test share.
pub fn metrics_handle() -> anyhow::Result<PrometheusHandle> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }

    let mut builder = PrometheusBuilder::new();
    for metric in all_metrics().filter(|metric| metric.metric_type == MetricType::Histogram) {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)?;
    }
    let handle = builder.install_recorder()?;

    all_metrics().for_each(describe);
    // Of the kinds that renew. As of those without labels, Prometheus sees no increase in a first
    // sample.
    for kind in [LockKind::Fenced, LockKind::Watchdog, LockKind::Quorum].map(LockKind::name) {
        metrics::counter!(RENEWALS, "kind" => kind).increment(0);
        metrics::counter!(LOST, "kind" => kind).increment(0);
    }
    metrics::gauge!(BUILD_INFO, "version" => VERSION).set(1.0);
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// Describes a metric: the `HELP` text at `/metrics`.
fn describe(metric: &MetricDefinition) {
    let MetricDefinition { name, help, .. } = *metric;
    match metric.metric_type {
        MetricType::Counter => metrics::describe_counter!(name, help),
        MetricType::Gauge => metrics::describe_gauge!(name, help),
        MetricType::Histogram => metrics::describe_histogram!(name, help),
    }

    // A counter without labels begins at 0: Prometheus sees no increase in a first sample.
    if metric.metric_type == MetricType::Counter && metric.labels.is_empty() {
        let key = Key::from_static_name(name);
        let metadata = Metadata::new(module_path!(), Level::INFO, None);
        metrics::with_recorder(|recorder| recorder.register_counter(&key, &metadata).increment(0));
    }
}

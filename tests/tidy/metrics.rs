//! The metrics of the program and its crates: what is recorded is defined, and what is defined is
//! recorded.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use holdfast::recorder::all_metrics;
use holdfast_base::metrics::{MetricDefinition, MetricType, SECONDS};

use crate::{relative, root, rust_files};

/// The sources of the program and its crates.
fn all_sources() -> Vec<PathBuf> {
    let root = root();
    let mut files = rust_files(&root.join("src"));
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        files.extend(rust_files(&entry.unwrap().path().join("src")));
    }
    files
}

/// The arguments of each call of `metrics::{name}!`.
fn calls<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let start = format!("metrics::{name}!(");
    let calls = text.match_indices(&start).map(|(at, _)| &text[at + start.len()..]);
    calls.map(|rest| rest.split(')').next().unwrap().trim()).collect()
}

/// A module that records a metric is in no list, or a list names a metric that nothing records.
#[test]
fn recorded_metrics_are_those_of_the_lists() {
    let metrics: Vec<&MetricDefinition> = all_metrics().collect();
    let macros = [
        ("counter", MetricType::Counter),
        ("gauge", MetricType::Gauge),
        ("histogram", MetricType::Histogram),
    ];
    let mut recorded = BTreeSet::new();
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        for (name, metric_type) in macros {
            for call in calls(&text, name) {
                let constant = call.split(',').next().unwrap();
                let place = format!("{}: {constant}", relative(&path));
                let metric = metrics.iter().find(|metric| metric.constant == constant);
                let metric = metric.unwrap_or_else(|| panic!("{place} is in no list of metrics"));
                let labels: Vec<&str> = call
                    .split("=>")
                    .filter_map(|part| part.rsplit_once('"')?.0.rsplit_once('"'))
                    .map(|(_, label)| label)
                    .collect();
                assert_eq!(metric.metric_type, metric_type, "{place}");
                assert_eq!(metric.labels, labels, "{place}");
                recorded.insert(constant.to_owned());
            }
        }
    }
    for metric in metrics {
        assert!(recorded.contains(metric.constant), "nothing records {}", metric.constant);
    }
}

#[test]
fn names_follow_the_convention_of_prometheus() {
    let mut names = BTreeSet::new();
    let mut constants = BTreeSet::new();
    for metric in all_metrics() {
        let MetricDefinition { constant, name, metric_type, buckets, .. } = metric;
        assert!(names.insert(name) && constants.insert(constant), "{name} is listed twice");
        // Prometheus's own clients have the latter.
        let is_process = name.starts_with("process_");
        assert!(is_process || name.starts_with("holdfast_"), "{name}");
        assert_eq!(name.ends_with("_total"), *metric_type == MetricType::Counter, "{name}");
        assert_eq!(!buckets.is_empty(), *metric_type == MetricType::Histogram, "{name}");
        let is_time = is_process || name.ends_with("_timestamp_seconds");
        let is_duration = name.ends_with("_seconds") && !is_time;
        assert_eq!(is_duration, *buckets == SECONDS, "{name}");
    }
}

//! The definition of a metric: name, type, labels, buckets and help, as `/metrics` shows them. It
//! stands in the module that records the metric, and the program's recorder collects all of them.
//! Labels have few values, never a key or a user, so that the number of series is bounded.
//! `tests/tidy/metrics.rs` compares the definitions with what the code records.

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

/// Defines a constant for the name of each metric of a module, and its table `METRICS`.
#[macro_export]
macro_rules! define_metrics {
    ($($constant:ident: $name:expr, $type:ident $labels:tt $buckets:expr, $help:literal;)*) => {
        $(const $constant: &str = $name;)*

        pub const METRICS: &[$crate::metrics::MetricDefinition] =
            &[$($crate::metrics::MetricDefinition {
                constant: stringify!($constant),
                name: $constant,
                metric_type: $crate::metrics::MetricType::$type,
                labels: &$labels,
                buckets: $buckets,
                help: $help,
            }),*];
    };
}
pub use define_metrics;

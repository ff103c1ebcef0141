//! The W3C trace context of a request (`traceparent`), and the attributes of its span.
//!
//! Does nothing unless traces are exported.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Headers of the trace context.
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

static EXPORTING: AtomicBool = AtomicBool::new(false);

pub(super) fn set_exporting() {
    EXPORTING.store(true, Ordering::Relaxed);
}

/// Returns whether spans are exported.
pub fn is_exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

/// Makes the span of a request, before it is entered, part of the client's trace; a malformed trace
/// context is ignored. Records the trace's id as `trace_id`, for the log.
pub fn continue_trace<'h>(span: &Span, header: impl Fn(&str) -> Option<&'h str>) {
    if !is_exporting() {
        return;
    }
    let carrier: HashMap<String, String> = HEADERS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), header(name)?.to_owned())))
        .collect();
    if !carrier.is_empty() {
        // Fails for a span that no layer exports.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
    }
    let context = span.context();
    span.record("trace_id", field::display(context.span().span_context().trace_id()));
}

/// Names the span of a request after its route, and records its status.
pub fn describe_response(span: &Span, method: &str, route: &str, status: u16) {
    if !is_exporting() {
        return;
    }
    span.context().span().update_name(format!("{method} {route}"));
    span.set_attribute("http.request.method", method.to_owned());
    span.set_attribute("http.route", route.to_owned());
    span.set_attribute("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.record("otel.status_code", "error");
    }
}

//! Exports spans with OTLP (`OTEL_EXPORTER_OTLP_ENDPOINT`), as protobuf over HTTP.
//!
//! A thread of its own sends them in the background, from a bounded queue: if the collector is
//! slow or unavailable, spans are dropped and nothing waits. One warning is logged per outage.
//! The variables of OpenTelemetry's specification apply: `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_EXPORTER_OTLP_*`.
//! A request continues the trace of its `traceparent` (W3C).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::{Level, Metadata, Span, Subscriber, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, layer};

use super::otlp_client::PlainClient;
use super::variable::variable;

const SERVICE: &str = "holdfast";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];
/// Upper bound of the time that the last spans delay the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

static EXPORTING: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub struct TraceExporter(SdkTracerProvider);

impl TraceExporter {
    /// Creates the exporter, unless no endpoint is set. `replica` is its `service.instance.id`.
    pub fn from_environment(replica: &str) -> anyhow::Result<Option<Self>> {
        let Some((endpoint, url)) = read_endpoint()? else { return Ok(None) };

        let shown = without_credentials(&url);
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(PlainClient { timeout: export_timeout() })
            .build()
            .with_context(|| format!("can't export traces to “{shown}” ({endpoint})"))?;

        let mut resource = Resource::builder()
            .with_attribute(KeyValue::new("service.instance.id", replica.to_owned()));
        if variable(SERVICE_NAME)?.is_none() {
            resource = resource.with_service_name(SERVICE);
        }

        let exporter = WarningExporter { exporter, url: shown, is_failing: AtomicBool::new(false) };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();

        EXPORTING.store(true, Ordering::Relaxed);
        Ok(Some(Self(provider)))
    }

    pub fn check_environment() -> anyhow::Result<()> {
        read_endpoint().map(drop)
    }

    /// Returns the layer that turns the product's spans, and its lines above `debug`, into those of
    /// OpenTelemetry.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'s> LookupSpan<'s>,
    {
        let is_exported = |metadata: &Metadata<'_>, _: &layer::Context<'_, S>| {
            metadata.target().starts_with("holdfast")
                && (metadata.is_span() || *metadata.level() <= Level::INFO)
        };

        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(dynamic_filter_fn(is_exported).with_max_level_hint(LevelFilter::DEBUG))
    }

    pub fn shut_down(&self) {
        // An unavailable collector has been reported.
        let _ = self.0.shutdown_with_timeout(FLUSH_TIMEOUT);
    }
}

/// Returns the variable with the address of the collector, and the address; `None` if none is set.
fn read_endpoint() -> anyhow::Result<Option<(&'static str, String)>> {
    let Some((endpoint, url)) = first_of(&ENDPOINTS)? else { return Ok(None) };

    let shown = without_credentials(&url);
    if !is_http_url(&url) {
        bail!(
            "{endpoint} is “{shown}”; it can be a URL such as http://127.0.0.1:4318, with a port \
             of 1 to 65535 (for TLS, run a collector on this host that forwards the spans)"
        );
    }

    if let Some((name, protocol)) = first_of(&PROTOCOLS)?
        && protocol != "http/protobuf"
    {
        bail!("{name} is “{protocol}”; it can be http/protobuf");
    }

    Ok(Some((endpoint, url)))
}

/// Reads the time of one export in milliseconds, as the exporter does, which does not tell its
/// client.
fn export_timeout() -> Duration {
    let values = TIMEOUTS.into_iter().filter_map(|name| std::env::var(name).ok());
    let mut times = values.filter_map(|value| value.parse().ok().map(Duration::from_millis));
    times.next().unwrap_or(DEFAULT_TIMEOUT)
}

fn is_http_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    // A host in brackets has colons, too.
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !address.ends_with(']') => (host, port),
        _ => (address, "80"),
    };
    let has_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    has_port && !host.is_empty() && !rest.contains(char::is_whitespace)
}

fn first_of(names: &[&'static str]) -> anyhow::Result<Option<(&'static str, String)>> {
    for &name in names {
        if let Some(value) = variable(name)? {
            return Ok(Some((name, value)));
        }
    }
    Ok(None)
}

fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// An exporter that logs one warning when exports begin to fail, and a line when they work again.
#[derive(Debug)]
struct WarningExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    /// Without credentials.
    url: String,
    is_failing: AtomicBool,
}

impl SpanExporter for WarningExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);

        let collector = &self.url;
        match &exported {
            Err(error) if !was_failing => tracing::warn!(
                collector,
                %error,
                "traces can't be exported, and are dropped until the collector responds"
            ),
            Ok(()) if was_failing => tracing::info!(collector, "traces are exported again"),
            _ => {}
        }

        exported
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

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

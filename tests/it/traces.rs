//! The export of traces: a collector in this process receives the spans of real replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::{App, HttpResponse, HttpServer, web};
use holdfast_testkit::{Replica, TestShop, User, until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

const CLIENT_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";
const SERVER: i32 = opentelemetry_proto::tonic::trace::v1::span::SpanKind::Server as i32;

/// An OTLP collector.
#[derive(Default)]
struct Collector {
    spans: Mutex<Vec<Span>>,
    /// Attributes of the exporting process.
    resource: Mutex<BTreeMap<String, String>>,
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |it: &KeyValue| match it.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    };
    attributes.iter().filter_map(|it| Some((it.key.clone(), text(it)?))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Collector {
    fn start() -> (Arc<Self>, String) {
        let collector = Arc::new(Self::default());
        let state = collector.clone();
        let receive = async |state: web::Data<Arc<Collector>>, request: web::Bytes| {
            let request = ExportTraceServiceRequest::decode(request).unwrap();
            for resource in request.resource_spans {
                *state.resource.lock() = attributes(&resource.resource.unwrap().attributes);
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                state.spans.lock().extend(spans);
            }
            HttpResponse::Ok().content_type("application/x-protobuf").finish()
        };
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::new(state.clone()))
                .app_data(web::PayloadConfig::new(16 << 20))
                .route("/v1/traces", web::post().to(receive))
        });
        let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", server.addrs()[0]);
        tokio::spawn(server.run());
        (collector, url)
    }

    fn find(&self, matches: impl Fn(&Span) -> bool) -> Option<Span> {
        self.spans.lock().iter().find(|span| matches(span)).cloned()
    }

    /// The span of a request, once its steps have arrived.
    async fn request(&self, id: &str) -> Span {
        let mut found = None;
        until("the spans of the request arrive", async || {
            let is_request = |span: &Span| {
                attributes(&span.attributes).get("request_id").map(String::as_str) == Some(id)
            };
            found = self.find(is_request);
            found.as_ref().is_some_and(|request| {
                self.find(|span| span.name == "held" && span.parent_span_id == request.span_id)
                    .is_some()
            })
        })
        .await;
        found.unwrap()
    }

    fn child(&self, parent: &Span, name: &str) -> Span {
        let is_child = |span: &Span| {
            span.name == name
                && span.parent_span_id == parent.span_id
                && span.trace_id == parent.trace_id
        };
        let child = self.find(is_child);
        child.unwrap_or_else(|| panic!("{name} below {} in {:#?}", parent.name, self.spans.lock()))
    }
}

async fn place(who: &User, strategy: &str, traceparent: &str) -> String {
    let order = who.orders("deadbolt", 1).lock(strategy);
    let response = order.header("traceparent", traceparent).await;
    let id = response.header("x-request-id").to_owned();
    response.succeeds(201);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_of_an_order_shows_its_steps() {
    let (collector, url) = Collector::start();
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("HOLDFAST_REPLICA", "pod-7"),
        ("HOLDFAST_LOG", "holdfast=debug"),
    ];
    shop.add_replica_with(start, &env);
    let alice = shop.promoted("alice").await;
    for strategy in ["batched", "fenced"] {
        let traceparent = format!("00-{CLIENT_TRACE}-{CLIENT_SPAN}-01");
        let id = place(&alice, strategy, &traceparent).await;
        let request = collector.request(&id).await;
        assert_eq!(request.name, "POST /api/orders");
        assert_eq!(request.kind, SERVER);
        assert_eq!(attributes(&request.attributes)["http.response.status_code"], "201");
        assert_eq!(hex(&request.trace_id), CLIENT_TRACE);
        assert_eq!(hex(&request.parent_span_id), CLIENT_SPAN);

        let (wait, held) = (collector.child(&request, "wait"), collector.child(&request, "held"));
        let steps = ["read", "decide", "write"].map(|step| collector.child(&held, step));
        let [read, decide, write] = &steps;
        for [earlier, later] in [[&wait, read], [read, decide], [decide, write]] {
            assert!(
                earlier.end_time_unix_nano <= later.end_time_unix_nano,
                "{earlier:?} {later:?}"
            );
        }
        for step in &steps {
            assert!(step.start_time_unix_nano >= held.start_time_unix_nano, "{step:?} {held:?}");
            assert!(step.end_time_unix_nano <= held.end_time_unix_nano, "{step:?} {held:?}");
        }
        if strategy == "fenced" {
            assert!(held.links.is_empty());
            continue;
        }
        until("the batch arrives", async || {
            collector.find(|span| span.span_id == held.links[0].span_id).is_some()
        })
        .await;
        let batch = collector.find(|span| span.span_id == held.links[0].span_id).unwrap();
        assert_eq!((batch.name.as_str(), batch.parent_span_id.len()), ("batch", 0));
        assert_eq!(batch.links[0].span_id, request.span_id);
        let attributes = attributes(&batch.attributes);
        assert_eq!(attributes["requests"], id);
        assert_eq!(attributes["key"], "{sku:deadbolt}");
    }
    let resource = collector.resource.lock().clone();
    assert_eq!(resource["service.name"], "holdfast");
    assert_eq!(resource["service.instance.id"], "pod-7");
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains(&format!("trace_id={CLIENT_TRACE}")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_traceparent_is_ignored() {
    let (collector, url) = Collector::start();
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let shop = TestShop::start_with(1, &env).await;
    let alice = shop.promoted("alice").await;
    for malformed in ["nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01", ""] {
        let id = place(&alice, "batched", malformed).await;
        let request = collector.request(&id).await;
        assert!(request.parent_span_id.is_empty() && request.trace_id != [0; 16], "{request:?}");
    }
}

/// Time for which an export waits for a response there.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// A collector that closes every connection, and later leaves it open without a response.
#[tokio::test(flavor = "multi_thread")]
async fn unavailable_collector_delays_no_order() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (connections, is_silent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::default()));
    let (counter, silent) = (connections.clone(), is_silent.clone());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            if silent.load(Ordering::Relaxed) {
                open.push(connection);
            }
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000"),
    ];
    shop.add_replica_with(start, &env);
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(1_000_000).await;
    until("several exports fail", async || {
        alice.orders(&sku, 1).ok().await;
        connections.load(Ordering::Relaxed) >= 5
    })
    .await;
    is_silent.store(true, Ordering::Relaxed);
    let before = connections.load(Ordering::Relaxed);
    until("an export gets no response", async || {
        alice.orders(&sku, 1).ok().await;
        connections.load(Ordering::Relaxed) > before
    })
    .await;
    let began = Instant::now();
    for _ in 0..50 {
        alice.orders(&sku, 1).ok().await;
    }
    shop.replicas[0].terminate();
    assert!(shop.replicas[0].wait_for_exit().await);
    assert!(began.elapsed() < EXPORT_TIMEOUT, "{:?}", began.elapsed());
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(log.matches("traces can't be exported").count(), 1, "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

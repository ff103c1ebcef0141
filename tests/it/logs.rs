//! The log: JSON lines with the id of their request, and a stderr that fails.

use std::path::Path;
use std::process::Command;

use reqwest::StatusCode;
use serde_json::Value;

use crate::common::proxy::Proxy;
use crate::common::requests::send;
use crate::common::{Replica, Shop, body, until};
use crate::pause_points::with_pause;

/// The JSON lines of a log that have this message.
fn lines(log: &Path, message: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|line| line["message"] == message).collect()
}

/// The value of a field of the line's span of that name.
fn span_field<'l>(line: &'l Value, span: &str, field: &str) -> Option<&'l str> {
    let spans = line["spans"].as_array()?;
    spans.iter().find(|it| it["name"] == span)?[field].as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_carry_request_id() {
    let mut shop = Shop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let postgres = Proxy::to_postgres().await;
    let database = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    // The filter hides every line below a warning, and must not hide the spans.
    let env = [
        ("DATABASE_URL", database.as_str()),
        ("HOLDFAST_LOG", "holdfast=warn,holdfast::web::middleware::request_context=debug"),
        ("HOLDFAST_LOG_FORMAT", "json"),
    ];
    shop.add_replica_with(start, &env);
    shop.add_replica(&[]);
    let (alice, admin) = (shop.sign_in_at(0, "alice").await, shop.sign_in_at(1, "admin").await);
    let response = shop.order(&alice, 0, "deadbolt", 1).header("X-Request-Id", "mine/1");
    let response = response.send().await.unwrap();
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    body(response, StatusCode::CREATED).await;
    let completed = lines(log.path(), "request completed");
    let line = completed.iter().find(|it| span_field(it, "request", "request_id") == Some(&id));
    let line = line.unwrap_or_else(|| panic!("{id} in {completed:#?}"));
    assert_eq!(span_field(line, "request", "client_request_id"), Some("mine/1"));

    // The line of a batch lists the requests in it.
    let (id, order) = with_pause(shop.order(&alice, 0, "deadbolt", 1), "commit");
    let order = send(order);
    shop.until_paused(&admin, 0, id, "commit").await;
    postgres.cut();
    assert!(shop.resume_request(&admin, 0, &id.to_string()).await);
    until("the batch reports its outcome", async || {
        let unknown = lines(log.path(), "the outcome of a write is unknown");
        unknown.iter().any(|it| {
            span_field(it, "batch", "requests").is_some_and(|ids| ids.contains(&id.to_string()))
        })
    })
    .await;
    drop(order);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_log_disk_stops_no_order() {
    let mut shop = Shop::without_replicas().await;
    let start = |env: &[(&str, &str)]| Replica::start_with_log(Path::new("/dev/full"), env);
    shop.add_replica_with(start, &[("HOLDFAST_LOG", "debug")]);
    let alice = shop.sign_in("alice").await;
    for _ in 0..5 {
        shop.place_order(&alice, "deadbolt", 1).await;
    }
    shop.replicas[0].terminate();
    assert!(shop.replicas[0].wait_for_exit().await);
}

#[test]
fn invalid_settings_are_errors_at_start() {
    for (variable, value, why) in [
        ("HOLDFAST_LOG", "inof", "neither a level"),
        ("HOLDFAST_LOG", "holdfast=loud", "holdfast=loud"),
        ("HOLDFAST_LOG_FORMAT", "xml", "text or json"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["serve", "--database-url", "postgres://", "--redis-url", "redis://"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env(variable, value);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains(variable) && error.contains(value) && error.contains(why),
            "{error}"
        );
    }
}

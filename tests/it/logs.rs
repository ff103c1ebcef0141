//! The log: JSON lines with the id of their request, and a stderr that fails.

use std::path::Path;

use holdfast_testkit::proxy;
use holdfast_testkit::{Replica, TestShop, run_program, services, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

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
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let postgres = proxy::to_postgres().await;
    let database = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    // The filter hides lines below a warning, and must not hide the spans.
    let env = [
        ("DATABASE_URL", database.as_str()),
        ("HOLDFAST_LOG", "holdfast=warn,holdfast::web::middleware::request_notes=debug"),
        ("HOLDFAST_LOG_FORMAT", "json"),
    ];
    shop.add_replica_with(start, &env);
    shop.add_replica(&[]);
    let (alice, admin) = (shop.sign_in_at(0, "alice").await, shop.sign_in_at(1, "admin").await);
    let response = alice.orders("deadbolt", 1).header("X-Request-Id", "mine/1").await;
    let id = response.header("x-request-id").to_owned();
    response.succeeds(201);
    // A thread of its own writes the log: the line may follow the response.
    until("the line has both ids of the request", async || {
        let completed = lines(log.path(), "request completed");
        let mut of_request =
            completed.iter().filter(|it| span_field(it, "request", "request_id") == Some(&id));
        of_request.any(|it| span_field(it, "request", "client_request_id") == Some("mine/1"))
    })
    .await;

    // The line of a batch lists the requests in it. Only an admin pauses an order of the shop.
    let paused = shop.pause(&admin, admin.at(0).orders("deadbolt", 1), "commit").await;
    postgres.cut().await;
    assert!(shop.resume_request(&admin, 0, &paused.id).await);
    until("the batch reports its outcome", async || {
        let unknown = lines(log.path(), "the outcome of a write is unknown");
        unknown.iter().any(|it| {
            span_field(it, "batch", "requests").is_some_and(|ids| ids.contains(&paused.id))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_log_disk_stops_no_order() {
    let mut shop = TestShop::without_replicas().await;
    let start = |env: &[(&str, &str)]| Replica::start_with_log(Path::new("/dev/full"), env);
    shop.add_replica_with(start, &[("HOLDFAST_LOG", "debug")]);
    let alice = shop.sign_in("alice").await;
    for _ in 0..5 {
        alice.orders("deadbolt", 1).ok().await;
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
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999", "65535"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:0", "65535"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a collector:4318", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        for arguments in [
            &["serve", "--database-url", "postgres://", "--redis-url", "redis://"][..],
            &["up", "--data", data.to_str().unwrap()],
        ] {
            let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
            let output = run_program(arguments, &[collector, (variable, value)]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(
                error.contains(variable) && error.contains(value) && error.contains(why),
                "{arguments:?}: {error}"
            );
        }
        assert!(!data.exists(), "`up` checks it before it starts anything");
    }
}

/// Parses each line as an object with the fields of a log line.
fn json_lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(value[field].is_string(), "{field}: {line}");
        }
        value
    });
    lines.collect()
}

/// Runs a command to its end with a JSON log; returns its exit code and its lines.
fn run_with_json(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, Vec<Value>) {
    let environment = [&[("HOLDFAST_LOG_FORMAT", "json")], environment].concat();
    let output = run_program(arguments, &environment);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), json_lines(&String::from_utf8(text).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn fatal_errors_are_json_lines() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let closed = "postgres://holdfast@127.0.0.1:1/holdfast";
    let servers = [("DATABASE_URL", closed), ("REDIS_URL", "redis://127.0.0.1:1")];
    let with = |more: (&'static str, &'static str)| [&servers[..], &[more]].concat();
    for (arguments, environment, code, words) in [
        (&["serve", "--nonsense"][..], vec![], 2, "unexpected argument '--nonsense'"),
        (&["serve"], vec![], 2, "--database-url"),
        (&["migrate"], vec![], 2, "--database-url"),
        (&["serve"], with(("HOLDFAST_LOG", "inof")), 1, "inof"),
        (&["serve"], with(("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c")), 1, "https://c"),
        (&["serve", "--listen", &taken], servers.to_vec(), 1, "can't listen"),
        (&["serve", "--listen", "127.0.0.1:0"], servers.to_vec(), 1, "Postgres does not respond"),
        (&["migrate"], servers.to_vec(), 1, "Postgres does not respond"),
    ] {
        let (exit, lines) = run_with_json(arguments, &environment);
        assert_eq!(exit, Some(code), "{arguments:?}: {lines:#?}");
        let last = lines.last().unwrap_or_else(|| panic!("{arguments:?} prints nothing"));
        assert_eq!(last["level"], "ERROR", "{arguments:?}: {last}");
        assert!(last["message"].as_str().unwrap().contains(words), "{arguments:?}: {last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_container_is_json() {
    let shop = TestShop::without_replicas().await;
    let database = shop.database_url();
    let flags = ["migrate", "--seed", "--demo-users"];
    let (exit, lines) = run_with_json(&flags, &[("DATABASE_URL", &database)]);
    assert_eq!(exit, Some(0), "{lines:#?}");
    assert!(lines.iter().any(|line| line["message"] == "the schema is up to date"), "{lines:#?}");

    let log = tempfile::NamedTempFile::new().unwrap();
    let append = || std::fs::File::options().append(true).open(log.path()).unwrap();
    let mut serve = tokio::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    serve
        .arg("serve")
        .env("DATABASE_URL", &database)
        .env("REDIS_URL", &services().running.redis_url)
        .env("HOLDFAST_REDIS_PREFIX", &shop.prefix)
        .env("HOLDFAST_LISTEN", "127.0.0.1:0")
        .env("HOLDFAST_DRAIN_S", "0")
        .env("HOLDFAST_LOG_FORMAT", "json")
        .stdout(append())
        .stderr(append())
        .kill_on_drop(true);
    let mut serve = serve.spawn().unwrap();
    let text = || std::fs::read_to_string(log.path()).unwrap();
    until("it is ready", async || text().contains("Holdfast replica on http://")).await;
    let pid = Pid::from_raw(i32::try_from(serve.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(serve.wait().await.unwrap().success());
    let lines = json_lines(&text());
    let ready = lines.iter().find(|it| it["message"].as_str().unwrap().contains("replica on"));
    assert_eq!(ready.unwrap()["level"], "INFO");
}

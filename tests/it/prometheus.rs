//! A real Prometheus with the rules and the dashboard of `deploy/`.
//!
//! Skipped where Prometheus is not installed (`script/bootstrap --tests` installs it), unless `CI`
//! is set.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::topology::query;
use holdfast_testkit::{TestShop, User, ports, until};
use reqwest::StatusCode;
use serde_json::Value;

use crate::redis_refusals::shop_of_user;

/// Time after which every metric must exist.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy(path)).unwrap()
}

/// Whether Prometheus and its tool are installed. Fails if not and `CI` is set.
fn is_installed() -> bool {
    let runs = |program| {
        let command = Command::new(program).arg("--version").output();
        command.is_ok_and(|output| output.status.success())
    };
    let installed = runs("prometheus") && runs("promtool");
    if !installed {
        let missing = "prometheus and promtool are missing: script/bootstrap --tests installs them";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{missing}");
        // Not with eprintln!, whose output is shown only if the test fails.
        std::io::stderr().write_all(format!("SKIPPED: {missing}\n").as_bytes()).unwrap();
    }
    installed
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
}

/// The texts behind `key:` or `"key":` in a file.
fn values_of<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn every_alert_can_fire() {
    if !is_installed() {
        return;
    }
    promtool(&["check", "config"], &deploy("prometheus/prometheus.yml"));
    promtool(&["test", "rules"], &deploy("prometheus/alerts_test.yml"));
    let (alerts, tests) = (read("prometheus/alerts.yml"), read("prometheus/alerts_test.yml"));
    let alerts = values_of(&alerts, "- alert:");
    assert!(alerts.len() > 10, "{alerts:?}");
    // A test that expects alerts lists their labels behind the name.
    for alert in alerts {
        let firing = tests.split("alertname: ").skip(1).any(|test| {
            let mut lines = test.lines();
            lines.next() == Some(alert) && lines.nth(1).is_some_and(|l| l.contains("exp_labels"))
        });
        assert!(firing, "no test makes {alert} fire");
    }
}

/// A Prometheus that ends with the value.
struct Prometheus {
    url: String,
    http: reqwest::Client,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts one with the example configuration, but these targets and a shorter interval.
    async fn start(targets: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = read("prometheus/prometheus.yml");
        let alerts = deploy("prometheus/alerts.yml");
        for (from, to) in [
            (r#"["replica-1:8080", "replica-2:8080", "replica-3:8080"]"#, format!("{targets:?}")),
            ("interval: 15s", "interval: 1s".to_owned()),
            ("alerts.yml", alerts.to_str().unwrap().to_owned()),
        ] {
            assert!(config.contains(from), "{from} in {config}");
            config = config.replace(from, &to);
        }
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = format!("127.0.0.1:{}", ports::free_ports(1));
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (url, http) = (format!("http://{address}"), reqwest::Client::new());
        let prometheus = Self { url, http, child, _folder: folder };
        until("Prometheus is ready", async || {
            let ready = prometheus.http.get(format!("{}/-/ready", prometheus.url)).send().await;
            ready.is_ok_and(|ready| ready.status() == StatusCode::OK)
        })
        .await;
        prometheus
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let query: String =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let response = self.http.get(format!("{}/api/v1/{path}?{query}", self.url)).send().await;
        let response: Value =
            serde_json::from_str(&response.unwrap().text().await.unwrap()).unwrap();
        assert_eq!(response["status"], "success", "{path} {query}: {response}");
        response["data"].clone()
    }

    async fn is_empty(&self, expression: &str) -> bool {
        let data = self.get("query", &[("query", expression)]).await;
        data["result"].as_array().unwrap().is_empty()
    }
}

fn panel_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboards/holdfast.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    expressions.map(|text| text.replace("$__rate_interval", "10s")).collect()
}

fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| word.starts_with("holdfast_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

/// One round of everything that the dashboard shows.
async fn load(alice: &User, sku: &str) {
    for (replica, strategy) in [(0, "batched"), (1, "fenced")] {
        let order = alice.at(replica).orders(sku, 1).lock(strategy);
        for _ in 0..2 {
            // The second one is a replay.
            order.clone().await;
        }
    }
    // The third replica limits the rate of a user.
    alice.at(2).orders(sku, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_metrics_exist_after_load() {
    if !is_installed() {
        return;
    }
    let env = [("HOLDFAST_JOBS", "on"), ("HOLDFAST_PAY_WITHIN_S", "1")];
    let mut shop = TestShop::start_with(2, &env).await;
    shop.add_replica(&[("HOLDFAST_LIMIT_CLIENT", "1/m:1")]);
    let targets: Vec<String> = shop
        .replicas
        .iter()
        .map(|replica| replica.base_url.strip_prefix("http://").unwrap().to_owned())
        .collect();
    let prometheus = Prometheus::start(&targets).await;
    let rules = prometheus.get("rules", &[]).await;
    let alerts = read("prometheus/alerts.yml");
    let loaded = rules["groups"][0]["rules"].as_array().unwrap().len();
    assert_eq!(loaded, values_of(&alerts, "- alert:").len());

    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(100_000).await;
    let mut missing: BTreeSet<String> = panel_expressions().into_iter().collect();
    assert!(missing.len() > 20, "{missing:?}");
    missing.extend(metric_names(&alerts));
    let deadline = Instant::now() + LOAD_TIMEOUT;
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "no value: {missing:#?}");
        load(&alice, &sku).await;
        for expression in missing.clone() {
            if !prometheus.is_empty(&expression).await {
                missing.remove(&expression);
            }
        }
    }
    // No alert fires.
    let firing = prometheus.get("alerts", &[]).await;
    let firing = firing["alerts"].as_array().unwrap().iter();
    let firing: Vec<_> = firing.filter(|alert| alert["state"] == "firing").collect();
    assert!(firing.is_empty(), "{firing:#?}");
}

/// The alert lasts in each state: Redis is dead, it is full, and it does not accept the password.
#[tokio::test(flavor = "multi_thread")]
async fn redis_alert_lasts_in_each_state() {
    if !is_installed() {
        return;
    }
    let permissions = "~holdfast:* &holdfast:* +@all";
    let (dead, mut dead_redis) = shop_of_user(1, permissions).await;
    let (full, full_redis) = shop_of_user(1, permissions).await;
    let (wrong, wrong_redis) = shop_of_user(1, permissions).await;
    let target = |shop: &TestShop| shop.url(0, "").trim_start_matches("http://").to_owned();
    let targets = [&dead, &full, &wrong].map(target);
    let prometheus = Prometheus::start(&targets).await;
    let alerts = async || {
        let data = prometheus.get("alerts", &[]).await;
        let mut alerts: Vec<String> = Vec::new();
        for alert in data["alerts"].as_array().unwrap() {
            if alert["labels"]["alertname"] == "HoldfastRedisAway" {
                alerts.push(format!("{} {}", alert["labels"]["instance"], alert["activeAt"]));
            }
        }
        alerts.sort();
        alerts
    };
    until("all are scraped", async || !prometheus.is_empty("sum(holdfast_redis_ok) == 3").await)
        .await;
    assert_eq!(alerts().await, Vec::<String>::new());

    dead_redis.data[0].0.kill();
    let _: String = query(&full_redis.url, "CONFIG SET maxmemory 1").unwrap();
    let _: i64 = query(&wrong_redis.url, "ACL DELUSER shop").unwrap();
    until("all are reported", async || alerts().await.len() == 3).await;

    let (since, began) = (alerts().await, Instant::now());
    until("several scrapes pass", async || began.elapsed() > Duration::from_secs(8)).await;
    assert_eq!(alerts().await, since, "no alert ended meanwhile");
}

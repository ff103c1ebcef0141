//! The load scripts report the truth: without a lock the shop oversells, with one it does not, a
//! broken lock fails, excess load is rejected, and abuse changes nothing for others. Needs the
//! tools of `load/setup`, which `script/test` runs first.

use std::path::Path;
use std::process::Command;

use holdfast_testkit::{TestShop, assert_has};
use serde_json::{Value, json};

use crate::{share_machine, whole_machine};

struct Report {
    code: Option<i32>,
    result: Value,
}

fn load_script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("load").join(name))
}

async fn run_script(replicas: usize, script: &str, arguments: &'static [&'static str]) -> Report {
    let _machine = share_machine();
    let shop = TestShop::start(replicas).await;
    let urls: Vec<&str> = shop.replicas.iter().map(|it| it.base_url.as_str()).collect();
    let urls = urls.join(",");
    let mut command = load_script(script);
    command.args(arguments).arg("--json").env("HOLDFAST_REPLICAS", urls);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("no report was printed; {stderr} (are the tools there? load/setup)")
    });
    shop.assert_sound().await;
    Report { code: output.status.code(), result }
}

fn assert_both_halves(report: &Report) {
    let Report { code, result } = report;
    assert_eq!(*code, Some(0), "{result:#}");
    assert_eq!(result["claim_shown"], true);
    let (off, on) = (&result["off"], &result["on"]);
    assert_eq!((&off["strategy"], &on["strategy"]), (&"none".into(), &"batched".into()));
    assert!(
        off["sold"].as_i64().unwrap() > 100 && off["oversold"].as_i64().unwrap() > 0,
        "{off:#}"
    );
    assert!(off["forks"].as_i64().unwrap() > 0 && off["stock"].as_i64().unwrap() >= 0, "{off:#}");
    assert_has(on, json!({ "sold": 100, "oversold": 0, "forks": 0, "ok": true }));
}

#[tokio::test]
async fn oha_load_shows_oversell_and_fix() {
    assert_both_halves(&run_script(2, "oversell-oha", &[]).await);
}

#[tokio::test]
async fn k6_load_shows_oversell_and_fix() {
    let report = run_script(2, "oversell-k6", &[]).await;
    assert_both_halves(&report);
    let rejected = report.result["on"]["rejected"].as_object().unwrap();
    assert_eq!(rejected.values().map(|n| n.as_i64().unwrap()).sum::<i64>(), 300, "{rejected:?}");
}

#[tokio::test]
async fn broken_lock_fails_the_load_script() {
    let report = run_script(2, "oversell-oha", &["--lock", "local"]).await;
    assert_eq!(report.code, Some(1), "{:#}", report.result);
    assert_eq!(report.result["claim_shown"], false);
}

/// A batch takes half a second: the lock is the bottleneck on any machine, and a replica's queue is
/// full after two seconds. The share sold and the speed of rejections depend on the machine, and so
/// does whether k6 can send the load: each verdict is allowed, but it must match the numbers.
#[tokio::test]
async fn overload_report_is_complete_and_sound() {
    let arguments = &["--work-ms", "500", "--seconds", "4", "--vus", "1200", "--clients", "600"];
    let Report { code, result } = run_script(1, "overload-k6", arguments).await;
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}: {result:#}"));
    let search = result["search"].as_array().unwrap();
    let rates: Vec<f64> = search.iter().map(|run| number(&run["sold_per_s"])).collect();
    let best = number(&result["best_per_s"]);
    assert!(rates.len() > 1 && rates.iter().all(|rate| (0.1..=best).contains(rate)), "{result:#}");
    assert!((number(&result["target_per_s"]) - 3.0 * best).abs() <= 1.0, "{result:#}");
    let over = &result["over"];
    assert_eq!(over["unexpected"], json!({}), "{result:#}");
    assert!(number(&over["accepted"]) > 0.0, "{result:#}");
    for audit in result["audits"].as_array().unwrap() {
        assert_eq!((&audit["ok"], &audit["oversold"]), (&true.into(), &0.into()), "{result:#}");
    }
    let share = number(&over["sold_per_s"]) / best;
    let at_once = over["rejected_p99_ms"].as_f64().is_some_and(|p99| p99 < 100.0);
    let (shown, verdict) = (code == Some(0), result["verdict"].as_str().unwrap());
    assert_eq!(result["claim_shown"], shown);
    assert!(!shown || (share >= 0.8 && at_once), "{result:#}");
    assert!(matches!(code, Some(0..=2)), "{result:#}");
    let is_sent = code != Some(2);
    assert_eq!(verdict.starts_with("No result: "), !is_sent, "{result:#}");
    assert!(!is_sent || number(&over["rejected"]["overloaded"]) > 0.0, "{result:#}");
}

#[tokio::test]
async fn sustainable_load_is_not_overload() {
    let arguments = &["--times", "1.1", "--clients", "1", "--seconds", "1", "--vus", "300"];
    let Report { code, result } = run_script(1, "overload-k6", arguments).await;
    assert_eq!((&result["over"]["rejected"], &result["claim_shown"]), (&json!({}), &false.into()));
    assert!(matches!(code, Some(1 | 2)), "{code:?} {result:#}");
}

/// Orders get 201 or 409, no response is a 5xx or later than 8.5 s, the memory is level, and the
/// books are sound. `load/abuse` alone does the same for five minutes. It reads /proc.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn abuse_changes_nothing_for_others() {
    let _machine = whole_machine();
    let mut command = load_script("abuse");
    command.args(["--seconds", "20", "--program", env!("CARGO_BIN_EXE_holdfast")]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    println!("{stdout}{stderr}");
    assert!(output.status.success(), "{stdout}{stderr}");
}

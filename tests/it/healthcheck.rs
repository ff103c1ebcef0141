//! `holdfast healthcheck`: its exit code and its line, also for a replica that does not respond.

use std::time::{Duration, Instant};

use holdfast_testkit::proxy;
use holdfast_testkit::{BUSY_MACHINE, TestShop, run_program, until};

use crate::outages::shop_behind;

/// Its own limit; without one it would wait for a paused replica.
const MAX_TIME: Duration = Duration::from_secs(2).saturating_add(BUSY_MACHINE);

/// Returns the exit code, stdout and stderr of a check of replica 0, by the address of a container.
fn healthcheck(shop: &TestShop) -> (Option<i32>, String, String) {
    let started = Instant::now();
    let address = format!("0.0.0.0:{}", shop.replicas[0].name());
    let output = run_program(&["healthcheck"], &[("HOLDFAST_LISTEN", &address)]);
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn healthcheck_follows_readiness() {
    let postgres = proxy::to_postgres().await;
    let mut shop = shop_behind(Some(&postgres), None).await;
    let (code, line, error) = healthcheck(&shop);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
    assert!(line.starts_with("ready: ") && line.lines().count() == 1, "{line}");

    let assert_fails = |shop: &TestShop, why: &str| {
        let (code, line, error) = healthcheck(shop);
        assert_eq!((code, line.as_str()), (Some(1), ""), "{error}");
        assert!(error.contains(why) && error.lines().count() == 1, "{error}");
    };
    postgres.cut().await;
    // The replica keeps a result for a moment.
    until("the replica sees the outage", async || healthcheck(&shop).0 != Some(0)).await;
    assert_fails(&shop, "503");
    shop.replicas[0].pause();
    assert_fails(&shop, "within 2s");
    shop.replicas[0].kill();
    assert_fails(&shop, "refused");
}

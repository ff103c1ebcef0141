//! The metrics at `/metrics`: units, help texts and values.

use std::time::Instant;

use futures_util::future::join_all;
use holdfast_testkit::{TestShop, until};

pub async fn metrics(shop: &TestShop, replica: usize) -> String {
    shop.anonymous().at(replica).get("/metrics").await.text()
}

/// The value of the line that begins like that.
pub fn value(metrics: &str, line: &str) -> Option<f64> {
    let found = metrics.lines().find(|l| l.strip_prefix(line).is_some_and(|l| l.starts_with(' ')));
    found?.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn metrics_have_units_and_help() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    alice.orders("deadbolt", 1).ok().await;
    alice.reads("/api/items/deadbolt").await;
    let metrics = metrics(&shop, 0).await;
    assert!(metrics.contains("holdfast_http_request_duration_seconds_bucket"), "{metrics}");
    assert!(metrics.contains(r#"route="/api/orders",status="201""#), "{metrics}");
    assert!(metrics.contains(r#"route="/api/items/{sku}",status="200""#), "{metrics}");
    assert!(metrics.contains("holdfast_lock_wait_seconds_bucket"), "{metrics}");
    assert!(metrics.contains("# HELP holdfast_lock_wait_seconds"), "{metrics}");
}

#[tokio::test]
async fn lock_metrics_measure_wait_and_hold() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(20).await;
    for strategy in ["local", "owner", "watchdog", "redlock", "fenced", "batched"] {
        let held_ms = 30;
        alice
            .orders(&sku, 1)
            .lock(strategy)
            .header("Holdfast-Work-Ms", held_ms.to_string())
            .ok()
            .await;
        let line = |name: &str, part: &str| {
            format!("holdfast_lock_{name}_seconds_{part}{{strategy=\"{strategy}\"}}")
        };
        // A batch responds before it releases its lock.
        until("the hold is over", async || {
            value(&metrics(&shop, 0).await, &line("hold", "count")).is_some()
        })
        .await;
        let metrics = metrics(&shop, 0).await;
        let one = |name: &str, part: &str| {
            let line = line(name, part);
            value(&metrics, &line).unwrap_or_else(|| panic!("{line} in {metrics}"))
        };
        assert_eq!((one("wait", "count") as u32, one("hold", "count") as u32), (1, 1));
        assert!(one("hold", "sum") >= f64::from(held_ms) / 1_000.0, "{metrics}");
    }
}

/// Two replicas alternate: one holds the lock while the other waits.
#[tokio::test]
async fn waiting_queue_counts_no_hold_time() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(1_000).await;
    let began = Instant::now();
    let client = async |replica| {
        for _ in 0..6 {
            alice.at(replica).orders(&sku, 1).work_ms(100).ok().await;
        }
    };
    join_all((0..16).map(|n| client(n % 2))).await;
    let held = async |replica, part| {
        let line = format!("holdfast_lock_hold_seconds_{part}{{strategy=\"batched\"}}");
        value(&metrics(&shop, replica).await, &line).unwrap_or_default()
    };
    until("the last holds are over", async || {
        held(0, "count").await >= 1.0 && held(1, "count").await >= 1.0
    })
    .await;
    // A handoff counts for both for a moment.
    let both = held(0, "sum").await + held(1, "sum").await;
    let all = began.elapsed().as_secs_f64();
    assert!(both > 0.3 * all && both < 1.2 * all, "{both} s held in {all} s");
}

#[tokio::test]
async fn waiting_requests_are_counted_per_replica() {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LOCK", "fenced")]).await;
    let alice = shop.sign_in("alice").await;
    let admin = shop.sign_in("admin").await;
    let sku = shop.lab_item(10).await;
    let slow =
        |replica, ms: &str| alice.at(replica).orders(&sku, 1).pause(&format!("read:{ms}")).send();
    let waiting = "holdfast_lock_waiting_requests{strategy=\"fenced\"}";
    let mut orders = vec![slow(0, "2000")];
    shop.until_one_is_paused(&admin, "read").await;
    orders.extend([slow(0, "0"), slow(0, "0"), slow(1, "0")]);
    until("two requests wait at one replica, and one at the other", async || {
        let (here, there) = (metrics(&shop, 0).await, metrics(&shop, 1).await);
        value(&here, waiting) == Some(2.0)
            && value(&there, waiting) == Some(1.0)
            && value(&here, "holdfast_lock_contended_keys") == Some(1.0)
    })
    .await;
    for order in orders {
        order.succeeds(201).await;
    }
    until("no request waits", async || {
        let (here, there) = (metrics(&shop, 0).await, metrics(&shop, 1).await);
        value(&here, "holdfast_lock_contended_keys") == Some(0.0)
            && [&here, &there].iter().all(|metrics| value(metrics, waiting) == Some(0.0))
    })
    .await;
    let here = metrics(&shop, 0).await;
    assert_eq!(value(&here, "holdfast_lock_queue_requests_count"), Some(3.0), "{here}");
    // The second waiter found the first in the queue.
    assert_eq!(value(&here, "holdfast_lock_queue_requests_sum"), Some(1.0), "{here}");
}

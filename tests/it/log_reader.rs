//! A log reader that stops reading delays nothing, and a notice reports the dropped lines.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_testkit::{Replica, TestShop, User, until};
use tokio::time::timeout;

use crate::metrics::metrics;

/// Requests at once: each writes several lines.
const FLOOD: usize = 50;
/// Upper bound of a shutdown without a drain.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

async fn dropped_lines(shop: &TestShop) -> u64 {
    let text = metrics(shop, 0).await;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("holdfast_log_lines_dropped_total "));
    value.expect("the metric exists").parse().unwrap()
}

/// Sends requests until more lines have been dropped than before.
async fn flood_log(shop: &TestShop, alice: &User, before: u64) {
    until("lines are dropped", async || {
        let reads = (0..FLOOD).map(|_| alice.reads("/api/orders"));
        join_all(reads).await;
        dropped_lines(shop).await > before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_log_reader_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Open in both directions, so that neither end waits for the other.
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();

    let mut shop = TestShop::without_replicas().await;
    let start = |env: &[(&str, &str)]| Replica::start_with_log(&pipe, env);
    shop.add_replica_with(start, &[("HOLDFAST_LOG", "trace")]);
    let alice = shop.sign_in("alice").await;
    flood_log(&shop, &alice, 0).await;

    shop.anonymous().get("/healthz").await.succeeds(200);
    alice.orders("deadbolt", 1).ok().await;

    let read = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let notice = lines.find(|line| line.contains("lines of the log were dropped")).unwrap();
        (notice, lines)
    });
    let (notice, _reader) = timeout(EXIT_TIMEOUT, read).await.expect("a notice").unwrap();
    assert!(notice.contains("WARN holdfast: "), "{notice}");

    let before = dropped_lines(&shop).await;
    flood_log(&shop, &alice, before).await;
    shop.replicas[0].terminate();
    let exit = timeout(EXIT_TIMEOUT, shop.replicas[0].wait_for_exit()).await;
    assert!(exit.expect("it exits in time"), "it exits cleanly");
    shop.assert_sound().await;
}

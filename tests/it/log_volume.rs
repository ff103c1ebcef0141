//! The size of the log: requests that fail for one reason write one line in some seconds.

use std::time::Instant;

use futures_util::future::join_all;
use holdfast_testkit::proxy::{self, Proxy};
use holdfast_testkit::{Replica, TestShop};

/// Requests that fail during an outage.
const FLOOD: usize = 300;

/// Returns the lines that a flood of orders during an outage of `cut` writes to the log.
async fn lines_of_outage(
    cut: &Proxy,
    variable: &str,
    url: &str,
    shop: &mut TestShop,
) -> Vec<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    let env = [(variable, url), ("HOLDFAST_LOG", "holdfast=info,warn")];
    shop.add_replica_with(start, &env);
    let replica = shop.replicas.len() - 1;
    let alice = shop.sign_in_at(replica, "alice").await;
    let item = shop.lab_item(10).await;
    let before = std::fs::read_to_string(log.path()).unwrap().len();
    cut.cut().await;
    let rejected = join_all((0..FLOOD).map(|n| {
        let sku = if n % 2 == 0 { "deadbolt" } else { &item };
        alice.at(replica).orders(sku, 1).send()
    }));
    for response in rejected.await {
        assert_eq!(response.status, 503);
    }
    let log = std::fs::read_to_string(log.path()).unwrap();
    log[before..].lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn outages_write_few_lines() {
    let mut shop = TestShop::start(1).await;
    let (redis, postgres) = (proxy::to_redis().await, proxy::to_postgres().await);
    let database = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    let outages = [
        (&redis, "REDIS_URL", format!("redis://127.0.0.1:{}", redis.port)),
        (&postgres, "DATABASE_URL", database),
    ];
    for (proxy, variable, url) in outages {
        let began = Instant::now();
        let lines = lines_of_outage(proxy, variable, &url, &mut shop).await;
        let intervals = usize::try_from(began.elapsed().as_secs()).unwrap() / 5 + 1;
        let unavailable = lines.iter().filter(|line| line.contains(" unavailable ")).count();
        assert!((1..=3 * intervals).contains(&unavailable), "{variable}: {lines:#?}");
        assert!(lines.len() <= 10 * intervals, "{variable}: {lines:#?}");
    }
}

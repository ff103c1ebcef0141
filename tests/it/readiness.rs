//! `/readyz` has no rate limit: many probes share one check at a time, and get the current state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::topology::command_calls;
use holdfast_testkit::{Reply, TestShop, until};
use serde_json::Value;

use crate::outages::{send_in_time, shop_behind};

/// Lifetime of a cached result: `RESULT_TTL` in `src/web/api/health.rs`.
const RESULT_TTL: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread")]
async fn readiness_probes_share_one_check() {
    let (shop, own) = TestShop::with_own_redis().await;
    // Nothing else publishes here.
    let checks = || command_calls(&own.url).get("publish").copied().unwrap_or(0);
    let probe = async || shop.anonymous().get("/readyz").await.succeeds(200);

    // On a fast machine the result of the shop's start would serve all probes.
    let of_start = checks();
    until("a probe checks", async || {
        probe().await;
        checks() > of_start
    })
    .await;

    let (before, began) = (checks(), Instant::now());
    let probes = 1_000;
    stream::iter(0..probes).for_each_concurrent(64, async |_| drop(probe().await)).await;
    let new_checks = checks() - before;
    let max = 2 + began.elapsed().div_duration_f64(RESULT_TTL) as u64;
    assert!(new_checks <= max, "{new_checks} checks for {probes} probes, {max} at most");
}

/// Probes that disconnect do not block others, and a cached result is used only briefly.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_redis_under_flood() {
    let redis = proxy::to_redis().await;
    let shop = shop_behind(None, Some(&redis)).await;
    let ready = || shop.anonymous().get("/readyz");
    let over = AtomicBool::new(false);
    let probes = (0..32).map(async |n| {
        while !over.load(Ordering::Relaxed) {
            if n % 2 == 0 {
                send_in_time(ready()).await;
            } else {
                let _ = ready().timeout(Duration::from_millis(n)).try_send().await;
            }
        }
    });
    let reported = async {
        for _ in 0..2 {
            redis.cut().await;
            until("the outage is reported", async || {
                redis_state(send_in_time(ready()).await).await == "away"
            })
            .await;
            assert_eq!(redis_state(send_in_time(ready()).await).await, "away");
            redis.set(Traffic::Forwarded);
            until("the recovery is reported", async || {
                redis_state(send_in_time(ready()).await).await == "ok"
            })
            .await;
        }
        over.store(true, Ordering::Relaxed);
    };
    futures_util::join!(join_all(probes), reported);
}

/// The state of Redis in a response of a replica that is ready.
async fn redis_state(ready: Reply) -> Value {
    ready.succeeds(200)["redis"].clone()
}

//! The rate limit that all replicas share: the rejection, and what it costs.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::topology::{command_calls, query};
use holdfast_testkit::{Reply, TestShop, User, assert_has, fresh_key, services, until};
use serde_json::{Value, json};

use crate::metrics::{metrics, value};

/// Turns off the limits that a test does not configure.
pub const NO_OTHER_LIMITS: [(&str, &str); 4] = [
    ("HOLDFAST_LIMIT_CLIENT", "off"),
    ("HOLDFAST_LIMIT_ADDRESS", "off"),
    ("HOLDFAST_LIMIT_SIGN_IN", "off"),
    ("HOLDFAST_LIMIT_SIGN_IN_NAME", "off"),
];

pub async fn shop_with_limits(replicas: usize, settings: &[(&str, &str)]) -> TestShop {
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend(settings);
    TestShop::start_with(replicas, &env).await
}

async fn me(who: &User, replica: usize) -> Reply {
    who.at(replica).get("/api/me").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_is_shared_by_replicas() {
    let shop = shop_with_limits(2, &[("HOLDFAST_LIMIT_CLIENT", "40/s:20")]).await;
    let alice = shop.sign_in("alice").await;
    // A second session is no second limit.
    let again = shop.sign_in_at(1, "alice").await;
    let began = Instant::now();
    let statuses: Vec<u16> = stream::iter(0..800)
        .map(|n| {
            let who = if n % 3 == 0 { &again } else { &alice };
            async move { me(who, n % 2).await.status }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    // Each replica may have leased the permits of an eighth of a second.
    let most = 20.0 + 40.0 * began.elapsed().as_secs_f64() + 2.0 * 40.0 / 8.0;
    let mut counted: BTreeMap<u16, u32> = BTreeMap::new();
    for status in statuses {
        *counted.entry(status).or_default() += 1;
    }
    let passed = counted.get(&200).copied().unwrap_or(0);
    let rejected = counted.get(&429).copied().unwrap_or(0);
    assert_eq!(passed + rejected, 800, "{counted:?}");
    assert!(f64::from(passed) <= most, "{passed} of {most:.1}");
    assert!(f64::from(passed) >= most.min(800.0) / 2.0, "only {passed} of {most:.1}");
    // Other users are not limited.
    let bob = shop.sign_in("bob").await;
    assert_eq!(me(&bob, 1).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limited_order_keeps_key_unused() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_CLIENT", "20/m:2")]).await;
    let alice = shop.sign_in("alice").await;
    until("the limit is used up", async || me(&alice, 0).await.status == 429).await;
    // The next permit comes three seconds after that.
    let key = fresh_key();
    let order = || alice.orders("deadbolt", 1).key(&key);
    let rejected = order().await;
    assert!(["1", "2", "3"].contains(&rejected.header("retry-after")), "{rejected:?}");
    assert_eq!(rejected.header("x-request-id").len(), 36);
    rejected.fails(429, "too-many-requests");
    assert_eq!(shop.number("select count(*) from orders").await, 0);
    assert_eq!(shop.number("select count(*) from idempotency").await, 0);
    until("the same key succeeds", async || {
        let response = order().await;
        response.status == 201 && !response.is_replayed()
    })
    .await;
    assert_eq!(shop.number("select count(*) from orders").await, 1);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_rate_limit_headers() {
    let limits = [("HOLDFAST_LIMIT_CLIENT", "2/h:2"), ("HOLDFAST_LIMIT_ADDRESS", "100/s:5000")];
    let shop = shop_with_limits(1, &limits).await;
    let alice = shop.sign_in("alice").await;
    let first = me(&alice, 0).await;
    let policies = "\"address\";q=5000;w=50, \"client\";q=2;w=3600";
    assert_eq!(first.header("ratelimit-policy"), policies);
    let state = first.header("ratelimit");
    assert!(state.ends_with("\"client\";r=1;t=1800"), "{state}");
    assert!(state.starts_with("\"address\";r=49"), "{state}");
    assert_eq!(me(&alice, 0).await.status, 200);
    let rejected = me(&alice, 0).await;
    assert_eq!(rejected.header("ratelimit-policy"), policies);
    assert!(rejected.header("ratelimit").contains("\"client\";r=0;t=3"), "{rejected:?}");
    let wait: u64 = rejected.header("retry-after").parse().unwrap();
    assert!((1_700..=1_800).contains(&wait), "{wait}");
    let problem: Value = rejected.succeeds(429);
    assert_has(&problem, json!({ "limit": "client", "type": "/problems/too-many-requests" }));
    assert!(problem["retry_after_ms"].as_u64().unwrap().div_ceil(1_000) == wait, "{problem}");
    // Without a session only the address's limit applies, and a page is rejected as a page.
    let items = shop.anonymous().get("/api/items").await;
    assert_eq!(items.header("ratelimit-policy"), "\"address\";q=5000;w=50");
    let page = alice.get("/orders").header("Accept", "text/html").await;
    assert_eq!(page.status, 429);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(!page.header("retry-after").is_empty());
    assert!(page.text().contains("Too many requests"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_address_of_untrusted_peer_is_ignored() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_ADDRESS", "5/h:5")]).await;
    let from = async |replica: usize, address: &str, path: &str| {
        let request = shop.anonymous().at(replica).get(path).header("X-Forwarded-For", address);
        request.await.status
    };
    for n in 0..5 {
        assert_eq!(from(0, &format!("1.2.3.{n}"), "/api/items").await, 200);
    }
    assert_eq!(from(0, "1.2.3.5", "/api/items").await, 429);
    // Probes and static files are not counted.
    for path in ["/healthz", "/readyz", "/metrics", "/api/docs/"] {
        assert_eq!(from(0, "1.2.3.6", path).await, 200, "{path}");
    }
    let text = metrics(&shop, 0).await;
    assert_eq!(value(&text, "holdfast_rate_limit_rejections_total{limit=\"address\"}"), Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxy_names_the_client() {
    let limits =
        [("HOLDFAST_LIMIT_ADDRESS", "5/h:5"), ("HOLDFAST_TRUSTED_PROXIES", "10.0.0.0/8,127.0.0.1")];
    let shop = shop_with_limits(2, &limits).await;
    let from = async |n: usize, address: &str| {
        let request = shop.anonymous().at(n % 2).get("/api/items");
        request.header("X-Forwarded-For", address).await.status
    };
    for n in 0..5 {
        // The client's own value precedes that of the proxy.
        assert_eq!(from(n, &format!("6.6.6.{n}, 1.2.3.4")).await, 200);
    }
    assert_eq!(from(0, "6.6.6.6, 1.2.3.4").await, 429);
    assert_eq!(from(1, "1.2.3.4, 10.9.9.9").await, 429);
    assert_eq!(from(1, "1.2.3.5").await, 200);
    for n in 0..5 {
        assert_eq!(from(n, &format!("2001:db8:0:1::{n}")).await, 200);
    }
    assert_eq!(from(0, "2001:db8:0:1:9::9").await, 429, "one network is one customer");
    assert_eq!(from(0, "2001:db8:0:2::1").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lab_mode_turns_limits_off() {
    let mut shop = TestShop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    shop.add_replica(&[("HOLDFAST_LAB", "off"), ("HOLDFAST_LIMIT_CLIENT", "off")]);
    let alice = shop.sign_in("alice").await;
    for (replica, policies) in [
        (0, ""),
        (1, "\"address\";q=2000;w=4, \"client\";q=200;w=4"),
        (2, "\"address\";q=2000;w=4"),
    ] {
        assert_eq!(me(&alice, replica).await.header("ratelimit-policy"), policies);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_enforces_limit_without_redis() {
    let redis = proxy::to_redis().await;
    let at = format!("redis://127.0.0.1:{}", redis.port);
    let limits = [
        ("HOLDFAST_LIMIT_ADDRESS", "20/h:20"),
        ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1"),
        ("REDIS_URL", &at),
    ];
    let shop = shop_with_limits(1, &limits).await;
    let items = async |address: &str| {
        let request = shop.anonymous().get("/api/items").header("X-Forwarded-For", address);
        request.await.status
    };
    assert_eq!(items("1.2.3.4").await, 200);
    redis.cut().await;
    let mut passed = 0;
    until("the limit is used up", async || match items("1.2.3.4").await {
        200 => {
            passed += 1;
            false
        }
        status => status == 429,
    })
    .await;
    // One permit was used before.
    assert_eq!(passed, 19);
    let is_degraded = async || value(&metrics(&shop, 0).await, "holdfast_rate_limit_degraded");
    assert_eq!(is_degraded().await, Some(1.0));
    redis.set(Traffic::Forwarded);
    until("limits are shared again", async || {
        // Redis is used again for the next client.
        items("1.2.3.5").await;
        is_degraded().await == Some(0.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_costs_no_redis_call() {
    let (mut shop, redis) = TestShop::with_own_redis().await;
    let at = ("REDIS_URL", redis.url.as_str());
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend([at, ("HOLDFAST_LIMIT_CLIENT", "3/h:3")]);
    shop.add_replica(&env);
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend([at, ("HOLDFAST_LIMIT_ADDRESS", "100000/s")]);
    shop.add_replica(&env);
    let alice = shop.sign_in("alice").await;
    until("the limit is used up", async || me(&alice, 2).await.status == 429).await;
    let before = command_calls(&redis.url);
    for _ in 0..100 {
        assert_eq!(me(&alice, 2).await.status, 429);
    }
    let after = command_calls(&redis.url);
    // The checks of Redis are scripts, too, and the only ones that publish.
    let scripts_of_limits = |calls: &BTreeMap<String, u64>| {
        let number = |name: &str| calls.get(name).copied().unwrap_or(0);
        number("evalsha") - number("publish")
    };
    assert_eq!(scripts_of_limits(&before), scripts_of_limits(&after), "{after:?}");

    let requests = 2_000;
    stream::iter(0..requests)
        .for_each_concurrent(32, |_| async {
            assert_eq!(me(&alice, 3).await.status, 200);
        })
        .await;
    let scripts = |calls: &BTreeMap<String, u64>| {
        ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum::<u64>()
    };
    let calls = scripts(&command_calls(&redis.url)) - scripts(&after);
    assert!(calls * 10 <= requests, "{calls} calls for {requests} requests");
}

/// A key exists only while its bucket is not full.
#[tokio::test(flavor = "multi_thread")]
async fn full_bucket_leaves_no_redis_key() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_ADDRESS", "2/s:20")]).await;
    let redis = &services().running.redis_url;
    assert_eq!(shop.anonymous().get("/api/items").await.status, 200);
    let key = format!("{}limit:{{address:127.0.0.1}}", shop.prefix);
    let left: i64 = query(redis, &format!("PTTL {key}")).unwrap();
    // One permit was used, which is half a second; or the key has expired already.
    assert!(left <= 500 && left != -1, "{left}");
    until("the key has expired", async || {
        query::<i64>(redis, &format!("EXISTS {key}")).unwrap() == 0
    })
    .await;
}

/// After a clock of Redis was set back, a bucket is full again at a time far ahead.
#[tokio::test(flavor = "multi_thread")]
async fn backward_clock_does_not_block_clients() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_ADDRESS", "10/s:10")]).await;
    let redis = &services().running.redis_url;
    let far_ahead = 4_000_000_000_000_000_i64;
    let key = format!("{}limit:{{address:127.0.0.1}}", shop.prefix);
    let _: String = query(redis, &format!("SET {key} {far_ahead}")).unwrap();
    let items = async || shop.anonymous().get("/api/items").await.status;
    until("it is rejected", async || items().await == 429).await;
    until("the burst is refilled", async || items().await == 200).await;
}

//! The rate limit that all replicas share: the rejection, and what it costs.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::common::proxy::Proxy;
use crate::common::requests::{Answer as _, fresh_key, keyed};
use crate::common::{Shop, User, services, until};
use crate::metrics::{metrics, value};
use crate::topology::{command_calls, query};

/// Turns off the limits that a test does not configure.
pub const NO_OTHER_LIMITS: [(&str, &str); 4] = [
    ("HOLDFAST_LIMIT_CLIENT", "off"),
    ("HOLDFAST_LIMIT_ADDRESS", "off"),
    ("HOLDFAST_LIMIT_SIGN_IN", "off"),
    ("HOLDFAST_LIMIT_SIGN_IN_NAME", "off"),
];

pub async fn shop_with_limits(replicas: usize, settings: &[(&str, &str)]) -> Shop {
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend(settings);
    Shop::start_with(replicas, &env).await
}

async fn me(shop: &Shop, who: &User, replica: usize) -> Response {
    shop.request(who, Method::GET, replica, "/api/me").send().await.unwrap()
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_is_shared_by_replicas() {
    let shop = shop_with_limits(2, &[("HOLDFAST_LIMIT_CLIENT", "40/s:20")]).await;
    let alice = shop.sign_in("alice").await;
    // A second session is no second limit.
    let again = shop.sign_in_at(1, "alice").await;
    let began = Instant::now();
    let statuses: Vec<StatusCode> = stream::iter(0..800)
        .map(|n| {
            let (shop, who) = (&shop, if n % 3 == 0 { &again } else { &alice });
            async move { me(shop, who, n % 2).await.status() }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    // Each replica may have leased the permits of an eighth of a second.
    let most = 20.0 + 40.0 * began.elapsed().as_secs_f64() + 2.0 * 40.0 / 8.0;
    let mut counted: BTreeMap<StatusCode, u32> = BTreeMap::new();
    for status in statuses {
        *counted.entry(status).or_default() += 1;
    }
    let passed = counted.get(&StatusCode::OK).copied().unwrap_or(0);
    let rejected = counted.get(&StatusCode::TOO_MANY_REQUESTS).copied().unwrap_or(0);
    assert_eq!(passed + rejected, 800, "{counted:?}");
    assert!(f64::from(passed) <= most, "{passed} of {most:.1}");
    assert!(f64::from(passed) >= most.min(800.0) / 2.0, "only {passed} of {most:.1}");
    // Other users are not limited.
    let bob = shop.sign_in("bob").await;
    assert_eq!(me(&shop, &bob, 1).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limited_order_keeps_key_unused() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_CLIENT", "20/m:2")]).await;
    let alice = shop.sign_in("alice").await;
    until("the limit is used up", async || me(&shop, &alice, 0).await.status() == 429).await;
    // The next permit comes three seconds after that.
    let key = fresh_key();
    let order = || keyed(&shop, &alice, 0, &key, "deadbolt", 1);
    let rejected = order().send().await.unwrap();
    assert!(["1", "2", "3"].contains(&header(&rejected, "retry-after").as_str()), "{rejected:?}");
    assert_eq!(header(&rejected, "x-request-id").len(), 36);
    rejected.refuses(429, "too-many-requests").await;
    assert_eq!(shop.number("select count(*) from orders").await, 0);
    assert_eq!(shop.number("select count(*) from idempotency").await, 0);
    until("the same key succeeds", async || {
        let response = order().send().await.unwrap();
        let replayed = header(&response, "idempotent-replayed");
        response.status() == 201 && replayed.is_empty()
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
    let first = me(&shop, &alice, 0).await;
    let policies = "\"address\";q=5000;w=50, \"client\";q=2;w=3600";
    assert_eq!(header(&first, "ratelimit-policy"), policies);
    let state = header(&first, "ratelimit");
    assert!(state.ends_with("\"client\";r=1;t=1800"), "{state}");
    assert!(state.starts_with("\"address\";r=49"), "{state}");
    assert_eq!(me(&shop, &alice, 0).await.status(), 200);
    let rejected = me(&shop, &alice, 0).await;
    assert_eq!(header(&rejected, "ratelimit-policy"), policies);
    assert!(header(&rejected, "ratelimit").contains("\"client\";r=0;t=3"), "{rejected:?}");
    let wait: u64 = header(&rejected, "retry-after").parse().unwrap();
    assert!((1_700..=1_800).contains(&wait), "{wait}");
    let problem: Value = rejected.gives(429).await;
    assert_eq!(
        (&problem["limit"], &problem["type"]),
        (&json!("client"), &json!("/problems/too-many-requests"))
    );
    assert!(problem["retry_after_ms"].as_u64().unwrap().div_ceil(1_000) == wait, "{problem}");
    // Without a session only the address's limit applies, and a page is rejected as a page.
    let items = shop.http.get(shop.url(0, "/api/items")).send().await.unwrap();
    assert_eq!(header(&items, "ratelimit-policy"), "\"address\";q=5000;w=50");
    let page = shop.request(&alice, Method::GET, 0, "/orders").header("Accept", "text/html");
    let page = page.send().await.unwrap();
    assert_eq!(page.status(), 429);
    assert!(header(&page, "content-type").starts_with("text/html"));
    assert!(!header(&page, "retry-after").is_empty());
    assert!(page.text().await.unwrap().contains("Too many requests"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_address_of_untrusted_peer_is_ignored() {
    let shop = shop_with_limits(1, &[("HOLDFAST_LIMIT_ADDRESS", "5/h:5")]).await;
    let from = async |replica: usize, address: &str, path: &str| {
        let request = shop.http.get(shop.url(replica, path)).header("X-Forwarded-For", address);
        request.send().await.unwrap().status().as_u16()
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
        let request = shop.http.get(shop.url(n % 2, "/api/items"));
        request.header("X-Forwarded-For", address).send().await.unwrap().status().as_u16()
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
    let mut shop = Shop::start(1).await;
    shop.add_replica(&[("HOLDFAST_LAB", "off")]);
    shop.add_replica(&[("HOLDFAST_LAB", "off"), ("HOLDFAST_LIMIT_CLIENT", "off")]);
    let alice = shop.sign_in("alice").await;
    assert_eq!(header(&me(&shop, &alice, 0).await, "ratelimit-policy"), "");
    let usual = header(&me(&shop, &alice, 1).await, "ratelimit-policy");
    assert_eq!(usual, "\"address\";q=2000;w=4, \"client\";q=200;w=4");
    let address = header(&me(&shop, &alice, 2).await, "ratelimit-policy");
    assert_eq!(address, "\"address\";q=2000;w=4");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_enforces_limit_without_redis() {
    let redis = Proxy::to_redis().await;
    let at = format!("redis://127.0.0.1:{}", redis.port);
    let limits = [
        ("HOLDFAST_LIMIT_ADDRESS", "20/h:20"),
        ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1"),
        ("REDIS_URL", &at),
    ];
    let shop = shop_with_limits(1, &limits).await;
    let items = async |address: &str| {
        let request = shop.http.get(shop.url(0, "/api/items")).header("X-Forwarded-For", address);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(items("1.2.3.4").await, 200);
    redis.cut();
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
    redis.restore();
    until("limits are shared again", async || {
        // Redis is used again for the next client.
        items("1.2.3.5").await;
        is_degraded().await == Some(0.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_costs_no_redis_call() {
    let (mut shop, redis) = Shop::with_own_redis().await;
    let at = ("REDIS_URL", redis.url.as_str());
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend([at, ("HOLDFAST_LIMIT_CLIENT", "3/h:3")]);
    shop.add_replica(&env);
    let mut env = NO_OTHER_LIMITS.to_vec();
    env.extend([at, ("HOLDFAST_LIMIT_ADDRESS", "100000/s")]);
    shop.add_replica(&env);
    let alice = shop.sign_in("alice").await;
    until("the limit is used up", async || me(&shop, &alice, 2).await.status() == 429).await;
    let before = command_calls(&redis.url);
    for _ in 0..100 {
        assert_eq!(me(&shop, &alice, 2).await.status(), 429);
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
            assert_eq!(me(&shop, &alice, 3).await.status(), 200);
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
    assert_eq!(shop.http.get(shop.url(0, "/api/items")).send().await.unwrap().status(), 200);
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
    let items = async || shop.http.get(shop.url(0, "/api/items")).send().await.unwrap().status();
    until("it is rejected", async || items().await == 429).await;
    until("the burst is refilled", async || items().await == 200).await;
}

//! The cost of one user: keys in Redis, unpaid orders.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast::rate_limit::Limiter;
use holdfast_lock::Redis;
use holdfast_testkit::topology::query;
use holdfast_testkit::{Call, TestShop, User, fresh_key, id_of, services, until};
use serde_json::json;
use uuid::Uuid;

fn order_of(who: &User, skus: &[String]) -> Call {
    let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 1)).collect();
    who.orders_all(&lines).key(&format!("{}{}", "k".repeat(200), fresh_key()))
}

/// Skus that do not exist, different ones for each order.
fn unknown_skus(count: usize) -> Vec<String> {
    (0..count).map(|_| format!("no-{}", Uuid::new_v4().simple())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_unknown_items_take_no_lock() {
    let shop = TestShop::start(2).await;
    let alice = shop.sign_in("alice").await;
    let fences = || {
        let pattern = format!("KEYS {}lock:*", shop.prefix);
        query::<Vec<String>>(&services().running.redis_url, &pattern).unwrap()
    };
    for (replica, strategy) in [(0, "batched"), (1, "batched"), (0, "fenced"), (1, "version")] {
        for count in [1, 50] {
            let mut skus = unknown_skus(count);
            if count > 1 {
                skus[0] = "deadbolt".to_owned();
            }
            order_of(&alice.at(replica), &skus).lock(strategy).fails(404, "not-found").await;
        }
    }
    let admin = shop.sign_in("admin").await;
    admin.restocks("no-such-thing", 1).fails(404, "not-found").await;
    assert_eq!(fences(), Vec::<String>::new());
    // An item is found as soon as it exists, although a lookup failed before.
    let sku = unknown_skus(1).remove(0);
    order_of(&alice, std::slice::from_ref(&sku)).fails(404, "not-found").await;
    let item = json!({ "sku": sku, "name": "New", "price_cents": 1, "stock": 1 });
    admin.at(1).creates_item(&item).ok().await;
    alice.orders(&sku, 1).ok().await;
    assert!(fences().iter().all(|key| key.contains(&sku)), "{:?}", fences());
}

/// If unknown items were locked, 400 orders would leave 20,000 fences of some 180 bytes: 3.6 MB.
#[tokio::test(flavor = "multi_thread")]
async fn worst_orders_cost_less_than_a_megabyte() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let alice = shop.sign_in("alice").await;
    let used = || {
        let info: String = query(&redis.url, "INFO memory").unwrap();
        let bytes = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        bytes.trim().parse::<i64>().unwrap()
    };
    let pair = async |n: usize| {
        let order = alice.at(n % 2).orders("key-ring", 1).ok().await;
        alice.at((n / 2) % 2).cancels(&order).ok().await;
    };
    // Connections and scripts are there before the measurement.
    stream::iter(0..50).for_each_concurrent(16, pair).await;
    let before = used();
    stream::iter(0..800)
        .for_each_concurrent(16, async |n| match n % 2 {
            0 => {
                let order = order_of(&alice.at((n / 2) % 2), &unknown_skus(50));
                order.fails(404, "not-found").await;
            }
            _ => pair(n / 2).await,
        })
        .await;
    let peak = used() - before;
    until("only bounded data is left", async || used() - before < 1_000_000).await;
    println!("Redis grew by {peak} bytes, and kept {}", used() - before);
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_addresses_of_a_user_are_bounded() {
    let redis = Redis::open(&services().running.redis_url).unwrap();
    let prefix = format!("test-{}:", Uuid::new_v4().simple());
    let limiter = Limiter::new(redis, &prefix);
    let ttl = Duration::from_secs(600);
    let address = |n: usize| format!("2001:db8:0:{n:x}::/64");
    limiter.remember("bob", "192.0.2.1", ttl).await;
    for n in 0..200 {
        limiter.remember("alice", &address(n), ttl).await;
        limiter.remember("alice", "192.0.2.7", ttl).await;
    }
    let redis = &services().running.redis_url;
    assert_eq!(query::<usize>(redis, &format!("ZCARD {prefix}known:{{alice}}")).unwrap(), 64);
    let left: i64 = query(redis, &format!("TTL {prefix}known:{{alice}}")).unwrap();
    assert!((1..=600).contains(&left), "{left}");
    assert!(limiter.is_remembered("alice", &address(199)).await);
    assert!(limiter.is_remembered("alice", "192.0.2.7").await, "it is the most recent");
    assert!(!limiter.is_remembered("alice", &address(0)).await);
    assert!(!limiter.is_remembered("alice", "192.0.2.1").await, "it is bob's");
    assert!(limiter.is_remembered("bob", "192.0.2.1").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn unpaid_orders_of_a_user_are_limited() {
    let shop = TestShop::start_with(2, &[("HOLDFAST_LIMIT_UNPAID", "3")]).await;
    let (alice, bob) = (shop.sign_in("alice").await, shop.sign_in("bob").await);
    let key = fresh_key();
    let first = id_of(&alice.orders("key-ring", 1).key(&key).ok().await);
    let second = id_of(&alice.orders("key-ring", 1).ok().await);
    alice.orders("deadbolt", 1).ok().await;
    for replica in [0, 1, 0] {
        let rejected = alice.at(replica).orders("key-ring", 1).await;
        let wait: u64 = rejected.header("retry-after").parse().unwrap();
        assert!((890..=900).contains(&wait), "until the first is due: {wait}");
        assert_eq!(rejected.fails(429, "too-many-requests")["limit"], "unpaid");
    }

    let replay = alice.at(1).orders("key-ring", 1).key(&key).await;
    assert!(replay.is_replayed());
    assert_eq!(id_of(&replay.ok()), first);

    bob.orders("key-ring", 1).ok().await;
    // A cancelled or paid order no longer counts.
    alice.at(1).cancels(&first).ok().await;
    alice.orders("key-ring", 1).ok().await;
    alice.orders("key-ring", 1).fails(429, "too-many-requests").await;
    alice.at(1).pays(&second).ok().await;
    alice.orders("key-ring", 1).ok().await;
    assert_eq!(shop.number("select count(*) from orders where status = 'pending'").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn unpaid_limit_is_on_without_lab() {
    let off = ("HOLDFAST_LIMIT_CLIENT", "off");
    let mut shop = TestShop::start_with(1, &[("HOLDFAST_LAB", "off"), off]).await;
    shop.add_replica(&[off]);
    let alice = shop.sign_in("alice").await;
    let sku = shop.shop_item(500, 100).await;
    for _ in 0..200 {
        alice.orders(&sku, 1).ok().await;
    }
    alice.orders(&sku, 1).fails(429, "too-many-requests").await;
    alice.at(1).orders(&sku, 1).ok().await;
}

//! A Redis that rejects the commands of a lock: the replica reports the cause, and sells again as
//! soon as Redis permits it. `serve` names the setting to change.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdfast_testkit::barrier::own_redis;
use holdfast_testkit::topology::{self, RunningServers, Topology, query};
use holdfast_testkit::{Replica, Reply, TestShop, User, run_program, until};

use crate::metrics::{metrics, value};

/// The state of Redis by `/readyz` of the last replica, which is ready.
async fn redis_state(shop: &TestShop) -> String {
    let ready = shop.anonymous().at(shop.replicas.len() - 1).reads("/readyz").await;
    ready["redis"].as_str().unwrap().to_owned()
}

async fn place_order(shop: &TestShop, alice: &User) -> Reply {
    alice.at(shop.replicas.len() - 1).orders("deadbolt", 1).await
}

/// Waits until the rejection is reported with that code; the order and the metric must agree.
async fn assert_refused(shop: &TestShop, alice: &User, code: &str) {
    let rejected = format!("refused: {code}");
    until("it is reported", async || redis_state(shop).await.starts_with(&rejected)).await;
    let problem = place_order(shop, alice).await.fails(503, "unavailable");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("Redis refused: {code}")), "{detail}");
    let metrics = metrics(shop, shop.replicas.len() - 1).await;
    assert_eq!(value(&metrics, "holdfast_redis_ok"), Some(0.0), "{code}");
}

async fn until_sells_again(shop: &TestShop, alice: &User) {
    until("it sells again", async || place_order(shop, alice).await.status == 201).await;
    until("it is reported", async || redis_state(shop).await == "ok").await;
    let metrics = metrics(shop, shop.replicas.len() - 1).await;
    assert_eq!(value(&metrics, "holdfast_redis_ok"), Some(1.0));
}

/// A user with these permissions on a Redis of its own, and a shop whose replicas are that user.
pub async fn shop_of_user(replicas: usize, permissions: &str) -> (TestShop, RunningServers) {
    let redis = own_redis().await;
    let mut shop = TestShop::without_replicas().await;
    let permissions = permissions.replace("holdfast:", &shop.prefix);
    let _: String = query(&redis.url, &format!("ACL SETUSER shop on >word {permissions}")).unwrap();
    let url = format!("{}?user=shop&pass=word", redis.url);
    for _ in 0..replicas {
        shop.add_replica(&[("REDIS_URL", &url)]);
    }
    (shop, redis)
}

#[tokio::test(flavor = "multi_thread")]
async fn rejecting_redis_is_named_everywhere() {
    let (shop, redis) = TestShop::with_own_redis().await;
    let alice = shop.sign_in_at(1, "alice").await;
    let execute = |command: &str| query::<redis::Value>(&redis.url, command).unwrap();
    for (begin, end, code) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
    ] {
        execute(begin);
        assert_refused(&shop, &alice, code).await;
        execute(end);
        until_sells_again(&shop, &alice).await;
    }
}

/// Redis restarts, and its users are loaded later.
#[tokio::test(flavor = "multi_thread")]
async fn replica_sells_after_its_login_was_rejected() {
    let permissions = "~holdfast:* &holdfast:* +@all";
    let (shop, mut redis) = shop_of_user(1, permissions).await;
    let alice = shop.sign_in("alice").await;
    until_sells_again(&shop, &alice).await;

    redis.data[0].0.restart();
    assert_refused(&shop, &alice, "WRONGPASS").await;

    let permissions = permissions.replace("holdfast:", &shop.prefix);
    let _: String = query(&redis.url, &format!("ACL SETUSER shop on >word {permissions}")).unwrap();
    until_sells_again(&shop, &alice).await;
}

/// The line of the ACL in the documentation, which is all that a replica needs.
#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_are_enough() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/SECURITY.md");
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER holdfast "));
    let permissions = line.unwrap().strip_prefix("on >PASSWORD ").unwrap();
    let (shop, _redis) = shop_of_user(2, permissions).await;
    assert_eq!(redis_state(&shop).await, "ok");
    let alice = shop.sign_in("alice").await;
    let sku = shop.lab_item(100).await;
    let orders = (0..20).map(|n| alice.at(n % 2).orders(&sku, 1).send());
    for order in join_all(orders).await {
        assert_eq!(order.status, 201);
    }
    let admin = shop.sign_in("admin").await;
    admin.reads("/api/locks").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strategy_without_redis_does_not_check_it() {
    let shop = TestShop::start_with(1, &[("HOLDFAST_LOCK", "row-lock")]).await;
    assert_eq!(redis_state(&shop).await, "not needed");
    assert_eq!(value(&metrics(&shop, 0).await, "holdfast_redis_ok"), None);
}

/// Runs `serve` until it exits, and returns what it wrote to stderr and how long that took.
async fn serve_fails(database: String, url: String) -> (String, Duration) {
    let run = move || {
        let started = Instant::now();
        let output = run_program(
            &["serve", "--listen", "127.0.0.1:0", "--lock", "batched"],
            &[("DATABASE_URL", &database), ("REDIS_URL", &url)],
        );
        assert!(!output.status.success(), "{url}: {output:?}");
        (String::from_utf8(output.stderr).unwrap(), started.elapsed())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_names_what_redis_rejects() {
    let (shop, redis) = (TestShop::without_replicas().await, own_redis().await);
    let cluster = tokio::task::spawn_blocking(|| topology::start(Topology::Cluster));
    let cluster = cluster.await.unwrap().unwrap();
    let full = own_redis().await;
    let execute =
        |redis: &RunningServers, command: &str| query::<redis::Value>(&redis.url, command).unwrap();
    execute(&redis, "ACL SETUSER noscripts on >hidden ~* &* +@all -@scripting");
    execute(&redis, "ACL SETUSER nokeys on >hidden resetkeys &* +@all");
    execute(&full, "CONFIG SET maxmemory 1");
    let user = |name: &str| format!("{}?user={name}&pass=hidden", redis.url);
    let address = "address of the form redis-cluster://";
    let failures = [
        (user("missing"), "WRONGPASS", "check the user and the password"),
        (user("noscripts"), "NOPERM", "docs/SECURITY.md has the line for the ACL"),
        (user("nokeys"), "NOPERM", "docs/SECURITY.md has the line for the ACL"),
        (format!("{}?db=99", redis.url), "NODB", "correct the number at the end of the address"),
        (cluster.data[1].1.clone(), "CROSSSLOT", address),
        (full.url.clone(), "OOM", "raise maxmemory, or delete keys"),
    ];
    let runs = failures.map(async |(url, code, advice)| {
        let (text, time) = serve_fails(shop.database_url(), url).await;
        assert!(text.contains(&format!("refuses what a lock needs: {code}")), "{text}");
        assert!(text.contains(advice), "{code}: {text}");
        assert!((9..25).contains(&time.as_secs()), "{code}: {time:?}");
        assert!(!text.contains("hidden"), "{text}");
    });
    join_all(runs).await;
}

/// A rejection at the start that ends within ten seconds is tolerated.
#[tokio::test(flavor = "multi_thread")]
async fn serve_waits_for_users_of_redis() {
    let redis = own_redis().await;
    let mut shop = TestShop::without_replicas().await;
    let (url, prefix) = (format!("{}?user=shop&pass=word", redis.url), shop.prefix.clone());
    let log = tempfile::NamedTempFile::new().unwrap();
    let load = async {
        until("it was rejected", async || {
            std::fs::read_to_string(log.path()).unwrap().contains("WRONGPASS")
        })
        .await;
        let user = format!("ACL SETUSER shop on >word ~{prefix}* &{prefix}* +@all");
        let _: String = query(&redis.url, &user).unwrap();
    };
    let path = log.path().to_owned();
    let start = tokio::task::spawn_blocking(move || {
        let env = [("REDIS_URL", url.as_str())];
        shop.add_replica_with(|env| Replica::start_with_log(&path, env), &env);
        shop
    });
    let (shop, ()) = tokio::join!(start, load);
    assert_eq!(redis_state(&shop.unwrap()).await, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_redis_writes_few_lines() {
    let redis = own_redis().await;
    let mut shop = TestShop::without_replicas().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| Replica::start_with_log(log.path(), env);
    let limit = ("HOLDFAST_LIMIT_ADDRESS", "100000/s");
    let level = ("HOLDFAST_LOG", "holdfast=info,warn");
    shop.add_replica_with(start, &[("REDIS_URL", redis.url.as_str()), limit, level]);
    let alice = shop.sign_in("alice").await;
    let before = std::fs::read_to_string(log.path()).unwrap().len();

    let _: String = query(&redis.url, "CONFIG SET maxmemory 1").unwrap();
    let began = Instant::now();
    let mut orders = 0;
    until("some seconds pass", async || {
        orders += 1;
        let problem = place_order(&shop, &alice).await.fails(503, "unavailable");
        assert_eq!(problem["title"], "Postgres or Redis is unavailable");
        began.elapsed() > Duration::from_secs(6)
    })
    .await;

    let log = std::fs::read_to_string(log.path()).unwrap();
    let lines: Vec<&str> = log[before..].lines().collect();
    assert!(orders > 50 && lines.len() <= 8, "{orders} orders: {lines:#?}");
    let is_degraded = "this replica applies its rate limits alone";
    let degraded = lines.iter().filter(|line| line.contains(is_degraded)).count();
    assert_eq!(degraded, 1, "{lines:#?}");
}

//! A replica starts only beside replicas that its lock excludes, and under an unsafe lock only if
//! that is allowed.

use holdfast_shop::strategy::STRATEGIES;
use holdfast_testkit::barrier::own_redis;
use holdfast_testkit::topology::query;
use holdfast_testkit::{TestShop, assert_has, services, until};
use serde_json::json;

const OWNER: (&str, &str) = ("HOLDFAST_LOCK", "owner");
const ROW_LOCK: (&str, &str) = ("HOLDFAST_LOCK", "row-lock");
const WATCHDOG: (&str, &str) = ("HOLDFAST_LOCK", "watchdog");
const CHANGE: &[&str] = &["--change-lock"];

#[tokio::test(flavor = "multi_thread")]
async fn lock_of_other_family_is_rejected() {
    let mut shop = TestShop::start_with(1, &[ROW_LOCK]).await;
    let output = shop.try_start_rejected(&[], &[WATCHDOG]);
    assert!(output.contains("the lock watchdog does not exclude row-lock"), "{output}");
    let remedy = "Use fenced, row-lock, atomic, version, serializable, batched. To change the lock, \
                  stop all replicas, then start one with `holdfast serve --change-lock`";
    assert!(output.contains(remedy), "{output}");

    shop.add_replica(&[("HOLDFAST_LOCK", "batched")]);
    shop.add_replica(&[("HOLDFAST_LOCK", "serializable")]);
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(30).await;
    let orders = (0..45).map(|n| alice.at(n % 3).orders(&sku, 1).send());
    let sold = futures_util::future::join_all(orders)
        .await
        .into_iter()
        .filter(|order| order.status == 201)
        .count();
    let audit = shop.item_audit(&sku).await;
    assert_has(&audit, json!({ "sold": sold, "ok": true, "forks": [] }));
    assert!(shop.paused_requests(&admin, 0).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_changes_only_while_no_other_replica_runs() {
    let mut shop = TestShop::start_with(2, &[ROW_LOCK]).await;
    shop.replicas[1].pause();
    let output = shop.try_start_rejected(CHANGE, &[WATCHDOG]);
    assert!(output.contains("can't be changed from row-lock to watchdog"), "{output}");
    for replica in shop.replicas.iter() {
        assert!(output.contains(replica.name()), "{output}");
    }
    shop.replicas[0].kill();
    shop.until_registered(1).await;
    assert!(shop.try_start_rejected(CHANGE, &[WATCHDOG]).contains(shop.replicas[1].name()));
    shop.replicas[1].kill();
    shop.until_registered(0).await;

    assert!(shop.try_start_rejected(&[], &[WATCHDOG]).contains("--change-lock"), "not by itself");
    shop.try_add_replica(CHANGE, &[WATCHDOG]).unwrap();
    shop.add_replica(&[OWNER]);
    assert!(shop.try_start_rejected(&[], &[ROW_LOCK]).contains("does not exclude watchdog"));
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_replica_still_counts_as_running() {
    let mut shop = TestShop::start_with(1, &[ROW_LOCK, ("HOLDFAST_DRAIN_S", "60")]).await;
    shop.replicas[0].terminate();
    until("it drains", async || {
        let ready = shop.anonymous().get("/readyz").await;
        ready.status == 503
    })
    .await;
    assert!(shop.try_start_rejected(CHANGE, &[WATCHDOG]).contains(shop.replicas[0].name()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_in_other_redis_is_rejected() {
    let mut shop = TestShop::start_with(1, &[OWNER]).await;
    let other = own_redis().await;
    let output = shop.try_start_rejected(&[], &[WATCHDOG, ("REDIS_URL", &other.url)]);
    assert!(output.contains("lock with another Redis"), "{output}");
    assert!(output.contains(shop.replicas[0].name()), "{output}");
    assert_eq!(query::<i64>(&other.url, "DBSIZE").unwrap(), 0, "it leaves no key there");
    let output = shop.try_start_rejected(CHANGE, &[OWNER, ("HOLDFAST_REDIS_PREFIX", "other:")]);
    assert!(output.contains("under the prefix other:"), "{output}");
    shop.add_replica(&[WATCHDOG]);

    // Under a lock that Postgres protects, each may have its own.
    let mut shop = TestShop::start_with(1, &[]).await;
    shop.add_replica(&[("REDIS_URL", &other.url)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_one_other_node_is_rejected() {
    let redlock = ("HOLDFAST_LOCK", "redlock");
    let mut shop = TestShop::start_with(1, &[redlock]).await;
    let other = own_redis().await;
    let mut nodes = services().running.redlock_urls.clone();
    nodes[2].clone_from(&other.url);
    let output = shop.try_start_rejected(&[], &[redlock, ("REDLOCK_URLS", &nodes.join(","))]);
    assert!(output.contains("one of REDLOCK_URLS"), "{output}");
    let five: Vec<_> = nodes.iter().chain(&nodes[..2]).map(String::as_str).collect();
    let output = shop.try_start_rejected(&[], &[redlock, ("REDLOCK_URLS", &five.join(","))]);
    assert!(
        output.contains("redlock on 5 servers does not exclude redlock on 3 servers"),
        "{output}"
    );
    shop.add_replica(&[redlock]);
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_redis_rejects_no_replica() {
    let redis = own_redis().await;
    let env = [OWNER, ("REDIS_URL", redis.url.as_str())];
    let mut shop = TestShop::start_with(1, &env).await;
    let flush = || query::<String>(&redis.url, "FLUSHALL").unwrap();
    let find = format!("KEYS {}mark:*", shop.prefix);
    let marks = || query::<Vec<String>>(&redis.url, &find).unwrap();
    let mark = marks();
    flush();
    shop.add_replica(&env);
    assert_eq!(marks(), mark, "the running one sets its mark again");

    shop.replicas.clear();
    shop.until_registered(0).await;
    flush();
    shop.add_replica(&env);
    assert_ne!(marks(), mark, "no running replica kept the mark");
    assert_eq!(marks().len(), 1);
    shop.add_replica(&env);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_session_is_opened_again() {
    let mut shop = TestShop::start_with(2, &[OWNER]).await;
    shop.until_registered(2).await;
    shop.end_registrations().await;
    shop.until_registered(2).await;
    assert!(shop.try_start_rejected(CHANGE, &[ROW_LOCK]).contains("while other replicas run"));

    // The lock is changed while the replicas are paused.
    for replica in shop.replicas.iter() {
        replica.pause();
    }
    shop.end_registrations().await;
    shop.try_add_replica(CHANGE, &[ROW_LOCK]).unwrap();
    for replica in &mut shop.replicas[..2] {
        replica.resume();
        assert!(!replica.wait_for_exit().await, "it exits with an error");
    }
    let alice = shop.sign_in_at(2, "alice").await;
    assert_eq!(alice.at(2).orders("deadbolt", 1).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_lock_must_be_allowed() {
    let mut shop = TestShop::without_replicas().await;
    let disallow = ("HOLDFAST_UNSAFE_LOCK", "off");
    let of_servers = STRATEGIES.iter().filter(|strategy| !strategy.is_for_lab_only());
    let hazardous = of_servers.filter(|strategy| strategy.hazard().is_some());
    let hazardous: Vec<&str> = hazardous.map(|strategy| strategy.name).collect();
    assert_eq!(
        hazardous,
        [
            "none",
            "check-then-decrement",
            "local",
            "setnx",
            "setnx-expire",
            "ttl",
            "check-then-del",
            "expire-only",
            "early-release",
            "wrong-key",
            "queue",
        ]
    );
    for name in hazardous {
        let output = shop.try_start_rejected(&[], &[("HOLDFAST_LOCK", name), disallow]);
        assert!(output.contains(&format!("the lock {name} is unsafe")), "{output}");
        assert!(output.contains("--unsafe-lock"), "{output}");
    }
    for allowed in ["off", "on"] {
        let env = [("HOLDFAST_LOCK", "pre-deduct"), ("HOLDFAST_UNSAFE_LOCK", allowed)];
        let output = shop.try_start_rejected(&[], &env);
        assert!(output.contains("the strategy pre-deduct is for lab items only"), "{output}");
    }
    assert_eq!(shop.number("select count(*) from lock_family").await, 0);

    let log = tempfile::NamedTempFile::new().unwrap();
    let start = |env: &[(&str, &str)]| holdfast_testkit::Replica::start_with_log(log.path(), env);
    shop.add_replica_with(start, &[("HOLDFAST_LOCK", "none"), ("HOLDFAST_UNSAFE_LOCK", "on")]);
    let alice = shop.sign_in("alice").await;
    alice.orders("deadbolt", 1).ok().await;
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(log.matches("UNSAFE LOCK none").count(), 1, "{log}");
}

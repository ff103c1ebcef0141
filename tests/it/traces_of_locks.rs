//! A trace tells what became of a lock and of a write: what Redis and Postgres returned, not what
//! the request meant to do.

use futures_util::future::join_all;
use holdfast_testkit::barrier::Barrier;
use serde_json::{Value, json};

use crate::strategy_failures::Lab;

fn names(body: &Value) -> Vec<&str> {
    body["trace"].as_array().unwrap().iter().map(|it| it["event"].as_str().unwrap()).collect()
}

fn event<'a>(body: &'a Value, name: &str) -> &'a Value {
    let mut events = body["trace"].as_array().unwrap().iter();
    events.find(|it| it["event"] == name).unwrap_or_else(|| panic!("no {name} in {body:#}"))
}

/// `strategy` pauses A at `point` until its lease is over and B holds the lock.
async fn late_release(strategy: &str, point: &str) -> (Value, Value, String) {
    let lab = Lab::new(2).await;
    let alone = lab.order(0, strategy).traced().ok().await;
    for absent in ["foreign", "lost", "left"] {
        assert!(!names(&alone).contains(&absent), "{strategy}: {alone:#}");
    }

    let a = lab.pause_at(lab.order(0, strategy).traced().ttl_ms(1_000), point).await;
    let b = lab.pause_at(lab.order(1, strategy).traced().ttl_ms(20_000), "read").await;
    let a = lab.resume(a).await.succeeds(201);
    let b = lab.resume(b).await.succeeds(201);
    (a, b, format!("{{sku:{}}}", lab.sku))
}

#[tokio::test]
async fn trace_names_lock_of_another_holder_that_was_deleted() {
    for (strategy, point) in [("ttl", "committed"), ("check-then-del", "delete")] {
        let (a, b, key) = late_release(strategy, point).await;
        assert_eq!(event(&a, "foreign")["key"], key, "{strategy}");
        assert!(!names(&a).contains(&"lost"), "{strategy}: it deleted a lock: {a:#}");
        assert_eq!(event(&b, "lost")["key"], key, "{strategy}: B's lock was deleted");
        assert!(!names(&b).contains(&"foreign"), "{strategy}: {b:#}");
    }
}

#[tokio::test]
async fn trace_tells_lock_that_is_lost_or_left() {
    let (a, b, key) = late_release("owner", "committed").await;
    assert_eq!(event(&a, "lost")["key"], key);
    assert_eq!(names(&a)[5..], ["committed", "paused", "resumed", "lost", "release"]);
    assert!(!names(&b).contains(&"lost"), "{b:#}");

    let lab = Lab::new(1).await;
    let order = lab.order(0, "expire-only").traced().ttl_ms(200).ok().await;
    assert_eq!(names(&order)[5..], ["committed", "left", "release"]);
}

/// Redis executes a release before its reply is back; until then the next holder may have the lock.
#[tokio::test]
async fn release_is_recorded_before_next_holder() {
    for strategy in ["fenced", "owner"] {
        let lab = Lab::new(2).await;

        for _ in 0..5 {
            let a = lab.pause_at(lab.order(0, strategy).traced(), "committed").await;
            let b = lab.pause_at(lab.order(1, strategy).traced(), "wait").await;
            let (b, a) = tokio::join!(lab.resume(b), lab.resume(a));
            let (a, b) = (a.succeeds(201), b.succeeds(201));

            let released = event(&a, "release")["t_us"].as_u64();
            assert!(released <= event(&b, "held")["t_us"].as_u64(), "{strategy}: {a:#} {b:#}");
        }
    }
}

#[tokio::test]
async fn trace_tells_write_that_postgres_rejects() {
    for strategy in ["version", "serializable", "fenced"] {
        let lab = Lab::new(2).await;
        let slow = lab.order(0, strategy).traced();
        // Under `serializable` it has written by its commit.
        let point = if strategy == "serializable" { "read" } else { "commit" };
        let slow = lab.pause_at(slow, point).await;
        if strategy == "fenced" {
            // As a failover loses it; its renewal would keep it.
            lab.redis("DEL");
        }
        lab.order(1, strategy).ok().await;
        let slow = lab.resume(slow).await;

        let refused = event(&slow.body, "refused");
        assert_eq!(refused["value"], 19, "{strategy}: {slow}");
        let of_write = names(&slow.body).iter().filter(|name| **name == "write").count();
        if strategy == "fenced" {
            let body = slow.fails(503, "lock-lost");
            let stale = event(&body, "stale");
            assert!(stale["fence"].as_i64() < stale["value"].as_i64(), "{stale}");
            assert_eq!((of_write, names(&body).contains(&"lost")), (0, true), "{body:#}");
        } else {
            slow.succeeds(201);
            assert_eq!(of_write, 1, "{strategy}: the first was rejected");
        }
        assert_eq!(lab.forks().await, 0, "{strategy}");
    }
}

/// A request whose replica is killed has no response: what it did until then is known.
#[tokio::test]
async fn paused_request_lists_its_trace_so_far() {
    let lab = Lab::new(1).await;
    let untraced = lab.pause_after_read(0, "owner").await;
    let paused = lab.admin.reads("/api/lab/paused").await;
    assert_eq!(paused[0]["trace"], json!([]));
    lab.resume(untraced).await.succeeds(201);

    let traced = lab.pause_at(lab.order(0, "owner").traced(), "committed").await;
    let paused = lab.admin.reads("/api/lab/paused").await;
    let so_far = names(&paused[0]);
    assert_eq!(so_far, ["wait", "held", "read", "write", "commit", "committed", "paused"]);
    assert_eq!(paused[0]["trace"][2]["value"], 19);

    let whole = lab.resume(traced).await.succeeds(201);
    assert_eq!(names(&whole)[so_far.len()..], ["resumed", "release"]);
}

/// The orders of a batch pass each point together, and their commit tells how many they are.
#[tokio::test]
async fn orders_of_batch_commit_at_one_time() {
    let lab = Lab::new(1).await;
    let mut barrier = Barrier::before_idle_item(&lab.shop, &lab.sku).await;
    let orders: Vec<_> = (0..3).map(|_| lab.order(0, "batched").traced().send()).collect();
    barrier.until_queued(3).await;
    barrier.open().await;

    let orders = join_all(orders).await.into_iter().map(|order| order.succeeds(201));
    let commits: Vec<Value> = orders.map(|order| event(&order, "committed").clone()).collect();
    assert!(commits.iter().all(|it| it["value"] == 3), "{commits:#?}");
    assert!(commits.iter().all(|it| it["t_us"] == commits[0]["t_us"]), "{commits:#?}");
    let alone = lab.order(0, "batched").traced().ok().await;
    assert_eq!(event(&alone, "committed")["value"], Value::Null);
}

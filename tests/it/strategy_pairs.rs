//! Two strategies at the same time, one per replica: those of one family sell exactly, and others
//! lose updates.
//!
//! The first order is paused between its read and its write, and the second one is sent then.

use holdfast_shop::Strategy;
use holdfast_shop::strategy::{Family, Guarantee, STRATEGIES};
use holdfast_testkit::{Reply, until};
use serde_json::Value;

use crate::strategy_failures::Lab;

/// The status of each of two orders, and the stock that an accepted one read.
type Placed = [(u16, Value); 2];

/// Places one order while another one is between its read and its write.
async fn place_two(lab: &Lab, first: &Strategy, second: &Strategy) -> Placed {
    let first = lab.pause_after_read(0, first.name).await;
    let mut order = lab.order(1, second.name);
    if second.lock.is_some() {
        // Its response shows whether the first order excludes it.
        order = order.tries();
    }
    let second = order.send();
    until("the second order has a response, or waits for the row", async || {
        second.is_finished() || lab.shop.waiting_sessions().await > 0
    })
    .await;

    let first = outcome(lab.resume(first).await);
    let second = outcome(second.await);
    // `expire-only` does not delete its key.
    lab.redis("DEL");
    [first, second]
}

fn outcome(reply: Reply) -> (u16, Value) {
    (reply.status, reply.body["lines"][0]["stock"]["before"].clone())
}

fn members(family: Family) -> Vec<&'static Strategy> {
    STRATEGIES.iter().filter(|strategy| strategy.family() == family).collect()
}

fn named(name: &str) -> &'static Strategy {
    Strategy::named(name).unwrap()
}

/// A shop of two replicas whose item holds enough for all pairs.
async fn lab() -> Lab {
    let mut lab = Lab::new(2).await;
    lab.sku = lab.shop.lab_item(1_000).await;
    lab
}

async fn assert_exact_beside_each_other(family: &[&'static Strategy]) {
    let lab = lab().await;
    for first in family {
        for second in family {
            let pair = format!("{} beside {}", second.name, first.name);
            let placed = place_two(&lab, first, second).await;
            assert_eq!(placed[0].0, 201, "{pair}: {placed:?}");
            assert!(matches!(placed[1].0, 201 | 423), "{pair}: {placed:?}");
            assert_ne!(placed[0].1, placed[1].1, "{pair}: both read one stock");
            assert_eq!(lab.forks().await, 0, "{pair}");
        }
    }
    lab.shop.assert_sound().await;
}

#[tokio::test]
async fn pairs_of_postgres_family_sell_exactly() {
    assert_exact_beside_each_other(&members(Family::Postgres)).await;
}

#[tokio::test]
async fn pairs_of_redis_family_sell_exactly() {
    assert_exact_beside_each_other(&members(Family::Redis)).await;
}

#[tokio::test]
async fn safe_lone_strategies_sell_exactly() {
    for strategy in STRATEGIES {
        let alone = strategy.family() == Family::Alone(strategy.name);
        // Of units an order needs no exclusion: `tests/it/units.rs`.
        if alone
            && !strategy.has_own_items()
            && !matches!(strategy.guarantee, Guarantee::Never | Guarantee::OneReplica)
        {
            assert_exact_beside_each_other(&[strategy]).await;
        }
    }
}

#[tokio::test]
async fn pairs_of_postgres_family_keep_customer_limits() {
    let lab = lab().await;
    let limit = "update items set limit_per_user = 1 + (
                     select count(*) from order_lines where order_lines.sku = items.sku)
                  where sku = $1";
    for first in members(Family::Postgres) {
        for second in members(Family::Postgres) {
            sqlx::query(limit).bind(&lab.sku).execute(&lab.shop.pool).await.unwrap();
            let placed = place_two(&lab, first, second).await;
            let accepted = placed.iter().filter(|(status, _)| *status == 201);
            let pair = format!("{} beside {}", second.name, first.name);
            assert_eq!(accepted.count(), 1, "{pair}: {placed:?}");
        }
    }
    lab.shop.assert_sound().await;
}

#[tokio::test]
async fn pairs_of_two_families_lose_updates() {
    let lab = lab().await;
    let unguarded = ["none", "local", "queue", "owner", "watchdog", "setnx", "redlock", "advisory"];
    let others = ["row-lock", "atomic", "version", "serializable"];
    let beside_others = unguarded.iter().flat_map(|first| others.map(|second| (*first, second)));
    let more = [
        ("local", "batched"),
        ("queue", "fenced"),
        ("advisory", "batched"),
        ("redlock", "batched"),
        ("redlock", "owner"),
        ("advisory", "owner"),
        ("none", "watchdog"),
        ("local", "queue"),
    ];
    for (first, second) in beside_others.chain(more) {
        assert!(!named(first).is_compatible_with(named(second)), "{first}, {second}");
        let forks = lab.forks().await;
        let placed = place_two(&lab, named(first), named(second)).await;
        assert!(placed.iter().all(|(status, _)| *status == 201), "{placed:?}");
        assert_eq!(placed[0].1, placed[1].1, "{first}, {second}: both read one stock");
        assert_eq!(lab.forks().await, forks + 1, "{first}, {second}");
    }
}

/// They exclude each other only while the lease of `owner` lasts, which `fenced` alone does not
/// need.
#[tokio::test]
async fn fenced_loses_its_guarantee_beside_owner() {
    let lab = lab().await;
    let busy = place_two(&lab, named("owner"), named("fenced")).await;
    assert_eq!((busy[1].0, lab.forks().await), (423, 0));
    let slow = lab.order(0, "owner").ttl_ms(200);
    let slow = lab.pause_at(slow, "read").await;
    let sold = outcome(lab.order(1, "fenced").await);
    let overwritten = outcome(lab.resume(slow).await);
    assert_eq!(sold, overwritten, "both read one stock");
    assert_eq!(lab.forks().await, 1);
}

//! Lesson `watchdog`: renewal keeps the lock for work of two leases. Then the process of a holder
//! is stopped with SIGSTOP, which stops its renewals, until the lock has expired.

use std::time::Duration;

use super::{LessonResult, Scenario, sales, yes_or_no};
use holdfast_base::messages::message;

const LEASE_MS: u64 = 900;
const SHORT_MS: u64 = 300;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let alone = long_work(lab).await?;

    let sku = lab.scene_of_item("stopped", 10).await?;
    lab.say(message!("run-watchdog-step-1"));

    let mut first = lab.order("A", 0, &sku, "watchdog").lease_ms(SHORT_MS).pause_at("read").await?;
    lab.pause_replica(&mut first).await;
    lab.watch_lease(&mut first, &sku, None).await?;
    lab.say(message!("run-watchdog-step-2"));

    let second = lab.order("B", 1, &sku, "watchdog").placed().await?;
    lab.resume_replica(&mut first).await;
    let first = lab.finish(first).await?.require_placed()?;

    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-watchdog-step-3", sold = audit.sold, stock = audit.stock));

    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    lab.evidence(message!("run-watchdog-fact-1"), yes_or_no(alone), alone);
    lab.evidence(message!("run-watchdog-fact-2"), sales(&audit), forked);
    let verdict = message!("run-watchdog-verdict", sales = sales(&audit));
    Ok(LessonResult::of_scenes(alone && forked, verdict))
}

/// Returns whether an order of two leases kept the lock, and another one was rejected as busy.
async fn long_work(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("renewed", 10).await?;
    lab.say(message!("run-watchdog-step-4", lease_ms = LEASE_MS));
    let first = lab.order(message!("run-label-a-long-work"), 0, &sku, "watchdog");
    let mut first = first.lease_ms(LEASE_MS).pause_at("read").await?;

    let at_first = lab.holder(&sku).await?;
    let two_leases = Duration::from_millis(2 * LEASE_MS);
    lab.watch_lease(&mut first, &sku, Some(two_leases)).await?;

    let other = lab.order(message!("run-label-b-meanwhile"), 1, &sku, "watchdog").trying();
    let other = other.response().await?;
    let still = lab.holder(&sku).await?;

    let is_placed = lab.finish(first).await?.is_success();
    let same = at_first.is_some() && at_first == still;
    let is_kept = same && other.problem() == Some("lock-busy") && is_placed;
    lab.conclude(is_kept, message!("run-watchdog-scene-renewed", lease_ms = LEASE_MS));
    Ok(is_kept)
}

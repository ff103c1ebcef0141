//! Lesson `let-it-expire`: orders one after the other under a lock that is never deleted, and under
//! a lock that is released. Then an order that takes longer than its lease.

use std::time::Duration;

use tokio::time::Instant;

use super::{LessonResult, Scenario, sales, whole_ms};
use holdfast_base::messages::message;

const LEASE_MS: u64 = 300;
const NAMES: [&str; 6] = ["A", "B", "C", "D", "E", "F"];
const CHANGES: u32 = NAMES.len() as u32;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.say(message!("run-let-it-expire-step-1", changes = CHANGES, lease_ms = LEASE_MS));
    let slow = place_sequentially(lab, "expire-only").await?;
    let slow_ms = whole_ms(slow);
    lab.say(message!("run-let-it-expire-step-2", slow_ms));
    let quick = place_sequentially(lab, "owner").await?;
    let quick_ms = whole_ms(quick);
    let sentence =
        message!("run-let-it-expire-scene-released", changes = CHANGES, quick_ms, slow_ms);
    lab.conclude(quick < slow, sentence);

    let sku = lab.scene_of_item("two-holders", 10).await?;
    lab.say(message!("run-let-it-expire-step-4"));

    let mut first =
        lab.order("A", 0, &sku, "expire-only").lease_ms(LEASE_MS).pause_at("read").await?;
    lab.watch_lease(&mut first, &sku, None).await?;
    let second = lab.order("B", 1, &sku, "expire-only").lease_ms(LEASE_MS).placed().await?;
    let first = lab.finish(first).await?.require_placed()?;

    let audit = lab.audit(&sku).await?;
    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    lab.conclude(forked, message!("run-let-it-expire-scene-two-holders", sales = sales(&audit)));

    // Two orders are at least a TTL apart by Redis's clock, which counts whole milliseconds.
    let least = Duration::from_millis((LEASE_MS - 1) * u64::from(CHANGES - 1));
    lab.evidence(message!("run-let-it-expire-fact-1"), slow_ms, slow >= least);
    lab.evidence(message!("run-let-it-expire-fact-2"), quick_ms, quick < slow);

    let verdict =
        message!("run-let-it-expire-verdict", changes = CHANGES, slow_ms, lease_ms = LEASE_MS);
    Ok(LessonResult::of_scenes(slow >= least && quick < slow && forked, verdict))
}

async fn place_sequentially(lab: &Scenario, strategy: &'static str) -> anyhow::Result<Duration> {
    let sku =
        lab.scene_of_item(if strategy == "expire-only" { "six" } else { "released" }, 100).await?;
    let began = Instant::now();
    for (replica, name) in NAMES.into_iter().enumerate() {
        let order = lab.order(name, replica, &sku, strategy).lease_ms(LEASE_MS).send();
        let id = order.lane.request_id;
        lab.response(order).await?.require_placed()?;
        if strategy == "expire-only" {
            lab.note_expiry(id, &sku, LEASE_MS).await?;
        }
    }
    Ok(began.elapsed())
}

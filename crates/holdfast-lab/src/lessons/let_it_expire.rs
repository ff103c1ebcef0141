//! Lesson `let-it-expire`: orders one after the other under a lock that is never deleted, and under
//! a lock that is released. Then an order that takes longer than its lease.

use std::time::Duration;

use tokio::time::Instant;

use super::{LessonResult, Scenario, sales};
use holdfast_base::messages::message;

const LEASE_MS: u64 = 300;
const NAMES: [&str; 6] = ["A", "B", "C", "D", "E", "F"];
const CHANGES: u32 = NAMES.len() as u32;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.say(message!("run-let-it-expire-step-1", changes = CHANGES, lease_ms = LEASE_MS));
    let slow = place_sequentially(lab, "expire-only").await?;
    lab.say(message!("run-let-it-expire-step-2", slow = slow.as_millis()));
    let quick = place_sequentially(lab, "owner").await?;
    lab.say(message!("run-let-it-expire-step-3", quick = quick.as_millis()));

    let sku = lab.scene_of_item("two-holders", 10).await?;
    lab.say(message!("run-let-it-expire-step-4"));

    let mut first =
        lab.order("A", 0, &sku, "expire-only").lease_ms(LEASE_MS).pause_at("read").await?;
    lab.watch_lease(&mut first, &sku, None).await?;
    let second = lab.order("B", 1, &sku, "expire-only").lease_ms(LEASE_MS).placed().await?;
    let first = lab.finish(first).await?.require_placed()?;

    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-let-it-expire-step-5", sold = audit.sold, stock = audit.stock));

    // Two orders are at least a TTL apart by Redis's clock, which counts whole milliseconds.
    let least = Duration::from_millis((LEASE_MS - 1) * u64::from(CHANGES - 1));
    let slow_ms = format!("{} ms", slow.as_millis());
    lab.evidence(message!("run-let-it-expire-fact-1"), slow_ms, slow >= least);
    let quick_ms = format!("{} ms", quick.as_millis());
    lab.evidence(message!("run-let-it-expire-fact-2"), quick_ms, quick < slow);

    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    let verdict = message!(
        "run-let-it-expire-verdict",
        changes = CHANGES,
        slow = slow.as_millis(),
        lease_ms = LEASE_MS,
        quick = quick.as_millis(),
        sales = sales(&audit)
    );
    Ok(LessonResult::new(slow >= least && quick < slow && forked, verdict))
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

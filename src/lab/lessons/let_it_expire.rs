//! Lesson `let-it-expire`: orders one after the other under a lock that is never deleted, and under
//! a lock that is released. Then an order that takes longer than its lease.

use std::time::Duration;

use tokio::time::Instant;

use super::{Chapter, Lesson, LessonResult, Scenario, sales};

pub(super) const LESSON: Lesson = Lesson {
    name: "let-it-expire",
    chapter: Chapter::Writing,
    right: 2,
    load: None,
    shows: &["expire-only"],
    run: |lab| Box::pin(run(lab)),
};

const LEASE_MS: u64 = 300;
const CHANGES: u32 = 6;

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.say(format!(
        "{CHANGES} orders, one after the other; the lock is never deleted; TTL {LEASE_MS} ms."
    ));
    let slow = place_sequentially(lab, "expire-only").await?;
    lab.say(format!("That took {} ms. Now the same with a release:", slow.as_millis()));
    let quick = place_sequentially(lab, "owner").await?;
    lab.say(format!("{} ms.", quick.as_millis()));

    let sku = lab.item(10).await?;
    lab.say("Now A works longer than the TTL: it has read 10 when its lock expires.");
    let first = lab.order("A", 0, &sku, "expire-only").lease_ms(LEASE_MS).pause_at("read").await?;
    lab.wait_until_free(&sku).await?;
    let second = lab.order("B", 1, &sku, "expire-only").lease_ms(LEASE_MS).placed().await?;
    let first = lab.finish(first).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(format!("B also reads 10. Sold: 2. Stock: {}.", audit.stock));

    // Two consecutive orders are at least a TTL apart by Redis's clock, which counts whole
    // milliseconds.
    let least = Duration::from_millis((LEASE_MS - 1) * u64::from(CHANGES - 1));
    lab.evidence("time without release", format!("{} ms", slow.as_millis()), slow >= least);
    lab.evidence("time with release", format!("{} ms", quick.as_millis()), quick < slow);
    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    Ok(LessonResult::new(
        slow >= least && quick < slow && forked,
        format!(
            "{CHANGES} changes took {} ms, one TTL of {LEASE_MS} ms from each to the next ({} ms \
             with release); longer work: {}",
            slow.as_millis(),
            quick.as_millis(),
            sales(&audit)
        ),
    ))
}

/// Executes [`CHANGES`] orders one after the other; returns the total time.
async fn place_sequentially(lab: &Scenario, strategy: &'static str) -> anyhow::Result<Duration> {
    let sku = lab.item(100).await?;
    let began = Instant::now();
    for number in 1..=CHANGES {
        let replica = number as usize;
        let label = format!("{strategy} {number}");
        lab.order(&label, replica, &sku, strategy).lease_ms(LEASE_MS).placed().await?;
    }
    Ok(began.elapsed())
}

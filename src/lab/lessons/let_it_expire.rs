//! Lesson `let-it-expire`: orders one after the other under a lock that is never deleted, and under
//! a lock that is released. Then an order that takes longer than its lease.

use std::time::Duration;

use tokio::time::Instant;

use crate::lab::headers::{LabHeaders, PAUSE, TTL_MS};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;

pub(super) const LESSON: Lesson = Lesson {
    number: 4,
    name: "let-it-expire",
    claim: "Never deleting is safe only while all work is shorter than the TTL, and costs one TTL \
            per change.",
    question: "The lock is never deleted and ends by itself after 300 ms; an order takes 10 ms. How \
               long do six orders for one item take at least?",
    guesses: &["60 ms", "300 ms", "1.5 s", "3 s"],
    right: 2,
    load: None,
    shows: &["expire-only"],
    takeaway: [
        "A lock that only time takes away makes everybody wait for the longest work there could be, \
         every time.",
        "Whoever makes the time shorter to sell more breaks it sooner: work that outlives it runs \
         beside the next one.",
        "It is right where a thing shall happen *at most once in a while*: a mail, a tick.",
    ],
    play: |scenario| Box::pin(play(scenario)),
};

const LEASE_MS: u64 = 300;
const CHANGES: u32 = 6;

async fn play(scenario: &Scenario) -> anyhow::Result<LessonResult> {
    scenario
        .say(format!("{CHANGES} orders, one after the other, never deleting, TTL {LEASE_MS} ms."))
        .await;
    let slow = place_sequentially(scenario, "expire-only").await?;
    scenario
        .say(format!("That took {} ms. The same, giving the lock back:", slow.as_millis()))
        .await;
    let quick = place_sequentially(scenario, "owner").await?;
    scenario.say(format!("{} ms.", quick.as_millis())).await;

    let sku = scenario.item(10).await?;
    scenario.say("Now A works longer than the TTL: it has read 10 when its lock ends.").await;
    let held = LabHeaders::under("expire-only").with(TTL_MS, LEASE_MS).with(PAUSE, "read");
    let first = scenario.order_until_held("A", 0, &sku, &held).await?;
    scenario.wait_until_free(&sku).await?;
    let headers = LabHeaders::under("expire-only").with(TTL_MS, LEASE_MS);
    let second = scenario.place_order("B", 1, &sku, &headers).await?.require_placed()?;
    let first = scenario.finish(first).await?.require_placed()?;
    let audit = scenario.audit(&sku).await?;
    scenario.say(format!("B reads 10 as well. Sold 2, on the shelf {}.", audit.stock)).await;

    // Two consecutive orders are at least a TTL apart by Redis's clock, which counts whole
    // milliseconds.
    let least = Duration::from_millis((LEASE_MS - 1) * u64::from(CHANGES - 1));
    scenario.fact("never deleted", format!("{} ms", slow.as_millis()));
    scenario.fact("given back", format!("{} ms", quick.as_millis()));
    let costs = slow >= least && quick < slow;
    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    Ok(LessonResult::new(
        costs && forked,
        format!(
            "{CHANGES} changes took {} ms, a TTL of {LEASE_MS} ms between any two ({} ms when given \
             back); longer work: {} sold, {} left the shelf",
            slow.as_millis(),
            quick.as_millis(),
            audit.sold,
            audit.opening - audit.stock
        ),
    ))
}

/// Executes [`CHANGES`] orders one after the other; returns the total time.
async fn place_sequentially(
    scenario: &Scenario,
    strategy: &'static str,
) -> anyhow::Result<Duration> {
    let sku = scenario.item(100).await?;
    let headers = LabHeaders::under(strategy).with(TTL_MS, LEASE_MS);
    let began = Instant::now();
    for number in 1..=CHANGES {
        let replica = number as usize;
        let order = scenario.order(&format!("{strategy} {number}"), replica, &sku, &headers);
        scenario.response(order).await?.require_placed()?;
    }
    Ok(began.elapsed())
}

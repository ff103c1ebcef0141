//! Lesson `outlived`: A reads, and its lease expires before its write. B acquires the lock, and
//! both are holders until both have written. With a lease and a pause of the visitor's choice, the
//! clock alone decides.

use std::time::Duration;

use super::{LessonResult, PAUSE, Scenario, sales, wait_until, yes_or_no};
use holdfast_base::messages::message;
use holdfast_story::Value;

/// A's lease, unless the visitor chooses it.
pub(crate) const LEASE_MS: u64 = 300;
/// A's pause, if the visitor chooses only the lease.
const PAUSE_MS: u64 = 400;
/// Work of B, so long that A's pause can end while B is a holder too.
const WORK_OF_B: &str = "read:100";

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.scene("two-holders");
    match (lab.request.ttl_ms, lab.request.work_ms) {
        (None, None) => expired(lab).await,
        (lease_ms, pause_ms) => {
            timed(lab, lease_ms.unwrap_or(LEASE_MS), pause_ms.unwrap_or(PAUSE_MS)).await
        }
    }
}

/// A goes on only after B has read.
async fn expired(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say(message!("run-outlived-step-1"));
    let mut first = lab.order("A", 0, &sku, "owner").lease_ms(LEASE_MS).pause_at("read").await?;
    lab.watch_lease(&mut first, &sku, None).await?;
    lab.say(message!("run-outlived-step-2"));

    let second = lab.order("B", 1, &sku, "owner").pause_at("read").await?;
    let held_by_b = lab.holder(&sku).await?;
    lab.say(message!("run-outlived-step-3"));

    let first = lab.finish(first).await?.require_placed()?;
    let after_a = lab.holder(&sku).await?;
    let left_alone = held_by_b.is_some() && held_by_b == after_a;
    lab.say(message!("run-outlived-step-4"));

    let second = lab.finish(second).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-outlived-step-5", sold = audit.sold, stock = audit.stock));
    lab.evidence(message!("run-outlived-fact-1"), yes_or_no(left_alone), left_alone);

    let forked = (first, second) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    let verdict = message!("run-outlived-verdict", first, second, sales = sales(&audit));
    Ok(LessonResult::of_scenes(left_alone && forked && audit.sold == 2, verdict))
}

/// A goes on after its pause, and B asks for the lock as soon as A has it.
async fn timed(lab: &Scenario, lease_ms: u64, pause_ms: u64) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    let [lease, pause] = [lease_ms, pause_ms].map(Value::Ms);
    lab.say(message!("run-outlived-step-6", lease, pause));
    let a = lab.order("A", 0, &sku, "owner").lease_ms(lease_ms);
    let mut a = a.with(PAUSE, format!("read:{pause_ms}")).send();
    wait_until("A has the lock", async || {
        Ok(a.response.is_finished() || lab.holder(&sku).await?.is_some())
    })
    .await?;

    let b = lab.order("B", 1, &sku, "owner").with(PAUSE, WORK_OF_B).send();
    lab.watch_lease(&mut a, &sku, Some(Duration::from_millis(pause_ms))).await?;
    for order in [a, b] {
        lab.response(order).await?.require_placed()?;
    }

    let audit = lab.audit(&sku).await?;
    lab.evidence(message!("run-outlived-fact-2"), sales(&audit), audit.sold == 2);

    let why_not = if pause_ms <= lease_ms {
        message!("run-outlived-in-time", lease, pause)
    } else {
        message!("run-outlived-too-late")
    };
    let is_lost = audit.forks.len() == 1 && audit.stock == 9;
    Ok(LessonResult::of_load((!is_lost).then_some(why_not), is_lost, sales(&audit)))
}

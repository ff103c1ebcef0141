//! Lesson `check-then-delete`: A checks that it owns the lock, and is paused before the delete
//! until its lease has expired and B has the lock.

use super::{LessonResult, Scenario, sales};
use holdfast_base::messages::message;

/// Long enough that A certainly reaches its check within the lease, on a busy machine too.
const LEASE_MS: u64 = 1_500;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.scene_of_item("stale-check", 10).await?;
    lab.say(message!("run-check-then-delete-step-1"));
    let mut a =
        lab.order("A", 0, &sku, "check-then-del").lease_ms(LEASE_MS).pause_at("delete").await?;
    lab.watch_lease(&mut a, &sku, None).await?;
    lab.say(message!("run-check-then-delete-step-2"));

    let b = lab.order("B", 1, &sku, "check-then-del").pause_at("read").await?;
    let of_b = lab.holder(&sku).await?;
    lab.say(message!("run-check-then-delete-step-3"));

    let a = lab.finish(a).await?.require_placed()?;
    let robbed = of_b.is_some() && lab.holder(&sku).await?.is_none();
    lab.say(message!("run-check-then-delete-step-4"));

    let c = lab.order("C", 0, &sku, "check-then-del").placed().await?;
    let b = lab.finish(b).await?.require_placed()?;

    let audit = lab.audit(&sku).await?;
    let left = audit.opening - audit.stock;
    lab.say(message!("run-check-then-delete-step-5", read = c, sold = audit.sold, left));

    let state = if robbed { message!("run-lock-deleted") } else { message!("run-lock-held") };
    lab.evidence(message!("run-check-then-delete-fact-1"), state, robbed);
    let forks = audit.forks.len();
    let forked = a == 10 && (b, c) == (9, 9) && forks == 1 && audit.sold == 3 && left == 2;
    lab.evidence(message!("run-check-then-delete-fact-2"), format!("{a}, {b}, {c}"), forked);

    let verdict = message!("run-check-then-delete-verdict", sales = sales(&audit), forks);
    Ok(LessonResult::of_scenes(robbed && forked, verdict))
}

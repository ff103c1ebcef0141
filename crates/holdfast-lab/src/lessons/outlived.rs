//! Lesson `outlived`: A reads, and its lease expires before its write. B acquires the lock, and
//! both are holders until both have written.

use super::{LessonResult, Scenario, sales, yes_or_no};
use holdfast_base::messages::message;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.scene("two-holders");
    lab.say(message!("run-outlived-step-1"));
    let mut first = lab.order("A", 0, &sku, "owner").lease_ms(300).pause_at("read").await?;
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

    let forks = audit.forks.len();
    let forked = (first, second) == (10, 10) && forks == 1 && audit.sold == 2 && audit.stock == 9;
    let verdict = message!("run-outlived-verdict", sales = sales(&audit), forks);
    Ok(LessonResult::new(left_alone && forked, verdict))
}

//! Lesson `early-release`: A releases its lock and is paused before its commit; B acquires the lock
//! and reads the old value. Then the same with the lock around the transaction.

use super::{LessonResult, Scenario, sales};
use holdfast_base::messages::message;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.scene_of_item("early", 10).await?;
    lab.say(message!("run-early-release-step-1"));
    let a = lab.order(message!("run-label-a-early"), 0, &sku, "early-release");
    let a = a.pause_at("release").await?;
    let free = lab.holder(&sku).await?.is_none();

    let b = lab.order(message!("run-label-b-early"), 1, &sku, "early-release").trying();
    let b = b.pause_at("read").await?;
    lab.say(message!("run-early-release-step-2"));

    let a_read = lab.finish(a).await?.require_placed()?;
    let b_read = lab.finish(b).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-early-release-step-3", sold = audit.sold, stock = audit.stock));

    let sku = lab.scene_of_item("around", 10).await?;
    let c = lab.order(message!("run-label-a-around"), 0, &sku, "owner").pause_at("commit").await?;
    let d = lab.order(message!("run-label-b-around"), 1, &sku, "owner").trying().response().await?;
    let kept_out = d.problem() == Some("lock-busy");
    lab.say(message!("run-early-release-step-4"));

    lab.finish(c).await?.require_placed()?;
    let e = lab.order(message!("run-label-b-again"), 1, &sku, "owner").trying().placed().await?;
    let around = lab.audit(&sku).await?;

    let forked = (a_read, b_read) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    let exact = kept_out && e == 9 && around.ok;
    lab.conclude(exact, message!("run-early-release-scene-around", sales = sales(&around)));
    lab.evidence(message!("run-early-release-fact-1"), sales(&audit), free && forked);
    lab.evidence(message!("run-early-release-fact-2"), sales(&around), exact);
    let verdict = message!("run-early-release-verdict", read = b_read, sales = sales(&audit));
    Ok(LessonResult::of_scenes(free && forked && exact, verdict))
}

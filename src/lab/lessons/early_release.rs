//! Lesson `early-release`: A releases its lock and is paused before its commit; B acquires the lock
//! and reads the old value. Then the same with the lock around the transaction.

use super::{Chapter, Lesson, LessonResult, Scenario, sales};

pub(super) const LESSON: Lesson = Lesson {
    name: "early-release",
    chapter: Chapter::Costs,
    right: 0,
    load: None,
    shows: &["early-release", "owner"],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say("A reads 10, writes 9, releases its lock, and is paused before its commit.");
    let a = lab.order("A, early", 0, &sku, "early-release").pause_at("release").await?;
    let free = lab.holder(&sku).await?.is_none();
    let b = lab.order("B, early", 1, &sku, "early-release").trying().pause_at("read").await?;
    lab.say(
        "B acquires the lock and reads the committed value, 10. (A row lock blocks no reader.)",
    );
    let a = lab.finish(a).await?.require_placed()?;
    let b = lab.finish(b).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(format!("A commits 9, B writes 9. Sold: 2. Stock: {}.", audit.stock));

    let sku = lab.item(10).await?;
    let c = lab.order("A, around", 0, &sku, "owner").pause_at("commit").await?;
    let d = lab.order("B, around", 1, &sku, "owner").trying().response().await?;
    let kept_out = d.problem() == Some("lock-busy");
    lab.say("With the lock around the transaction, B is rejected at the same moment.");
    lab.finish(c).await?.require_placed()?;
    let e = lab.order("B, again", 1, &sku, "owner").trying().placed().await?;
    let around = lab.audit(&sku).await?;
    let forked = (a, b) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    let exact = kept_out && e == 9 && around.ok;
    lab.evidence("released before the commit", sales(&audit), free && forked);
    lab.evidence("released after the commit", sales(&around), exact);
    Ok(LessonResult::new(
        free && forked && exact,
        format!("released before the commit: {} · after it: {}", sales(&audit), sales(&around)),
    ))
}

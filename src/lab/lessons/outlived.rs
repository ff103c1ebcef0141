//! Lesson `outlived`: A reads, and its lease expires before its write; the lesson waits until Redis
//! no longer has the lock. B acquires it, and both are holders until both have written.

use super::{Chapter, Lesson, LessonResult, Scenario, sales};

pub(super) const LESSON: Lesson = Lesson {
    name: "outlived",
    chapter: Chapter::Writing,
    right: 0,
    load: None,
    shows: &["owner"],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say("A acquires the lock for 300 ms, reads 10, and is paused.");
    let first = lab.order("A", 0, &sku, "owner").lease_ms(300).pause_at("read").await?;
    lab.wait_until_free(&sku).await?;
    lab.say("A's lease has expired: the key is gone from Redis. A does not know.");
    let second = lab.order("B", 1, &sku, "owner").pause_at("read").await?;
    let held_by_b = lab.holder(&sku).await?;
    lab.say("B acquires the lock and also reads 10: two holders.");
    let first = lab.finish(first).await?.require_placed()?;
    let after_a = lab.holder(&sku).await?;
    let left_alone = held_by_b.is_some() && held_by_b == after_a;
    lab.say("A writes 9 and releases: the comparison fails, so B's lock stays.");
    let second = lab.finish(second).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(format!("B also writes 9. Sold: {}. Stock: {}.", audit.sold, audit.stock));
    let survived = if left_alone { "yes" } else { "no" };
    lab.evidence("B's lock survived A's release", survived, left_alone);
    let forked = audit.forks.len() == 1 && audit.sold == 2 && audit.stock == 9;
    Ok(LessonResult::new(
        left_alone && (first, second) == (10, 10) && forked,
        format!(
            "B's lock stayed, but both read 10: {}, {} fork in the ledger",
            sales(&audit),
            audit.forks.len(),
        ),
    ))
}

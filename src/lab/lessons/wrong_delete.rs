//! Lesson `wrong-delete`: A outlives its lease and deletes B's lock; C acquires the free lock, and
//! B deletes it. After each release the lesson checks that Redis has no lock although a holder
//! still works.

use super::{Chapter, Lesson, LessonResult, Scenario, sales};

pub(super) const LESSON: Lesson = Lesson {
    name: "wrong-delete",
    chapter: Chapter::Writing,
    right: 3,
    load: None,
    shows: &["ttl"],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say("A acquires the lock for 300 ms, reads 10, and is paused until its lease has expired.");
    let a = lab.order("A", 0, &sku, "ttl").lease_ms(300).pause_at("read").await?;
    lab.wait_until_free(&sku).await?;

    let b = lab.order("B", 1, &sku, "ttl").pause_at("read").await?;
    let of_b = lab.holder(&sku).await?;
    lab.say("B acquires the lock for 10 s and reads 10.");
    let a = lab.finish(a).await?.require_placed()?;
    let b_robbed = of_b.is_some() && lab.holder(&sku).await?.is_none();
    lab.say("A writes 9 and deletes the key, which is B's. No client holds a lock; B still works.");

    let c = lab.order("C", 0, &sku, "ttl").pause_at("read").await?;
    let of_c = lab.holder(&sku).await?;
    lab.say("C acquires the free lock and reads 9.");
    let b = lab.finish(b).await?.require_placed()?;
    let c_robbed = of_c.is_some() && of_c != of_b && lab.holder(&sku).await?.is_none();
    lab.say("B writes 9 and deletes the key, which is C's. B's own lease has not expired.");

    let d = lab.order("D", 1, &sku, "ttl").placed().await?;
    let c = lab.finish(c).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    let left = audit.opening - audit.stock;
    lab.say(format!(
        "D acquires the lock while C works. Sold: {}. Stock reduced by {left}.",
        audit.sold
    ));
    let both_twice = (a, b) == (10, 10) && (c, d) == (9, 9);
    lab.evidence("values read by A, B, C and D", format!("{a}, {b}, {c}, {d}"), both_twice);
    let robbed = usize::from(b_robbed) + usize::from(c_robbed);
    Ok(LessonResult::new(
        robbed == 2 && both_twice && audit.sold == 4 && left < 4,
        format!(
            "{robbed} locks deleted by another holder, after one late holder: {}, {} breaks in the ledger",
            sales(&audit),
            audit.breaks
        ),
    ))
}

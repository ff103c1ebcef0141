//! Lesson `early-release`: A releases its lock and is held before its commit; B acquires the lock
//! and reads the old value. Then the same with the lock around the transaction.

use crate::lab::headers::{LabHeaders, PAUSE, WAIT};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;

pub(super) const LESSON: Lesson = Lesson {
    number: 23,
    name: "early-release",
    claim: "Releasing before the commit is no lock.",
    question: "Read and write lie inside the lock, and the transaction commits right after the lock \
               is given back. Who can read the old value?",
    guesses: &[
        "nobody: the write was done under the lock",
        "whoever takes the lock before the commit",
        "only somebody who takes no lock",
    ],
    right: 1,
    load: None,
    shows: &["early-release", "owner"],
    takeaway: [
        "A write is there for others when it is committed, and not when it is done.",
        "`@Transactional` around a method with a lock inside is this mistake: the lock ends first, \
         and the transaction after it.",
        "The lock goes around the transaction: taken before it begins, given back after it \
         commits.",
    ],
    play: |scenario| Box::pin(play(scenario)),
};

async fn play(scenario: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = scenario.item(10).await?;
    scenario.say("A reads 10, writes 9, gives its lock back, and is held before its commit.").await;
    let early = LabHeaders::under("early-release").with(PAUSE, "release");
    let a = scenario.order_until_held("A, early", 0, &sku, &early).await?;
    let free = scenario.holder(&sku).await?.is_none();
    let read = LabHeaders::under("early-release").with(PAUSE, "read").with(WAIT, "try");
    let b = scenario.order_until_held("B, early", 1, &sku, &read).await?;
    scenario
        .say("B has the lock, and reads what is committed: 10. (A's row lock stops no reader.)")
        .await;
    let a = scenario.finish(a).await?.require_placed()?;
    let b = scenario.finish(b).await?.require_placed()?;
    let audit = scenario.audit(&sku).await?;
    scenario.say(format!("A commits 9, B writes 9. Sold 2, on the shelf {}.", audit.stock)).await;

    let sku = scenario.item(10).await?;
    let around = LabHeaders::under("owner").with(PAUSE, "commit");
    let c = scenario.order_until_held("A, around", 0, &sku, &around).await?;
    let trying = LabHeaders::under("owner").with(WAIT, "try");
    let d = scenario.place_order("B, around", 1, &sku, &trying).await?;
    let kept_out = d.problem() == Some("lock-busy");
    scenario
        .say("With the lock around the transaction, B is turned away at the same moment.")
        .await;
    scenario.finish(c).await?.require_placed()?;
    let e = scenario.place_order("B, again", 1, &sku, &trying).await?.require_placed()?;
    let around = scenario.audit(&sku).await?;
    let forked = (a, b) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    Ok(LessonResult::new(
        free && forked && kept_out && e == 9 && around.ok,
        format!(
            "released before the commit: {} sold, {} left the shelf · after it: {} sold, {} left",
            audit.sold,
            audit.opening - audit.stock,
            around.sold,
            around.opening - around.stock
        ),
    ))
}

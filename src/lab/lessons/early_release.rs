//! Lesson `early-release`: A releases its lock and is held before its commit; B acquires the lock
//! and reads the old value. Then the same with the lock around the transaction.

use super::{Lesson, Shown};
use crate::lab::headers::{LabHeaders, PAUSE, WAIT};
use crate::lab::stage::Stage;

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
    crowd: None,
    shows: &["early-release", "owner"],
    takeaway: [
        "A write is there for others when it is committed, and not when it is done.",
        "`@Transactional` around a method with a lock inside is this mistake: the lock ends first, \
         and the transaction after it.",
        "The lock goes around the transaction: taken before it begins, given back after it \
         commits.",
    ],
    play: |stage| Box::pin(play(stage)),
};

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let sku = stage.item(10).await?;
    stage.say("A reads 10, writes 9, gives its lock back, and is held before its commit.").await;
    let early = LabHeaders::under("early-release").with(PAUSE, "release");
    let a = stage.order_held("A, early", 0, &sku, &early).await?;
    let free = stage.holder(&sku).await?.is_none();
    let read = LabHeaders::under("early-release").with(PAUSE, "read").with(WAIT, "try");
    let b = stage.order_held("B, early", 1, &sku, &read).await?;
    stage
        .say("B has the lock, and reads what is committed: 10. (A's row lock stops no reader.)")
        .await;
    let a = stage.finish(a).await?.sold_from()?;
    let b = stage.finish(b).await?.sold_from()?;
    let audit = stage.audit(&sku).await?;
    stage.say(format!("A commits 9, B writes 9. Sold 2, on the shelf {}.", audit.stock)).await;

    let sku = stage.item(10).await?;
    let around = LabHeaders::under("owner").with(PAUSE, "commit");
    let c = stage.order_held("A, around", 0, &sku, &around).await?;
    let trying = LabHeaders::under("owner").with(WAIT, "try");
    let d = stage.ordered("B, around", 1, &sku, &trying).await?;
    let kept_out = d.problem() == Some("lock-busy");
    stage.say("With the lock around the transaction, B is turned away at the same moment.").await;
    stage.finish(c).await?.sold_from()?;
    let e = stage.ordered("B, again", 1, &sku, &trying).await?.sold_from()?;
    let around = stage.audit(&sku).await?;
    let forked = (a, b) == (10, 10) && audit.forks.len() == 1 && audit.stock == 9;
    Ok(Shown::that(
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

//! Lesson `check-then-delete`: A checks that it owns the lock, and is held before the delete until
//! its lease has expired and B has the lock.

use super::{Lesson, Shown};
use crate::lab::headers::{LabHeaders, PAUSE, TTL_MS};
use crate::lab::stage::Stage;

pub(super) const LESSON: Lesson = Lesson {
    number: 6,
    name: "check-then-delete",
    claim: "An owner that is checked apart from the delete still deletes somebody else's lock.",
    question: "Every lock has an owner now. A does GET, sees its own name, and then DEL. Whose lock \
               can that delete?",
    guesses: &["only its own: it has looked", "somebody else's, if it changed hands in between"],
    right: 1,
    crowd: None,
    shows: &["check-then-del", "owner"],
    takeaway: [
        "What was true at the look need not be true at the deed: this is *read, then update* once \
         more, and the lock itself is the value.",
        "The hole is a round trip wide, and as wide as a pause of the process when there is one.",
        "Compare and delete in one step, where nobody fits between: a script in Redis.",
    ],
    play: |stage| Box::pin(play(stage)),
};

/// Long enough that A certainly reaches its check within the lease, on a busy machine too.
const LEASE_MS: u64 = 1_500;

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let sku = stage.item(10).await?;
    stage
        .say("A sells one, 10 → 9, looks whose the lock is, sees itself, and is held there.")
        .await;
    let at_delete =
        LabHeaders::under("check-then-del").with(TTL_MS, LEASE_MS).with(PAUSE, "delete");
    let a = stage.order_held("A", 0, &sku, &at_delete).await?;
    stage.until_free(&sku).await?;
    stage.say("Its lease ends.").await;
    let long = LabHeaders::under("check-then-del").with(PAUSE, "read");
    let b = stage.order_held("B", 1, &sku, &long).await?;
    let of_b = stage.holder(&sku).await?;
    stage.say("B takes the lock and reads 9.").await;
    let a = stage.finish(a).await?.sold_from()?;
    let robbed = of_b.is_some() && stage.holder(&sku).await?.is_none();
    stage.say("A deletes the key. It was B's.").await;
    let c = stage.ordered("C", 0, &sku, &LabHeaders::under("check-then-del")).await?.sold_from()?;
    let b = stage.finish(b).await?.sold_from()?;
    let audit = stage.audit(&sku).await?;
    let left = audit.opening - audit.stock;
    stage
        .say(format!("C finds no lock, and reads 9 beside B. Sold 3, {left} left the shelf."))
        .await;
    let forked = a == 10 && (b, c) == (9, 9) && audit.forks.len() == 1 && audit.sold == 3;
    Ok(Shown::that(
        robbed && forked && left == 2,
        format!(
            "A had looked, and deleted B's lock: {} sold, {left} left the shelf, {} fork in the \
             ledger",
            audit.sold,
            audit.forks.len()
        ),
    ))
}

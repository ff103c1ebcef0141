//! # Lost update
//!
//! First two requests, made to overlap: both read the same stock. Then a crowd, left to itself.

use super::{Lesson, Shown};
use crate::lab::runner;
use crate::lab::stage::{Stage, Wish};

pub(super) const LESSON: Lesson = Lesson {
    number: 1,
    name: "lost-update",
    claim: "Without a lock two orders read 10 and both write 9: one unit less left the shelf than \
            was sold. Stock never goes negative, and more is sold than existed.",
    question: "100 units, 16 buyers, 400 orders, no lock. How many units are sold?",
    guesses: &["exactly 100", "fewer than 100", "more than 100"],
    right: 2,
    shows: &["none"],
    takeaway: [
        "Read, then update is two steps, and somebody else fits between them.",
        "The stock never went below zero, so a check for that would have seen nothing: the ledger \
         shows two entries with the same `before`.",
        "Whatever keeps two changes apart must hold from the read to the commit.",
    ],
    play: |stage| Box::pin(play(stage)),
};

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let sku = stage.item(10).await?;
    stage.say("Two orders for one of 10 units, at two replicas, without a lock.").await;
    let first = stage.order("A", 0, &sku, &Wish { pause: Some("read"), ..Wish::under("none") });
    stage.until_held(&first).await?;
    stage.say("A has read 10, and is held there. B comes, reads 10 and writes 9.").await;
    let second = stage.order("B", 1, &sku, &Wish::under("none"));
    let second = stage.answer(second).await?;
    stage.let_go(&first).await?;
    let first = stage.answer(first).await?;
    let audit = stage.audit(&sku).await?;
    let both = first.before() == Some(10) && second.before() == Some(10);
    stage.say(format!("A goes on and writes 9. Sold 2, on the shelf {}.", audit.stock)).await;

    let mut wanted = stage.wanted.clone();
    wanted.strategies = vec!["none".to_owned()];
    wanted.orders = wanted.orders.or(Some(400));
    wanted.work_ms = wanted.work_ms.or(Some(2));
    let specs = wanted.specs(stage.replicas());
    let (spec, work_ms) = (&specs[0], wanted.work_ms.unwrap_or(0));
    let words = format!(
        "Now a crowd: {} buyers, {} orders, {} units, {work_ms} ms between read and write.",
        spec.buyers, spec.orders, spec.stock
    );
    stage.say(words).await;
    runner::arms(stage, &specs).await?;
    let outcome = stage.outcome();
    let crowd = &outcome.arms[0];
    let seen = both && audit.stock == 9 && audit.sold == 2 && crowd.oversold > 0;
    Ok(Shown::that(
        seen,
        format!(
            "{} units do not exist: {} sold of {}. {} forks in the ledger",
            crowd.oversold, crowd.sold, crowd.stock_opening, crowd.forks
        ),
    ))
}

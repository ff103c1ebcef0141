//! Lesson `lost-update`: two orders are made to overlap, so that both read the same stock. Then a
//! load overlaps by itself.

use super::{Lesson, Shown};
use crate::lab::crowd::{Crowd, nothing_runs_out};
use crate::lab::headers::{LabHeaders, PAUSE};
use crate::lab::runner;
use crate::lab::stage::Stage;

pub(super) const LESSON: Lesson = Lesson {
    number: 1,
    name: "lost-update",
    claim: "Without a lock two orders read 10 and both write 9: one unit less left the shelf than \
            was sold. Stock never goes negative, and more is sold than existed.",
    question: "100 units, 16 buyers, 400 orders, no lock. How many units are sold?",
    guesses: &["exactly 100", "fewer than 100", "more than 100"],
    right: 2,
    crowd: Some(CROWD),
    shows: &["none", "read.rs", "place.rs"],
    takeaway: [
        "Read, then update is two steps, and somebody else fits between them.",
        "The stock never went below zero, so a check for that would have seen nothing: the ledger \
         shows two entries with the same `before`.",
        "Whatever keeps two changes apart must hold from the read to the commit.",
    ],
    play: |stage| Box::pin(play(stage)),
};

const CROWD: Crowd = Crowd { stock: 100, buyers: 16, orders: 400, work_ms: 2, lease: false };

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    let sku = stage.item(10).await?;
    stage.say("Two orders for one of 10 units, at two replicas, without a lock.").await;
    let first =
        stage.order_held("A", 0, &sku, &LabHeaders::under("none").with(PAUSE, "read")).await?;
    stage.say("A has read 10, and is held there. B comes, reads 10 and writes 9.").await;
    let second = stage.ordered("B", 1, &sku, &LabHeaders::under("none")).await?;
    stage.let_go(&first).await?;
    let first = stage.answer(first).await?;
    let audit = stage.audit(&sku).await?;
    let both = first.before() == Some(10) && second.before() == Some(10);
    stage.say(format!("A goes on and writes 9. Sold 2, on the shelf {}.", audit.stock)).await;

    let specs = CROWD.under(stage, &["none"]);
    let spec = &specs[0];
    let words = format!(
        "Now a crowd: {} buyers, {} orders, {} units, {} ms between read and write.",
        spec.buyers, spec.orders, spec.stock, spec.work_ms
    );
    stage.say(words).await;
    runner::arms(stage, &specs).await?;
    let outcome = stage.outcome.lock();
    let crowd = &outcome.arms[0];
    let pair = both && audit.stock == 9 && audit.sold == 2;
    let (sold, opening, forks) = (crowd.sold, crowd.stock_opening, crowd.forks);
    let verdict = match crowd.oversold {
        0 => format!(
            "not shown, because too few of the crowd met between read and write: {sold} sold of \
             {opening}, {forks} forks in the ledger"
        ),
        oversold => format!(
            "{oversold} units do not exist: {sold} sold of {opening}. {forks} forks in the ledger"
        ),
    };
    let seen = pair && crowd.oversold > 0;
    Ok(Shown::by_a_crowd(nothing_runs_out(spec), seen, verdict))
}

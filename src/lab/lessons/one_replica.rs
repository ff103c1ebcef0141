//! Lesson `one-replica`: a mutex is requested at the replica that holds it, and at another replica.
//! Then the same load runs on one replica and on all of them.

use anyhow::ensure;

use super::{Lesson, Shown};
use crate::lab::crowd::{Crowd, nobody_meets};
use crate::lab::headers::{LabHeaders, PAUSE, WAIT};
use crate::lab::runner;
use crate::lab::stage::Stage;

pub(super) const LESSON: Lesson = Lesson {
    number: 2,
    name: "one-replica",
    claim: "A mutex in the process is exact on one replica and oversells on two.",
    question: "100 units and a mutex per item, in the memory of each replica. When is more sold \
               than there is?",
    guesses: &[
        "never: a mutex is a mutex",
        "as soon as there are two replicas",
        "only when a replica crashes",
        "only when the machine is busy",
    ],
    right: 1,
    crowd: Some(CROWD),
    shows: &["local"],
    takeaway: [
        "A mutex keeps the threads of one process apart, and a second process has a mutex of its \
         own.",
        "It passes every test that runs one replica, and breaks on the day somebody scales to two, \
         or a roll-out lets the old one live for a moment longer.",
        "What two processes share must be kept apart by something that they share, too.",
    ],
    play: |stage| Box::pin(play(stage)),
};

const CROWD: Crowd = Crowd { stock: 100, buyers: 16, orders: 160, work_ms: 5, lease: false };

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    stage.needs_two()?;
    let sku = stage.item(10).await?;
    stage.say("A, at the first replica, has the mutex, has read 10, and is held there.").await;
    let first =
        stage.order_held("A", 0, &sku, &LabHeaders::under("local").with(PAUSE, "read")).await?;
    let trying = LabHeaders::under("local").with(WAIT, "try");
    let beside = stage.ordered("B, same replica", 0, &sku, &trying).await?;
    let kept_out = beside.problem() == Some("lock-busy");
    stage.say("B asks the same replica: the mutex is taken, as it should be.").await;
    let elsewhere = stage.ordered("C, other replica", 1, &sku, &trying).await?.sold_from()?;
    stage.say("C asks the other replica: there the mutex is free. C reads 10 and writes 9.").await;
    let first = stage.finish(first).await?.sold_from()?;
    let audit = stage.audit(&sku).await?;
    stage.say(format!("A goes on and writes 9 too. Sold 2, on the shelf {}.", audit.stock)).await;

    stage.say("The same crowd twice: at one replica, then at all of them.").await;
    let mut specs = CROWD.under(stage, &["local", "local"]);
    specs[0].replicas = 1;
    runner::arms(stage, &specs).await?;
    let outcome = stage.outcome.lock();
    ensure!(outcome.arms.len() == 2, "an arm is missing");
    let (one, two) = (&outcome.arms[0], &outcome.arms[1]);
    let pair = kept_out && (first, elsewhere) == (10, 10) && audit.stock == 9;
    let seen = pair && one.ok && one.oversold == 0 && !two.ok && two.forks > 0;
    Ok(Shown::by_a_crowd(
        nobody_meets(&specs[1]),
        seen,
        format!(
            "one replica: {} sold of {}, {} forks · {} replicas: {} sold of {}, {} forks",
            one.sold,
            one.stock_opening,
            one.forks,
            specs[1].replicas,
            two.sold,
            two.stock_opening,
            two.forks,
        ),
    ))
}

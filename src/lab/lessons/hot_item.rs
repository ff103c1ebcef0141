//! Lesson `hot-item`: the same load for one item under five strategies, one after the other.

use anyhow::Context as _;

use crate::lab::default_load::{DefaultLoad, no_overlap};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;

pub(super) const LESSON: Lesson = Lesson {
    number: 26,
    name: "hot-item",
    claim: "One item, everybody at once: who takes everybody's order under one lock and in one \
            transaction sells at least three times what the textbook lock does, and all are right.",
    question: "Everybody wants the same item. What limits how many are sold per second?",
    guesses: &[
        "the processors",
        "one order after the other has to be written to disk, and the lock handed on in between",
        "Redis",
    ],
    right: 1,
    load: Some(LOAD),
    shows: &["owner", "fenced", "row-lock", "atomic", "batched"],
    takeaway: [
        "One after the other means one commit after the other, and a commit waits for the disk: no \
         lock is faster than that.",
        "The textbook lock is slower still, because it lies idle until somebody asks again.",
        "Whoever waits anyway can be served together: one lock, one read, one write, and each \
         gets an answer of its own.",
    ],
    play: |lab| Box::pin(play(lab)),
};

const LOAD: DefaultLoad =
    DefaultLoad { stock: 1_000, buyers: 32, orders: 160, work_ms: 0, lease: true };

/// Claimed throughput of `batched`, as a multiple of `owner`'s.
const MIN_RATIO: f64 = 3.0;

async fn play(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let strategies = ["owner", "fenced", "row-lock", "atomic", "batched"];
    lab.say("The same orders for one item, under five strategies in turn.").await;
    let specs = LOAD.under(lab, &strategies);
    let arms = lab.run_arms(&specs).await?;
    let rate = |name: &str| {
        let arm = arms.iter().find(|arm| arm.strategy == name);
        arm.map(|arm| arm.orders_per_s).with_context(|| format!("{name} is missing"))
    };
    let ratio = rate("batched")? / rate("owner")?.max(0.1);
    let sound = arms.iter().all(|arm| arm.ok && arm.forks == 0 && arm.oversold == 0);
    let rates = strategies.map(|name| format!("{name} {:.0}", rate(name).unwrap_or(0.0)));
    Ok(LessonResult::of_load(
        no_overlap(&specs[0]),
        sound && ratio >= MIN_RATIO,
        format!("orders a second: {} · batched is {ratio:.1} times owner", rates.join(", ")),
    ))
}

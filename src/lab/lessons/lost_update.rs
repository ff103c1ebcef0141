//! Lesson `lost-update`: two orders are made to overlap, so that both read the same stock. Then a
//! load overlaps by itself, and is repeated under a lock.

use super::{Chapter, DefaultLoad, Lesson, LessonResult, Scenario, sales};

pub(super) const LESSON: Lesson = Lesson {
    name: "lost-update",
    chapter: Chapter::Why,
    right: 3,
    load: Some(LOAD),
    shows: &["none", "read.rs", "place.rs"],
    run: |lab| Box::pin(run(lab)),
};

const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 400, work_ms: 2, lease: false };

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.say("Two orders for one unit each, at two replicas, without a lock. Stock: 10.");
    let first = lab.order("A", 0, &sku, "none").pause_at("read").await?;
    lab.say("A has read 10 and is paused. B reads 10 and writes 9.");
    let second = lab.order("B", 1, &sku, "none").response().await?;
    let first = lab.finish(first).await?;
    let audit = lab.audit(&sku).await?;
    let both = first.stock_before() == Some(10) && second.stock_before() == Some(10);
    lab.say(format!("A resumes and writes 9. Sold: 2. Stock: {}.", audit.stock));

    let specs = LOAD.under(lab, &["none", "batched"]);
    let spec = &specs[0];
    lab.say(format!(
        "Now under load: {} buyers, {} orders, {} units, {} ms between read and write.",
        spec.buyers, spec.orders, spec.stock, spec.work_ms
    ));
    let arms = lab.run_arms(&specs).await?;
    let (load, cure) = (&arms[0], &arms[1]);
    let pair = both && audit.stock == 9 && audit.sold == 2;
    lab.evidence("two overlapping orders", sales(&audit), pair);
    lab.evidence("units oversold under load", load.oversold, load.oversold > 0);
    lab.evidence("units oversold under batched", cure.oversold, cure.is_sound());
    let (sold, opening, forks) = (load.sold, load.stock_opening, load.forks);
    let what = match load.oversold {
        0 => "not shown: too few orders overlapped between read and write".to_owned(),
        oversold => format!("{oversold} units were sold that do not exist"),
    };
    Ok(LessonResult::of_load(
        spec.no_shortage(),
        pair && load.oversold > 0,
        format!("{what}: {sold} sold of {opening}, {forks} forks in the ledger"),
    ))
}

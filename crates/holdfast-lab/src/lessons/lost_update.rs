//! Lesson `lost-update`: two orders are made to overlap, so that both read the same stock. Then a
//! load overlaps by itself, and is repeated under a lock.

use super::{ArmResult, DefaultLoad, LessonResult, Scenario, Supply, sales};
use holdfast_base::messages::message;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 400, work_ms: 2, lease: false };

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(10).await?;
    lab.scene("pair");
    lab.say(message!("run-lost-update-step-1"));
    let first = lab.order("A", 0, &sku, "none").pause_at("read").await?;

    lab.say(message!("run-lost-update-step-2"));
    let second = lab.order("B", 1, &sku, "none").response().await?;
    let first = lab.finish(first).await?;

    let audit = lab.audit(&sku).await?;
    let both = first.stock_before() == Some(10) && second.stock_before() == Some(10);
    lab.say(message!("run-lost-update-step-3", stock = audit.stock));

    let specs = LOAD.under(lab, &["none", "batched"]);
    let spec = &specs[0];
    lab.say(message!(
        "run-lost-update-step-4",
        buyers = spec.buyers,
        orders = spec.orders,
        stock = spec.stock,
        work_ms = spec.work_ms
    ));
    let arms = lab.run_arms(&specs).await?;

    let load = &arms[0];
    let cure = &arms[1];
    let pair = both && audit.stock == 9 && audit.sold == 2;
    lab.evidence(message!("run-lost-update-fact-1"), sales(&audit), pair);
    lab.evidence(message!("run-lost-update-fact-2"), load.oversold, load.oversold > 0);
    lab.evidence(message!("run-lost-update-fact-3"), cure.oversold, cure.is_sound());

    let what = match load.oversold {
        0 => message!("run-lost-update-not-shown"),
        oversold => message!("run-lost-update-oversold", oversold),
    };
    let ArmResult { sold, stock_opening: opening, forks, .. } = load;
    let verdict = message!("run-lost-update-verdict", what, sold, opening, forks);
    Ok(LessonResult::of_load(spec.hindrance(Supply::Short), pair && load.oversold > 0, verdict))
}

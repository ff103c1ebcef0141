//! Lesson `lost-update`: two orders are made to overlap, so that both read the same stock. Then a
//! load overlaps by itself, and is repeated under a lock.

use std::time::Duration;

use tokio::time::sleep;

use super::{DefaultLoad, LabResponse, LessonResult, PAUSE, Scenario, Supply, sales};
use holdfast_base::messages::message;
use holdfast_base::output::grouped;
use holdfast_shop::Sku;
use holdfast_shop::audit::ItemAudit;
use holdfast_story::Value;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 400, work_ms: 2, lease: false };

/// Time between the requests of A and B, if the visitor chooses the gap.
const BEHIND_A: Duration = Duration::from_millis(5);

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.scene_of_item("pair", 10).await?;
    let (first, second) = match lab.request.gap_ms {
        None => overlapping(lab, &sku).await?,
        Some(gap_ms) => timed(lab, &sku, gap_ms).await?,
    };

    let audit = lab.audit(&sku).await?;
    let both = first.stock_before() == Some(10) && second.stock_before() == Some(10);
    if let Some(gap_ms) = lab.request.gap_ms {
        return Ok(result_of_pair(lab, &audit, gap_ms));
    }
    lab.say(message!("run-lost-update-step-3", sold = audit.sold, stock = audit.stock));

    let specs = LOAD.under(lab, &["none", "batched"]);
    let spec = &specs[0];
    lab.say(message!(
        "run-lost-update-step-4",
        buyers = spec.buyers,
        orders = grouped(spec.orders as u64),
        stock = Value::Units(spec.stock),
        work_ms = spec.work_ms
    ));
    let arms = lab.run_arms(&specs).await?;

    let load = &arms[0];
    let cure = &arms[1];
    let pair = both && audit.stock == 9 && audit.sold == 2;
    lab.evidence(message!("run-lost-update-fact-1"), sales(&audit), pair);
    let [oversold, sold, opening, forks] =
        [load.oversold, load.sold, load.stock_opening, load.forks].map(Value::Units);
    lab.evidence(message!("run-lost-update-fact-2"), oversold, load.oversold > 0);
    lab.evidence(message!("run-lost-update-fact-3"), cure.oversold, cure.is_sound());

    let what = match load.oversold {
        0 => message!("run-lost-update-not-shown"),
        _ => message!("run-lost-update-oversold", oversold),
    };
    let verdict = message!("run-lost-update-verdict", what, sold, opening, forks);
    Ok(LessonResult::of_load(spec.hindrance(Supply::Short), pair && load.oversold > 0, verdict))
}

/// B reads and writes while A is paused between its read and its write.
async fn overlapping(lab: &Scenario, sku: &Sku) -> anyhow::Result<(LabResponse, LabResponse)> {
    lab.say(message!("run-lost-update-step-1"));
    let first = lab.order("A", 0, sku, "none").pause_at("read").await?;

    lab.say(message!("run-lost-update-step-2"));
    let second = lab.order("B", 1, sku, "none").response().await?;
    Ok((lab.finish(first).await?, second))
}

/// As a visitor wants it: the clock alone decides whether B reads before A's write.
async fn timed(
    lab: &Scenario,
    sku: &Sku,
    gap_ms: u64,
) -> anyhow::Result<(LabResponse, LabResponse)> {
    lab.say(message!("run-lost-update-step-5", gap = Value::Ms(gap_ms)));
    let first = lab.order("A", 0, sku, "none").with(PAUSE, format!("read:{gap_ms}")).send();
    sleep(BEHIND_A).await;
    let second = lab.order("B", 1, sku, "none").send();
    Ok((lab.response(first).await?, lab.response(second).await?))
}

fn result_of_pair(lab: &Scenario, audit: &ItemAudit, gap_ms: u64) -> LessonResult {
    let is_lost = audit.sold == 2 && audit.stock == 9;
    lab.evidence(message!("run-lost-update-fact-1"), sales(audit), audit.sold == 2);
    let why_not = (!is_lost).then(|| message!("run-lost-update-in-time", gap = Value::Ms(gap_ms)));
    LessonResult::of_load(why_not, is_lost, sales(audit))
}

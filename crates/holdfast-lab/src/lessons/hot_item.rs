//! Lesson `hot-item`: the same load for one item under five strategies, one after the other.

use super::{ArmResult, DefaultLoad, LessonResult, Scenario, Supply};
use holdfast_base::IS_FULL_BUILD;
use holdfast_base::messages::message;
use holdfast_base::output::rate;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 1_000, buyers: 32, orders: 160, work_ms: 0, lease: true };

/// Claimed throughput of `batched`, as a multiple of `owner`'s.
const MIN_RATIO: f64 = 3.0;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    if !IS_FULL_BUILD {
        lab.say(message!("run-hot-item-quick-build"));
    }
    lab.say(message!("run-hot-item-step-1"));
    let specs = LOAD.under(lab, &["owner", "fenced", "row-lock", "atomic", "batched"]);
    let arms = lab.run_arms(&specs).await?;

    let owner = &arms[0];
    let batched = &arms[4];
    let ratio = batched.orders_per_s / owner.orders_per_s.max(0.1);
    let times = message!("run-hot-item-times", ratio = format!("{ratio:.1}"));
    lab.evidence(message!("run-hot-item-fact-1"), times, ratio >= MIN_RATIO);

    let [one, many] = [owner, batched].map(|arm| rate(arm.orders_per_s));
    let verdict = message!("run-hot-item-verdict", one, many);
    let shown = arms.iter().all(ArmResult::is_sound) && ratio >= MIN_RATIO;
    Ok(LessonResult::of_load(specs[0].hindrance(Supply::Any), shown, verdict))
}

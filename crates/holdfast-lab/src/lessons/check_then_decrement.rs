//! Lesson `check-then-decrement`: A has checked the last unit and is paused before its update, and
//! B sells that unit: without a constraint on the stock, then with one. At last the check is in the
//! update.

use super::{LabResponse, LessonResult, Scenario};
use holdfast_base::messages::message;
use holdfast_shop::Sku;
use holdfast_shop::audit::ItemAudit;
use holdfast_story::Value;

const STRATEGY: &str = "check-then-decrement";

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.scene("below-zero");
    let sku = lab.item_for(STRATEGY, 1).await?;
    lab.say(message!("run-check-then-decrement-step-1"));
    let (late, below) = sell_between(lab, &sku).await?;
    let [sold, opening, stock] = [below.sold, below.opening, below.stock].map(Value::Units);
    lab.say(message!("run-check-then-decrement-step-2", sold, stock));
    let is_oversold = late.is_success() && below.stock == -1 && below.oversold == 1 && !below.ok;
    let fact = message!("run-check-then-decrement-fact-1", opening);
    lab.evidence(fact, sold, is_oversold);

    let sku = lab.scene_of_item("constraint", 1).await?;
    lab.say(message!("run-check-then-decrement-step-3"));
    let (late, kept) = sell_between(lab, &sku).await?;
    let why = late.rejection();
    let is_error = late.problem() == Some("internal-error") && kept.sold == 1 && kept.ok;
    lab.conclude(is_error, message!("run-check-then-decrement-scene-constraint", why));
    lab.evidence(message!("run-check-then-decrement-fact-2"), why, is_error);

    let sku = lab.scene_of_item("atomic", 1).await?;
    lab.say(message!("run-check-then-decrement-step-4"));
    let a = lab.order("A", 0, &sku, "atomic").pause_at("read").await?;
    let b = lab.order("B", 1, &sku, "atomic").send();
    lab.finish(a).await?.require_placed()?;
    let late = lab.response(b).await?;
    let why = late.rejection();
    let is_cured = late.problem() == Some("sold-out") && lab.audit(&sku).await?.ok;
    lab.conclude(is_cured, message!("run-check-then-decrement-scene-atomic", why));
    lab.evidence(message!("run-check-then-decrement-fact-3"), why, is_cured);

    let verdict = message!("run-check-then-decrement-verdict", sold, opening, stock);
    Ok(LessonResult::of_scenes(is_oversold && is_error && is_cured, verdict))
}

/// Lets B sell the unit that A has checked, and A go on. Returns A's response, and the audit.
async fn sell_between(lab: &Scenario, sku: &Sku) -> anyhow::Result<(LabResponse, ItemAudit)> {
    let a = lab.order("A", 0, sku, STRATEGY).pause_at("read").await?;
    lab.order("B", 1, sku, STRATEGY).placed().await?;
    let response = lab.finish(a).await?;
    Ok((response, lab.audit(sku).await?))
}

//! Lesson `units`: one unit is left, and A has locked its row. B is rejected at once, as sold out,
//! and the unit is free again when A's replica is killed. Then two orders of two units, which do
//! not wait for each other, and the same load with one row and with a row per unit.

use super::{ArmResult, DefaultLoad, LessonResult, Scenario, Supply, sales, wait_until};
use holdfast_base::messages::message;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 200, buyers: 24, orders: 200, work_ms: 5, lease: false };

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;

    lab.scene("last-unit");
    let sku = lab.item_for("units", 1).await?;
    lab.say(message!("run-units-step-1"));
    let a = lab.order("A", 0, &sku, "units").pause_at("read").await?;
    let b = lab.order("B", 1, &sku, "units").response().await?;
    let rejected = b.problem() == Some("sold-out");
    let unsold = lab.audit(&sku).await?.stock == 1;
    lab.say(message!("run-units-step-2"));

    lab.kill_replica(a).await?;
    wait_until("Postgres has ended the killed replica's transaction", async || {
        let free = "select exists (select from item_units where sku = $1 for update skip locked)";
        let free = sqlx::query_scalar(free).bind(sku.as_str());
        Ok(free.fetch_one(&mut *lab.connection().await?).await?)
    })
    .await?;
    lab.order("C", 1, &sku, "units").placed().await?;
    let last = lab.audit(&sku).await?;
    lab.say(message!("run-units-step-3"));
    lab.restore().await?;

    lab.scene("two-left");
    let sku = lab.item_for("units", 2).await?;
    lab.say(message!("run-units-step-4"));
    let a = lab.order("A", 0, &sku, "units").pause_at("commit").await?;
    lab.order("B", 1, &sku, "units").placed().await?;
    lab.say(message!("run-units-step-5"));
    lab.finish(a).await?.require_placed()?;
    let two = lab.audit(&sku).await?;
    let is_side_by_side = two.ok && two.sold == 2;
    lab.conclude(is_side_by_side, message!("run-units-scene-two-left", sales = sales(&two)));

    lab.say(message!("run-units-step-6"));
    let specs = LOAD.under(lab, &["row-lock", "units"]);
    let arms = lab.run_arms(&specs).await?;

    let is_sold_later = rejected && unsold && last.ok && last.sold == 1;
    lab.evidence(message!("run-units-fact-1"), last.sold, is_sold_later);
    lab.evidence(message!("run-units-fact-2"), sales(&two), is_side_by_side);
    let verdict = message!("run-units-verdict", sales = sales(&last));
    let result = LessonResult::of_scenes(is_sold_later && is_side_by_side, verdict);
    let is_sound = arms.iter().all(ArmResult::is_sound);
    Ok(result.and_load(specs[0].hindrance(Supply::Any), is_sound))
}

//! Lesson `one-replica`: a mutex is requested at the replica that holds it, and at another replica.
//! Then the same load runs on one replica and on all of them.

use super::{DefaultLoad, LessonResult, Scenario, compare_replicas, sales};
use holdfast_base::messages::message;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 160, work_ms: 5, lease: false };

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let sku = lab.scene_of_item("mutex", 10).await?;
    lab.say(message!("run-one-replica-step-1"));
    let first = lab.order("A", 0, &sku, "local").pause_at("read").await?;
    let beside = lab.order(message!("run-label-b-same-replica"), 0, &sku, "local").trying();
    let kept_out = beside.response().await?.problem() == Some("lock-busy");
    lab.say(message!("run-one-replica-step-2"));

    let elsewhere = lab.order(message!("run-label-c-other-replica"), 1, &sku, "local").trying();
    let elsewhere = elsewhere.placed().await?;
    lab.say(message!("run-one-replica-step-3"));

    let first = lab.finish(first).await?.require_placed()?;
    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-one-replica-step-4", sold = audit.sold, stock = audit.stock));

    let pair = kept_out && (first, elsewhere) == (10, 10) && audit.stock == 9;
    lab.evidence(message!("run-one-replica-fact-1"), sales(&audit), pair);

    let (hindrance, shown, description) = compare_replicas(lab, LOAD, "local").await?;
    Ok(LessonResult::of_load(hindrance, pair && shown, description))
}

//! Lesson `waiting`: the same load in three waiting modes: fail at once, retry at intervals, and
//! queue for a handoff.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    ArmResult, DefaultLoad, LabResponse, LessonResult, RETRY_MS, Scenario, Supply, WAIT, wait_until,
};
use holdfast_base::messages::message;
use holdfast_story::Value;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 1_000, buyers: 12, orders: 120, work_ms: 5, lease: true };

/// The scene that is shown beside the one of the retries.
pub(super) const BESIDE: &str = "queue";

/// Work of A under the lock, as a pause: two or three retries.
const HELD_FOR: Duration = Duration::from_millis(120);

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    retry_behind_a(lab).await?;
    queue_behind_a(lab).await?;

    let mut specs = LOAD.under(lab, &["owner", "owner", "fenced"]);
    for (spec, wait) in specs.iter_mut().zip(["try", "retry", "notify"]) {
        spec.wait = Some(wait.to_owned());
    }
    lab.say(message!("run-waiting-step-1"));
    let arms = lab.run_arms(&specs).await?;

    let tried = &arms[0];
    let again = &arms[1];
    let line = &arms[2];
    let turned_away = tried.statuses.get("423").copied().unwrap_or(0);
    let orders = i64::try_from(specs[0].orders)?;
    let shorter = spread(line) < spread(again);
    let shown = arms.iter().all(ArmResult::is_sound)
        && turned_away > 0
        && tried.sold + i64::try_from(turned_away)? == orders
        && line.sold == orders
        && shorter;

    let times = message!("run-hot-item-times", ratio = format!("{:.1}", spread(again)));
    let queue = format!("{:.1}", spread(line));
    lab.evidence(message!("run-waiting-fact-3", queue), times, shorter);
    lab.evidence(message!("run-waiting-fact-1"), turned_away, turned_away > 0);

    let verdict = message!(
        "run-waiting-verdict",
        retry_p99 = Value::Ms(again.wait_p99_ms.round() as u64),
        retry_ratio = format!("{:.1}", spread(again)),
        queue_p99 = Value::Ms(line.wait_p99_ms.round() as u64),
        queue_ratio = format!("{:.1}", spread(line))
    );
    Ok(LessonResult::of_load(specs[0].hindrance(Supply::Ample), shown, verdict))
}

/// A holds the lock, and B and C ask for it again and again until A has released it.
async fn retry_behind_a(lab: &Scenario) -> anyhow::Result<()> {
    let sku = lab.scene_of_item("retry", 10).await?;
    let a = lab.order("A", 0, &sku, "owner").pause_at("read").await?;
    let attempts = lab.watch_attempts(&sku).await?;

    let [b, c] = [("B", 1), ("C", 0)].map(|(name, replica)| {
        let order = lab.order(name, replica, &sku, "owner").with(WAIT, "retry");
        match lab.request.retry_ms {
            Some(retry_ms) => order.with(RETRY_MS, retry_ms).send(),
            None => order.send(),
        }
    });
    let requests = [b.lane.request_id, c.lane.request_id];
    let on_one_replica = b.lane.replica == c.lane.replica;
    lab.say(message!("run-waiting-step-2"));
    sleep(HELD_FOR).await;
    if lab.request.retry_ms.is_none() {
        let replicas = if on_one_replica { 1 } else { 2 };
        wait_until("B and C have asked again", async || Ok(attempts.repeated() == replicas))
            .await?;
    }

    let id_of_a = a.lane.request_id;
    placed([lab.finish(a).await?, lab.response(b).await?, lab.response(c).await?])?;
    // An attempt names its replica, not its request.
    if !on_one_replica {
        attempts.mark().await?;
        wait_until("all attempts are heard", async || Ok(attempts.mark_is_heard())).await?;
        lab.note_attempts(&attempts, &requests);
    }
    lab.pause_is_work(id_of_a);
    Ok(())
}

/// The same in a queue: A's release hands the lock to B, and B's to C.
async fn queue_behind_a(lab: &Scenario) -> anyhow::Result<()> {
    let sku = lab.scene_of_item(BESIDE, 10).await?;
    let a = lab.order("A", 0, &sku, "fenced").pause_at("read").await?;

    let [b, c] = [("B", 1), ("C", 0)].map(|(name, replica)| {
        lab.order(name, replica, &sku, "fenced").with(WAIT, "notify").send()
    });
    lab.say(message!("run-waiting-step-3"));
    sleep(HELD_FOR).await;
    let id_of_a = a.lane.request_id;
    placed([lab.finish(a).await?, lab.response(b).await?, lab.response(c).await?])?;
    lab.pause_is_work(id_of_a);
    Ok(())
}

fn placed(orders: [LabResponse; 3]) -> anyhow::Result<()> {
    orders.iter().try_for_each(|order| order.require_placed().map(drop))
}

/// Returns p99 as a multiple of the median, which a slow machine changes least.
fn spread(arm: &ArmResult) -> f64 {
    arm.wait_p99_ms / arm.wait_p50_ms.max(1.0)
}

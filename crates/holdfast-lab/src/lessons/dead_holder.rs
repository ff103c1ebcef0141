//! Lesson `dead-holder`: a replica is killed while it holds a lock without expiry, and again
//! between the `SETNX` and the `EXPIRE` of a lock.

use super::{LessonResult, Scenario};
use holdfast_base::messages::{Message, message};
use holdfast_story::EventKind;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let plain = kill_holder_at(lab, "setnx", "held", message!("run-dead-holder-holding")).await?;
    lab.restore().await?;
    let between =
        kill_holder_at(lab, "setnx-expire", "expire", message!("run-dead-holder-between")).await?;

    let sentence = message!("run-dead-holder-scene-setnx-expire", between = state(between));
    lab.conclude(between, sentence);

    lab.evidence(message!("run-dead-holder-fact-1"), state(plain), plain);
    lab.evidence(message!("run-dead-holder-fact-2"), state(between), between);
    let verdict = message!("run-dead-holder-verdict", plain = state(plain));
    Ok(LessonResult::of_scenes(plain && between, verdict))
}

fn state(is_locked: bool) -> Message {
    if is_locked { message!("run-locked-forever") } else { message!("run-lock-free") }
}

/// Kills the holder at a probe point. Returns whether the item stays locked until a `DEL` by hand.
async fn kill_holder_at(
    lab: &Scenario,
    strategy: &'static str,
    at: &'static str,
    when: Message,
) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item(strategy, 10).await?;
    lab.say(message!("run-dead-holder-step-1", strategy, when));
    let first = lab.order(format!("A, {strategy}"), 0, &sku, strategy).pause_at(at).await?;
    lab.kill_replica(first).await?;
    let forever = lab.query_lock::<i64>("PTTL", &sku).await? == -1;

    let second = lab.order("B", 1, &sku, strategy).trying().response().await?;
    let rejection = second.rejection();
    lab.say(message!("run-dead-holder-step-2", rejection));

    let mut operator = lab.actor(message!("run-label-operator"));
    let deleted = lab.query_lock::<u32>("DEL", &sku).await? == 1;
    if deleted {
        operator.happens_to(&sku.lock_key(), EventKind::Removed);
    }
    lab.record_lane(operator);
    let third = lab.order(message!("run-label-b-after-manual-del"), 1, &sku, strategy).trying();
    let third = third.response().await?;
    lab.say(message!("run-dead-holder-step-3"));
    Ok(forever && rejection == "lock-busy" && deleted && third.stock_before() == Some(10))
}

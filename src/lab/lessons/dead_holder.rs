//! Lesson `dead-holder`: a replica is killed while it holds a lock without expiry, and again
//! between the `SETNX` and the `EXPIRE` of a lock.

use super::{Chapter, Lesson, LessonResult, Scenario};

pub(super) const LESSON: Lesson = Lesson {
    name: "dead-holder",
    chapter: Chapter::Writing,
    right: 3,
    load: None,
    shows: &["setnx", "setnx-expire"],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let plain = kill_holder_at(lab, "setnx", "held", "while it holds the lock").await?;
    lab.restore().await?;
    let between = kill_holder_at(lab, "setnx-expire", "expire", "between SETNX and EXPIRE").await?;
    let words = |locked: bool| if locked { "locked forever (TTL -1)" } else { "free" };
    lab.evidence("killed while it holds the lock", words(plain), plain);
    lab.evidence("killed between SETNX and EXPIRE", words(between), between);
    Ok(LessonResult::new(
        plain && between,
        format!(
            "killed with SETNX: {} · killed between SETNX and EXPIRE: {}",
            words(plain),
            words(between)
        ),
    ))
}

/// Kills the holder at the probe point `at`. Returns whether the item then stays locked until its
/// key is deleted by hand.
async fn kill_holder_at(
    lab: &Scenario,
    strategy: &'static str,
    at: &'static str,
    when: &str,
) -> anyhow::Result<bool> {
    let sku = lab.item(10).await?;
    lab.say(format!("A, under {strategy}, is killed {when}."));
    let first = lab.order(&format!("A, {strategy}"), 0, &sku, strategy).pause_at(at).await?;
    lab.kill_replica(first).await?;
    let forever = lab.is_locked_forever(&sku).await?;
    let second = lab.order("B", 1, &sku, strategy).trying().response().await?;
    let rejection = second.rejection();
    lab.say(format!("Its lock remains, without an expiry. B is rejected: {rejection}."));
    let deleted = lab.delete_lock(&sku).await?;
    let third = lab.order("B, after manual DEL", 1, &sku, strategy).trying().response().await?;
    lab.say("The key is deleted by hand, and B acquires the lock.");
    Ok(forever && rejection == "lock-busy" && deleted && third.stock_before() == Some(10))
}

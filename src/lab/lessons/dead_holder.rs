//! Lesson `dead-holder`: a replica is killed while it holds a lock without expiry, and again
//! between the `SETNX` and the `EXPIRE` of a lock.

use super::{Lesson, LessonResult, Scenario};

pub(super) const LESSON: Lesson = Lesson {
    name: "dead-holder",
    claim: "A lock without expiry whose holder is killed is locked for ever; SETNX and EXPIRE as \
            two steps leave the same hole between them.",
    question: "The holder of a lock made with SETNX is killed. When can the next one have it?",
    guesses: &[
        "at once: Redis sees that the connection is gone",
        "after a while, when Redis cleans up",
        "when somebody deletes the key by hand",
    ],
    right: 2,
    load: None,
    shows: &["setnx", "setnx-expire"],
    takeaway: [
        "Redis keeps a key, not a promise: it does not know who set it, nor whether they live.",
        "An expiry in a second command is an expiry that may never come; `SET key value NX PX ms` \
         is one command since 2013.",
        "A lock that somebody has to delete by hand at night is deleted by hand, some night, while \
         its holder lives.",
    ],
    run: |lab| Box::pin(run(lab)),
};

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let plain = kill_holder_at(lab, "setnx", "held", "while it has the lock").await?;
    lab.restore().await?;
    let between = kill_holder_at(lab, "setnx-expire", "expire", "between SETNX and EXPIRE").await?;
    let words =
        |locked: bool| if locked { "locked for ever (time to live -1)" } else { "free again" };
    lab.evidence("killed while it has the lock", words(plain), plain);
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
    lab.say(format!("Its lock is there without an expiry. B is told: {rejection}."));
    let deleted = lab.delete_lock(&sku).await?;
    let third = lab.order("B, after DEL by hand", 1, &sku, strategy).trying().response().await?;
    lab.say("Somebody deletes the key by hand, and B has the lock.");
    Ok(forever && rejection == "lock-busy" && deleted && third.stock_before() == Some(10))
}

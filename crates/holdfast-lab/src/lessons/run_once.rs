//! Lesson `run-once`: a tick of a scheduled job reaches both replicas: without a lock, with a lock
//! that is released after the work, and with a unique row of the job's name and due time. Then the
//! replica that executes the run is killed: before its work, and between its work and the record of
//! it.

use anyhow::bail;
use serde_json::Value;
use time::OffsetDateTime;

use super::{LessonRequest, LessonResult, Scenario, poll};
use holdfast_base::messages::{Message, Text, message};
use holdfast_shop::jobs::lab_tick;
use holdfast_shop::jobs::runs::{self, JobRun, RunState};

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let without = without_lock(lab).await?;
    let released = with_lock(lab).await?;
    let (once, result) = with_row(lab).await?;
    let before = kill_at(lab, "held", message!("run-run-once-before")).await?;
    let after = kill_at(lab, "write", message!("run-run-once-after")).await?;

    // First what the picture shows, and the question asks.
    lab.evidence(message!("run-run-once-fact-2"), released, released == 2);
    lab.evidence(message!("run-run-once-fact-1"), without, without == 2);
    lab.evidence(message!("run-run-once-fact-3"), once, once == 1);
    lab.evidence(message!("run-run-once-fact-4"), &result, result == "already");

    let counts = (without, released, once, before, after) == (2, 2, 1, 1, 1);
    let verdict = message!("run-run-once-verdict", released);
    Ok(LessonResult::of_scenes(counts && result == "already", verdict))
}

/// Both replicas receive the tick, and nothing coordinates them.
async fn without_lock(lab: &Scenario) -> anyhow::Result<usize> {
    lab.scene("no-lock");
    let due_at = current_tick();
    lab.say(message!("run-run-once-step-1"));
    let first = tick(lab, message!("run-label-a-tick-no-lock"), 0, due_at, "nothing")?.send();
    let second = tick(lab, message!("run-label-b-tick-no-lock"), 1, due_at, "nothing")?.send();
    for ticked in [first, second] {
        let ticked = lab.response(ticked).await?;
        if ticked.status != Some(200) {
            let why = ticked.body.get("detail").and_then(Value::as_str).unwrap_or("no response");
            bail!("the tick failed: {why}");
        }
    }
    let marks = count_marks(lab, due_at).await?;
    lab.conclude(marks == 2, message!("run-run-once-scene-no-lock", marks));
    Ok(marks)
}

/// B's clock is late: its tick arrives after A has released the lock.
async fn with_lock(lab: &Scenario) -> anyhow::Result<usize> {
    lab.scene("lock");
    let due_at = current_tick();
    lab.say(message!("run-run-once-step-2"));
    let first = tick(lab, message!("run-label-a-tick-a-lock"), 0, due_at, "lock")?
        .pause_at("write")
        .await?;

    let early =
        tick(lab, message!("run-label-b-tick-at-once"), 1, due_at, "lock")?.response().await?;
    if run_result(&early.body) != "busy" {
        bail!("the lock was not held: {}", early.body);
    }
    lab.finish(first).await?;

    lab.say(message!("run-run-once-step-3"));
    tick(lab, message!("run-label-b-tick-a-second-late"), 1, due_at, "lock")?.response().await?;
    count_marks(lab, due_at).await
}

/// The row has a lease, and remains after the run.
async fn with_row(lab: &Scenario) -> anyhow::Result<(usize, String)> {
    lab.scene("row");
    let due_at = current_tick();
    lab.say(message!("run-run-once-step-4"));
    let first = tick(lab, message!("run-label-a-tick-row"), 0, due_at, "row")?;
    let first = first.pause_at("held").await?;
    tick(lab, message!("run-label-b-tick-at-once"), 1, due_at, "row")?.response().await?;
    lab.finish(first).await?;
    let late = tick(lab, message!("run-label-b-tick-a-second-late"), 1, due_at, "row")?;
    let late = late.response().await?;
    let result = run_result(&late.body).to_owned();
    let marks = count_marks(lab, due_at).await?;
    lab.conclude(marks == 1, message!("run-run-once-scene-row", marks, result));
    Ok((marks, result))
}

/// A is killed at the probe point `at`, and another replica takes over by itself. Returns the final
/// number of marks.
async fn kill_at(lab: &Scenario, at: &'static str, when: Message) -> anyhow::Result<usize> {
    lab.scene(&format!("killed-at-{at}"));
    let due_at = current_tick();
    lab.say(message!("run-run-once-step-6", when = &when));
    let first = tick(lab, message!("run-label-a-killed"), 0, due_at, "row")?.pause_at(at).await?;
    lab.kill_replica(first).await?;

    let done = wait_until_taken_over(lab, due_at).await?;
    let JobRun { replica, attempt, .. } = &done;
    lab.say(message!("run-run-once-step-7", replica, attempt));
    if *attempt != 2 {
        bail!("not the second attempt: {done:?}");
    }

    let marks = count_marks(lab, due_at).await?;
    lab.conclude(marks == 1, message!("run-run-once-scene-killed", when, marks, attempt));
    lab.restore().await?;
    Ok(marks)
}

/// Waits until the run is done, and returns it: a lease expires after 6 s, and a scheduler polls
/// every 2 s.
async fn wait_until_taken_over(lab: &Scenario, due_at: OffsetDateTime) -> anyhow::Result<JobRun> {
    poll("another replica takes over", async || {
        let run = runs::find(&lab.cluster.pool, lab_tick::NAME, due_at).await?;
        Ok(run.filter(|run| run.state == RunState::Done))
    })
    .await
}

async fn count_marks(lab: &Scenario, due_at: OffsetDateTime) -> anyhow::Result<usize> {
    let marks = lab_tick::marks(&lab.cluster.pool, due_at).await?;
    lab.say(message!("run-run-once-step-8", marks = marks.len(), replicas = marks.join(", ")));
    Ok(marks.len())
}

fn tick<'a>(
    lab: &'a Scenario,
    label: impl Into<Text>,
    replica: usize,
    due_at: OffsetDateTime,
    once: &str,
) -> anyhow::Result<LessonRequest<'a>> {
    let due_at = due_at.format(&time::format_description::well_known::Rfc3339)?;
    let body = format!("{{\"due_at\":\"{due_at}\",\"once\":\"{once}\"}}");
    let tick = lab.post(label, replica, "/api/lab/ticks", &body, "fenced");
    Ok(tick.by(&lab.cluster.admin))
}

fn run_result(body: &Value) -> &str {
    body.get("outcome").and_then(Value::as_str).unwrap_or("none")
}

/// Returns the current time in whole microseconds, as Postgres stores it.
fn current_tick() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(now.microsecond() * 1_000).unwrap_or(now)
}

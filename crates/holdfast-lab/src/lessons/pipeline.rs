//! Lesson `pipeline`: the same thousand commands, one after the other and in one pipeline; the
//! median of three rounds.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::{LessonResult, Scenario};
use holdfast_base::messages::message;
use holdfast_base::output::{grouped, ms};
use holdfast_base::stats::median;

const COMMANDS: u64 = 1_000;
const ROUNDS: usize = 3;
/// Claimed speed-up; on any machine measurements are far above it.
const MIN_RATIO: f64 = 3.0;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let mut redis = lab.redis().await?;
    let key = lab.unique_key("pipeline");
    let mut singly = Vec::new();
    let mut at_once = Vec::new();
    for round in 1..=ROUNDS {
        lab.say(message!("run-pipeline-step-1", round, commands = grouped(COMMANDS)));
        singly.push(one_by_one(&mut redis, &key).await?);
        at_once.push(in_one_go(&mut redis, &key).await?);
    }

    let there: u64 = redis::cmd("HLEN").arg(&key).query_async(&mut redis).await?;
    redis::cmd("DEL").arg(&key).exec_async(&mut redis).await?;

    let singly = median(&mut singly).unwrap_or_default();
    let at_once = median(&mut at_once).unwrap_or_default();
    let ratio = singly.as_secs_f64() / at_once.as_secs_f64().max(1e-6);

    let faster = ratio > MIN_RATIO;
    lab.evidence(message!("run-pipeline-fact-1"), ms(singly), faster);
    lab.evidence(message!("run-pipeline-fact-2"), ms(at_once), faster);
    let each = format!("{} µs", singly.as_micros() / 1_000);
    lab.evidence(message!("run-pipeline-fact-3"), each, faster);

    let verdict = message!(
        "run-pipeline-verdict",
        commands = grouped(COMMANDS),
        singly = ms(singly),
        at_once = ms(at_once),
        ratio = format!("{ratio:.0}")
    );
    Ok(LessonResult::new(faster && there == COMMANDS, verdict))
}

async fn one_by_one(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    for field in 0..COMMANDS {
        redis::cmd("HSET").arg(key).arg(field).arg(field).exec_async(redis).await?;
    }
    Ok(began.elapsed())
}

async fn in_one_go(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<Duration> {
    let mut all = redis::pipe();
    for field in 0..COMMANDS {
        all.cmd("HSET").arg(key).arg(field).arg(field).ignore();
    }
    let began = Instant::now();
    all.exec_async(redis).await?;
    Ok(began.elapsed())
}

//! Lesson `pipeline`: the same thousand commands, one after the other and in one pipeline; the
//! median of three rounds.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::{Lesson, LessonResult, Scenario};

pub(super) const LESSON: Lesson = Lesson {
    name: "pipeline",
    claim: "A thousand commands in one round trip take a fraction of what they take in a thousand.",
    question: "A thousand small commands to a Redis on the same machine, one after the other, and \
               all in one go. How much faster is the second?",
    guesses: &[
        "not at all: Redis has the same work",
        "some times faster: most of the time went into waiting for answers",
        "a thousand times faster",
    ],
    right: 1,
    load: None,
    shows: &[],
    takeaway: [
        "Redis works for a microsecond on such a command; the rest of what each one takes is its \
         way there and back.",
        "A pipeline saves round trips and nothing else: it is no transaction, and others may come \
         in between.",
        "Over a real network a round trip is ten times longer than here, and so is what is saved.",
    ],
    run: |lab| Box::pin(run(lab)),
};

const COMMANDS: usize = 1_000;
const ROUNDS: usize = 3;
/// Claimed speed-up; on any machine measurements are far above it.
const MIN_RATIO: f64 = 3.0;

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let mut redis = lab.redis().await?;
    let key = lab.unique_key("pipeline");
    let (mut singly, mut at_once) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        lab.say(format!("Round {round}: {COMMANDS} commands, one by one, then all at once."));
        singly.push(one_by_one(&mut redis, &key).await?);
        at_once.push(in_one_go(&mut redis, &key).await?);
    }
    let there: usize = redis::cmd("HLEN").arg(&key).query_async(&mut redis).await?;
    redis::cmd("DEL").arg(&key).exec_async(&mut redis).await?;
    let (singly, at_once) = (median(singly), median(at_once));
    let ratio = singly.as_secs_f64() / at_once.as_secs_f64().max(1e-6);
    let faster = ratio > MIN_RATIO;
    lab.evidence("a round trip each", format!("{:.1} ms", singly.as_secs_f64() * 1e3), faster);
    lab.evidence("one round trip", format!("{:.1} ms", at_once.as_secs_f64() * 1e3), faster);
    lab.evidence("per command, one by one", format!("{} µs", singly.as_micros() / 1_000), faster);
    Ok(LessonResult::new(
        faster && there == COMMANDS,
        format!(
            "{COMMANDS} commands: {:.0} ms in {COMMANDS} round trips, {:.1} ms in one: {ratio:.0} \
             times faster",
            singly.as_secs_f64() * 1e3,
            at_once.as_secs_f64() * 1e3
        ),
    ))
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

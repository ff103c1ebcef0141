//! Lesson `machine-gun`: a paused request is sent many times more while other clients buy the same
//! item. Then the client sends orders one after the other.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use uuid::Uuid;

use super::{LessonResult, Scenario, whole_ms};
use holdfast_base::messages::message;
use holdfast_shop::Sku;

const SHOTS: usize = 40;
/// The first of them, which are drawn.
const SHOWN: [&str; 4] = ["A", "B", "C", "D"];
const OTHERS: usize = 8;
const STRATEGY: &str = "row-lock";

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.item(1_000).await?;
    let others = &lab.cluster.buyers[1..=OTHERS];
    let key = Uuid::now_v7();
    lab.scene("at-once");
    lab.say(message!("run-machine-gun-step-1"));
    let first = lab.order(message!("run-label-the-first"), 0, &sku, STRATEGY).with_key(key);
    let first = first.pause_at("wait").await?;

    lab.say(message!("run-machine-gun-step-2", shots = SHOTS, others = OTHERS));
    let sku = &sku;
    let began = Instant::now();
    let shots = (0..SHOTS).map(|shot| {
        let order = lab.order(message!("run-label-duplicate"), shot, sku, STRATEGY);
        order.with_key(key).send().unrecorded_response()
    });
    let buying = others.iter().enumerate().map(|(at, other)| async move {
        let order = lab.order(message!("run-label-another-client"), at, sku, STRATEGY).by(other);
        anyhow::Ok((order.response().await?.is_success(), began.elapsed()))
    });

    let (shots, buying) = tokio::join!(join_all(shots), join_all(buying));
    let took = began.elapsed();

    let mut turned_away = 0;
    for shot in shots {
        turned_away += usize::from(shot?.problem() == Some("idempotency-key-in-flight"));
    }

    let mut served = 0;
    let mut slowest = Duration::ZERO;
    for one in buying {
        let (done, after) = one?;
        served += usize::from(done);
        slowest = slowest.max(after);
    }

    lab.say(message!("run-machine-gun-step-3", turned_away, took = whole_ms(took)));
    let is_placed = lab.finish(first).await?.is_success();
    let slowest = whole_ms(slowest);
    let is_limited = is_placed && turned_away == SHOTS && served == OTHERS;
    let sentence = message!(
        "run-machine-gun-scene-at-once",
        turned_away,
        shots = SHOTS,
        served,
        others = OTHERS,
        slowest
    );
    lab.conclude(is_limited, sentence);

    lab.say(message!("run-machine-gun-step-4", shots = SHOTS));
    let began = Instant::now();
    let patient = order_in_turn(lab, sku).await?;
    let a_second = patient as f64 / began.elapsed().as_secs_f64();
    lab.say(message!("run-machine-gun-step-5", patient, a_second = format!("{a_second:.0}")));

    let audit = lab.audit(sku).await?;
    let rejected = SHOTS - patient;
    // First what the picture shows, and the question asks.
    lab.evidence(message!("run-machine-gun-fact-2", shots = SHOTS), rejected, rejected == 0);
    lab.evidence(message!("run-machine-gun-fact-1"), slowest, served == OTHERS);

    let sold = i64::try_from(1 + OTHERS + SHOTS)?;
    let verdict = message!("run-machine-gun-verdict", rejected, shots = SHOTS);
    Ok(LessonResult::of_scenes(is_limited && rejected == 0 && audit.sold == sold, verdict))
}

async fn order_in_turn(lab: &Scenario, sku: &Sku) -> anyhow::Result<usize> {
    lab.scene("in-turn");
    let mut placed = 0;
    for (shot, name) in SHOWN.into_iter().enumerate() {
        let response = lab.order(name, shot, sku, STRATEGY).response().await?;
        placed += usize::from(response.is_success());
    }

    for shot in SHOWN.len()..SHOTS {
        let order = lab.order(message!("run-label-in-turn"), shot, sku, STRATEGY).send();
        placed += usize::from(order.unrecorded_response().await?.is_success());
    }
    Ok(placed)
}

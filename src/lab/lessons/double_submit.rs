//! Lesson `double-submit`: an order is sent again with the same idempotency key: during its
//! execution, after its response was lost, with another payload, and after its replica was killed
//! between commit and response.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Lesson, Shown};
use crate::lab::headers::{LabHeaders, PAUSE};
use crate::lab::stage::{Answer, Asking, Stage};
use crate::shop::Sku;

pub(super) const LESSON: Lesson = Lesson {
    number: 16,
    name: "double-submit",
    claim: "A double click, a lost answer, a changed payload, a crash between commit and answer: \
            one order, one answer.",
    question: "The replica commits an order and is killed before it answers. The client asks again \
               with the same key. What does it get?",
    guesses: &[
        "a second order",
        "an error: the key was used",
        "the answer that the first one never got",
    ],
    right: 2,
    crowd: None,
    shows: &["row-lock"],
    takeaway: [
        "The client makes the key, once per thing it wants, and sends it again as often as it \
         likes.",
        "The change, the key and the response are written by one statement, so there is no moment \
         at which a crash leaves half of it.",
        "The lock on the key only answers sooner; the unique row in Postgres is what makes it one.",
    ],
    play: |stage| Box::pin(play(stage)),
};

/// No lock in Redis on the item: the effect shown is that of the idempotency key.
const STRATEGY: &str = "row-lock";

struct Client<'a> {
    stage: &'a Stage,
    sku: Sku,
}

impl Client<'_> {
    fn asks(
        &self,
        label: &str,
        replica: usize,
        key: Uuid,
        quantity: u32,
        wish: &LabHeaders,
    ) -> Asking {
        let (stage, sku) = (self.stage, &self.sku);
        let body = format!("{{\"lines\":[{{\"sku\":\"{sku}\",\"quantity\":{quantity}}}]}}");
        let token = &stage.house.buyers[0];
        stage.post_keyed(token, label, replica, "/api/orders", &body, key, wish)
    }

    async fn again(&self, label: &str, key: Uuid, quantity: u32) -> anyhow::Result<Answer> {
        let asking = self.asks(label, 1, key, quantity, &LabHeaders::under(STRATEGY));
        self.stage.answer(asking).await
    }

    /// Repeats the request until the command of that idempotency key is no longer in flight.
    async fn until_told(&self, label: &str, key: Uuid) -> anyhow::Result<Answer> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let answer = self.again(label, key, 1).await?;
            if answer.problem() != Some("idempotency-key-in-flight") {
                return Ok(answer);
            }
            ensure!(Instant::now() < end, "it does not come to an end");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn play(stage: &Stage) -> anyhow::Result<Shown> {
    stage.needs_two()?;
    let client = Client { stage, sku: stage.item(10).await? };
    let clicked = double_click(&client).await?;
    let (lost, key) = lost_answer(&client).await?;

    stage.say("The same key, and this time it asks for two units.").await;
    let changed = client.again("two units, same key", key, 2).await?;
    let refused = changed.problem() == Some("idempotency-key-mismatch");
    stage.say(format!("{}: a key stands for one request.", words(&changed))).await;

    let crashed = crash(&client).await?;
    let audit = stage.audit(&client.sku).await?;
    let asked = stage.outcome.lock().lanes.len();
    stage.fact("requests sent", asked);
    stage.fact("units sold", audit.sold);
    Ok(Shown::that(
        clicked && lost && refused && crashed && audit.ok && audit.sold == 3 && audit.stock == 7,
        format!(
            "{asked} requests for 3 orders, one of them killed and one unheard: {} sold, {} on the \
             shelf of 10",
            audit.sold, audit.stock
        ),
    ))
}

/// The second click arrives during the execution of the first, the third after it.
async fn double_click(client: &Client<'_>) -> anyhow::Result<bool> {
    let (stage, key) = (client.stage, Uuid::now_v7());
    let held = LabHeaders::under(STRATEGY).with(PAUSE, "read");
    let first = client.asks("click", 0, key, 1, &held);
    stage.until_held(&first).await?;
    let second = client.again("second click", key, 1).await?;
    stage.say(format!("A double click, the second at another replica: {}.", words(&second))).await;
    let first = stage.finish(first).await?;
    let third = client.again("third click", key, 1).await?;
    stage.say("The third click, when the first is done, gets the first one's answer.").await;
    let told = second.problem() == Some("idempotency-key-in-flight");
    Ok(told && first.is_done() && third.is_done() && first.order() == third.order())
}

/// The client disconnects before the response, and sends the request again.
async fn lost_answer(client: &Client<'_>) -> anyhow::Result<(bool, Uuid)> {
    let (stage, key) = (client.stage, Uuid::now_v7());
    let held = LabHeaders::under(STRATEGY).with(PAUSE, "committed");
    let first = client.asks("unheard", 0, key, 1, &held);
    stage.until_held(&first).await?;
    let at = (first.id, first.replica);
    stage.hang_up(first);
    stage.say("An order is committed, and the client's connection breaks before the answer.").await;
    stage.let_go_at(at.1, at.0).await?;
    let again = client.until_told("asks again", key).await?;
    stage.say(format!("It asks again with the same key: {}.", words(&again))).await;
    Ok((again.is_done() && again.before() == Some(9), key))
}

/// The replica is killed between commit and response.
async fn crash(client: &Client<'_>) -> anyhow::Result<bool> {
    let (stage, key) = (client.stage, Uuid::now_v7());
    let held = LabHeaders::under(STRATEGY).with(PAUSE, "committed");
    let first = client.asks("killed", 0, key, 1, &held);
    stage.until_held(&first).await?;
    stage.kill(first).await?;
    stage.say("An order is committed, and its replica is killed before it answers.").await;
    let again = client.until_told("asks the other replica", key).await?;
    let before = again.before().context("it has the stored answer")?;
    stage.say(format!("The other replica gives the answer that was stored: {before} → 7.")).await;
    stage.restore().await?;
    let once_more = client.again("and once more", key, 1).await?;
    Ok(again.is_done() && before == 8 && again.order() == once_more.order())
}

fn words(answer: &Answer) -> String {
    match (answer.problem(), answer.order()) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(_)) => "the order".to_owned(),
        (None, None) => "no answer".to_owned(),
    }
}

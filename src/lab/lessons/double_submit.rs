//! Lesson `double-submit`: an order is sent again with the same idempotency key: during its
//! execution, after its response was lost, with another payload, and after its replica was killed
//! between commit and response.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Chapter, LabResponse, Lesson, LessonRequest, LessonResult, Scenario, order_of, poll};
use crate::shop::Sku;

pub(super) const LESSON: Lesson = Lesson {
    name: "double-submit",
    chapter: Chapter::Beyond,
    right: 2,
    load: None,
    shows: &["row-lock"],
    run: |lab| Box::pin(run(lab)),
};

/// No lock in Redis on the item: the effect shown is that of the idempotency key.
const STRATEGY: &str = "row-lock";
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

struct RetryingClient<'a> {
    lab: &'a Scenario,
    sku: Sku,
}

impl RetryingClient<'_> {
    fn order(&self, label: &str, replica: usize, key: Uuid, quantity: u32) -> LessonRequest<'_> {
        let body = order_of(&[(&self.sku, quantity)]);
        self.lab.post(label, replica, "/api/orders", &body, STRATEGY).with_key(key)
    }

    async fn resend(&self, label: &str, key: Uuid, quantity: u32) -> anyhow::Result<LabResponse> {
        self.order(label, 1, key, quantity).response().await
    }

    /// Repeats the request until the command of that idempotency key is no longer in flight.
    async fn resend_until_done(&self, label: &str, key: Uuid) -> anyhow::Result<LabResponse> {
        poll("the request is done", async || {
            let response = self.resend(label, key, 1).await?;
            if response.problem() != Some("idempotency-key-in-flight") {
                return Ok(Some(response));
            }
            sleep(RETRY_INTERVAL).await;
            Ok(None)
        })
        .await
    }
}

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let client = RetryingClient { lab, sku: lab.item(10).await? };
    let double_clicked = double_click(&client).await?;
    let (lost, key) = lost_response(&client).await?;

    lab.say("The same key, but for two units.");
    let changed = client.resend("two units, same key", key, 2).await?;
    let refused = changed.problem() == Some("idempotency-key-mismatch");
    lab.say(format!("{}: a key identifies one request.", describe(&changed)));

    let crashed = crash(&client).await?;
    let audit = lab.audit(&client.sku).await?;
    let requests = lab.outcome.lock().lanes.len();
    lab.evidence("requests sent", requests, requests > 3);
    lab.evidence("units sold", audit.sold, audit.sold == 3);
    let sound = audit.ok && (audit.sold, audit.stock) == (3, 7);
    Ok(LessonResult::new(
        double_clicked && lost && refused && crashed && sound,
        format!(
            "{requests} requests for 3 orders, one of them killed and one response lost: {} sold, \
             stock {} of 10",
            audit.sold, audit.stock
        ),
    ))
}

/// The second click arrives during the execution of the first, the third after it.
async fn double_click(client: &RetryingClient<'_>) -> anyhow::Result<bool> {
    let (lab, key) = (client.lab, Uuid::now_v7());
    let first = client.order("click", 0, key, 1).pause_at("read").await?;
    let second = client.resend("second click", key, 1).await?;
    lab.say(format!("A double click, the second at another replica: {}.", describe(&second)));
    let first = lab.finish(first).await?;
    let third = client.resend("third click", key, 1).await?;
    lab.say("The third click, after the first is done, gets the first one's response.");
    let in_flight = second.problem() == Some("idempotency-key-in-flight");
    Ok(in_flight && first.is_success() && third.is_success() && first.order() == third.order())
}

/// The client disconnects before the response, and sends the request again.
async fn lost_response(client: &RetryingClient<'_>) -> anyhow::Result<(bool, Uuid)> {
    let (lab, key) = (client.lab, Uuid::now_v7());
    let first = client.order("response lost", 0, key, 1).pause_at("committed").await?;
    let (id, replica) = (first.id, first.replica);
    lab.disconnect(first);
    lab.say("An order is committed, and the client's connection breaks before the response.");
    lab.resume_by_id(replica, id).await?;
    let repeated = client.resend_until_done("retry", key).await?;
    lab.say(format!("The client retries with the same key: {}.", describe(&repeated)));
    Ok((repeated.is_success() && repeated.stock_before() == Some(9), key))
}

/// The replica is killed between commit and response.
async fn crash(client: &RetryingClient<'_>) -> anyhow::Result<bool> {
    let (lab, key) = (client.lab, Uuid::now_v7());
    let first = client.order("killed", 0, key, 1).pause_at("committed").await?;
    lab.kill_replica(first).await?;
    lab.say("An order is committed, and its replica is killed before it responds.");
    let repeated = client.resend_until_done("retry, other replica", key).await?;
    let before = repeated.stock_before().context("it has the stored response")?;
    lab.say(format!("The other replica returns the stored response: {before} → 7."));
    lab.restore().await?;
    let once_more = client.resend("second retry", key, 1).await?;
    Ok(repeated.is_success() && before == 8 && repeated.order() == once_more.order())
}

fn describe(response: &LabResponse) -> String {
    match (response.problem(), response.order()) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(_)) => "the order".to_owned(),
        (None, None) => "no response".to_owned(),
    }
}

//! Lesson `double-submit`: an order is sent again with the same idempotency key: during its
//! execution, after its response was lost, with another payload, and after a kill of its replica.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;
use uuid::Uuid;

use super::{LabResponse, LessonRequest, LessonResult, Scenario, order_of, poll};
use holdfast_base::messages::{Message, Text, message};
use holdfast_shop::Sku;

/// No lock in Redis on the item: the effect shown is that of the idempotency key.
const STRATEGY: &str = "row-lock";
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

struct RetryingClient<'a> {
    lab: &'a Scenario,
    sku: Sku,
}

impl RetryingClient<'_> {
    fn order(&self, label: impl Into<Text>, replica: usize, key: Uuid) -> LessonRequest<'_> {
        self.lab.order(label, replica, &self.sku, STRATEGY).with_key(key)
    }

    async fn resend(&self, label: impl Into<Text>, key: Uuid) -> anyhow::Result<LabResponse> {
        self.order(label, 1, key).response().await
    }

    /// Repeats the request until the command of that idempotency key is no longer in flight.
    async fn resend_until_done(&self, label: Message, key: Uuid) -> anyhow::Result<LabResponse> {
        poll("the request is done", async || {
            let response = self.resend(label.clone(), key).await?;
            if response.problem() != Some("idempotency-key-in-flight") {
                return Ok(Some(response));
            }
            sleep(RETRY_INTERVAL).await;
            Ok(None)
        })
        .await
    }
}

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let client = RetryingClient { lab, sku: lab.item(10).await? };
    let double_clicked = double_click(&client).await?;
    let (lost, key) = lost_response(&client).await?;

    lab.scene("changed");
    lab.say(message!("run-double-submit-step-1"));
    let two = order_of(&[(&client.sku, 2)]);
    let label = message!("run-label-two-units-same-key");
    let changed = lab.post(label, 1, "/api/orders", &two, STRATEGY).with_key(key);
    let changed = changed.response().await?;
    let refused = changed.problem() == Some("idempotency-key-mismatch");
    lab.say(message!("run-double-submit-step-2", changed = describe(&changed)));

    let crashed = crash(&client).await?;
    let audit = lab.audit(&client.sku).await?;
    let requests = lab.outcome.lock().lanes.len();
    lab.evidence(message!("run-double-submit-fact-1"), requests, requests > 3);
    lab.evidence(message!("run-double-submit-fact-2"), audit.sold, audit.sold == 3);
    let sound = audit.ok && (audit.sold, audit.stock) == (3, 7);

    Ok(LessonResult::new(
        double_clicked && lost && refused && crashed && sound,
        message!("run-double-submit-verdict", requests, sold = audit.sold, stock = audit.stock),
    ))
}

/// The second click arrives during the execution of the first, the third after it.
async fn double_click(client: &RetryingClient<'_>) -> anyhow::Result<bool> {
    client.lab.scene("double-click");
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-click"), 0, key).pause_at("read").await?;
    let second = client.resend(message!("run-label-second-click"), key).await?;
    client.lab.say(message!("run-double-submit-step-3", second = describe(&second)));

    let first = client.lab.finish(first).await?;
    let third = client.resend(message!("run-label-third-click"), key).await?;
    client.lab.say(message!("run-double-submit-step-4"));

    let in_flight = second.problem() == Some("idempotency-key-in-flight");
    Ok(in_flight && first.is_success() && third.is_success() && first.order() == third.order())
}

async fn lost_response(client: &RetryingClient<'_>) -> anyhow::Result<(bool, Uuid)> {
    client.lab.scene("lost-response");
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-response-lost"), 0, key);
    client.lab.disconnect(first.pause_at("committed").await?).await?;
    client.lab.say(message!("run-double-submit-step-5"));

    let repeated = client.resend_until_done(message!("run-label-retry"), key).await?;
    client.lab.say(message!("run-double-submit-step-6", repeated = describe(&repeated)));
    Ok((repeated.is_success() && repeated.stock_before() == Some(9), key))
}

async fn crash(client: &RetryingClient<'_>) -> anyhow::Result<bool> {
    client.lab.scene("killed");
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-a-killed"), 0, key).pause_at("committed").await?;
    client.lab.kill_replica(first).await?;
    client.lab.say(message!("run-double-submit-step-7"));

    let repeated = client.resend_until_done(message!("run-label-retry-other-replica"), key).await?;
    let before = repeated.stock_before().context("it has the stored response")?;
    client.lab.say(message!("run-double-submit-step-8", before));

    client.lab.restore().await?;
    let once_more = client.resend(message!("run-label-second-retry"), key).await?;
    Ok(repeated.is_success() && before == 8 && repeated.order() == once_more.order())
}

fn describe(response: &LabResponse) -> Text {
    match (response.problem(), response.order()) {
        (Some(problem), _) => problem.into(),
        (None, Some(_)) => message!("run-the-order").into(),
        (None, None) => message!("run-no-response").into(),
    }
}

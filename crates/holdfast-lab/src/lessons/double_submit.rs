//! Lesson `double-submit`: an order is sent again with the same idempotency key: after a kill of
//! its replica, during its execution, after its response was lost, and with another payload. So is
//! its payment.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;
use uuid::Uuid;

use super::{LabResponse, LessonRequest, LessonResult, Payer, Scenario, order_of, poll};
use holdfast_base::messages::{Message, Text, message};
use holdfast_shop::Sku;

/// No lock in Redis on the item: the effect shown is that of the idempotency key.
const STRATEGY: &str = "row-lock";
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Enough for every order of the run.
const MONEY: i64 = 100_000;

struct RetryingClient<'a> {
    lab: &'a Scenario,
    sku: Sku,
    payer: Payer,
}

impl RetryingClient<'_> {
    fn order(&self, label: impl Into<Text>, replica: usize, key: Uuid) -> LessonRequest<'_> {
        self.lab.order(label, replica, &self.sku, STRATEGY).by(&self.payer.token).with_key(key)
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
    let payer = Payer::create(lab, MONEY).await?;
    let mut client = RetryingClient { lab, sku: lab.item(10).await?, payer };
    let double_clicked = double_click(&client).await?;
    let (lost, key) = lost_response(&client).await?;
    let refused = changed_payload(&client, key).await?;
    let before = lab.audit(&client.sku).await?;

    // The order of the question, on a shelf of its own.
    client.sku = lab.scene_of_item("killed", 10).await?;
    let (crashed, order) = crash(&client).await?;
    let requests = lab.lanes_of("killed");
    let audit = lab.audit(&client.sku).await?;
    let paid_once = double_payment(&client, order).await?;

    let is_one = audit.ok && (audit.sold, audit.stock) == (1, 9);
    lab.evidence(message!("run-double-submit-fact-3", requests), audit.sold, is_one);
    let verdict = message!(
        "run-double-submit-verdict",
        requests,
        sold = audit.sold,
        stock = audit.stock,
        opening = audit.opening
    );
    let is_sound = before.ok && before.sold == 2;
    let others = double_clicked && lost && refused && paid_once && is_sound;
    Ok(LessonResult::of_scenes(crashed && is_one && others, verdict))
}

/// Counts the payments of an order.
const PAYMENTS: &str =
    "select count(*) from balance_ledger where order_id = $1 and reason = 'payment'";

/// The second click arrives during the execution of the first, the third after it.
async fn double_click(client: &RetryingClient<'_>) -> anyhow::Result<bool> {
    client.lab.scene("double-click");
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-click"), 0, key).pause_at("read").await?;
    let second = client.resend(message!("run-label-second-click"), key).await?;
    client.lab.say(message!("run-double-submit-step-3", second = describe(&second)));

    let first = client.lab.finish(first).await?;
    let third = client.resend(message!("run-label-third-click"), key).await?;
    let in_flight = second.problem() == Some("idempotency-key-in-flight");
    let is_one = first.is_success() && third.is_success() && first.order() == third.order();
    let sentence = message!("run-double-submit-scene-double-click", second = describe(&second));
    client.lab.conclude(in_flight && is_one, sentence);
    Ok(in_flight && is_one)
}

async fn lost_response(client: &RetryingClient<'_>) -> anyhow::Result<(bool, Uuid)> {
    client.lab.scene("lost-response");
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-response-lost"), 0, key);
    client.lab.disconnect(first.pause_at("committed").await?).await?;
    client.lab.say(message!("run-double-submit-step-5"));

    let repeated = client.resend_until_done(message!("run-label-retry"), key).await?;
    let is_stored = repeated.is_success() && repeated.stock_before() == Some(9);
    let sentence =
        message!("run-double-submit-scene-lost-response", repeated = describe(&repeated));
    client.lab.conclude(is_stored, sentence);
    Ok((is_stored, key))
}

/// The same key with an order of two units.
async fn changed_payload(client: &RetryingClient<'_>, key: Uuid) -> anyhow::Result<bool> {
    let lab = client.lab;
    lab.scene("changed");
    lab.say(message!("run-double-submit-step-1"));
    let two = order_of(&[(&client.sku, 2)]);
    let label = message!("run-label-two-units-same-key");
    let changed = lab.post(label, 1, "/api/orders", &two, STRATEGY).by(&client.payer.token);
    let changed = changed.with_key(key).response().await?;
    let is_refused = changed.problem() == Some("idempotency-key-mismatch");
    let sentence = message!("run-double-submit-scene-changed", changed = describe(&changed));
    lab.conclude(is_refused, sentence);
    Ok(is_refused)
}

/// Returns whether the retries got the response of the killed request, and its order.
async fn crash(client: &RetryingClient<'_>) -> anyhow::Result<(bool, Uuid)> {
    let key = Uuid::now_v7();
    let first = client.order(message!("run-label-a-killed"), 0, key).pause_at("committed").await?;
    client.lab.kill_replica(first).await?;
    client.lab.say(message!("run-double-submit-step-7"));

    let repeated = client.resend_until_done(message!("run-label-retry-other-replica"), key).await?;
    let before = repeated.stock_before().context("it has the stored response")?;
    let after = repeated.require_stock_after()?;
    client.lab.say(message!("run-double-submit-step-8", before, after));

    client.lab.restore().await?;
    let once_more = client.resend(message!("run-label-second-retry"), key).await?;
    let order = repeated.order().context("it has the stored response")?;
    let is_one = repeated.is_success() && once_more.order() == Some(order);
    Ok((is_one && before == 10, order))
}

/// The payment of the order is sent a second time during the first, and a third time after it.
async fn double_payment(client: &RetryingClient<'_>, order: Uuid) -> anyhow::Result<bool> {
    client.lab.scene("payment");
    let key = Uuid::now_v7();
    let pay = |label, replica| {
        client.payer.pay(client.lab, label, replica, order, STRATEGY).with_key(key)
    };
    let first = pay(message!("run-label-click"), 0).pause_at("read").await?;
    let second = pay(message!("run-label-second-click"), 1).response().await?;
    client.lab.say(message!("run-double-submit-step-9", second = describe(&second)));

    let first = client.lab.finish(first).await?;
    let third = pay(message!("run-label-third-click"), 1).response().await?;
    let payments: i64 = client.lab.select(PAYMENTS, order).await?;
    let in_flight = second.problem() == Some("idempotency-key-in-flight");
    let is_one = in_flight && first.is_success() && third.is_success() && payments == 1;
    let requests = client.lab.lanes_of("payment");
    let sentence = message!("run-double-submit-scene-payment", requests, payments);
    client.lab.conclude(is_one, sentence);
    Ok(is_one)
}

fn describe(response: &LabResponse) -> Text {
    match (response.problem(), response.order()) {
        (Some(problem), _) => problem.into(),
        (None, Some(_)) => message!("run-the-order").into(),
        (None, None) => message!("run-no-response").into(),
    }
}

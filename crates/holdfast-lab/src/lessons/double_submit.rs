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
    let client = RetryingClient { lab, sku: lab.item(10).await?, payer };
    let double_clicked = double_click(&client).await?;
    let (lost, key) = lost_response(&client).await?;
    let refused = changed_payload(&client, key).await?;

    let (crashed, order) = crash(&client).await?;
    let paid_once = double_payment(&client, order).await?;

    // In the scenes of the one order that is killed and paid.
    let sent = ["killed", "payment"]
        .map(|scene| lab.outcome.lock().lanes.iter().filter(|lane| lane.scene == scene).count());
    let payments: i64 = lab.select(PAYMENTS, order).await?;
    let name = message!("run-double-submit-fact-3", payments, requests = sent[0] + sent[1]);
    lab.evidence(name, 1, payments == 1);
    let audit = lab.audit(&client.sku).await?;
    lab.evidence(message!("run-double-submit-fact-2"), audit.sold, audit.sold == 3);
    let sound = audit.ok && (audit.sold, audit.stock) == (3, 7);

    let verdict = message!(
        "run-double-submit-verdict",
        payments,
        requests = lab.outcome.lock().lanes.len(),
        sold = audit.sold,
        stock = audit.stock,
        opening = audit.opening
    );
    let shown = double_clicked && lost && refused && crashed && paid_once && sound;
    Ok(LessonResult::new(shown && payments == 1, verdict))
}

/// How often an order's price was taken.
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

/// The same key with an order of two units.
async fn changed_payload(client: &RetryingClient<'_>, key: Uuid) -> anyhow::Result<bool> {
    let lab = client.lab;
    lab.scene("changed");
    lab.say(message!("run-double-submit-step-1"));
    let two = order_of(&[(&client.sku, 2)]);
    let label = message!("run-label-two-units-same-key");
    let changed = lab.post(label, 1, "/api/orders", &two, STRATEGY).by(&client.payer.token);
    let changed = changed.with_key(key).response().await?;
    lab.say(message!("run-double-submit-step-2", changed = describe(&changed)));
    Ok(changed.problem() == Some("idempotency-key-mismatch"))
}

/// Returns whether the retries got the response of the killed request, and its order.
async fn crash(client: &RetryingClient<'_>) -> anyhow::Result<(bool, Uuid)> {
    client.lab.scene("killed");
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
    Ok((is_one && before == 8, order))
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
    client.lab.say(message!("run-double-submit-step-10"));

    let in_flight = second.problem() == Some("idempotency-key-in-flight");
    Ok(in_flight && first.is_success() && third.is_success())
}

fn describe(response: &LabResponse) -> Text {
    match (response.problem(), response.order()) {
        (Some(problem), _) => problem.into(),
        (None, Some(_)) => message!("run-the-order").into(),
        (None, None) => message!("run-no-response").into(),
    }
}

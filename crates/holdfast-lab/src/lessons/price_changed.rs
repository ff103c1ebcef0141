//! Lesson `price-changed`: the keeper raises the price after A's page has shown it, and before A's
//! order has its lock: first the order does not say what the page has shown, then it does. At last
//! A accepts the new price.

use anyhow::Context as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LabResponse, LessonRequest, LessonResult, Scenario, sales};
use holdfast_base::messages::{Text, message};
use holdfast_shop::{Cents, Sku};
use holdfast_story::EventKind;

const STRATEGY: &str = "fenced";
const NEW_PRICE: i64 = 200;

/// An order whose price was raised before it had its lock.
struct Overtaken {
    /// The price on the page from which it was sent.
    shown: i64,
    /// The price that was paid, or would have been.
    total: i64,
    response: LabResponse,
}

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let sku = lab.scene_of_item("unchecked", 10).await?;
    lab.say(message!("run-price-changed-step-1"));
    let placed = overtake(lab, &sku, Uuid::now_v7(), false).await?;
    let audit = lab.audit(&sku).await?;
    let [shown, cost] = [placed.shown, placed.total].map(Cents);
    let is_unseen = placed.response.is_success() && shown < cost && placed.total == NEW_PRICE;
    let is_sound = audit.ok && (audit.sold, audit.stock) == (1, 9);
    lab.evidence(message!("run-price-changed-fact-1", shown), cost, is_unseen);
    lab.evidence(message!("run-price-changed-fact-2"), sales(&audit), is_sound);

    let sku = lab.scene_of_item("checked", 10).await?;
    lab.say(message!("run-price-changed-step-4"));
    let key = Uuid::now_v7();
    let refused = overtake(lab, &sku, key, true).await?;
    let why = refused.response.rejection();
    let unsold = lab.audit(&sku).await?;
    let is_refused = why == "price-changed" && refused.total == NEW_PRICE;
    lab.evidence(message!("run-price-changed-fact-3"), why, is_refused);

    let total = Cents(refused.total);
    lab.say(message!("run-price-changed-step-5", total));
    let again = order(lab, message!("run-label-a-accepts"), &sku, Some(refused.total));
    let accepted = again.with_key(key).response().await?;
    let after = lab.audit(&sku).await?;
    let is_accepted = accepted.is_success() && total_of(&accepted)? == refused.total;
    let is_once = unsold.ok && unsold.sold == 0 && after.ok && after.sold == 1;
    let is_checked = is_refused && is_accepted && is_once;
    let sentence =
        message!("run-price-changed-scene-checked", shown = Cents(refused.shown), total, why);
    lab.conclude(is_checked, sentence);

    let verdict = message!("run-price-changed-verdict", shown, cost);
    Ok(LessonResult::of_scenes(is_unseen && is_sound && is_checked, verdict))
}

/// Lets A's page show the price and send an order, which is paused before it asks for its lock, and
/// the keeper raise the price. With `says_total`, the order says what the page has shown.
async fn overtake(
    lab: &Scenario,
    sku: &Sku,
    key: Uuid,
    says_total: bool,
) -> anyhow::Result<Overtaken> {
    let mut page = lab.actor(message!("run-label-a-page"));
    let mut keeper = lab.actor(message!("run-label-keeper"));
    let item = format!("/api/items/{sku}");

    let shown = price_of(&lab.call(0, "GET", &item, "").await?)?;
    page.happens_with(EventKind::Price, Some(shown), None);
    let order = order(lab, "A", sku, says_total.then_some(shown)).with_key(key);
    let order = order.pause_at("wait").await?;
    lab.say(message!("run-price-changed-step-2", shown = Cents(shown)));

    // With the idempotency key of the change.
    let change = format!("{item}?token={}", Uuid::now_v7());
    let set = json!({ "price_cents": NEW_PRICE }).to_string();
    let raised = price_of(&lab.call(0, "PATCH", &change, &set).await?)?;
    keeper.happens_with(EventKind::Price, Some(raised), None);
    lab.say(message!("run-price-changed-step-3", raised = Cents(raised)));

    let response = lab.finish(order).await?;
    let total = total_of(&response)?;
    page.happens_with(EventKind::Price, Some(total), None);
    lab.record_lane(page);
    lab.record_lane(keeper);
    Ok(Overtaken { shown, total, response })
}

/// Prepares an order for one unit, with the total that A agrees to, if it says one.
fn order<'a>(
    lab: &'a Scenario,
    label: impl Into<Text>,
    sku: &Sku,
    agreed: Option<i64>,
) -> LessonRequest<'a> {
    let mut body = json!({ "lines": [{ "sku": sku, "quantity": 1 }] });
    if let Some(total) = agreed {
        body["expected_total_cents"] = total.into();
    }
    lab.order_with(label, 0, &body.to_string(), STRATEGY)
}

fn price_of(item: &[u8]) -> anyhow::Result<i64> {
    let item: Value = serde_json::from_slice(item)?;
    item["price_cents"].as_i64().context("the item has no price")
}

/// Returns what an order costs, or would have cost.
fn total_of(response: &LabResponse) -> anyhow::Result<i64> {
    let total = response.body.get("total_cents").and_then(Value::as_i64);
    total.with_context(|| format!("no total: {:?} {}", response.status, response.body))
}

//! Lesson `unpaid`: the worker that returns the stock is killed before its commit and after it; a
//! payment and the expiry of the same order overlap, with either of them first. Last, orders are in
//! a sorted set of Redis: one is delivered twice, and one is lost by a flush.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{
    DelayQueue, LabResponse, LessonRequest, LessonResult, PAYMENT_WINDOW_MS, Payer, Scenario, poll,
    wait_until,
};
use holdfast_base::messages::{Message, Text, message};
use holdfast_shop::Sku;

const STRATEGY: &str = "batched";
/// Of a request that is paused before its commit: its transaction has then locked the order's row.
const ROW_LOCK: &str = "row-lock";
const SHORT_PERIOD_MS: u64 = 200;
/// Payment period of an order that is paid in time; long enough for the setup before its end.
const LONG_PERIOD_MS: u64 = 900;
const HOUR_MS: u64 = 3_600_000;
const QUEUED_FOR: Duration = Duration::from_secs(1);
const PRICE: i64 = 100;
const MONEY: i64 = 1_000;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let before = kill_worker_at(lab, "commit", message!("run-unpaid-before")).await?;
    let after = kill_worker_at(lab, "committed", message!("run-unpaid-after")).await?;

    let payer = Payer::create(lab, MONEY).await?;
    let is_paid = payment_first(lab, &payer).await?;
    let is_late = expiry_first(lab, &payer).await?;

    let mut queue = DelayQueue::new(lab.redis().await?, lab.unique_key("due"));
    let returned = delivered_twice(lab, &mut queue).await?;
    let is_lost = lost_by_flush(lab, &mut queue).await?;

    // First what the picture shows, and the question asks.
    lab.evidence(message!("run-unpaid-fact-4"), returned, returned == 1);
    lab.evidence(message!("run-unpaid-fact-1"), before, before == 1);
    lab.evidence(message!("run-unpaid-fact-2"), after, after == 1);
    let is_once = (before, after, returned) == (1, 1, 1);
    let verdict = message!("run-unpaid-verdict", returned);
    Ok(LessonResult::of_scenes(is_once && is_paid && is_late && is_lost, verdict))
}

/// Kills A's worker at `point`; B's takes over. Returns how often the unit was returned; 0 if the
/// ledger is inconsistent.
async fn kill_worker_at(lab: &Scenario, point: &str, when: Message) -> anyhow::Result<i64> {
    let sku = lab.scene_of_item(&format!("killed-at-{point}"), 10).await?;
    lab.idle_worker(1, Duration::from_secs(20)).await?;
    lab.pause_worker(0, point, ROW_LOCK).await?;
    let order = order(lab, message!("run-label-the-order"), &sku, SHORT_PERIOD_MS);
    let order = order.placed_order().await?;

    let worker = lab.wait_until_worker_paused(0, point, &sku).await?;
    lab.kill_worker(worker).await;
    lab.say(message!("run-unpaid-step-1", when = &when));

    lab.idle_worker(1, Duration::ZERO).await?;
    wait_until_expired(lab, order).await?;
    worker_passes(lab, &sku).await?;
    let returned = times_returned(lab, order).await?;
    let audit = lab.audit(&sku).await?;
    let is_sound = audit.ok && audit.stock == 10 && audit.sold == 0;
    let sentence = message!("run-unpaid-scene-killed", when, returned, stock = audit.stock);
    lab.conclude(is_sound && returned == 1, sentence);
    lab.restore().await?;
    Ok(if is_sound { returned } else { 0 })
}

/// The payment holds the lock on the order's row when the order is due. Returns whether it succeeds
/// and no unit is returned.
async fn payment_first(lab: &Scenario, payer: &Payer) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("payment-first", 10).await?;
    let order = order(lab, message!("run-label-paid-in-time"), &sku, LONG_PERIOD_MS);
    let order = order.by(&payer.token).placed_order().await?;

    let pay = payer.pay(lab, message!("run-label-the-payment"), 1, order, ROW_LOCK);
    let pay = pay.pause_at("commit").await?;
    lab.say(message!("run-unpaid-step-3"));

    let is_due = "select expires_at < now() from orders where id = $1";
    wait_until("the payment window has ended", async || lab.select(is_due, order).await).await?;
    worker_passes(lab, &sku).await?;

    let paid = lab.finish(pay).await?;
    let status = status(lab, order).await?;
    let audit = lab.audit(&sku).await?;
    let money = balance(&paid) == Some(MONEY - PRICE);
    let returned = times_returned(lab, order).await?;
    let is_paid = money && status == "paid" && returned == 0 && audit.ok && audit.stock == 9;
    lab.conclude(is_paid, message!("run-unpaid-scene-payment-first", status, returned));
    Ok(is_paid)
}

/// The worker holds the lock on the order's row when the payment arrives. Returns whether the
/// payment is rejected and the unit is returned once.
async fn expiry_first(lab: &Scenario, payer: &Payer) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("expiry-first", 10).await?;
    for replica in [0, 1] {
        lab.pause_worker(replica, "commit", ROW_LOCK).await?;
    }
    let order = order(lab, message!("run-label-paid-too-late"), &sku, SHORT_PERIOD_MS);
    let order = order.by(&payer.token).placed_order().await?;

    let worker = tokio::select! {
        worker = lab.wait_until_worker_paused(0, "commit", &sku) => worker?,
        worker = lab.wait_until_worker_paused(1, "commit", &sku) => worker?,
    };

    let pay = payer.pay(lab, message!("run-label-the-payment"), 1, order, ROW_LOCK).send();
    wait_until("the payment waits", async || payment_waits(lab).await).await?;
    lab.say(message!("run-unpaid-step-5"));

    lab.resume_worker(worker).await?;
    for replica in [0, 1] {
        lab.idle_worker(replica, Duration::ZERO).await?;
    }

    let rejected = lab.response(pay).await?;
    let audit = lab.audit(&sku).await?;
    let why = rejected.rejection();
    let balance = "select balance_cents from accounts where user_id = $1";
    let kept: i64 = lab.select(balance, payer.account.0).await?;
    let returned = times_returned(lab, order).await?;
    let is_sound = audit.ok && audit.stock == 10 && kept == MONEY - PRICE;
    let is_late = why == "order-expired" && returned == 1 && is_sound;
    lab.conclude(is_late, message!("run-unpaid-scene-expiry-first", why, returned));
    Ok(is_late)
}

/// Puts an order into the sorted set, whose worker cancels it, and is killed after the commit and
/// before it removes the order. Returns how often the unit was returned, if the order was delivered
/// a second time; otherwise 0.
async fn delivered_twice(lab: &Scenario, queue: &mut DelayQueue) -> anyhow::Result<i64> {
    let sku = lab.scene_of_item("delivered-twice", 10).await?;
    // Without a lock in Redis, like the workers, so that none of them seems to wait for it.
    let order = lab.order(message!("run-label-the-order"), 1, &sku, ROW_LOCK);
    let order = order.with(PAYMENT_WINDOW_MS, HOUR_MS).placed_order().await?;
    queue.add(order, QUEUED_FOR).await?;
    lab.say(message!("run-unpaid-step-7"));
    let is_early = queue.claim().await?.is_some();
    let first = poll("the entry is due", async || queue.claim().await).await?;
    let is_hidden = queue.claim().await?.is_none();

    let by_a = cancel(lab, message!("run-label-worker", name = "A"), 0, order);
    lab.kill_replica(by_a.pause_at("committed").await?).await?;
    lab.say(message!("run-unpaid-step-8"));

    let second = poll("the claim ends", async || queue.claim().await).await?;
    let by_b = cancel(lab, message!("run-label-worker", name = "B"), 1, order).response().await?;
    queue.remove(order).await?;
    let why = by_b.rejection();
    lab.say(message!("run-unpaid-step-9", why));

    let is_delivered_twice = !is_early && is_hidden && (first, second) == (order, order);
    let is_sound = why == "order-state" && lab.audit(&sku).await?.stock == 10;
    lab.restore().await?;
    let returned = times_returned(lab, order).await?;
    Ok(if is_delivered_twice && is_sound { returned } else { 0 })
}

/// Flushes Redis while one order is in the sorted set and another one only in Postgres. Returns
/// whether the set never delivers its order, and the shop's worker expires the other one.
async fn lost_by_flush(lab: &Scenario, queue: &mut DelayQueue) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("flush", 10).await?;
    let queued = order(lab, message!("run-label-in-the-set"), &sku, HOUR_MS).placed_order().await?;
    queue.add(queued, QUEUED_FOR).await?;
    let due_at = Instant::now() + QUEUED_FOR;

    let other = order(lab, message!("run-label-another-order"), &sku, LONG_PERIOD_MS);
    let other = other.placed_order().await?;
    lab.flush().await?;
    lab.say(message!("run-unpaid-step-10"));

    wait_until_expired(lab, other).await?;
    sleep_until(due_at).await;
    let is_lost = queue.claim().await?.is_none();

    let is_known = "select status = 'pending' and expires_at > now() from orders where id = $1";
    let is_known: bool = lab.select(is_known, queued).await?;
    lab.conclude(is_lost && is_known, message!("run-unpaid-scene-flush"));
    cancel(lab, message!("run-label-cancellation"), 1, queued).response().await?;
    Ok(is_lost && is_known)
}

/// Prepares what a worker does with an order that is due.
fn cancel(
    lab: &Scenario,
    label: impl Into<Text>,
    replica: usize,
    order: Uuid,
) -> LessonRequest<'_> {
    lab.post(label, replica, &format!("/api/orders/{order}/cancel"), "", ROW_LOCK)
}

/// Waits until a worker has passed all due orders: one that is due after them expires.
async fn worker_passes(lab: &Scenario, sku: &Sku) -> anyhow::Result<()> {
    let after = order(lab, message!("run-label-another-order"), sku, 1).placed_order().await?;
    wait_until_expired(lab, after).await
}

async fn wait_until_expired(lab: &Scenario, order: Uuid) -> anyhow::Result<()> {
    wait_until("the order has expired", async || Ok(status(lab, order).await? == "cancelled")).await
}

fn order<'a>(
    lab: &'a Scenario,
    label: impl Into<Text>,
    sku: &Sku,
    period_ms: u64,
) -> LessonRequest<'a> {
    lab.order(label, 1, sku, STRATEGY).with(PAYMENT_WINDOW_MS, period_ms)
}

fn balance(paid: &LabResponse) -> Option<i64> {
    paid.body.pointer("/balance/after")?.as_i64()
}

async fn status(lab: &Scenario, order: Uuid) -> anyhow::Result<String> {
    lab.select("select status from orders where id = $1", order).await
}

async fn times_returned(lab: &Scenario, order: Uuid) -> anyhow::Result<i64> {
    let returned = "select count(*) from stock_ledger where order_id = $1 and delta > 0";
    lab.select(returned, order).await
}

async fn payment_waits(lab: &Scenario) -> anyhow::Result<bool> {
    let waits = sqlx::query_scalar(
        "select exists (select from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock'
                           and query like '%from orders%no key update%')",
    );
    Ok(waits.fetch_one(&mut *lab.connection().await?).await?)
}

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
    let when = message!("run-unpaid-before");
    let before = kill_worker_at(lab, message!("run-label-unpaid-1"), "commit", when).await?;
    let when = message!("run-unpaid-after");
    let after = kill_worker_at(lab, message!("run-label-unpaid-2"), "committed", when).await?;

    let payer = Payer::create(lab, MONEY).await?;
    let paid = payment_first(lab, &payer).await?;
    let late = expiry_first(lab, &payer).await?;

    let mut queue = DelayQueue::new(lab.redis().await?, lab.unique_key("due"));
    let returned = delivered_twice(lab, &mut queue).await?;
    let is_lost = lost_by_flush(lab, &mut queue).await?;

    lab.evidence(message!("run-unpaid-fact-1"), times(before), before == 1);
    lab.evidence(message!("run-unpaid-fact-2"), times(after), after == 1);
    lab.evidence(message!("run-unpaid-fact-4"), times(returned), returned == 1);
    let lost = if is_lost { message!("run-unpaid-never") } else { message!("run-unpaid-wrong") };
    lab.evidence(message!("run-unpaid-fact-5"), lost.clone(), is_lost);

    let verdict = message!(
        "run-unpaid-verdict",
        before = times(before),
        after = times(after),
        payment = if paid { message!("run-unpaid-paid") } else { message!("run-unpaid-wrong") },
        expiry = if late { message!("run-unpaid-rejected") } else { message!("run-unpaid-wrong") },
        returned = times(returned),
        lost
    );
    let shown = before == 1 && after == 1 && paid && late && returned == 1 && is_lost;
    Ok(LessonResult::new(shown, verdict))
}

fn times(number: i64) -> Message {
    match number {
        1 => message!("run-once"),
        number => message!("run-times", number),
    }
}

/// Kills A's worker at `point`; B's takes over. Returns how often the unit was returned; -1 if the
/// ledger is inconsistent.
async fn kill_worker_at(
    lab: &Scenario,
    label: impl Into<Text>,
    point: &str,
    when: Message,
) -> anyhow::Result<i64> {
    let sku = lab.scene_of_item(&format!("killed-at-{point}"), 10).await?;
    lab.idle_worker(1, Duration::from_secs(20)).await?;
    lab.pause_worker(0, point, ROW_LOCK).await?;
    let order = order(lab, label, &sku, SHORT_PERIOD_MS).placed_order().await?;

    let worker = lab.wait_until_worker_paused(0, point, &sku).await?;
    lab.kill_worker(worker).await;
    lab.say(message!("run-unpaid-step-1", when));

    lab.idle_worker(1, Duration::ZERO).await?;
    wait_until_expired(lab, order).await?;
    worker_passes(lab, &sku).await?;
    let back = times_returned(lab, order).await?;
    let audit = lab.audit(&sku).await?;
    lab.say(message!("run-unpaid-step-2", stock = audit.stock));
    let sound = audit.ok && audit.stock == 10 && audit.sold == 0;
    lab.restore().await?;
    Ok(if sound { back } else { -1 })
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
    lab.say(message!("run-unpaid-step-4", status));
    let money = balance(&paid) == Some(MONEY - PRICE);
    let back = times_returned(lab, order).await?;
    Ok(money && status == "paid" && back == 0 && audit.ok && audit.stock == 9)
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
    lab.say(message!("run-unpaid-step-6", why));
    lab.evidence(message!("run-unpaid-fact-3"), why, why == "order-expired");

    let balance = "select balance_cents from accounts where user_id = $1";
    let kept: i64 = lab.select(balance, payer.account.0).await?;
    let back = times_returned(lab, order).await?;
    let sound = audit.ok && audit.stock == 10 && kept == MONEY - PRICE;
    Ok(why == "order-expired" && back == 1 && sound)
}

/// Puts an order into the sorted set, whose worker cancels it and is gone before it removes it.
/// Returns how often the unit was returned, or -1 if the set or the ledger is not as claimed.
async fn delivered_twice(lab: &Scenario, queue: &mut DelayQueue) -> anyhow::Result<i64> {
    let sku = lab.scene_of_item("delivered-twice", 10).await?;
    let order = order(lab, message!("run-label-in-the-set"), &sku, HOUR_MS).placed_order().await?;
    queue.add(order, QUEUED_FOR).await?;
    lab.say(message!("run-unpaid-step-7"));
    let is_early = queue.claim().await?.is_some();
    let first = poll("the entry is due", async || queue.claim().await).await?;
    let is_hidden = queue.claim().await?.is_none();

    let by_a = cancel(lab, message!("run-label-worker", name = "A"), order).await?;
    lab.say(message!("run-unpaid-step-8"));

    let second = poll("the claim ends", async || queue.claim().await).await?;
    let by_b = cancel(lab, message!("run-label-worker", name = "B"), order).await?;
    queue.remove(order).await?;
    let why = by_b.rejection();
    lab.say(message!("run-unpaid-step-9", why));

    let is_delivered_twice = !is_early && is_hidden && (first, second) == (order, order);
    let done_once = by_a.is_success() && why == "order-state";
    let sound = is_delivered_twice && done_once && lab.audit(&sku).await?.stock == 10;
    Ok(if sound { times_returned(lab, order).await? } else { -1 })
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
    lab.say(message!("run-unpaid-step-11"));
    cancel(lab, message!("run-label-cancellation"), queued).await?;
    Ok(is_lost && is_known)
}

async fn cancel(
    lab: &Scenario,
    label: impl Into<Text>,
    order: Uuid,
) -> anyhow::Result<LabResponse> {
    lab.post(label, 1, &format!("/api/orders/{order}/cancel"), "", STRATEGY).response().await
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

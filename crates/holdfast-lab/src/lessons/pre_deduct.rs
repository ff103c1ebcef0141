//! Lesson `pre-deduct`: a replica is killed between the counter and the order, and Redis is flushed
//! while an order is between the two. Both are measured, and reconciled with the ledger.

use anyhow::ensure;

use super::{LessonResult, Scenario, poll};
use holdfast_base::messages::{Message, message};
use holdfast_shop::Sku;
use holdfast_shop::audit::ItemAudit;
use holdfast_shop::strategy::pre_deduct::reconcile::Reconciliation;

const STRATEGY: &str = "pre-deduct";
const STOCK: i64 = 3;
/// The point between the counter and Postgres.
const BETWEEN: &str = "deducted";

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let (is_undersold, sold) = kill_between(lab).await?;
    lab.restore().await?;
    let is_oversold = flush_between(lab).await?;

    let verdict = message!("run-pre-deduct-verdict", sold = of_stock(sold));
    Ok(LessonResult::of_scenes(is_undersold && is_oversold, verdict))
}

/// Kills the replica of an order whose unit has left the counter. Returns whether no order can get
/// it until the reconciliation brings it back, and how many units were sold before that.
async fn kill_between(lab: &Scenario) -> anyhow::Result<(bool, i64)> {
    let sku = lab.scene_of_item("killed", STOCK).await?;
    lab.say(message!("run-pre-deduct-step-1", stock = STOCK));
    let first = lab.order("A", 0, &sku, STRATEGY).pause_at(BETWEEN).await?;
    lab.kill_replica(first).await?;

    let sold = order_until_sold_out(lab, &sku, ["B", "C", "D"]).await?;
    let audit = settled(lab, &sku).await?;
    lab.say(message!("run-pre-deduct-step-2", sold, undersold = audit.undersold));
    let is_undersold = sold == STOCK - 1 && audit.undersold == 1 && audit.ok;
    lab.evidence(message!("run-pre-deduct-fact-1"), of_stock(sold), is_undersold);

    lab.scene("repaired");
    let undersold = reconcile(lab, &sku).await?.undersold;
    let again = lab.order("E", 1, &sku, STRATEGY).response().await?.is_success();
    let audit = settled(lab, &sku).await?;
    let is_sold = again && audit.ok && audit.sold == STOCK && audit.undersold == 0;
    let is_repaired = is_sold && undersold == 1;
    let sentence =
        message!("run-pre-deduct-scene-repaired", undersold, sold = of_stock(audit.sold));
    lab.conclude(is_repaired, sentence);
    lab.evidence(message!("run-pre-deduct-fact-2"), of_stock(audit.sold), is_repaired);
    Ok((is_undersold && is_repaired, sold))
}

/// Flushes Redis while an order is between counter and Postgres. Returns whether a unit is sold
/// twice, and the reconciliation cancels an order.
async fn flush_between(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("flushed", STOCK).await?;
    let first = lab.order("A", 0, &sku, STRATEGY).pause_at(BETWEEN).await?;
    lab.flush().await?;
    lab.say(message!("run-pre-deduct-step-4", stock = STOCK));

    let sold = order_until_sold_out(lab, &sku, ["B", "C", "D", "E"]).await?;
    let late = lab.finish(first).await?.is_success();
    let audit = settled(lab, &sku).await?;
    let is_oversold = sold == STOCK && late && audit.oversold == 1 && !audit.ok;
    let oversold = of_stock(audit.sold);
    lab.say(message!("run-pre-deduct-step-5", oversold));
    lab.evidence(message!("run-pre-deduct-fact-3"), &oversold, is_oversold);

    let repaired = reconcile(lab, &sku).await?;
    let audit = settled(lab, &sku).await?;
    let cancelled = repaired.cancelled.len();
    let is_repaired = cancelled == 1 && audit.ok && audit.sold == STOCK && audit.oversold == 0;
    lab.evidence(message!("run-pre-deduct-fact-4"), of_stock(audit.sold), is_repaired);

    let is_shown = is_oversold && is_repaired && repaired.oversold == 1;
    lab.conclude(is_shown, message!("run-pre-deduct-scene-flushed", oversold, cancelled));
    Ok(is_shown)
}

/// Says how many units of the stock were sold.
fn of_stock(sold: i64) -> Message {
    message!("run-pre-deduct-sold", sold, stock = STOCK)
}

/// Sends orders one after the other, the last of which must be rejected. Returns how many were
/// placed.
async fn order_until_sold_out<const N: usize>(
    lab: &Scenario,
    sku: &Sku,
    buyers: [&'static str; N],
) -> anyhow::Result<i64> {
    let mut sold = 0;
    for buyer in buyers {
        let response = lab.order(buyer, 1, sku, STRATEGY).response().await?;
        if response.is_success() {
            sold += 1;
        } else {
            ensure!(response.rejection() == "sold-out", "{buyer}: {}", response.body);
            return Ok(sold);
        }
    }
    anyhow::bail!("{sold} orders were placed, and the item is not sold out")
}

/// Returns the audit, with the counter, once the row has what it can have of the orders.
async fn settled(lab: &Scenario, sku: &Sku) -> anyhow::Result<ItemAudit> {
    poll("the orders are settled", async || {
        let path = format!("/api/items/{sku}/audit");
        // Of the replica that is never killed.
        let audit = lab.call(0, "GET", &path, "").await?;
        let audit: ItemAudit = serde_json::from_slice(&audit)?;
        Ok((audit.unsettled == 0 || audit.stock == 0).then_some(audit))
    })
    .await
}

async fn reconcile(lab: &Scenario, sku: &Sku) -> anyhow::Result<Reconciliation> {
    let path = format!("/api/lab/items/{sku}/reconcile");
    let response = lab.call(0, "POST", &path, "").await?;
    Ok(serde_json::from_slice(&response)?)
}

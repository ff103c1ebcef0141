//! Lesson `queue`: a full queue of two places receives offers in four ways; a restock joins a queue
//! of buyers; a replica is killed with a queue in its memory. Then the same load runs on one
//! replica and on all of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::{
    Chapter, DefaultLoad, InFlightRequest, Lesson, LessonRequest, LessonResult, OFFER, PLACES,
    PRIORITY, Scenario, compare_replicas, wait_until,
};
use crate::shop::Sku;

pub(super) const LESSON: Lesson = Lesson {
    name: "queue",
    chapter: Chapter::Beyond,
    right: 1,
    load: Some(LOAD),
    shows: &["queue", "priority.rs"],
    run: |lab| Box::pin(run(lab)),
};

const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 160, work_ms: 5, lease: false };

const CAPACITY: u16 = 2;
/// Capacity of a queue that does not become full.
const AMPLE_CAPACITY: u16 = 100;
/// Wait of the timed offer, `offer-for:250`.
const OFFER_WAIT_MS: u64 = 250;
/// Buyers in the queue when the restock arrives.
const QUEUED_BUYERS: usize = 3;
/// A lease that a replica renews while it lives.
const LEASE_MS: u64 = 300;

async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let (four_ways, summary) = full_queue(lab).await?;
    lab.say(
        "One unit is left, A is buying it, and three buyers wait; then a restock of three arrives.",
    );
    let in_order = rejected_behind_restock(lab, true).await?;
    lab.say(format!(
        "The restock waits its turn: {in_order} of {QUEUED_BUYERS} buyers are rejected."
    ));
    let first = rejected_behind_restock(lab, false).await?;
    lab.say(format!("The restock has priority: {first} of {QUEUED_BUYERS} buyers are rejected."));
    let (unanswered, rendezvous_rejected, kept) = kill_replica_with_queue(lab).await?;
    lab.restore().await?;

    let (hindrance, loads_as_claimed, loads) = compare_replicas(lab, LOAD, "queue").await?;
    let lines = in_order == QUEUED_BUYERS && first == 0;
    let refused = format!("{in_order} in turn, {first} with priority");
    lab.evidence("buyers rejected while a restock waits", refused, lines);
    lab.evidence("queued when the replica was killed, no response", unanswered, unanswered == 2);
    let killed = unanswered == 2 && rendezvous_rejected && kept;
    Ok(LessonResult::of_load(
        hindrance,
        four_ways && lines && killed && loads_as_claimed,
        format!(
            "{summary} · restock in turn: {in_order} of {QUEUED_BUYERS} buyers rejected, with \
             priority: {first} · killed: {unanswered} queued orders without a response, a \
             rendezvous {} · {loads}",
            if rendezvous_rejected { "was refused at once" } else { "was lost" },
        ),
    ))
}

/// Returns an order that is paused during its turn, and the orders queued behind it, in the order
/// of the labels in `behind`.
async fn build_queue(
    lab: &Scenario,
    sku: &Sku,
    places: u16,
    behind: &[&str],
) -> anyhow::Result<(InFlightRequest, Vec<InFlightRequest>)> {
    let order = |label| lab.order(label, 0, sku, "queue").with(PLACES, places);
    let served = order("A, executed").pause_at("read").await?;
    let mut line = Vec::new();
    for label in behind {
        line.push(order(label).send());
        lab.wait_until_queued(&served, sku, (line.len(), 0)).await?;
    }
    Ok((served, line))
}

/// Returns whether each of the four ways ended as claimed, and a description.
async fn full_queue(lab: &Scenario) -> anyhow::Result<(bool, String)> {
    let sku = lab.item(10).await?;
    lab.say(format!(
        "A queue with {CAPACITY} places: A is being executed and is paused, B and C wait."
    ));
    let (served, line) = build_queue(lab, &sku, CAPACITY, &["B, queued", "C, queued"]).await?;

    let offer_as = |label, offer| lab.order(label, 0, &sku, "queue").with(OFFER, offer);
    let (add, add_ms) = timed(offer_as("D, add", "add")).await?;
    let (offer, offer_ms) = timed(offer_as("E, offer", "offer")).await?;
    let (offer_for, offer_for_ms) = timed(offer_as("F, offer for", "offer-for:250")).await?;
    let put = offer_as("G, put", "put").send();
    lab.wait_until_queued(&served, &sku, (line.len(), 1)).await?;
    let summary = format!(
        "full queue: add {add} ({add_ms} ms), offer {offer} ({offer_ms} ms), offer for \
         {OFFER_WAIT_MS} ms {offer_for} ({offer_for_ms} ms), put waits"
    );
    lab.say(format!(
        "The queue is full. D add: error {add}. E offer: refused, {offer}. F offer for \
         {OFFER_WAIT_MS} ms: {offer_for}. G put: waits for a place."
    ));

    let mut all_served = lab.finish(served).await?.is_success();
    for waits in line.into_iter().chain([put]) {
        all_served &= lab.response(waits).await?.is_success();
    }
    lab.say("A resumes. B, C and G are executed one after the other.");
    let audit = lab.audit(&sku).await?;
    let as_claimed = all_served
        && [add, offer, offer_for] == ["overloaded", "lock-busy", "lock-timeout"]
        && offer_for_ms >= OFFER_WAIT_MS
        && (audit.sold, audit.ok) == (4, true);
    Ok((as_claimed, summary))
}

/// Returns the name of the problem and the latency in milliseconds.
async fn timed(order: LessonRequest<'_>) -> anyhow::Result<(String, u64)> {
    let began = Instant::now();
    let response = order.response().await?;
    Ok((response.rejection().to_owned(), u64::try_from(began.elapsed().as_millis())?))
}

/// Adds a restock to a queue of buyers that is longer than the stock: `in_turn`, or with its own
/// priority. Returns how many of the buyers are rejected as sold out.
async fn rejected_behind_restock(lab: &Scenario, in_turn: bool) -> anyhow::Result<usize> {
    let sku = lab.item(1).await?;
    let labels = ["B, queued", "C, queued", "D, queued"];
    let (served, line) = build_queue(lab, &sku, AMPLE_CAPACITY, &labels).await?;
    let restock_body = format!("{{\"delta\":{QUEUED_BUYERS},\"reason\":\"restock\"}}");
    let path = format!("/api/items/{sku}/stock");
    let restock = lab.post("restock", 0, &path, &restock_body, "queue");
    let restock = if in_turn { restock.with(PRIORITY, "normal") } else { restock };
    let restock = restock.by(&lab.cluster.admin).send();
    lab.wait_until_queued(&served, &sku, (line.len() + 1, 0)).await?;
    ensure!(lab.finish(served).await?.is_success(), "the last unit was not sold");
    ensure!(lab.response(restock).await?.is_success(), "the restock failed");
    let mut rejected = 0;
    for waits in line {
        rejected += usize::from(lab.response(waits).await?.problem() == Some("sold-out"));
    }
    Ok(rejected)
}

/// Kills a replica that has a queue and a renewal timer in its memory and has placed an unpaid
/// order. Returns how many queued requests never received a response; whether a rendezvous was
/// rejected as busy, so that its order could be placed at the other replica, once; and whether the
/// lease was renewed until the kill and the unpaid order stayed queued for the same time.
async fn kill_replica_with_queue(lab: &Scenario) -> anyhow::Result<(usize, bool, bool)> {
    let (leased, sku) = (lab.item(10).await?, lab.item(10).await?);
    let unpaid = lab.order("unpaid", 0, &leased, "queue").response().await?;
    let id = unpaid.order().context("the order has no id")?;
    let due_at = "select expires_at from orders where id = $1";
    let due: OffsetDateTime = lab.select(due_at, id).await?;
    let queue = &lab.unpaid_queue()?;
    wait_until("the order is in the delay queue", async || Ok(queue.contains(id).await?)).await?;
    let renewed = lab.order("L, under a lease", 0, &leased, "watchdog").lease_ms(LEASE_MS);
    let renewed = renewed.pause_at("read").await?;
    let holder = lab.holder(&leased).await?;
    // Two leases: without renewal, the lock would have expired.
    sleep(Duration::from_millis(2 * LEASE_MS)).await;
    let was_renewed = holder.is_some() && lab.holder(&leased).await? == holder;
    lab.say(format!(
        "A replica holds in memory a timer that renews a lease of {LEASE_MS} ms, and a queue \
             in which B and C wait behind A."
    ));
    let labels = ["B, queued", "C, queued"];
    let (served, line) = build_queue(lab, &sku, AMPLE_CAPACITY, &labels).await?;
    let busy = lab.order("D, rendezvous", 0, &sku, "queue").trying().response().await?;
    lab.say("D requests a rendezvous: the consumer takes it now, or it fails. It is busy.");

    lab.kill_replica(served).await?;
    let mut unanswered = 0;
    for waits in line {
        unanswered += usize::from(lab.response(waits).await?.status.is_none());
    }
    lab.response(renewed).await?;
    let elsewhere = lab.order("D, other replica", 1, &sku, "queue").trying().response().await?;
    lab.wait_until_free(&leased).await?;
    let due_later: OffsetDateTime = lab.select(due_at, id).await?;
    let order_kept = queue.contains(id).await? && due_later == due;
    let audit = lab.audit(&sku).await?;
    lab.say(
        "The replica is killed. B and C get no response. D was refused before, and is executed \
             by the other replica. The renewal timer is lost, so the lease expires. The unpaid \
             order is still in the delay queue in Redis, and its due time in Postgres.",
    );
    let rendezvous_rejected =
        busy.problem() == Some("lock-busy") && elsewhere.is_success() && audit.sold == 1;
    Ok((unanswered, rendezvous_rejected, was_renewed && order_kept))
}

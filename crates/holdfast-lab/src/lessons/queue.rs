//! Lesson `queue`: a full queue of two places receives offers in four ways; a restock joins a queue
//! of buyers; a replica is killed with a queue in its memory. Then a load runs on one and on all.

use std::time::Duration;

use anyhow::ensure;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    DefaultLoad, InFlightRequest, LessonRequest, LessonResult, OFFER, PLACES, PRIORITY, Scenario,
    compare_replicas,
};
use holdfast_base::messages::message;
use holdfast_shop::Sku;
use holdfast_story::{EventKind, Value};

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 160, work_ms: 5, lease: false };

const CAPACITY: u16 = 2;
/// Capacity of a queue that does not become full.
const AMPLE_CAPACITY: u16 = 100;
/// Wait of the timed offer, `offer-for:250`.
const OFFER_WAIT_MS: u64 = 250;
/// Buyers in the queue when the restock arrives.
const QUEUED_BUYERS: usize = 3;
const LEASE_MS: u64 = 300;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let four_ways = full_queue(lab).await?;

    lab.say(message!("run-queue-step-1"));
    let buyers = QUEUED_BUYERS;
    let in_order = rejected_behind_restock(lab, true).await?;
    let sentence = message!("run-queue-scene-restock-in-turn", rejected = in_order, buyers);
    lab.conclude(in_order == buyers, sentence);

    let first = rejected_behind_restock(lab, false).await?;
    lab.conclude(first == 0, message!("run-queue-scene-restock-first", rejected = first, buyers));

    let (unanswered, is_rest_kept) = kill_replica_with_queue(lab).await?;
    lab.restore().await?;

    // First what the picture shows, and the question asks.
    lab.evidence(message!("run-queue-fact-2"), unanswered, unanswered == 2);
    let lines = in_order == buyers && first == 0;
    let refused = message!("run-queue-refused", in_order, first);
    lab.evidence(message!("run-queue-fact-1"), refused, lines);
    let (hindrance, loads_as_claimed, loads) = compare_replicas(lab, LOAD, "queue").await?;
    lab.say(loads);

    let as_claimed = four_ways && lines && unanswered == 2 && is_rest_kept;
    let verdict = message!("run-queue-verdict", unanswered);
    Ok(LessonResult::of_scenes(as_claimed, verdict).and_load(hindrance, loads_as_claimed))
}

async fn build_queue(
    lab: &Scenario,
    sku: &Sku,
    places: u16,
    behind: &[&str],
) -> anyhow::Result<(InFlightRequest, Vec<InFlightRequest>)> {
    let served = lab.order(message!("run-label-a-executed"), 0, sku, "queue");
    let served = served.with(PLACES, places).pause_at("read").await?;

    let mut line = Vec::new();
    for name in behind {
        let order = lab.order(message!("run-label-queued", name), 0, sku, "queue");
        line.push(order.with(PLACES, places).send());
        lab.wait_until_queued(&served, sku, (line.len(), 0)).await?;
    }
    Ok((served, line))
}

/// Returns whether each of the four ways ended as claimed.
async fn full_queue(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("full", 10).await?;
    lab.say(message!("run-queue-step-4", capacity = CAPACITY));
    let (served, line) = build_queue(lab, &sku, CAPACITY, &["B", "C"]).await?;

    let add_order = lab.order(message!("run-label-d-add"), 0, &sku, "queue");
    let (add, add_ms) = timed(add_order.with(OFFER, "add")).await?;
    let offer_order = lab.order(message!("run-label-e-offer"), 0, &sku, "queue");
    let (offer, offer_ms) = timed(offer_order.with(OFFER, "offer")).await?;
    let timed_order = lab.order(message!("run-label-f-offer-for"), 0, &sku, "queue");
    let (offer_for, offer_for_ms) = timed(timed_order.with(OFFER, "offer-for:250")).await?;
    let put = lab.order(message!("run-label-g-put"), 0, &sku, "queue").with(OFFER, "put").send();
    lab.wait_until_queued(&served, &sku, (line.len(), 1)).await?;

    lab.say(message!("run-queue-step-5", add, offer, offer_wait_ms = OFFER_WAIT_MS, offer_for));

    let mut all_served = lab.finish(served).await?.is_success();
    for waits in line.into_iter().chain([put]) {
        all_served &= lab.response(waits).await?.is_success();
    }
    lab.say(message!("run-queue-step-6"));
    let [add_ms, offer_ms, waited] = [add_ms, offer_ms, offer_for_ms].map(Value::Ms);
    let sentence =
        message!("run-queue-scene-full", add, add_ms, offer, offer_ms, offer_for, waited);
    let audit = lab.audit(&sku).await?;
    let as_claimed = all_served
        && [add, offer, offer_for] == ["overloaded", "lock-busy", "lock-timeout"]
        && offer_for_ms >= OFFER_WAIT_MS
        && (audit.sold, audit.ok) == (4, true);
    lab.conclude(as_claimed, sentence);
    Ok(as_claimed)
}

/// Returns the problem and the latency in ms.
async fn timed(order: LessonRequest<'_>) -> anyhow::Result<(String, u64)> {
    let began = Instant::now();
    let response = order.response().await?;
    Ok((response.rejection().to_owned(), u64::try_from(began.elapsed().as_millis())?))
}

/// Adds a restock to a queue of buyers that is longer than the stock: `in_turn`, or with its own
/// priority. Returns how many of the buyers are rejected as sold out.
async fn rejected_behind_restock(lab: &Scenario, in_turn: bool) -> anyhow::Result<usize> {
    let sku =
        lab.scene_of_item(if in_turn { "restock-in-turn" } else { "restock-first" }, 1).await?;
    let (served, line) = build_queue(lab, &sku, AMPLE_CAPACITY, &["B", "C", "D"]).await?;

    let body = format!("{{\"delta\":{QUEUED_BUYERS},\"reason\":\"restock\"}}");
    let path = format!("/api/items/{sku}/stock");
    let mut restock = lab.post(message!("run-label-restock"), 0, &path, &body, "queue");
    if in_turn {
        restock = restock.with(PRIORITY, "normal");
    }
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
/// order. Returns how many queued requests received no response; and whether a rendezvous was
/// rejected, and its order placed elsewhere once, the lease was renewed, and the order stayed due.
async fn kill_replica_with_queue(lab: &Scenario) -> anyhow::Result<(usize, bool)> {
    let leased = lab.scene_of_item("renewed", 10).await?;
    let unpaid = lab.order(message!("run-label-unpaid"), 0, &leased, "queue");
    let id = unpaid.placed_order().await?;
    let due_at = "select expires_at from orders where id = $1";
    let due: OffsetDateTime = lab.select(due_at, id).await?;

    let renewed = lab.order(message!("run-label-l-under-a-lease"), 0, &leased, "watchdog");
    let mut renewed = renewed.lease_ms(LEASE_MS).pause_at("read").await?;
    let holder = lab.holder(&leased).await?;
    // Without renewal, the lock would have expired.
    let two_leases = Duration::from_millis(2 * LEASE_MS);
    lab.watch_lease(&mut renewed, &leased, Some(two_leases)).await?;
    let was_renewed = holder.is_some() && lab.holder(&leased).await? == holder;
    lab.say(message!("run-queue-step-7", lease_ms = LEASE_MS));

    let sku = lab.scene_of_item("killed", 10).await?;
    let (served, mut line) = build_queue(lab, &sku, AMPLE_CAPACITY, &["B", "C"]).await?;
    for waits in &mut line {
        // Their traces are lost with the replica.
        waits.lane.happens(EventKind::Wait);
    }

    lab.scene("rendezvous");
    let busy = lab.order(message!("run-label-d-rendezvous"), 0, &sku, "queue").trying();
    let busy = busy.response().await?;
    lab.say(message!("run-queue-step-8"));

    lab.kill_replica(served).await?;
    let mut unanswered = 0;
    for mut waits in line {
        waits.lane.happens(EventKind::Killed);
        unanswered += usize::from(lab.response(waits).await?.status.is_none());
    }
    renewed.lane.happens(EventKind::Killed);
    lab.say(message!("run-queue-step-9"));

    let elsewhere = lab.order(message!("run-label-d-other-replica"), 1, &sku, "queue").trying();
    let elsewhere = elsewhere.response().await?;

    let audit = lab.audit(&sku).await?;
    let why = busy.rejection();
    let is_refused = why == "lock-busy" && elsewhere.is_success() && audit.sold == 1;
    lab.conclude(is_refused, message!("run-queue-scene-rendezvous", why));

    lab.scene("renewed");
    lab.watch_lease(&mut renewed, &leased, None).await?;
    lab.response(renewed).await?;
    let is_kept = was_renewed && due == lab.select::<OffsetDateTime>(due_at, id).await?;
    lab.conclude(is_kept, message!("run-queue-scene-renewed", lease_ms = LEASE_MS));
    Ok((unanswered, is_refused && is_kept))
}

//! Lesson `queue`: a full queue of two places receives offers in four ways; a restock joins a queue
//! of buyers; a replica is killed with a queue in its memory. Then the same load runs on one
//! replica and on all of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{Instant, sleep};

use crate::lab::default_load::{DefaultLoad, no_overlap};
use crate::lab::headers::{LabHeaders, OFFER, PAUSE, PLACES, PRIORITY, TTL_MS, WAIT, under};
use crate::lab::lesson::{Lesson, LessonResult, compare_replicas};
use crate::lab::observe::wait_until;
use crate::lab::scenario::{InFlightRequest, LabResponse, Scenario};
use crate::shop::Sku;

pub(super) const LESSON: Lesson = Lesson {
    number: 19,
    name: "queue",
    claim: "A bounded queue with one consumer per item is exact on one replica and oversells on \
            two. When it is full, an offer can fail, be refused, wait, or wait for so long; and \
            what stands in it dies with its process.",
    question: "Two orders wait in a replica's queue for their turn, and the replica is killed. What \
               becomes of them?",
    guesses: &[
        "the other replica takes them over",
        "they are served when it is started again",
        "nobody answers them, and nothing says that they were there",
    ],
    right: 2,
    load: Some(LOAD),
    shows: &["queue", "priority.rs"],
    takeaway: [
        "One consumer needs no lock, because nobody else works; a second replica is a second \
         consumer.",
        "A bound shows overload while something can still be done about it: fail, refuse, wait, or \
         wait for so long; and what ends the shortage goes first.",
        "Memory is the place for what may die with its process: a turn in line, the timer of a \
         renewal, but not an order, nor the time when it is due; a rendezvous stores nothing, so \
         whoever offers knows whether it was taken.",
    ],
    play: |lab| Box::pin(play(lab)),
};

const LOAD: DefaultLoad =
    DefaultLoad { stock: 100, buyers: 16, orders: 160, work_ms: 5, lease: false };

const CAPACITY: u16 = 2;
/// Wait of the timed offer, `offer-for:250`.
const OFFER_WAIT_MS: u64 = 250;
/// Buyers in the queue when the restock arrives.
const QUEUED_BUYERS: usize = 3;
/// A lease that a replica renews while it lives.
const LEASE_MS: u64 = 300;

async fn play(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let (four_ways, summary) = full_queue(lab).await?;
    lab.say("One unit is left, A is about to have it, and three wait; then three come in.").await;
    let in_order = rejected_behind_restock(lab, Some("normal")).await?;
    lab.say(format!("A restock that waits its turn: {in_order} of {QUEUED_BUYERS} are refused."))
        .await;
    let first = rejected_behind_restock(lab, None).await?;
    lab.say(format!("A restock that goes first: {first} of {QUEUED_BUYERS} are refused.")).await;
    let killed = kill_replica_with_queue(lab).await?;
    lab.restore().await?;

    lab.say("The same crowd twice: at one replica, then at all of them.").await;
    let mut specs = LOAD.under(lab, &["queue", "queue"]);
    specs[0].replicas = 1;
    let arms = lab.run_arms(&specs).await?;
    let (one, two) = (&arms[0], &arms[1]);
    let loads_as_claimed = one.ok && one.oversold == 0 && !two.ok && two.forks > 0;
    let lines = in_order == QUEUED_BUYERS && first == 0;
    Ok(LessonResult::of_load(
        no_overlap(&specs[1]),
        four_ways && lines && killed.as_claimed() && loads_as_claimed,
        format!(
            "{summary} · restock at the end of the line: {in_order} of {QUEUED_BUYERS} refused, \
             before it: {first} · killed: {} in line never answered, a rendezvous {} · {}",
            killed.unanswered,
            if killed.rendezvous_rejected { "knew" } else { "did not know" },
            compare_replicas(one, two, specs[1].replicas),
        ),
    ))
}

/// Returns an order that is held during its turn, and the orders queued behind it, in the order of
/// the labels in `behind`.
async fn build_queue(
    lab: &Scenario,
    sku: &Sku,
    headers: &LabHeaders,
    behind: &[&str],
) -> anyhow::Result<(InFlightRequest, Vec<InFlightRequest>)> {
    let served =
        lab.order_until_held("A, served", 0, sku, &headers.clone().with(PAUSE, "read")).await?;
    let mut line = Vec::new();
    for label in behind {
        line.push(lab.order(label, 0, sku, headers));
        lab.wait_until_queued(&served, sku, (line.len(), 0)).await?;
    }
    Ok((served, line))
}

/// Returns whether each of the four ways ended as claimed, and a description.
async fn full_queue(lab: &Scenario) -> anyhow::Result<(bool, String)> {
    let sku = lab.item(10).await?;
    let bounded = under("queue").with(PLACES, CAPACITY);
    lab.say(format!("A house with {CAPACITY} places: A has the turn and is held, B and C wait."))
        .await;
    let (served, line) = build_queue(lab, &sku, &bounded, &["B, inside", "C, inside"]).await?;

    let offers = |offer| bounded.clone().with(OFFER, offer);
    let (add, add_ms) = timed_offer(lab, "D, add", &sku, offers("add")).await?;
    let (offer, offer_ms) = timed_offer(lab, "E, offer", &sku, offers("offer")).await?;
    let (offer_for, offer_for_ms) =
        timed_offer(lab, "F, offer for", &sku, offers("offer-for:250")).await?;
    let put = lab.order("G, put", 0, &sku, &offers("put"));
    lab.wait_until_queued(&served, &sku, (line.len(), 1)).await?;
    let problem = |response: &LabResponse| response.problem().unwrap_or("nothing").to_owned();
    let summary = format!(
        "full house: add {} ({add_ms} ms), offer {} ({offer_ms} ms), offer for {OFFER_WAIT_MS} ms \
         {} ({offer_for_ms} ms), put waits",
        problem(&add),
        problem(&offer),
        problem(&offer_for),
    );
    lab.say(format!(
        "It is full. D adds: an error, {}. E offers: a no, {}. F offers for {OFFER_WAIT_MS} ms: \
             {}. G puts, and stands outside.",
        problem(&add),
        problem(&offer),
        problem(&offer_for),
    ))
    .await;

    let mut all_served = lab.finish(served).await?.is_success();
    for waits in line.into_iter().chain([put]) {
        all_served &= lab.response(waits).await?.is_success();
    }
    lab.say("A goes on. B, C and G are served one after the other.").await;
    let audit = lab.audit(&sku).await?;
    let as_claimed = all_served
        && (problem(&add), problem(&offer), problem(&offer_for))
            == ("overloaded".into(), "lock-busy".into(), "lock-timeout".into())
        && offer_for_ms >= OFFER_WAIT_MS
        && (audit.sold, audit.ok) == (4, true);
    Ok((as_claimed, summary))
}

/// Returns the response and its latency in milliseconds.
async fn timed_offer(
    lab: &Scenario,
    label: &str,
    sku: &Sku,
    headers: LabHeaders,
) -> anyhow::Result<(LabResponse, u64)> {
    let began = Instant::now();
    let response = lab.response(lab.order(label, 0, sku, &headers)).await?;
    Ok((response, u64::try_from(began.elapsed().as_millis())?))
}

/// Adds a restock to a queue of buyers that is longer than the stock. Returns how many of the
/// buyers are rejected as sold out.
async fn rejected_behind_restock(
    lab: &Scenario,
    priority: Option<&'static str>,
) -> anyhow::Result<usize> {
    let sku = lab.item(1).await?;
    let headers = under("queue");
    let labels = ["B, in line", "C, in line", "D, in line"];
    let (served, line) = build_queue(lab, &sku, &headers, &labels).await?;
    let restock_body = format!("{{\"delta\":{QUEUED_BUYERS},\"reason\":\"restock\"}}");
    let path = format!("/api/items/{sku}/stock");
    let headers = headers.with_some(PRIORITY, priority);
    let restock = lab.post_as(&lab.cluster.admin, "restock", 0, &path, &restock_body, &headers);
    lab.wait_until_queued(&served, &sku, (line.len() + 1, 0)).await?;
    ensure!(lab.finish(served).await?.is_success(), "the last unit was not sold");
    ensure!(lab.response(restock).await?.is_success(), "nothing came in");
    let mut rejected = 0;
    for waits in line {
        rejected += usize::from(lab.response(waits).await?.problem() == Some("sold-out"));
    }
    Ok(rejected)
}

/// Findings after a replica was killed with a queue in its memory.
struct KillFindings {
    /// Queued requests that never received a response.
    unanswered: usize,
    /// True if the rendezvous was rejected as busy and the order, sent to the other replica, is the
    /// only order placed.
    rendezvous_rejected: bool,
    /// True if the lease was renewed until the kill. (It expired afterwards, or the lesson fails.)
    lease_was_renewed: bool,
    /// True if the unpaid order kept its due time and is still in the delay queue.
    order_kept: bool,
}

impl KillFindings {
    fn as_claimed(&self) -> bool {
        self.unanswered == 2
            && self.rendezvous_rejected
            && self.lease_was_renewed
            && self.order_kept
    }
}

/// Kills a replica that has a queue and a renewal timer in its memory and has placed an unpaid
/// order.
async fn kill_replica_with_queue(lab: &Scenario) -> anyhow::Result<KillFindings> {
    let (leased, sku) = (lab.item(10).await?, lab.item(10).await?);
    let unpaid = lab.response(lab.order("unpaid", 0, &leased, &under("queue"))).await?;
    let due = due_at(&unpaid.body).context("the order is due at no time")?;
    let id = unpaid.order().context("the order has no id")?;
    let queue = &lab.unpaid_queue()?;
    wait_until("the delay queue is told", || async move { Ok(queue.contains(id).await?) }).await?;
    let lease = under("watchdog").with(TTL_MS, LEASE_MS).with(PAUSE, "read");
    let renewed = lab.order_until_held("L, under a lease", 0, &leased, &lease).await?;
    let holder = lab.holder(&leased).await?;
    // Two leases: without renewal, the lock would have expired.
    sleep(Duration::from_millis(2 * LEASE_MS)).await;
    let timer_ran = holder.is_some() && lab.holder(&leased).await? == holder;
    lab.say(format!(
        "A replica has a timer in memory that renews a lease of {LEASE_MS} ms, and in its \
             queue two who wait behind A."
    ))
    .await;
    let (served, line) =
        build_queue(lab, &sku, &under("queue"), &["B, in line", "C, in line"]).await?;
    let trying = under("queue").with(WAIT, "try");
    let busy = lab.response(lab.order("D, rendezvous", 0, &sku, &trying)).await?;
    lab.say("D asks for a rendezvous: the consumer takes it now, or not at all. It is busy.").await;

    lab.kill_replica(served).await?;
    let mut unanswered = 0;
    for waits in line {
        unanswered += usize::from(lab.response(waits).await?.status.is_none());
    }
    lab.response(renewed).await?;
    let elsewhere = lab.response(lab.order("D, other replica", 1, &sku, &trying)).await?;
    lab.wait_until_free(&leased).await?;
    let order_kept = lab.read_order(1, id).await?;
    let queued = queue.contains(id).await?;
    let audit = lab.audit(&sku).await?;
    lab
        .say(
            "The replica is killed. B and C are never answered. D knew that it was not taken, and \
             is served by the other replica. The timer is gone and so the lease ends, as it should; \
             an unpaid order is still in the delay queue in Redis, and when it is due in Postgres.",
        )
        .await;
    Ok(KillFindings {
        unanswered,
        rendezvous_rejected: busy.problem() == Some("lock-busy")
            && elsewhere.is_success()
            && audit.sold == 1,
        lease_was_renewed: timer_ran,
        order_kept: due_at(&order_kept) == Some(due) && queued,
    })
}

fn due_at(order: &serde_json::Value) -> Option<String> {
    order.get("expires_at")?.as_str().map(ToOwned::to_owned)
}

//! Executes a race: creates the item, sends the orders, and audits the item.
//!
//! Two buyers meet for certain: A is paused behind its read until B has read too, or, under a lock
//! that protects, has waited for a while. A crowd arrives within [`ARRIVALS`] and meets by chance.
//! A race takes at most [`RACE_TIMEOUT`]; an order without a response by then is `no-answer`.

use std::time::Duration;

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

use super::buyers::Peer;
use super::model::RaceRequest;
use crate::lab::headers::{LabHeaders, PAUSE, WORK_MS};
use crate::lab::request::LabResponse;
use crate::lab::run::{ArmResult, Lane, LaneEvent, RunResult};
use crate::shop::model::{Item, ItemKind};
use crate::shop::store::items;
use crate::shop::{Shop, Sku, audit};
use holdfast_lock::clock::monotonic_us;

/// Upper bound of a race, from the first request to the last response.
pub const RACE_TIMEOUT: Duration = Duration::from_secs(3);
/// A race of 200 buyers occupies the cores; a queue of them must not stop the shop.
pub(super) const MAX_RUNNING: usize = 2;
pub(super) const MAX_QUEUED: usize = 64;
/// Upper bound of a race with the creation of its item and buyers, and its audit.
pub(super) const TOTAL_TIMEOUT: Duration = RACE_TIMEOUT.saturating_add(Duration::from_secs(4));
/// Time for which an order stays paused if it is not resumed.
const MAX_PAUSE_MS: u64 = 1_500;
/// Time to wait for a read: of the first buyer, or of the second without protection.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which the second buyer visibly waits for a lock.
const LOCK_WAIT: Duration = Duration::from_millis(40);
/// Time for which both buyers have read and neither has written.
const OVERLAP: Duration = Duration::from_millis(12);
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Time span in which a crowd arrives.
const ARRIVALS: Duration = Duration::from_millis(40);
/// Work of each order of a crowd between read and write.
const CROWD_WORK_MS: u64 = 2;
/// Number of buyers of which all events are kept; of a crowd, only these.
const FULL_LANES: usize = 8;
const CROWD_EVENTS: [&str; 2] = ["read", "write"];
const PRICE_CENTS: i64 = 9_900;

/// An order on its way, or its response.
struct RaceOrder {
    id: Uuid,
    peer: Peer,
    token: String,
    sent_us: u64,
    /// The response, and when it arrived.
    response: JoinHandle<Option<(LabResponse, u64)>>,
}

/// Creates the throw-away item of a race.
pub(super) async fn create_item(shop: &Shop, stock: i64) -> anyhow::Result<Sku> {
    let item = Item::throw_away("The last lantern, in a race", PRICE_CENTS, stock);
    let sku = item.sku.clone();
    items::create(shop, item, ItemKind::Lab, Uuid::now_v7()).await?;
    Ok(sku)
}

/// Sends the orders and returns the result.
pub(super) async fn execute(
    shop: &Shop,
    peers: &[Peer],
    tokens: &[String],
    sku: &Sku,
    request: &RaceRequest,
) -> anyhow::Result<RunResult> {
    let deadline = Instant::now() + RACE_TIMEOUT;
    let race = RunningRace { peers, tokens, sku, request, deadline };
    let begin_us = monotonic_us();
    let orders = if request.buyers == 2 { race.duel().await } else { race.crowd().await };
    let mut lanes = Vec::with_capacity(orders.len());
    let count = orders.len();
    for (number, order) in orders.into_iter().enumerate() {
        let buyer = if count <= FULL_LANES {
            char::from(b'A' + u8::try_from(number)?).to_string()
        } else {
            (number + 1).to_string()
        };
        lanes.push(lane(order, buyer, begin_us, count > FULL_LANES, deadline).await);
    }
    let audit = audit::check_item(&shop.pool, sku).await?.context("the item has gone")?;
    let arm = ArmResult {
        strategy: request.lock.clone(),
        ..ArmResult::of_item(&audit, request.buyers.into())
    };
    Ok(RunResult { arms: vec![arm], lanes, ..RunResult::default() })
}

struct RunningRace<'a> {
    peers: &'a [Peer],
    tokens: &'a [String],
    sku: &'a Sku,
    request: &'a RaceRequest,
    deadline: Instant,
}

impl RunningRace<'_> {
    /// Sends the order of a buyer after `delay`.
    fn send(&self, buyer: usize, headers: LabHeaders, delay: Duration) -> Option<RaceOrder> {
        let peer = self.peers.get(buyer % self.peers.len().max(1))?.clone();
        let token = self.tokens.get(buyer)?.clone();
        let (id, sku, deadline) = (Uuid::now_v7(), self.sku.clone(), self.deadline);
        let (to, by, sent) = (peer.clone(), token.clone(), Instant::now() + delay);
        let sent_us = monotonic_us() + u64::try_from(delay.as_micros()).unwrap_or(0);
        let response = tokio::spawn(async move {
            sleep_until(sent).await;
            let sent = timeout_at(deadline, to.order(&by, &sku, &headers, id)).await;
            let response = sent.ok()?.ok()?;
            Some((response, monotonic_us()))
        });
        Some(RaceOrder { id, peer, token, sent_us, response })
    }

    /// Lets two buyers meet: each is paused behind its read.
    async fn duel(&self) -> Vec<RaceOrder> {
        let headers =
            || LabHeaders::under(&self.request.lock).with(PAUSE, format!("read:{MAX_PAUSE_MS}"));
        let Some(a) = self.send(0, headers(), Duration::ZERO) else { return Vec::new() };
        self.wait_for_read(&a, READ_TIMEOUT).await;
        let Some(b) = self.send(1, headers(), Duration::ZERO) else { return vec![a] };
        if self.request.is_protected() {
            self.wait_for_read(&b, LOCK_WAIT).await;
        } else if self.wait_for_read(&b, READ_TIMEOUT).await {
            sleep(OVERLAP).await;
        }
        let orders = vec![a, b];
        while Instant::now() < self.deadline && !orders.iter().all(|o| o.response.is_finished()) {
            for order in orders.iter().filter(|order| !order.response.is_finished()) {
                let resume = order.peer.resume(&order.token, order.id);
                let _ = timeout_at(self.deadline.min(Instant::now() + READ_TIMEOUT), resume).await;
            }
            sleep(POLL_INTERVAL).await;
        }
        orders
    }

    /// Waits until an order is paused behind its read; returns `false` if that does not happen
    /// within `timeout`, or the order has a response.
    async fn wait_for_read(&self, order: &RaceOrder, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        while Instant::now() < end && !order.response.is_finished() {
            let paused = timeout_at(end, order.peer.paused(&order.token)).await;
            if let Ok(Ok(paused)) = paused
                && paused.iter().any(|paused| paused.request_id == order.id)
            {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }

    /// Sends the orders of all buyers, each after a random delay.
    async fn crowd(&self) -> Vec<RaceOrder> {
        let seed = self.request.seed.unwrap_or_else(rand::random);
        let mut rng = StdRng::seed_from_u64(seed.into());
        let headers = LabHeaders::under(&self.request.lock).with(WORK_MS, CROWD_WORK_MS);
        let buyers = usize::from(self.request.buyers);
        let delays: Vec<Duration> =
            (0..buyers).map(|_| rng.random_range(Duration::ZERO..ARRIVALS)).collect();
        let sent = delays.into_iter().enumerate();
        sent.filter_map(|(buyer, delay)| self.send(buyer, headers.clone(), delay)).collect()
    }
}

/// Waits for the response of an order, and returns its lane.
async fn lane(
    order: RaceOrder,
    buyer: String,
    begin_us: u64,
    is_crowd: bool,
    deadline: Instant,
) -> Lane {
    let since = |t_us: u64| t_us.saturating_sub(begin_us);
    let mut lane = Lane {
        request_id: order.id,
        label: buyer.into(),
        replica: order.peer.host.rsplit(':').next().unwrap_or_default().to_owned(),
        arm: Some(0),
        sent_us: since(order.sent_us),
        answered_us: None,
        status: None,
        problem: None,
        events: Vec::new(),
    };
    let response = timeout_at(deadline, order.response).await;
    let Ok(Ok(Some((response, answered_us)))) = response else { return lane };

    let trace = response.body.get("trace").cloned();
    let trace: Vec<TracedEvent> =
        trace.and_then(|trace| serde_json::from_value(trace).ok()).unwrap_or_default();
    if let Some(event) = trace.first() {
        lane.replica.clone_from(&event.replica);
    }
    let shift = clock_shift(&trace, order.sent_us, answered_us);
    let events = trace.into_iter().map(|traced| LaneEvent {
        t_us: since(traced.event.t_us.saturating_add_signed(shift)),
        ..traced.event
    });
    let is_kept = |event: &LaneEvent| !is_crowd || CROWD_EVENTS.contains(&event.event.as_str());

    lane.events = events.filter(is_kept).collect();
    lane.answered_us = Some(since(answered_us));
    lane.status = response.status;
    lane.problem = response.problem().map(str::to_owned);
    lane
}

/// An event of a response's `trace`.
#[derive(Debug, Deserialize)]
struct TracedEvent {
    replica: String,
    #[serde(flatten)]
    event: LaneEvent,
}

/// Returns the correction of a replica's clock. A replica on another machine has a monotonic clock
/// of its own: its events are moved into the middle between request and response.
fn clock_shift(trace: &[TracedEvent], sent_us: u64, answered_us: u64) -> i64 {
    let (Some(first), Some(last)) = (trace.first(), trace.last()) else { return 0 };
    if first.event.t_us >= sent_us && last.event.t_us <= answered_us {
        return 0;
    }
    let middle = |from: u64, to: u64| i128::from(from).midpoint(i128::from(to));
    let shift = middle(sent_us, answered_us) - middle(first.event.t_us, last.event.t_us);
    i64::try_from(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn foreign_clock_is_moved_between_request_and_response() {
        let event = |t_us| -> TracedEvent {
            let event = json!({ "t_us": t_us, "replica": "", "event": "read", "key": "" });
            serde_json::from_value(event).unwrap()
        };
        assert_eq!(clock_shift(&[event(110), event(190)], 100, 200), 0);
        assert_eq!(clock_shift(&[event(5_000), event(5_020)], 100, 200), 150 - 5_010);
        assert_eq!(clock_shift(&[], 100, 200), 0);
    }
}

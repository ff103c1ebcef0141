//! Executes a race: creates the item, sends the orders, and audits the item.
//!
//! Two buyers meet for certain: A is paused behind its read until B has read too, or, under a lock
//! that protects, has waited for a while; in a race with a pause, until B has its response. A crowd
//! arrives within [`ARRIVALS`] and meets by chance. An order without a response by the end of its
//! race is `no-answer`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

use super::model::RaceRequest;
use crate::headers::{LabHeaders, PAUSE, RENEW, TTL_MS, WORK_MS};
use crate::lessons::LEASE_MS;
use crate::request::{LabResponse, command_headers, format_request, order_of};
use crate::run::{ArmResult, Lane, RunResult};
use holdfast_lock::clock::monotonic_us;
use holdfast_services::load;
use holdfast_shop::model::Item;
use holdfast_shop::probe::PausedRequest;
use holdfast_shop::store::items;
use holdfast_shop::{Shop, Sku, audit};
use holdfast_story::{EventKind, TimelineEvent};

/// Upper bound of a race of two, from the first request to the last response. A crowd has more if
/// its preparation has left it: 200 orders take half a second here, and six times as long on a busy
/// machine.
pub const RACE_TIMEOUT: Duration = Duration::from_secs(3);
/// A race of 200 buyers occupies the cores; a queue of them must not stop the shop. Those with a
/// pause are counted by themselves.
pub(super) const MAX_RUNNING: usize = 2;
pub(super) const MAX_QUEUED: usize = 64;
/// With the creation of its item and buyers, and its audit.
pub(super) const TOTAL_TIMEOUT: Duration = RACE_TIMEOUT.saturating_add(Duration::from_secs(4));
/// When the orders of a crowd end at the latest, after the begin of the race: its audit follows.
pub(super) const CROWD_END: Duration = TOTAL_TIMEOUT.saturating_sub(Duration::from_secs(1));
const MAX_PAUSE_MS: u64 = 1_500;
/// Time to wait for a read: of the first buyer, or of the second without protection.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which the second buyer visibly waits for a lock, after a way to it that takes about as
/// long as the first one's did.
const LOCK_WAIT: Duration = Duration::from_millis(40);
/// Time for which both buyers have read and neither has written.
const OVERLAP: Duration = Duration::from_millis(12);
const POLL_INTERVAL: Duration = Duration::from_millis(4);
const ARRIVALS: Duration = Duration::from_millis(40);
const CROWD_WORK_MS: u64 = 2;
/// Number of buyers of which all events are kept; of a crowd, only these.
const FULL_LANES: usize = 8;
const CROWD_EVENTS: [EventKind; 2] = [EventKind::Read, EventKind::Write];
const PRICE_CENTS: i64 = 9_900;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub host: String,
    pub address: SocketAddr,
}

impl Peer {
    pub async fn resolve(host: &str) -> io::Result<Self> {
        let address = lookup_host(host).await?.next();
        let address = address.ok_or_else(|| io::Error::other(format!("{host} has no address")))?;
        Ok(Self { host: host.to_owned(), address })
    }

    async fn send(
        &self,
        target: (&str, &str),
        token: &str,
        headers: &[String],
        body: &str,
    ) -> io::Result<(u16, Vec<u8>)> {
        let request = format_request(&self.host, target, token, headers, body);
        load::send(self.address, &request).await
    }

    /// Orders one unit under the request id `id`.
    pub async fn order(
        &self,
        token: &str,
        sku: &Sku,
        headers: &LabHeaders,
        id: Uuid,
    ) -> io::Result<LabResponse> {
        let headers = command_headers(headers, id, Uuid::new_v4());
        let body = order_of(&[(sku, 1)]);
        let response = self.send(("POST", "/api/orders"), token, &headers, &body).await?;
        Ok(LabResponse::new(Some(response)))
    }

    pub async fn paused(&self, token: &str) -> io::Result<Vec<PausedRequest>> {
        let (_, body) = self.send(("GET", "/api/race/paused"), token, &[], "").await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn resume(&self, token: &str, id: Uuid) -> io::Result<()> {
        let path = format!("/api/race/paused/{id}");
        self.send(("POST", &path), token, &[], "").await.map(drop)
    }
}

struct RaceOrder {
    peer: Peer,
    token: String,
    /// Its times are those of the monotonic clock.
    lane: Lane,
    /// End of its lease, which is not renewed.
    lease_end_us: Option<u64>,
    /// The response, and when it arrived.
    response: JoinHandle<Option<(LabResponse, u64)>>,
}

pub(super) async fn create_item(shop: &Shop, stock: i64) -> anyhow::Result<Sku> {
    let item = Item::throw_away("The last lantern, in a race", PRICE_CENTS, stock);
    let sku = item.sku.clone();
    items::create_in_lab(shop, item, Uuid::now_v7()).await?;
    Ok(sku)
}

/// A race whose item exists.
pub(super) struct RunningRace<'a> {
    pub peers: &'a [Peer],
    pub tokens: &'a [String],
    pub sku: &'a Sku,
    pub request: &'a RaceRequest,
    pub deadline: Instant,
}

impl RunningRace<'_> {
    pub(super) async fn execute(&self, shop: &Shop) -> anyhow::Result<RunResult> {
        let begin_us = monotonic_us();
        let buyers = self.request.buyers;
        let orders = match buyers {
            2 if self.request.pause => self.duel_with_pause(shop).await,
            2 => self.duel().await,
            _ => self.crowd().await,
        };

        let mut lanes = Vec::with_capacity(orders.len());
        for order in orders {
            let mut lane = answered(order, self.deadline).await.since(begin_us);
            if usize::from(buyers) > FULL_LANES {
                lane.events.retain(|event| CROWD_EVENTS.contains(&event.kind));
            }
            lanes.push(lane);
        }

        let audit = audit::check_item(&shop.pool, self.sku).await?.context("the item has gone")?;
        let arm = ArmResult {
            strategy: self.request.lock.clone(),
            ..ArmResult::of_item(&audit, buyers.into())
        };
        Ok(RunResult { arms: vec![arm], lanes, ..RunResult::default() })
    }

    fn send(&self, buyer: usize, headers: LabHeaders, delay: Duration) -> Option<RaceOrder> {
        let peer = self.peers.get(buyer % self.peers.len().max(1))?.clone();
        let token = self.tokens.get(buyer)?.clone();
        let id = Uuid::now_v7();
        let order = {
            let peer = peer.clone();
            let token = token.clone();
            let sku = self.sku.clone();
            async move { peer.order(&token, &sku, &headers, id).await }
        };

        let sent = Instant::now() + delay;
        let sent_us = monotonic_us() + u64::try_from(delay.as_micros()).unwrap_or(0);
        let deadline = self.deadline;
        let response = tokio::spawn(async move {
            sleep_until(sent).await;
            let response = timeout_at(deadline, order).await.ok()?.ok()?;
            Some((response, monotonic_us()))
        });

        let label = match u8::try_from(buyer) {
            Ok(number) if usize::from(self.request.buyers) <= FULL_LANES => {
                char::from(b'A' + number).to_string()
            }
            _ => (buyer + 1).to_string(),
        };
        let port = peer.host.rsplit(':').next().unwrap_or_default();
        let lane = Lane { arm: Some(0), ..Lane::new(id, label, port, sent_us) };
        Some(RaceOrder { peer, token, lane, lease_end_us: None, response })
    }

    /// Lets two buyers meet: each is paused behind its read.
    async fn duel(&self) -> Vec<RaceOrder> {
        let pause = format!("read:{MAX_PAUSE_MS}");
        let headers = LabHeaders::under(&self.request.lock).with(PAUSE, pause);
        let sent = Instant::now();
        let Some(a) = self.send(0, headers.clone(), Duration::ZERO) else { return Vec::new() };
        self.wait_for_read(&a, READ_TIMEOUT).await;
        let took = sent.elapsed();

        let Some(b) = self.send(1, headers, Duration::ZERO) else { return vec![a] };
        if self.request.is_protected() {
            self.wait_for_read(&b, (LOCK_WAIT + took).min(READ_TIMEOUT / 2)).await;
        } else if self.wait_for_read(&b, READ_TIMEOUT).await {
            sleep(OVERLAP).await;
        }

        let orders = vec![a, b];
        self.resume(&orders).await;
        orders
    }

    /// Pauses A behind its read until B has its response: past A's lease, so that B gets the lock.
    /// Where B waits for A without a lease, the pause ends by itself.
    async fn duel_with_pause(&self, shop: &Shop) -> Vec<RaceOrder> {
        let headers = LabHeaders::under(&self.request.lock);
        let of_a = headers.clone().with(PAUSE, format!("read:{MAX_PAUSE_MS}"));
        let of_a = of_a.with(TTL_MS, LEASE_MS).with(RENEW, "off");
        let Some(mut a) = self.send(0, of_a, Duration::ZERO) else { return Vec::new() };
        if self.wait_for_read(&a, READ_TIMEOUT).await {
            a.lease_end_us = self.lease_end_us(shop).await;
        }

        let Some(b) = self.send(1, headers, Duration::ZERO) else { return vec![a] };
        while Instant::now() < self.deadline
            && !a.response.is_finished()
            && !b.response.is_finished()
        {
            sleep(POLL_INTERVAL).await;
        }

        let orders = vec![a, b];
        self.resume(&orders).await;
        orders
    }

    /// Returns when the lease of the item's lock ends, if it has one: a moment early rather than
    /// late, so that the next holder gets it afterwards.
    async fn lease_end_us(&self, shop: &Shop) -> Option<u64> {
        let asked_us = monotonic_us();
        let holder = shop.locks.leases().holder(&self.sku.lock_key()).await.ok()?;
        let left_us = u64::try_from(holder.remaining?.as_micros()).ok()?;
        Some(asked_us + left_us)
    }

    /// Resumes orders until they have their responses.
    async fn resume(&self, orders: &[RaceOrder]) {
        // Again and again: under a lock, B reads and is paused only after A has ended.
        while Instant::now() < self.deadline && !orders.iter().all(|o| o.response.is_finished()) {
            for order in orders.iter().filter(|order| !order.response.is_finished()) {
                let resume = order.peer.resume(&order.token, order.lane.request_id);
                let _ = timeout_at(self.deadline.min(Instant::now() + READ_TIMEOUT), resume).await;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until an order is paused behind its read; `false` after `timeout` or its response.
    async fn wait_for_read(&self, order: &RaceOrder, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        while Instant::now() < end && !order.response.is_finished() {
            let paused = timeout_at(end, order.peer.paused(&order.token)).await;
            let id = order.lane.request_id;
            if let Ok(Ok(paused)) = paused
                && paused.iter().any(|paused| paused.request_id == id)
            {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }

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

async fn answered(order: RaceOrder, deadline: Instant) -> Lane {
    let RaceOrder { lane, lease_end_us, response, .. } = order;
    let Ok(Ok(Some((response, at_us)))) = timeout_at(deadline, response).await else { return lane };

    let mut lane = lane.answered(&response, at_us);
    let shift = clock_shift(&lane.events, lane.sent_us, at_us);
    for event in &mut lane.events {
        event.at_us = event.at_us.saturating_add_signed(shift);
    }

    let release = lane.events.iter().find(|event| event.kind == EventKind::Release);
    if let Some(end_us) = lease_end_us.filter(|end| release.is_none_or(|it| *end < it.at_us)) {
        let expired = TimelineEvent::new((), end_us, EventKind::Expired);
        lane.events.push(expired.with_number(i64::try_from(LEASE_MS).ok()));
        lane.events.sort_by_key(|event| event.at_us);
    }
    lane
}

/// Returns the correction of a replica's clock. A replica on another machine has a monotonic clock
/// of its own: its events are moved into the middle between request and response.
fn clock_shift(trace: &[TimelineEvent<()>], sent_us: u64, answered_us: u64) -> i64 {
    let (Some(first), Some(last)) = (trace.first(), trace.last()) else { return 0 };
    if first.at_us >= sent_us && last.at_us <= answered_us {
        return 0;
    }

    let shift = middle(sent_us, answered_us) - middle(first.at_us, last.at_us);
    i64::try_from(shift).unwrap_or(0)
}

fn middle(from: u64, to: u64) -> i128 {
    i128::from(from).midpoint(i128::from(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_clock_is_moved_between_request_and_response() {
        let event = |at_us| TimelineEvent::new((), at_us, EventKind::Read);
        assert_eq!(clock_shift(&[event(110), event(190)], 100, 200), 0);
        assert_eq!(clock_shift(&[event(5_000), event(5_020)], 100, 200), 150 - 5_010);
        assert_eq!(clock_shift(&[], 100, 200), 0);
    }
}

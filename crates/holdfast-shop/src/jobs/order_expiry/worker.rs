//! The worker of one replica: reads due orders if it has the lease on the queue, and expires them,
//! some groups at a time.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::clock::jittered;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::due::{self, DueOrder, MAX_DUE};
use super::expire::{self, GroupOutcome};
use super::groups::{ExpiryGroup, PendingGroups};
use super::lab_request::{LabRequest, OrderExpiry};
use crate::probe::{Pause, PauseBoard, Point, Probe, ProbedValue, RequestProbe};
use crate::{Error, OrderId, RequestContext, Shop, Sku, with_timeout};

/// Interval of the reads, which renew the lease: twice per lease.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before a read that continues behind a full one, while there is room for another group: an
/// item that cannot be locked may have thousands of due orders, which must not hide the others.
const NEXT_PAGE_DELAY: Duration = Duration::from_millis(200);
/// Mean pause after an error, in which other workers take over.
const RETRY_DELAY: Duration = Duration::from_millis(750);
const REST_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a read: no query of the worker takes longer, unless the network drops it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(6);
/// Upper bound of the concurrent transactions, which use the replica's connections.
const MAX_GROUPS_IN_FLIGHT: usize = 4;
/// Upper bound of those of slow groups.
const MAX_SLOW_GROUPS_IN_FLIGHT: usize = 2;
/// Timeout of a transaction of different items: one that is locked delays the others no longer.
const MERGED_TIMEOUT: Duration = Duration::from_secs(1);

struct EndedGroup {
    orders: Vec<OrderId>,
    skus: BTreeSet<Sku>,
    is_slow: bool,
    outcome: GroupOutcome,
}

pub(super) struct ExpiryWorker {
    shop: Shop,
    expiry: OrderExpiry,
    replica: String,
    board: PauseBoard,
    /// Its name as the holder of the lease, which it may have if `is_holder`.
    id: Uuid,
    is_holder: bool,
    poll_at: Instant,
    /// The last order of a full read, behind which the next one continues.
    after: Option<(OffsetDateTime, OrderId)>,
    pending: PendingGroups,
    in_flight: JoinSet<EndedGroup>,
    slow_in_flight: usize,
    busy_orders: BTreeSet<OrderId>,
    busy_skus: BTreeSet<Sku>,
    /// Items of groups that failed, until one of their groups expires.
    failed: BTreeSet<Sku>,
    is_failing: bool,
}

impl ExpiryWorker {
    pub(super) fn new(shop: &Shop, expiry: OrderExpiry, replica: &str, board: &PauseBoard) -> Self {
        Self {
            shop: shop.clone(),
            expiry,
            replica: replica.to_owned(),
            board: board.clone(),
            id: Uuid::new_v4(),
            is_holder: false,
            poll_at: Instant::now() + jittered(POLL_INTERVAL / 2),
            after: None,
            pending: PendingGroups::default(),
            in_flight: JoinSet::new(),
            slow_in_flight: 0,
            busy_orders: BTreeSet::new(),
            busy_skus: BTreeSet::new(),
            failed: BTreeSet::new(),
            is_failing: false,
        }
    }

    /// Runs forever. When dropped, its lease ends; a transaction that has begun runs to its end.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                () = sleep_until(self.poll_at) => self.poll().await,
                Some(ended) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    // The task catches its panics itself.
                    if let Ok(ended) = ended {
                        self.finish_group(ended).await;
                    }
                }
            }
        }
    }

    async fn poll(&mut self) {
        if self.expiry.is_resting() {
            self.stand_back(REST_POLL_INTERVAL).await;
            return;
        }

        let read = with_timeout(QUERY_TIMEOUT, due::read(&self.shop, self.id, self.after)).await;
        self.log_changes(read.as_ref().err());
        let Ok(due) = read else {
            self.stand_back(jittered(RETRY_DELAY)).await;
            return;
        };

        // Perhaps it is not: a read without the lease returns nothing, too. Releasing it is
        // harmless.
        self.is_holder = true;
        self.poll_at = Instant::now() + POLL_INTERVAL;

        let last = due.last().map(|order| (order.expires_at, order.id));
        if last.is_none() && self.after.is_none() {
            self.failed.clear();
        }
        self.after = last.filter(|_| due.len() == MAX_DUE);

        // What waited is due still, so it is read again.
        let due = due.into_iter().filter(|order| !self.busy_orders.contains(&order.id)).collect();
        self.process(due).await;
    }

    async fn process(&mut self, due: Vec<DueOrder>) {
        // A pause that was taken for no orders would be lost.
        let watched = if due.is_empty() { None } else { self.lab_context() };
        if let Some(context) = &watched {
            let seen = due.iter().map(|order| ProbedValue::key(order.id.to_string()));
            context.probe().at(Point::Claimed, seen).await;
        }

        self.pending = PendingGroups::new(due, &self.failed);
        if let Some(context) = watched
            && let Some(group) = self.pending.next(&BTreeSet::new(), true)
        {
            self.start(group, context);
        }
        self.start_groups();
    }

    /// Starts groups whose items are not busy, up to [`MAX_GROUPS_IN_FLIGHT`] in flight.
    fn start_groups(&mut self) {
        while self.in_flight.len() < MAX_GROUPS_IN_FLIGHT {
            let admits_slow = self.slow_in_flight < MAX_SLOW_GROUPS_IN_FLIGHT;
            let Some(group) = self.pending.next(&self.busy_skus, admits_slow) else {
                // There is room, and all that is known is busy or slow: the next page may have
                // more.
                if self.after.is_some() {
                    self.poll_at = self.poll_at.min(Instant::now() + NEXT_PAGE_DELAY);
                }
                return;
            };

            let mut context = expire::default_context(&self.shop);
            if group.is_merged() {
                context.deadline = context.deadline.min(Instant::now() + MERGED_TIMEOUT);
            }
            self.start(group, context);
        }
    }

    fn start(&mut self, group: ExpiryGroup, context: RequestContext) {
        let ExpiryGroup { orders, skus, is_slow } = group;
        let ids: Vec<OrderId> = orders.iter().map(|order| order.id).collect();
        self.busy_orders.extend(&ids);
        self.busy_skus.extend(skus.iter().cloned());
        self.slow_in_flight += usize::from(is_slow);

        let expiring = expire::expire_group(self.shop.clone(), orders.into(), context);
        let task = async move {
            // Also after a panic, its items must be free again.
            let ended = AssertUnwindSafe(expiring).catch_unwind().await;
            let outcome = ended.unwrap_or(GroupOutcome::Failed);
            EndedGroup { orders: ids, skus, is_slow, outcome }
        };
        self.in_flight.spawn(task);
    }

    async fn finish_group(&mut self, ended: EndedGroup) {
        self.slow_in_flight -= usize::from(ended.is_slow);
        for order in &ended.orders {
            self.busy_orders.remove(order);
        }
        self.busy_skus.retain(|sku| !ended.skus.contains(sku));

        match ended.outcome {
            GroupOutcome::Expired => self.failed.retain(|sku| !ended.skus.contains(sku)),
            // Slow from now on: they share no transaction with items that can be locked.
            GroupOutcome::Failed => self.failed.extend(ended.skus),
            // Perhaps only this replica cannot reach a server: another worker can have the lease.
            GroupOutcome::Unavailable => self.stand_back(jittered(RETRY_DELAY)).await,
        }
        self.start_groups();
    }

    /// Leaves due orders to other workers for a while.
    async fn stand_back(&mut self, pause: Duration) {
        self.pending = PendingGroups::default();
        self.after = None;
        if std::mem::take(&mut self.is_holder) {
            // If it fails, the lease ends soon by itself.
            let _ = with_timeout(RETRY_DELAY, due::release(&self.shop, self.id)).await;
        }
        self.poll_at = Instant::now() + pause;
    }

    /// Returns the usual context with the pause that the lab requests, if it does.
    fn lab_context(&self) -> Option<RequestContext> {
        let LabRequest::Pause { at, strategy } = self.expiry.take_pause()? else { return None };
        let mut context = expire::default_context(&self.shop);
        if let Some(strategy) = strategy {
            (context.strategy, context.ttl) = (strategy, None);
        }
        let probe = RequestProbe {
            pause: Some(Pause { at: Some(at), length: None, until: context.deadline }),
            ..RequestProbe::new(self.replica.as_str(), context.request_id, &self.board)
        };
        Some(context.probed(Probe::Lab(Arc::new(probe))))
    }

    /// Logs once that no orders are read, and once that they are again.
    fn log_changes(&mut self, error: Option<&Error>) {
        let failed_before = std::mem::replace(&mut self.is_failing, error.is_some());
        match error {
            Some(error) if !failed_before => {
                tracing::warn!(%error, "orders do not expire until Postgres responds");
            }
            None if failed_before => tracing::info!("orders expire again"),
            _ => {}
        }
    }
}

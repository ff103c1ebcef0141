//! The worker of one replica: claims due orders, expires them, looks for orders not in the queue.
//!
//! It may be killed between any two of its steps. Before the commit nothing has changed, and its
//! orders are due again when their claims expire ([`super::queue::CLAIM_TIMEOUT`]); afterwards the
//! order is no longer pending, and its next claimer only removes it from the queue.
//!
//! An order in the queue waits for the orders before it; if a worker was killed, also for the end
//! of its claim and of the leases on its items. An order that is not in the queue is found
//! [`OVERDUE_DELAY`] and [`OVERDUE_POLL_INTERVAL`] after its due time; the orders due next are then
//! queued, too.
//!
//! An item whose lock is not acquired holds up one group of its orders and a few behind it; orders
//! of other items overtake. Orders that wait briefly stay in the worker, which renews their claims;
//! orders that wait longer are postponed in Redis.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::time::DelayQueue;
use uuid::Uuid;

use super::claim_renewer::ClaimRenewer;
use super::expire::{ExpiryExecutor, ExpiryResult, random_up_to};
use super::failures::OverdueOrder;
use super::group::{ExpiryGroup, PendingGroups};
use super::{LabRequest, OrderExpiry, failures, reconcile_queue};
use crate::metrics::EXPIRY_DELAY;
use crate::probe::{Pause, PauseBoard, Point, Probe, ProbedValue, RequestProbe};
use crate::shop::expiry::{self, ExpiryState};
use crate::shop::{Error, OrderId, RequestOptions, Shop, Sku};

/// Orders claimed at once: their work takes a fraction of a claim's time.
const MAX_CLAIMED: usize = 64;
/// Upper bound of the concurrent transactions, which use the replica's connections.
const MAX_IN_FLIGHT: usize = 4;
/// Pause between two claims, unless the queue reports an entry that is due earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which a resting worker checks for the end of its rest.
const REST_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of the query for overdue orders in Postgres.
const OVERDUE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after which a due order counts as absent from the queue.
const OVERDUE_DELAY: Duration = Duration::from_millis(250);
/// Overdue orders per query; after as many as this, the next query continues behind them.
const OVERDUE_PAGE_SIZE: i64 = 256;
/// Pause before a query that continues: an item that cannot be locked may have thousands of overdue
/// orders, which must not hide the others.
const NEXT_PAGE_DELAY: Duration = Duration::from_millis(50);
/// After an absent order, the orders due within this time are queued again; by its end a sweep has
/// queued the rest.
const REFILL_HORIZON: Duration = Duration::from_secs(60);
/// Pages of one refill; a later query for overdue orders shows whether they were enough.
const MAX_REFILL_PAGES: usize = 8;
/// Minimum interval between refills: a backlog is queried page by page, and orders that expire
/// between a query and the call that follows look absent as well.
const REFILL_INTERVAL: Duration = Duration::from_secs(2);
/// Pause before an order whose row is locked is retried: it is being paid, or expired by another
/// worker.
const ROW_LOCK_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Timeout of a query: no query of the worker takes longer, unless the network drops it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(6);

/// A group whose execution has ended.
struct ExpiryGroupResult {
    skus: BTreeSet<Sku>,
    orders: Vec<OrderId>,
    result: ExpiryResult,
}

/// The worker of one replica.
pub(super) struct ExpiryWorker {
    executor: ExpiryExecutor,
    expiry: OrderExpiry,
    replica: String,
    board: PauseBoard,
    in_flight: JoinSet<ExpiryGroupResult>,
    /// The items of the groups in flight.
    busy: BTreeSet<Sku>,
    pending: PendingGroups,
    claims: ClaimRenewer,
    /// Orders whose rows were locked, until they are retried.
    retries: DelayQueue<OrderId>,
    /// The orders in `retries`, as a set against duplicates.
    retrying: BTreeSet<OrderId>,
    overdue_poll_at: Instant,
    /// The order behind which the next query for overdue orders continues.
    last_overdue: Option<OverdueOrder>,
    /// The refill, if it is running; it ends with the worker.
    refill_task: JoinSet<()>,
    refill_at: Instant,
    overdue_poll_failed: bool,
    claim_failed: bool,
}

impl ExpiryWorker {
    pub(super) fn new(
        shop: &Shop,
        expiry: &OrderExpiry,
        replica: &str,
        board: &PauseBoard,
    ) -> Self {
        Self {
            executor: ExpiryExecutor { shop: shop.clone(), queue: expiry.queue().clone() },
            expiry: expiry.clone(),
            replica: replica.to_owned(),
            board: board.clone(),
            in_flight: JoinSet::new(),
            busy: BTreeSet::new(),
            pending: PendingGroups::default(),
            claims: ClaimRenewer::default(),
            retries: DelayQueue::new(),
            retrying: BTreeSet::new(),
            overdue_poll_at: Instant::now() + random_up_to(OVERDUE_POLL_INTERVAL),
            last_overdue: None,
            refill_task: JoinSet::new(),
            refill_at: Instant::now(),
            overdue_poll_failed: false,
            claim_failed: false,
        }
    }

    /// Runs forever. When dropped, claims expire; a transaction that has begun runs to its end.
    pub(super) async fn run(self) {
        let (claims, queue) = (self.claims.clone(), self.executor.queue.clone());
        // Concurrently, so that no response the worker waits for costs it its claims.
        tokio::join!(claims.renew_forever(&queue), self.process_forever());
    }

    async fn process_forever(mut self) {
        let mut claim_at = Instant::now();
        loop {
            let mut retry_now = Vec::new();
            tokio::select! {
                () = sleep_until(claim_at) => {
                    if self.expiry.is_resting() {
                        claim_at = Instant::now() + REST_POLL_INTERVAL;
                        continue;
                    }
                    let pause = self.claim().await;
                    claim_at = Instant::now() + pause;
                }
                () = sleep_until(self.overdue_poll_at) => {
                    if self.expiry.is_resting() {
                        self.overdue_poll_at = Instant::now() + REST_POLL_INTERVAL;
                        continue;
                    }
                    if self.poll_overdue().await {
                        claim_at = Instant::now();
                    }
                }
                Some(group) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    // The task catches its panics itself.
                    if let Ok(group) = group {
                        self.finish_group(group);
                    }
                }
                Some(first) = self.retries.next(), if !self.retries.is_empty() => {
                    retry_now.push(first.into_inner());
                    while let Some(Some(next)) = self.retries.next().now_or_never() {
                        retry_now.push(next.into_inner());
                    }
                }
            }
            for order in &retry_now {
                self.retrying.remove(order);
            }
            if !retry_now.is_empty() {
                // Orders that are not looked up now are due again when their claims expire.
                let _ = self.process(retry_now).await;
            }
        }
    }

    /// Claims due orders and has them expired. Returns the pause before the next claim.
    async fn claim(&mut self) -> Duration {
        let claimed = match self.executor.queue.claim(MAX_CLAIMED).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.record_failures(self.overdue_poll_failed, true, &error);
                return POLL_INTERVAL + random_up_to(POLL_INTERVAL);
            }
        };
        let is_full = claimed.ids.len() >= MAX_CLAIMED;
        let orders: Vec<OrderId> = claimed.ids.into_iter().map(OrderId).collect();
        if !orders.is_empty()
            && let Err(error) = self.process(orders).await
        {
            self.record_failures(self.overdue_poll_failed, true, &error);
            return POLL_INTERVAL + random_up_to(POLL_INTERVAL);
        }
        self.record_failures(self.overdue_poll_failed, false, &"");
        if is_full {
            Duration::ZERO
        } else {
            claimed.next_in.map_or(POLL_INTERVAL, |next| next.min(POLL_INTERVAL))
        }
    }

    /// Requeues overdue orders and sets the time of the next poll. Returns whether the queue has
    /// due orders now.
    async fn poll_overdue(&mut self) -> bool {
        self.overdue_poll_at = Instant::now() + OVERDUE_POLL_INTERVAL;
        match self.requeue_overdue().await {
            Ok(requeued) => {
                self.record_failures(false, self.claim_failed, &"");
                requeued
            }
            Err(error) => {
                self.record_failures(true, self.claim_failed, &error);
                false
            }
        }
    }

    /// Finds overdue orders in Postgres and makes them due in the queue, which delivers each to one
    /// worker. Orders for which it has no room, or all of them while Redis is unavailable, are
    /// processed directly. Returns whether the queue was updated.
    async fn requeue_overdue(&mut self) -> Result<bool, Error> {
        let query = failures::overdue(
            &self.executor.shop,
            OVERDUE_DELAY,
            self.last_overdue,
            OVERDUE_PAGE_SIZE,
        );
        let overdue = with_timeout(query).await?;
        self.last_overdue =
            overdue.last().copied().filter(|_| overdue.len() as i64 == OVERDUE_PAGE_SIZE);
        if self.last_overdue.is_some() {
            self.overdue_poll_at = Instant::now() + NEXT_PAGE_DELAY;
        }
        if overdue.is_empty() {
            return Ok(false);
        }
        let ids: Vec<Uuid> = overdue.iter().map(|overdue| overdue.order.0).collect();
        let (is_requeued, left) = match self.executor.queue.bring_forward(&ids).await {
            Ok(requeued) => {
                if requeued.added > 0 {
                    self.refill();
                }
                (true, requeued.no_room)
            }
            Err(_) => (false, ids),
        };
        let left: Vec<OrderId> = left.into_iter().map(OrderId).collect();
        for some in left.chunks(MAX_CLAIMED) {
            self.process(some.to_vec()).await?;
        }
        Ok(is_requeued)
    }

    /// Queues the orders that are due next, which the queue has probably lost, unless a refill is
    /// running or just ran.
    fn refill(&mut self) {
        while self.refill_task.try_join_next().is_some() {}
        if !self.refill_task.is_empty() || Instant::now() < self.refill_at {
            return;
        }
        self.refill_at = Instant::now() + REFILL_INTERVAL;
        self.refill_task.spawn_on(refill(self.executor.clone()), &self.executor.shop.tasks.runtime);
    }

    /// Looks up each order and removes, postpones or expires it.
    async fn process(&mut self, orders: Vec<OrderId>) -> Result<(), Error> {
        let mut options = self.options(|point| point == Point::Claimed);
        let seen = orders.iter().map(|order| ProbedValue::key(order.to_string()));
        options.probe.at(Point::Claimed, seen).await;
        let found = with_timeout(expiry::read_states(&self.executor.shop.pool, &orders)).await?;
        let gone = orders.iter().filter(|order| !found.contains_key(order));
        let mut gone: Vec<Uuid> = gone.map(|order| order.0).collect();
        let (mut early, mut due) = (Vec::new(), Vec::new());
        for (order, found) in found {
            match found {
                ExpiryState::Parked => gone.push(order.0),
                ExpiryState::NotYet(left) => early.push((order.0, left)),
                ExpiryState::Due { units, late } => {
                    metrics::histogram!(EXPIRY_DELAY).record(late.as_secs_f64());
                    due.push((order, units));
                }
            }
        }
        self.executor.remove(&gone).await;
        self.executor.postpone(&early).await;
        self.claims.add(&mut due, |(order, _)| *order);
        if matches!(options.probe, Probe::Off) && !due.is_empty() {
            options = self.options(|point| point != Point::Claimed);
        }
        if !matches!(options.probe, Probe::Off) {
            due = self.pending.join_watched(due, options);
        }
        let mut no_room = Vec::new();
        for due in due {
            let order = due.0;
            if !self.pending.join(due) {
                no_room.push(order);
            }
        }
        self.claims.remove(&no_room);
        self.start_groups();
        if !no_room.is_empty() {
            self.executor.postpone_briefly(no_room).await;
        }
        Ok(())
    }

    /// Starts groups whose items are not busy, up to [`MAX_IN_FLIGHT`] in flight.
    fn start_groups(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT
            && let Some(ExpiryGroup { orders, skus, watched }) = self.pending.next(&self.busy)
        {
            self.busy.extend(skus.iter().cloned());
            let ids: Vec<OrderId> = orders.iter().map(|(order, _)| *order).collect();
            let executor = self.executor.clone();
            // Also after a panic, its items must be free again, and its claims must end.
            let expire = async move {
                let options = watched.unwrap_or_else(|| executor.default_options());
                let result = executor.expire(orders.into(), options);
                let result = AssertUnwindSafe(result).catch_unwind().await;
                ExpiryGroupResult { skus, orders: ids, result: result.unwrap_or_default() }
            };
            self.in_flight.spawn_on(expire, &self.executor.shop.tasks.runtime);
        }
    }

    fn finish_group(&mut self, ExpiryGroupResult { skus, orders, result }: ExpiryGroupResult) {
        self.busy.retain(|sku| !skus.contains(sku));
        self.claims.remove(&orders);
        if result.is_unavailable {
            // Perhaps only this replica is cut off: pending orders are free for others when their
            // claims expire.
            self.claims.remove(&self.pending.drain());
        }
        for order in result.locked {
            if self.retrying.insert(order) {
                self.retries.insert(order, ROW_LOCK_RETRY_DELAY);
            }
        }
        self.start_groups();
    }

    /// Returns the usual options, with the lab's pause if `accepts` returns true for its point.
    fn options(&self, accepts: impl Fn(Point) -> bool) -> RequestOptions {
        let mut options = self.executor.default_options();
        let Some(LabRequest::Pause { at, ttl, strategy }) = self.expiry.take_pause(accepts) else {
            return options;
        };
        let RequestOptions { request_id, deadline: until, .. } = options;
        if let Some(strategy) = strategy {
            (options.strategy, options.ttl) = (strategy, None);
        }
        options.ttl = ttl.or(options.ttl);
        options.probe = Probe::Lab(Arc::new(RequestProbe {
            replica: self.replica.clone(),
            work: Duration::ZERO,
            record: false,
            pause: Some(Pause { at: Some(at), length: None, until }),
            request_id,
            board: self.board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        }));
        options
    }

    /// Logs once that a server is unavailable, and once that all are available again.
    fn record_failures(&mut self, overdue_poll: bool, claim: bool, cause: &dyn Display) {
        let failed_before = self.overdue_poll_failed || self.claim_failed;
        (self.overdue_poll_failed, self.claim_failed) = (overdue_poll, claim);
        match (failed_before, overdue_poll || claim) {
            (false, true) => tracing::warn!(%cause, "order expiry has to wait"),
            (true, false) => tracing::info!("order expiry continues"),
            _ => {}
        }
    }
}

async fn refill(executor: ExpiryExecutor) {
    let (shop, queue) = (&executor.shop, &executor.queue);
    let refill = reconcile_queue::enqueue_due_within(shop, queue, REFILL_HORIZON, MAX_REFILL_PAGES);
    match timeout(QUERY_TIMEOUT, refill).await {
        Ok(Ok((orders, _))) => tracing::debug!(orders, "the delay queue was refilled"),
        Ok(Err(error)) => tracing::debug!(%error, "the delay queue was not refilled"),
        Err(_) => tracing::debug!("the delay queue was not refilled in time"),
    }
}

async fn with_timeout<T>(query: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(QUERY_TIMEOUT, query).await.unwrap_or_else(|_| {
        let cause = "it did not answer in time".to_owned();
        Err(Error::Unavailable { what: "Postgres", cause, outcome_unknown: false })
    })
}

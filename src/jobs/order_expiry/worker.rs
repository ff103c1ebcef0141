//! The worker of one replica: claims due orders, expires them, looks for orders not in the queue.
//!
//! It may be killed between any two of its steps. Before the commit nothing has changed, and its
//! orders are due again when their claims expire ([`VISIBILITY_TIMEOUT`]); afterwards the order is
//! no longer pending, and its next claimer only removes it from the queue.
//!
//! An order that is not in the queue is found [`OVERDUE_DELAY`] and [`OVERDUE_POLL_INTERVAL`] after
//! its due time; the orders due next are then queued, too.
//!
//! An item whose lock is not acquired delays one group of its orders and a few behind it; orders of
//! other items overtake. Orders that wait briefly stay in the worker, which renews their claims;
//! orders that wait longer are postponed in Redis.
//!
//! [`VISIBILITY_TIMEOUT`]: super::queue::VISIBILITY_TIMEOUT

use std::collections::BTreeSet;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_lock::clock::jittered;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::claim_renewer::ClaimRenewer;
use super::expire::ExpiryExecutor;
use super::failures::{self, OverdueOrder};
use super::group::{ExpiryGroup, PendingGroups};
use super::lab_requests::{LabRequest, LabRequests};
use super::queue::DelayQueue;
use super::requeue;
use crate::metrics::EXPIRY_DELAY;
use crate::probe::{Pause, PauseBoard, Point, Probe, ProbedValue, RequestProbe};
use crate::shop::expiry::{self, ExpiryState};
use crate::shop::{Error, OrderId, RequestOptions, Shop, Sku, within};

/// Orders claimed at once: one transaction of a hot item, and a millisecond of Redis's time.
const MAX_CLAIMED: usize = 500;
/// Upper bound of the concurrent transactions, which use the replica's connections.
const MAX_GROUPS_IN_FLIGHT: usize = 4;
/// Upper bound of those that change items of the lab, which may wait for long.
const MAX_LAB_GROUPS_IN_FLIGHT: usize = 2;
/// Pause between two claims, unless the queue reports an entry that is due earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Mean pause before the next claim after an error.
const RETRY_DELAY: Duration = Duration::from_millis(750);
/// Interval at which a resting worker checks for the end of its rest.
const REST_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of the query for overdue orders in Postgres.
const OVERDUE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after which a due order counts as absent from the queue.
const OVERDUE_DELAY: Duration = Duration::from_millis(250);
/// Overdue orders per query; after as many as this, the next query continues behind them.
const OVERDUE_PAGE_SIZE: i64 = 500;
/// Pause before a query that continues: an item that cannot be locked may have thousands of overdue
/// orders, which must not hide the others.
const NEXT_PAGE_DELAY: Duration = Duration::from_millis(50);
/// After an absent order, the orders due within this time are queued again; by its end the job
/// `requeue-orders` has queued the rest.
const REFILL_WINDOW: Duration = Duration::from_secs(60);
/// Pages of one refill; a later query for overdue orders shows whether they were enough.
const MAX_REFILL_PAGES: usize = 8;
/// Pause between refills: a backlog is queried page by page, and orders that expire
/// between a query and the call that follows look absent as well.
const REFILL_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a query: no query of the worker takes longer, unless the network drops it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(6);

/// A group whose execution has ended.
struct EndedGroup {
    skus: BTreeSet<Sku>,
    orders: Vec<OrderId>,
    /// True if a server is unavailable or overloaded.
    is_unavailable: bool,
    in_lab: bool,
}

/// The worker of one replica.
pub(super) struct ExpiryWorker {
    executor: ExpiryExecutor,
    lab: LabRequests,
    replica: String,
    board: PauseBoard,
    in_flight: JoinSet<EndedGroup>,
    /// The items of the groups in flight.
    busy: BTreeSet<Sku>,
    lab_groups_in_flight: usize,
    pending: PendingGroups,
    claims: ClaimRenewer,
    claim_at: Instant,
    overdue_poll_at: Instant,
    /// The order behind which the next query for overdue orders continues.
    last_overdue: Option<OverdueOrder>,
    /// The latest refill and the pause after it.
    refill: Option<AbortOnDropHandle<()>>,
    /// The steps that failed when last executed.
    failing_steps: BTreeSet<&'static str>,
}

impl ExpiryWorker {
    pub(super) fn new(
        shop: &Shop,
        queue: DelayQueue,
        lab: LabRequests,
        replica: &str,
        board: &PauseBoard,
    ) -> Self {
        Self {
            executor: ExpiryExecutor { shop: shop.clone(), queue },
            lab,
            replica: replica.to_owned(),
            board: board.clone(),
            in_flight: JoinSet::new(),
            busy: BTreeSet::new(),
            lab_groups_in_flight: 0,
            pending: PendingGroups::default(),
            claims: ClaimRenewer::default(),
            claim_at: Instant::now(),
            overdue_poll_at: Instant::now() + jittered(OVERDUE_POLL_INTERVAL),
            last_overdue: None,
            refill: None,
            failing_steps: BTreeSet::new(),
        }
    }

    /// Runs forever. When dropped, claims expire; a transaction that has begun runs to its end.
    pub(super) async fn run(self) {
        let (claims, queue) = (self.claims.clone(), self.executor.queue.clone());
        // Concurrently, so that no response the worker waits for costs it its claims.
        tokio::join!(claims.renew_forever(&queue), self.process_forever());
    }

    async fn process_forever(mut self) {
        loop {
            tokio::select! {
                () = sleep_until(self.claim_at.min(self.overdue_poll_at)) => self.poll().await,
                Some(group) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    // The task catches its panics itself.
                    if let Ok(group) = group {
                        self.finish_group(group);
                    }
                }
            }
        }
    }

    /// Claims due orders or looks for overdue ones, whichever is scheduled by now.
    async fn poll(&mut self) {
        let now = Instant::now();
        if self.lab.is_resting() {
            let end = now + REST_POLL_INTERVAL;
            (self.claim_at, self.overdue_poll_at) =
                (self.claim_at.max(end), self.overdue_poll_at.max(end));
            return;
        }
        if self.overdue_poll_at <= now {
            self.overdue_poll_at = now + OVERDUE_POLL_INTERVAL;
            let requeued = self.requeue_overdue().await;
            self.log_changes("overdue", requeued.as_ref().err());
            if requeued.is_ok_and(|requeued| requeued) {
                self.claim_at = now;
            }
        }
        if self.claim_at <= now {
            let claimed = self.claim().await;
            self.log_changes("claim", claimed.as_ref().err());
            let pause = claimed.unwrap_or_else(|_| jittered(RETRY_DELAY));
            self.claim_at = Instant::now() + pause;
        }
    }

    /// Claims due orders and has them expired. Returns the pause before the next claim.
    async fn claim(&mut self) -> anyhow::Result<Duration> {
        if self.pending.is_full() {
            return Ok(POLL_INTERVAL);
        }
        let claimed = self.executor.queue.claim(MAX_CLAIMED).await?;
        let is_full = claimed.ids.len() >= MAX_CLAIMED;
        if !claimed.ids.is_empty() {
            self.process(claimed.ids.into_iter().map(OrderId).collect()).await?;
        }
        if is_full {
            return Ok(Duration::ZERO);
        }
        Ok(claimed.next_in.map_or(POLL_INTERVAL, |next| next.min(POLL_INTERVAL)))
    }

    /// Finds overdue orders in Postgres and makes them due in the queue, which delivers each to one
    /// worker. Orders for which it has no room, or all of them while Redis is unavailable, are
    /// processed directly. Returns whether the queue was updated.
    async fn requeue_overdue(&mut self) -> Result<bool, Error> {
        let (shop, after) = (&self.executor.shop, self.last_overdue);
        let query = failures::overdue(shop, OVERDUE_DELAY, after, OVERDUE_PAGE_SIZE);
        let overdue = within(QUERY_TIMEOUT, query).await?;
        self.last_overdue =
            overdue.last().copied().filter(|_| overdue.len() as i64 == OVERDUE_PAGE_SIZE);
        if self.last_overdue.is_some() {
            self.overdue_poll_at = Instant::now() + NEXT_PAGE_DELAY;
        }
        if overdue.is_empty() {
            return Ok(false);
        }
        let ids: Vec<Uuid> = overdue.iter().map(|overdue| overdue.id).collect();
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
        for batch in left.chunks(MAX_CLAIMED) {
            self.process(batch.to_vec()).await?;
        }
        Ok(is_requeued)
    }

    /// Queues the orders that are due next, which the queue has probably lost, unless a refill is
    /// running or just ran.
    fn refill(&mut self) {
        if self.refill.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let refill = refill(self.executor.clone());
            let task = self.executor.shop.tasks.runtime.spawn(refill);
            self.refill = Some(AbortOnDropHandle::new(task));
        }
    }

    /// Looks up each order and removes, postpones or expires it.
    async fn process(&mut self, orders: Vec<OrderId>) -> Result<(), Error> {
        let mut options = self.options(|point| point == Point::Claimed);
        let seen = orders.iter().map(|order| ProbedValue::key(order.to_string()));
        options.probe.at(Point::Claimed, seen).await;
        let found =
            within(QUERY_TIMEOUT, expiry::read_states(&self.executor.shop.pool, &orders)).await?;
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
        self.claims.add(&mut due);
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

    /// Starts groups whose items are not busy, up to [`MAX_GROUPS_IN_FLIGHT`] in flight.
    fn start_groups(&mut self) {
        while self.in_flight.len() < MAX_GROUPS_IN_FLIGHT
            && let admits_lab = self.lab_groups_in_flight < MAX_LAB_GROUPS_IN_FLIGHT
            && let Some(group) = self.pending.next(&self.busy, admits_lab)
        {
            let in_lab = group.is_in_lab();
            self.lab_groups_in_flight += usize::from(in_lab);
            let ExpiryGroup { orders, skus, watched } = group;
            self.busy.extend(skus.iter().cloned());
            let ids: Vec<OrderId> = orders.iter().map(|(order, _)| *order).collect();
            let executor = self.executor.clone();
            // Also after a panic, its items must be free again, and its claims must end.
            let expire = async move {
                let options = watched.unwrap_or_else(|| executor.default_options());
                let expired = AssertUnwindSafe(executor.expire(orders.into(), options));
                let is_unavailable = expired.catch_unwind().await.unwrap_or_default();
                EndedGroup { skus, orders: ids, is_unavailable, in_lab }
            };
            self.in_flight.spawn_on(expire, &self.executor.shop.tasks.runtime);
        }
    }

    fn finish_group(&mut self, ended: EndedGroup) {
        let EndedGroup { skus, orders, is_unavailable, in_lab } = ended;
        self.lab_groups_in_flight -= usize::from(in_lab);
        self.busy.retain(|sku| !skus.contains(sku));
        self.claims.remove(&orders);
        if self.pending.is_full() {
            self.claim_at = Instant::now();
        }
        if is_unavailable {
            // Perhaps only this replica is cut off: pending orders are free for others when their
            // claims expire.
            self.claims.remove(&self.pending.drain());
        }
        self.start_groups();
    }

    /// Returns the usual options, with the lab's pause if `accepts` returns true for its point.
    fn options(&self, accepts: impl Fn(Point) -> bool) -> RequestOptions {
        let mut options = self.executor.default_options();
        let Some(LabRequest::Pause { at, ttl, strategy }) = self.lab.take_pause(accepts) else {
            return options;
        };
        let RequestOptions { request_id, deadline: until, .. } = options;
        if let Some(strategy) = strategy {
            (options.strategy, options.ttl) = (strategy, None);
        }
        options.ttl = ttl.or(options.ttl);
        options.probe = Probe::Lab(Arc::new(RequestProbe {
            pause: Some(Pause { at: Some(at), length: None, until }),
            ..RequestProbe::new(self.replica.as_str(), request_id, &self.board)
        }));
        options
    }

    /// Logs once that a step fails, and once that none fails any more.
    fn log_changes(&mut self, step: &'static str, error: Option<&impl Display>) {
        let failed_before = !self.failing_steps.is_empty();
        match error {
            Some(error) => {
                self.failing_steps.insert(step);
                if !failed_before {
                    tracing::warn!(%error, "orders do not expire until Postgres and Redis respond");
                }
            }
            None => {
                self.failing_steps.remove(step);
                if failed_before && self.failing_steps.is_empty() {
                    tracing::info!("orders expire again");
                }
            }
        }
    }
}

async fn refill(executor: ExpiryExecutor) {
    let (shop, queue) = (&executor.shop, &executor.queue);
    let refill = requeue::enqueue_due_within(shop, queue, REFILL_WINDOW, MAX_REFILL_PAGES);
    match timeout(QUERY_TIMEOUT, refill).await {
        Ok(Ok((orders, _))) => tracing::debug!(orders, "the delay queue was refilled"),
        Ok(Err(error)) => tracing::debug!(%error, "the delay queue was not refilled"),
        Err(_) => tracing::debug!("the delay queue was not refilled in time"),
    }
    sleep(REFILL_INTERVAL).await;
}

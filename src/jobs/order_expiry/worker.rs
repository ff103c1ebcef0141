//! The worker of one replica: claims due orders, expires them, looks for orders not in the queue.
//!
//! It may be killed between any two of its steps. Before the commit nothing has changed, and its
//! orders are due again when their claims ([`super::queue::CLAIM`]) expire; afterwards the order is
//! no longer pending, and its next claimer only removes it from the queue.
//!
//! An order in the queue waits for the orders before it; if a worker was killed, also for the end
//! of its claim and of the leases on its items. An order that is not in the queue is found
//! [`OVERDUE`] and [`LOOK_BACK_EVERY`] after its due time; the orders due next are then queued,
//! too.
//!
//! An item whose lock is not acquired holds up one group of its orders and a few behind it; orders
//! of other items overtake. Orders that wait briefly stay in the worker, which renews their claims;
//! orders that wait longer are postponed in Redis.

use std::collections::BTreeSet;
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

use super::failures::Overdue;
use super::give::{Came, Giver, by_chance};
use super::group::{Group, Pending};
use super::hand::Hand;
use super::{Unpaid, Wish, failures, sweep};
use crate::probe::{Board, Pause, Point, Probe, Seen, Watch};
use crate::shop::expiry::{self, Found};
use crate::shop::{Error, OrderId, RequestOptions, Shop, Sku};

/// Orders claimed at once: their work takes a fraction of a claim's time.
const MOST_CLAIMED: usize = 64;
/// Upper bound of the concurrent transactions, which use the replica's connections.
const AT_ONCE: usize = 4;
/// Pause between two claims, unless the queue reports an entry that is due earlier.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which a resting worker checks for the end of its rest.
const REST_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval of the query for overdue orders in Postgres.
const LOOK_BACK_EVERY: Duration = Duration::from_millis(500);
/// Delay after which a due order counts as absent from the queue.
const OVERDUE: Duration = Duration::from_millis(250);
/// Orders found by one look back; after as many as this, the next look continues behind them.
const MOST_OVERDUE: i64 = 256;
/// Pause before a look that continues: an item that cannot be locked may have thousands of overdue
/// orders, which must not hide the others.
const LOOK_ON_AFTER: Duration = Duration::from_millis(50);
/// After an absent order, the orders due within this time are queued again; by its end a sweep has
/// queued the rest.
const LOOK_AHEAD: Duration = Duration::from_secs(60);
/// Pages of one look ahead; a later look back shows whether they were enough.
const MOST_PAGES_AHEAD: usize = 8;
/// Minimum interval between looks ahead: a backlog is looked back at page by page, and orders that
/// are expired between a query and the call that follows look absent as well.
const LOOK_AHEAD_EVERY: Duration = Duration::from_secs(2);
/// Pause before an order whose row is locked is retried: it is being paid, or expired by another
/// worker.
const ROW_TAKEN: Duration = Duration::from_millis(200);
/// Timeout of a query: no query of the worker takes longer, unless the network drops it.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);

/// A group whose execution has ended.
struct Over {
    skus: BTreeSet<Sku>,
    orders: Vec<OrderId>,
    came: Came,
}

/// The worker of one replica.
pub(super) struct Worker {
    giver: Giver,
    unpaid: Unpaid,
    replica: String,
    board: Board,
    in_flight: JoinSet<Over>,
    /// The items of the groups in flight.
    busy: BTreeSet<Sku>,
    pending: Pending,
    in_hand: Hand,
    /// Orders whose rows were locked, until they are retried.
    soon: DelayQueue<OrderId>,
    /// The orders in `soon`, as a set against duplicates.
    soon_too: BTreeSet<OrderId>,
    look_back_at: Instant,
    /// The order behind which the next look back continues.
    looked_at: Option<Overdue>,
    /// The look ahead, if it is running; it ends with the worker.
    ahead: JoinSet<()>,
    ahead_at: Instant,
    /// Two flags: the last look back failed, the last claim failed.
    away: (bool, bool),
}

impl Worker {
    pub(super) fn new(shop: &Shop, unpaid: &Unpaid, replica: &str, board: &Board) -> Self {
        Self {
            giver: Giver { shop: shop.clone(), queue: unpaid.queue().clone() },
            unpaid: unpaid.clone(),
            replica: replica.to_owned(),
            board: board.clone(),
            in_flight: JoinSet::new(),
            busy: BTreeSet::new(),
            pending: Pending::default(),
            in_hand: Hand::default(),
            soon: DelayQueue::new(),
            soon_too: BTreeSet::new(),
            look_back_at: Instant::now() + by_chance(LOOK_BACK_EVERY),
            looked_at: None,
            ahead: JoinSet::new(),
            ahead_at: Instant::now(),
            away: (false, false),
        }
    }

    /// Runs forever. When dropped, claims expire; a transaction that has begun runs to its end.
    pub(super) async fn work(self) {
        let (in_hand, queue) = (self.in_hand.clone(), self.giver.queue.clone());
        // Concurrently, so that no response the worker waits for costs it its claims.
        tokio::join!(in_hand.keep(&queue), self.give_back());
    }

    async fn give_back(mut self) {
        let mut claim_at = Instant::now();
        loop {
            let mut again = Vec::new();
            tokio::select! {
                () = sleep_until(claim_at) => {
                    if self.unpaid.rests() {
                        claim_at = Instant::now() + REST_LOOK_EVERY;
                        continue;
                    }
                    let pause = self.claim().await;
                    claim_at = Instant::now() + pause;
                }
                () = sleep_until(self.look_back_at) => {
                    if self.unpaid.rests() {
                        self.look_back_at = Instant::now() + REST_LOOK_EVERY;
                        continue;
                    }
                    if self.look_back_in_time().await {
                        claim_at = Instant::now();
                    }
                }
                Some(over) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    // The task catches its panics itself.
                    if let Ok(over) = over {
                        self.note_over(over);
                    }
                }
                Some(first) = self.soon.next(), if !self.soon.is_empty() => {
                    again.push(first.into_inner());
                    while let Some(Some(next)) = self.soon.next().now_or_never() {
                        again.push(next.into_inner());
                    }
                }
            }
            for order in &again {
                self.soon_too.remove(order);
            }
            if !again.is_empty() {
                // Orders that are not looked up now are due again when their claims expire.
                let _ = self.settle(again).await;
            }
        }
    }

    /// Claims due orders and has them expired. Returns the pause before the next claim.
    async fn claim(&mut self) -> Duration {
        let claimed = match self.giver.queue.claim(MOST_CLAIMED).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.note_away(self.away.0, true, &error);
                return LOOK_EVERY + by_chance(LOOK_EVERY);
            }
        };
        let all = claimed.ids.len() >= MOST_CLAIMED;
        let orders: Vec<OrderId> = claimed.ids.into_iter().map(OrderId).collect();
        if !orders.is_empty()
            && let Err(error) = self.settle(orders).await
        {
            self.note_away(self.away.0, true, &error);
            return LOOK_EVERY + by_chance(LOOK_EVERY);
        }
        self.note_away(self.away.0, false, &"");
        if all {
            Duration::ZERO
        } else {
            claimed.next_in.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY))
        }
    }

    /// Looks back and sets the time of the next look. Returns whether the queue has due orders now.
    async fn look_back_in_time(&mut self) -> bool {
        self.look_back_at = Instant::now() + LOOK_BACK_EVERY;
        match self.look_back().await {
            Ok(brought) => {
                self.note_away(false, self.away.1, &"");
                brought
            }
            Err(error) => {
                self.note_away(true, self.away.1, &error);
                false
            }
        }
    }

    /// Finds overdue orders in Postgres and makes them due in the queue, which delivers each to one
    /// worker. Orders for which it has no room, or all of them while Redis is unavailable, are
    /// processed directly. Returns whether the queue was updated.
    async fn look_back(&mut self) -> Result<bool, Error> {
        let look = failures::overdue(&self.giver.shop, OVERDUE, self.looked_at, MOST_OVERDUE);
        let overdue = in_time(look).await?;
        self.looked_at = overdue.last().copied().filter(|_| overdue.len() as i64 == MOST_OVERDUE);
        if self.looked_at.is_some() {
            self.look_back_at = Instant::now() + LOOK_ON_AFTER;
        }
        if overdue.is_empty() {
            return Ok(false);
        }
        let ids: Vec<Uuid> = overdue.iter().map(|overdue| overdue.order.0).collect();
        let (told, left) = match self.giver.queue.bring_forward(&ids).await {
            Ok(brought) => {
                if brought.unknown > 0 {
                    self.look_ahead();
                }
                (true, brought.no_room)
            }
            Err(_) => (false, ids),
        };
        let left: Vec<OrderId> = left.into_iter().map(OrderId).collect();
        for some in left.chunks(MOST_CLAIMED) {
            self.settle(some.to_vec()).await?;
        }
        Ok(told)
    }

    /// Queues the orders that are due next, which the queue has probably lost, unless a look ahead
    /// is running or just ran.
    fn look_ahead(&mut self) {
        while self.ahead.try_join_next().is_some() {}
        if !self.ahead.is_empty() || Instant::now() < self.ahead_at {
            return;
        }
        self.ahead_at = Instant::now() + LOOK_AHEAD_EVERY;
        self.ahead.spawn_on(look_ahead(self.giver.clone()), &self.giver.shop.runtime);
    }

    /// Looks up each order and removes, postpones or expires it.
    async fn settle(&mut self, orders: Vec<OrderId>) -> Result<(), Error> {
        let mut watched = self.conditions(|point| point == Point::Claimed);
        let seen = orders.iter().map(|order| Seen::key(order.to_string()));
        watched.probe.at(Point::Claimed, seen).await;
        let found = in_time(expiry::look(&self.giver.shop.pool, &orders)).await?;
        let gone = orders.iter().filter(|order| !found.contains_key(order));
        let mut gone: Vec<Uuid> = gone.map(|order| order.0).collect();
        let (mut early, mut due) = (Vec::new(), Vec::new());
        for (order, found) in found {
            match found {
                Found::Parked => gone.push(order.0),
                Found::NotYet(left) => early.push((order.0, left)),
                Found::Due { units, late } => {
                    metrics::histogram!("holdfast_unpaid_late_seconds").record(late.as_secs_f64());
                    due.push((order, units));
                }
            }
        }
        self.giver.forget(&gone).await;
        self.giver.put_off(&early).await;
        self.in_hand.take(&mut due, |(order, _)| *order);
        if matches!(watched.probe, Probe::Off) && !due.is_empty() {
            watched = self.conditions(|point| point != Point::Claimed);
        }
        if !matches!(watched.probe, Probe::Off) {
            due = self.pending.join_watched(due, watched);
        }
        let mut no_room = Vec::new();
        for due in due {
            let order = due.0;
            if !self.pending.join(due) {
                no_room.push(order);
            }
        }
        self.in_hand.let_go(&no_room);
        self.begin_pending();
        if !no_room.is_empty() {
            self.giver.leave_for_later(no_room).await;
        }
        Ok(())
    }

    /// Starts groups whose items are not busy, up to [`AT_ONCE`] in flight.
    fn begin_pending(&mut self) {
        while self.in_flight.len() < AT_ONCE
            && let Some(Group { orders, skus, watched }) = self.pending.next(&self.busy)
        {
            self.busy.extend(skus.iter().cloned());
            let ids: Vec<OrderId> = orders.iter().map(|(order, _)| *order).collect();
            let giver = self.giver.clone();
            // Also after a panic, its items must be free again, and its claims must end.
            let give_back = async move {
                let conditions = watched.unwrap_or_else(|| giver.usual());
                let came = giver.give_back(orders.into(), conditions);
                let came = AssertUnwindSafe(came).catch_unwind().await;
                Over { skus, orders: ids, came: came.unwrap_or_default() }
            };
            self.in_flight.spawn_on(give_back, &self.giver.shop.runtime);
        }
    }

    fn note_over(&mut self, Over { skus, orders, came }: Over) {
        self.busy.retain(|sku| !skus.contains(sku));
        self.in_hand.let_go(&orders);
        if came.away {
            // Perhaps only this replica is cut off: pending orders are free for others when their
            // claims expire.
            self.in_hand.let_go(&self.pending.let_go());
        }
        for order in came.taken {
            if self.soon_too.insert(order) {
                self.soon.insert(order, ROW_TAKEN);
            }
        }
        self.begin_pending();
    }

    /// Returns the usual options, with the lab's pause if `among` accepts its point.
    fn conditions(&self, among: impl Fn(Point) -> bool) -> RequestOptions {
        let mut conditions = self.giver.usual();
        let Some(Wish::Pause { at, ttl, strategy }) = self.unpaid.take_pause(among) else {
            return conditions;
        };
        let RequestOptions { request_id, deadline: until, .. } = conditions;
        if let Some(strategy) = strategy {
            (conditions.strategy, conditions.ttl) = (strategy, None);
        }
        conditions.ttl = ttl.or(conditions.ttl);
        conditions.probe = Probe::Lab(Arc::new(Watch {
            replica: self.replica.clone(),
            work: Duration::ZERO,
            record: false,
            pause: Some(Pause { at: Some(at), length: None, until }),
            request_id,
            board: self.board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        }));
        conditions
    }

    /// Logs once that a server is unavailable, and once that all are available again.
    fn note_away(&mut self, looking: bool, claiming: bool, cause: &dyn std::fmt::Display) {
        let was = self.away.0 || self.away.1;
        self.away = (looking, claiming);
        match (was, looking || claiming) {
            (false, true) => tracing::warn!(%cause, "unpaid orders have to wait"),
            (true, false) => tracing::info!("unpaid orders: at work again"),
            _ => {}
        }
    }
}

async fn look_ahead(giver: Giver) {
    let told = sweep::tell(&giver.shop, &giver.queue, LOOK_AHEAD, MOST_PAGES_AHEAD);
    match timeout(ANSWER_LIMIT, told).await {
        Ok(Ok((told, _))) => tracing::debug!(told, "the queue is told of unpaid orders again"),
        Ok(Err(error)) => tracing::debug!(%error, "the queue is not told again"),
        Err(_) => tracing::debug!("the queue is not told again in time"),
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(ANSWER_LIMIT, answer).await.unwrap_or_else(|_| {
        let cause = "it did not answer in time".to_owned();
        Err(Error::Unavailable { what: "Postgres", cause, outcome_unknown: false })
    })
}

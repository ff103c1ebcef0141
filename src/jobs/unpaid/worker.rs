//! The worker of one replica: claims due orders, expires them, looks for orders not in the queue.
//!
//! It may be killed between any two of its steps. Before the commit nothing has happened, and what
//! was claimed is due again when its claim ([`super::queue::CLAIM`]) is over; afterwards the order
//! is no longer pending, and its next claimer only removes it from the queue.
//!
//! An order that the queue knows waits for those before it; with a killed worker for its claim, and
//! its items for the rest of their locks' leases. One that the queue does not know is found
//! [`OVERDUE`] and [`LOOK_BACK_EVERY`] after its time; the orders due next are queued then, too.
//!
//! An item whose lock can't be had keeps one group of its orders, and a few behind it; those of
//! other items go past. What waits for a moment waits here, its claims renewed; what waits longer
//! is put off in Redis.

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

/// So many are claimed at once: a fraction of a claim's time's work.
const MOST_CLAIMED: usize = 64;
/// So many transactions at once, out of the replica's connections.
const AT_ONCE: usize = 4;
/// The queue is asked twice a second, or when it has said that something is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A worker that rests looks so often whether it still shall.
const REST_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Postgres is asked twice a second what is overdue by …
const LOOK_BACK_EVERY: Duration = Duration::from_millis(500);
/// … this: then the queue does not know it.
const OVERDUE: Duration = Duration::from_millis(250);
/// So many are found in one look back; the next one goes on behind them …
const MOST_OVERDUE: i64 = 256;
/// … after this: if an item that nobody can lock has thousands, they must not be all we ask for.
const LOOK_ON_AFTER: Duration = Duration::from_millis(50);
/// A queue that does not know an order is told of those that are due within this time: by then a
/// sweep has come and told it the rest.
const LOOK_AHEAD: Duration = Duration::from_secs(60);
/// In one look ahead, so many pages; a later look back says whether that was enough.
const MOST_PAGES_AHEAD: usize = 8;
/// Not oftener than so: a backlog is looked back at page by page, and what somebody gives back
/// between a look and the call that follows it looks forgotten as well.
const LOOK_AHEAD_EVERY: Duration = Duration::from_secs(2);
/// An order whose row is locked is being paid, or given back by another; that takes so long.
const ROW_TAKEN: Duration = Duration::from_millis(200);
/// No question of the worker's takes Postgres longer, unless the network swallows it.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);

/// A group that was given back.
struct Over {
    skus: BTreeSet<Sku>,
    orders: Vec<OrderId>,
    came: Came,
}

/// One replica's.
pub(super) struct Worker {
    giver: Giver,
    unpaid: Unpaid,
    replica: String,
    board: Board,
    in_flight: JoinSet<Over>,
    /// The items of those in flight.
    busy: BTreeSet<Sku>,
    pending: Pending,
    in_hand: Hand,
    /// Orders whose row was taken, until they are looked at again.
    soon: DelayQueue<OrderId>,
    /// The same, each once.
    soon_too: BTreeSet<OrderId>,
    look_back_at: Instant,
    /// Behind which one the next look back goes on.
    looked_at: Option<Overdue>,
    /// The look ahead, if there is one now; it ends with the worker.
    ahead: JoinSet<()>,
    ahead_at: Instant,
    /// Whether the last look, and the last claim, found nobody.
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

    /// Works for ever. When dropped, claims expire; a transaction that has begun runs to its end.
    pub(super) async fn work(self) {
        let (in_hand, queue) = (self.in_hand.clone(), self.giver.queue.clone());
        // Beside it: no answer that the worker waits for shall cost it its claims.
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
                    // It catches its panics itself.
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
                // What is not looked at now is due again when its claim is over.
                let _ = self.settle(again).await;
            }
        }
    }

    /// Claims what is due and has it given back. After what pause the queue is to be asked again.
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

    /// Looks back, and says when it does so again. Whether the queue has something for us now.
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

    /// Looks in Postgres for what the queue should have given us, and makes it due there: so each
    /// is given to one worker. What it has no room for, and all of it while Redis is away, is done
    /// here and now. Whether the queue was told of some.
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

    /// Has the queue, which has probably forgotten some, told of those that are due next; unless
    /// that is being done, or was just now.
    fn look_ahead(&mut self) {
        while self.ahead.try_join_next().is_some() {}
        if !self.ahead.is_empty() || Instant::now() < self.ahead_at {
            return;
        }
        self.ahead_at = Instant::now() + LOOK_AHEAD_EVERY;
        self.ahead.spawn_on(look_ahead(self.giver.clone()), &self.giver.shop.runtime);
    }

    /// Does with each of the orders what is to be done now.
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

    /// Begins with those whose items nobody is at, as far as there are turns.
    fn begin_pending(&mut self) {
        while self.in_flight.len() < AT_ONCE
            && let Some(Group { orders, skus, watched }) = self.pending.next(&self.busy)
        {
            self.busy.extend(skus.iter().cloned());
            let ids: Vec<OrderId> = orders.iter().map(|(order, _)| *order).collect();
            let giver = self.giver.clone();
            // Whatever it panics of, its items must be free again, and its claims must end.
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
            // Perhaps only from here: what waits is anybody's when its claim is over.
            self.in_hand.let_go(&self.pending.let_go());
        }
        for order in came.taken {
            if self.soon_too.insert(order) {
                self.soon.insert(order, ROW_TAKEN);
            }
        }
        self.begin_pending();
    }

    /// The usual conditions, and what the lab wants, if that is at one of those points.
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

    /// Says that something is away, and that all is there again: once each.
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

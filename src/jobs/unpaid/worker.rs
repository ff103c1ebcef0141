//! The worker of one replica: claims what is due, gives it back, says that it is done.
//!
//! What has to wait for less than its claim lasts waits here, in a delay queue in memory: it is gone
//! with the process, and then the claim ends as well. What has to wait longer is put off in Redis.
//!
//! It may be killed between any two of its steps. Before the transaction commits nothing has
//! happened, and what was claimed is due again when [`queue::CLAIM`] is over; afterwards the order is no
//! longer pending, and whoever claims it then only takes it out of the queue.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use rand::RngExt as _;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::time::DelayQueue;
use uuid::Uuid;

use super::queue;
use super::{Unpaid, failures};
use crate::probe::{Board, Pause, Point, Probe, Seen, Watch};
use crate::shop::orders::MOST_LINES;
use crate::shop::orders::unpaid::{self, Found};
use crate::shop::{Conditions, Error, OrderId, Shop, Sku};

/// So many are claimed at once: a fraction of a claim's time's work.
const MOST_CLAIMED: usize = 64;
/// So many go back in one transaction, whose items are locked meanwhile: some 20 ms.
const MOST_TOGETHER: usize = 32;
/// So many transactions at once, out of the replica's connections.
const AT_ONCE: usize = 4;
/// The queue is asked twice a second, or when it has said that something is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A worker that rests looks so often whether it still shall.
const REST_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Postgres is asked once a second what is overdue by …
const LOOK_BACK_EVERY: Duration = Duration::from_secs(1);
/// … this: then the queue does not know it.
const OVERDUE: Duration = Duration::from_millis(500);
/// So many are found in one look back.
const MOST_OVERDUE: i64 = 256;
/// An order whose row is locked is being paid, or given back by another; that takes so long.
const ROW_TAKEN: Duration = Duration::from_millis(200);
/// A lock that was not had, or a database that is away, is tried again after this and as much again
/// by chance.
const AGAIN: Duration = Duration::from_millis(500);

type Due = (OrderId, Vec<(Sku, i64)>);

/// One replica's.
pub(super) struct Worker {
    shop: Shop,
    unpaid: Unpaid,
    replica: String,
    board: Board,
    /// Orders whose row was taken, until they are looked at again.
    soon: DelayQueue<OrderId>,
    /// Whether something was away the last time, so that it is said once.
    away: bool,
}

impl Worker {
    pub(super) fn new(shop: &Shop, unpaid: &Unpaid, replica: &str, board: &Board) -> Self {
        let (shop, unpaid, board) = (shop.clone(), unpaid.clone(), board.clone());
        let (replica, soon) = (replica.to_owned(), DelayQueue::new());
        Self { shop, unpaid, replica, board, soon, away: false }
    }

    /// Works for ever.
    ///
    /// # Cancel safety
    /// What was claimed is due again later; a transaction that has begun goes on to its end.
    pub(super) async fn work(mut self) {
        let mut look_back_at = Instant::now() + by_chance(LOOK_BACK_EVERY);
        loop {
            if self.unpaid.rests() {
                sleep(REST_LOOK_EVERY).await;
                continue;
            }
            if Instant::now() >= look_back_at {
                look_back_at = Instant::now() + LOOK_BACK_EVERY;
                let looked = self.look_back().await;
                self.note(&looked);
            }
            let pause = match self.claim().await {
                Ok(pause) => pause,
                Err(error) => {
                    self.note(&Err(error));
                    LOOK_EVERY + by_chance(LOOK_EVERY)
                }
            };
            let again = self.soon_within(pause).await;
            if !again.is_empty()
                && let Err(error) = self.settle(again).await
            {
                self.note(&Err(error));
            }
        }
    }

    /// What is to be looked at again, if that is sooner than the pause is over.
    async fn soon_within(&mut self, pause: Duration) -> Vec<OrderId> {
        let mut again = Vec::new();
        let first = timeout(pause, async {
            match self.soon.next().await {
                Some(first) => first,
                None => std::future::pending().await,
            }
        });
        if let Ok(first) = first.await {
            again.push(first.into_inner());
            while let Some(Some(next)) = self.soon.next().now_or_never() {
                again.push(next.into_inner());
            }
        }
        again
    }

    /// Claims what is due and gives it back. After what pause the queue is to be asked again.
    async fn claim(&mut self) -> Result<Duration, Error> {
        let claimed = self.queue().claim(MOST_CLAIMED).await.map_err(redis_away)?;
        if !claimed.ids.is_empty() {
            let orders = claimed.ids.iter().copied().map(OrderId).collect();
            self.settle(orders).await?;
        }
        self.note(&Ok(()));
        Ok(if claimed.ids.len() < MOST_CLAIMED {
            claimed.next_in.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY))
        } else {
            Duration::ZERO
        })
    }

    /// Looks in Postgres for what the queue should have given us, and makes it due there: so each
    /// is given to one worker. What it has no room for, and all of it while Redis is away, is done
    /// here and now.
    async fn look_back(&mut self) -> Result<(), Error> {
        let overdue = failures::overdue(&self.shop, OVERDUE, MOST_OVERDUE).await?;
        if overdue.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = overdue.iter().map(|order| order.0).collect();
        let left = match self.queue().bring_forward(&ids).await {
            Ok(no_room) => no_room.into_iter().map(OrderId).collect(),
            Err(_) => overdue,
        };
        for some in left.chunks(MOST_CLAIMED) {
            self.settle(some.to_vec()).await?;
        }
        Ok(())
    }

    /// Does with each of the orders what is to be done now.
    async fn settle(&mut self, orders: Vec<OrderId>) -> Result<(), Error> {
        let watched = self.conditions(|point| point == Point::Claimed);
        watched
            .probe
            .at(Point::Claimed, orders.iter().map(|order| Seen::key(order.to_string())))
            .await;
        let mut found = unpaid::look(&self.shop, &orders).await?;
        let (mut gone, mut early, mut due) = (Vec::new(), Vec::new(), Vec::new());
        for order in orders {
            match found.remove(&order) {
                // Paid, cancelled, given back; or nobody is to try.
                None | Some(Found::Parked) => gone.push(order.0),
                Some(Found::NotYet(left)) => early.push((order.0, left)),
                Some(Found::Due { units, late }) => {
                    metrics::histogram!("holdfast_unpaid_late_seconds").record(late.as_secs_f64());
                    due.push((order, units));
                }
            }
        }
        self.forget(&gone).await;
        self.put_off(&early).await;
        if due.is_empty() {
            return Ok(());
        }
        let watched = match watched.probe {
            Probe::Off => self.conditions(|point| point != Point::Claimed),
            Probe::Lab(_) => watched,
        };
        let worker: &Self = self;
        let groups = groups(due).into_iter().enumerate();
        let taken: Vec<Vec<OrderId>> = futures_util::stream::iter(groups)
            .map(|(at, group)| {
                let conditions = if at == 0 { watched.clone() } else { worker.usual() };
                worker.give_back(group, conditions)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for order in taken.into_iter().flatten() {
            self.soon.insert(order, ROW_TAKEN);
        }
        Ok(())
    }

    /// Gives them back, whatever it takes. Those whose rows are taken.
    async fn give_back(&self, group: Vec<Due>, conditions: Conditions) -> Vec<OrderId> {
        let orders: Vec<OrderId> = group.iter().map(|(order, _)| *order).collect();
        let mut taken = Vec::new();
        match self.attempt(group.clone(), &conditions).await {
            Ok(rows) => taken = rows,
            // One of them is bad: it shall not keep the others.
            Err(cause) if group.len() > 1 => {
                tracing::warn!(cause, orders = group.len(), "unpaid orders, one by one");
                for due in group {
                    let order = due.0;
                    match self.attempt(vec![due], &self.usual()).await {
                        Ok(rows) => taken.extend(rows),
                        Err(cause) => self.failed(order, &cause).await,
                    }
                }
            }
            Err(cause) => self.failed(orders[0], &cause).await,
        }
        taken
    }

    /// Gives them back, or says what is wrong with them. That a lock was not had, or a server was
    /// away, is nothing that is wrong with an order: it is tried again soon.
    async fn attempt(
        &self,
        group: Vec<Due>,
        conditions: &Conditions,
    ) -> Result<Vec<OrderId>, String> {
        let ids: BTreeSet<OrderId> = group.iter().map(|(order, _)| *order).collect();
        match unpaid::give_back(&self.shop, conditions, group).await {
            Ok(Ok(given_back)) => {
                metrics::counter!("holdfast_unpaid_given_back_total")
                    .increment(given_back.len() as u64);
                let done: Vec<Uuid> = given_back.iter().map(|order| order.0).collect();
                self.forget(&done).await;
                Ok(ids.difference(&given_back).copied().collect())
            }
            Ok(Err(refusal)) => {
                tracing::debug!(?refusal, "unpaid orders are left for later");
                self.leave_for_later(&ids).await;
                Ok(Vec::new())
            }
            Err(Error::Bug(cause)) => Err(cause),
            Err(error) => {
                tracing::warn!(%error, "unpaid orders are left for later");
                self.leave_for_later(&ids).await;
                Ok(Vec::new())
            }
        }
    }

    async fn failed(&self, order: OrderId, cause: &str) {
        metrics::counter!("holdfast_unpaid_failures_total").increment(1);
        match failures::record(&self.shop, order, cause).await {
            Ok(Some(pause)) => {
                tracing::warn!(%order, cause, ?pause, "an unpaid order could not be given back");
                self.put_off(&[(order.0, pause)]).await;
            }
            Ok(None) => {
                tracing::error!(%order, cause, "an unpaid order is parked");
                self.forget(&[order.0]).await;
            }
            // It is due again soon, and fails again, and is written down then.
            Err(error) => tracing::warn!(%order, cause, %error, "a failure is not written down"),
        }
    }

    async fn leave_for_later(&self, orders: &BTreeSet<OrderId>) {
        let later = orders.iter().map(|order| (order.0, AGAIN + by_chance(AGAIN)));
        self.put_off(&later.collect::<Vec<_>>()).await;
    }

    /// What the queue is not told it finds out by itself, when the time of the claim is over.
    async fn forget(&self, ids: &[Uuid]) {
        if let Err(error) = self.queue().remove(ids).await {
            tracing::debug!(%error, "the queue is not told what is done");
        }
    }

    async fn put_off(&self, entries: &[(Uuid, Duration)]) {
        if let Err(error) = self.queue().put_off(entries).await {
            tracing::debug!(%error, "the queue is not told what is put off");
        }
    }

    fn usual(&self) -> Conditions {
        Conditions::usual(&self.shop, Uuid::now_v7())
    }

    fn queue(&self) -> &queue::DelayQueue {
        self.unpaid.queue()
    }

    /// The usual conditions, and what the lab wants, if that is at one of those points.
    fn conditions(&self, among: impl Fn(Point) -> bool) -> Conditions {
        let mut conditions = Conditions::usual(&self.shop, Uuid::now_v7());
        let Some((point, ttl)) = self.unpaid.take_pause(among) else { return conditions };
        let Conditions { request_id, deadline: until, .. } = conditions;
        conditions.ttl = ttl;
        conditions.probe = Probe::Lab(Arc::new(Watch {
            replica: self.replica.clone(),
            work: Duration::ZERO,
            record: false,
            pause: Some(Pause { at: Some(point), length: None, until }),
            request_id,
            board: self.board.clone(),
            released: AtomicBool::new(false),
            events: Mutex::default(),
        }));
        conditions
    }

    /// Says that something is away, and that it is there again: once each.
    fn note(&mut self, done: &Result<(), Error>) {
        match done {
            Ok(()) if std::mem::take(&mut self.away) => {
                tracing::info!("unpaid orders: at work again")
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut self.away, true) => {
                tracing::warn!(%error, "unpaid orders have to wait");
            }
            Err(_) => {}
        }
    }
}

/// Those of the same items together, at most so many, of at most so many items.
fn groups(mut due: Vec<Due>) -> Vec<Vec<Due>> {
    due.sort_by(|(_, a), (_, b)| a.iter().map(|(sku, _)| sku).cmp(b.iter().map(|(sku, _)| sku)));
    let mut groups: Vec<Vec<Due>> = Vec::new();
    let mut skus: BTreeSet<Sku> = BTreeSet::new();
    for (order, units) in due {
        skus.extend(units.iter().map(|(sku, _)| sku.clone()));
        match groups.last_mut() {
            Some(group) if group.len() < MOST_TOGETHER && skus.len() <= MOST_LINES => {
                group.push((order, units));
            }
            _ => {
                skus = units.iter().map(|(sku, _)| sku.clone()).collect();
                groups.push(vec![(order, units)]);
            }
        }
    }
    groups
}

fn by_chance(most: Duration) -> Duration {
    most.mul_f64(rand::rng().random_range(0.0..1.0))
}

fn redis_away(error: redis::RedisError) -> Error {
    Error::Unavailable { what: "Redis", cause: error.to_string(), outcome_unknown: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(orders: &[&[&str]]) -> Vec<Due> {
        let sku =
            |name: &&str| (Sku::try_from((*name).to_owned()).unwrap_or_else(|_| unreachable!()), 1);
        let order = |skus: &&[&str]| (OrderId(Uuid::now_v7()), skus.iter().map(sku).collect());
        orders.iter().map(order).collect()
    }

    fn items(group: &[Due]) -> BTreeSet<&str> {
        group.iter().flat_map(|(_, units)| units).map(|(sku, _)| sku.as_str()).collect()
    }

    #[test]
    fn orders_of_one_item_go_back_together_and_never_too_many() {
        let groups = groups(due(&[&["tea"][..]; 70]));
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 6]);
    }

    #[test]
    fn no_transaction_locks_more_items_than_an_order_may_have() {
        let names: Vec<String> = (0..120).map(|n| format!("item-{n}")).collect();
        let each: Vec<Vec<&str>> =
            names.chunks(3).map(|some| some.iter().map(String::as_str).collect()).collect();
        let each: Vec<&[&str]> = each.iter().map(Vec::as_slice).collect();
        let groups = groups(due(&each));
        assert!(groups.iter().all(|group| items(group).len() <= MOST_LINES), "{groups:?}");
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 40);
    }
}

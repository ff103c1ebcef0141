//! The locks of one errand: on what, taken before its transaction, given back after it; or, where a
//! strategy shows what becomes of that, on something else and too early.

use tokio::sync::oneshot;

use super::errand::Errand;
use super::figures::{Holding, Waiting};
use super::stock::{On, early_release, wrong_key};
use super::{Conditions, Error, Refusal, Shop};
use crate::lock::{self, Ask, Guards, LockKey, Manner};
use crate::probe::{Point, Seen};

/// Locks that were taken, and how long they are held.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) guards: Guards,
    /// On what they are; without a lock, on what they would be.
    keys: Vec<LockKey>,
    /// After the guards: dropped together, they are given back first. Nothing without a lock.
    holding: Option<Holding>,
    /// The point is behind us.
    released: bool,
}

/// Takes what the strategy locks, or says why not. For `next` see [`lock::Locks::acquire_in_line`].
pub(super) async fn take<E: Errand>(
    shop: &Shop,
    conditions: &Conditions,
    errand: &E,
    next: Option<oneshot::Sender<()>>,
) -> Result<Result<Taken, Refusal>, Error> {
    let Conditions { strategy, ref probe, deadline, ttl, .. } = *conditions;
    let keys = match (strategy.on, errand.order()) {
        (On::Order, Some(order)) => wrong_key::keys(order),
        _ => errand.keys(),
    };
    let mut taken = Taken { guards: Guards::default(), keys, holding: None, released: false };
    probe.at(Point::Wait, taken.seen()).await;
    let Some(kind) = strategy.lock else { return Ok(Ok(taken)) };
    let wait = conditions.wait.unwrap_or(kind.waits()[0]);
    let ask = Ask { kind, wait, ttl, deadline, keys: &taken.keys };
    let priority = conditions.manner.priority.unwrap_or(errand.priority());
    let manner = Manner { priority: Some(priority), ..conditions.manner };
    let waiting = Waiting::begin(strategy);
    let outcome = shop.locks.acquire_in_line(ask, &manner, next, probe).await?;
    waiting.answered();
    match outcome {
        lock::Outcome::Acquired(guards) => {
            taken.guards = guards;
            taken.holding = Some(Holding::begin(strategy));
            probe.at(Point::Held, taken.seen()).await;
            Ok(Ok(taken))
        }
        lock::Outcome::Busy(holder) => Ok(Err(Refusal::LockBusy(holder))),
        lock::Outcome::TimedOut { waited, holder } => {
            Ok(Err(Refusal::LockTimeout { waited, holder }))
        }
    }
}

impl Taken {
    fn seen(&self) -> impl Iterator<Item = Seen> {
        self.keys.iter().map(|key| Seen::key(key.as_str()).under(self.guards.fence(key)))
    }

    /// After the transaction.
    pub(super) async fn give_back(mut self, conditions: &Conditions) {
        let held = self.to_tell(conditions);
        if conditions.strategy.lock.is_some() {
            let released = std::mem::take(&mut self.guards).release().await;
            tracing::trace!(?released, "locks given back");
        }
        self.pass_release(conditions, held).await;
    }

    /// In the middle of the transaction, while its connection is held.
    pub(super) async fn give_back_early(&mut self, conditions: &Conditions) {
        let held = self.to_tell(conditions);
        early_release::give_back(&mut self.guards).await;
        self.pass_release(conditions, held).await;
    }

    /// The transaction may still run.
    pub(super) async fn leave_to_expire(mut self, conditions: &Conditions) {
        let held = self.to_tell(conditions);
        std::mem::take(&mut self.guards).leave_to_expire();
        self.pass_release(conditions, held).await;
    }

    /// What is to be told of the locks when they have been given back: their fences are gone by
    /// then. Nothing where nobody keeps it.
    fn to_tell(&self, conditions: &Conditions) -> Vec<Seen> {
        if conditions.probe.records() { self.seen().collect() } else { Vec::new() }
    }

    async fn pass_release(&mut self, conditions: &Conditions, held: Vec<Seen>) {
        self.holding = None;
        if !std::mem::replace(&mut self.released, true) {
            conditions.probe.at(Point::Release, held).await;
        }
    }
}

//! How a leader gets the lease of its queue's key. If another replica holds it, the commands may go
//! there instead ([`forward`]); otherwise it waits for it, and prepares those that wait.

pub mod forward;
pub mod locks;
mod pace;

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, MaybeDone, maybe_done, pending, select};
use holdfast_lock::{LeaseId, LockKey, Wait};
use tokio::time::{Instant, timeout};

use crate::engine::delegation::RemoteLease;
use crate::engine::duplicates::LOOKUP_TIMEOUT;
use crate::engine::leader::Leader;
use crate::failure::{Error, Failure, Rejection};
use crate::locks::ShopLocks;
use forward::{ForwardEnd, Forwarder};
use locks::AcquiredLocks;

/// Interval at which a leader that waits for its lease looks after the entries that wait with it.
const PREPARE_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of the key lookup of waiting entries: an item lease that is granted before is idle.
const PREPARE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// Where the lease is that a leader needs.
#[derive(Debug)]
pub enum LeaseLocation {
    Here(Box<AcquiredLocks>),
    /// Held by another process, to which commands may be forwarded.
    Elsewhere(RemoteLease),
}

type PendingLease = MaybeDone<BoxFuture<'static, Result<LeaseLocation, Failure>>>;

impl Leader {
    /// Requests the lease, in the order of its queue.
    pub fn acquire(&self) -> PendingLease {
        let locks = self.shop.locks.clone();
        let key = self.queue.key.clone();
        maybe_done(Box::pin(async move { wait_for_lease(&locks, key).await }))
    }

    /// Acquires the lease, or finds the process that holds it, in one call of Redis if it is free.
    fn acquire_or_find(&self) -> PendingLease {
        let delegation = self.shop.engine.delegation.clone();
        let locks = self.shop.locks.clone();
        let key = self.queue.key.clone();
        if !delegation.is_running() {
            return self.acquire();
        }

        let refused = self.refused_by().cloned();
        maybe_done(Box::pin(async move {
            match AcquiredLocks::acquire_lease(&locks, key.clone(), Wait::Try).await {
                Err(Failure::Rejected(Rejection::LockBusy(holder))) => {
                    let lease = holder.lease.zip(holder.fence);
                    let lease = lease.filter(|(id, _)| {
                        delegation.may_forward_to(id) && refused.as_ref() != Some(id)
                    });
                    match lease {
                        Some((id, fence)) => {
                            Ok(LeaseLocation::Elsewhere(RemoteLease { id, fence }))
                        }
                        None => wait_for_lease(&locks, key).await,
                    }
                }
                acquired => acquired.map(|locks| LeaseLocation::Here(Box::new(locks))),
            }
        }))
    }

    /// Returns the lease, once this process has it. `None` if no command needs it any more: they
    /// were executed elsewhere, or rejected.
    pub async fn obtain_lease(&mut self) -> Option<AcquiredLocks> {
        let delegation = self.shop.engine.delegation.clone();
        let asks_for_holder = self.has_forwarded() || self.queue.has_forwardable_entries();
        // A command without a leader has the lease here, or waits for it: this leader is next.
        let is_in_use_here = self.shop.locks.leases().is_in_use_here(&self.queue.key);
        if !asks_for_holder || is_in_use_here {
            let acquiring = self.acquire();
            return self.wait_for_own(acquiring).await;
        }

        let holder = match delegation.last_holder(&self.queue.key).await {
            Some(lease) if self.refused_by() != Some(&lease.id) => lease,
            _ => {
                let acquiring = self.acquire_or_find();
                match self.wait_for(acquiring).await? {
                    LeaseLocation::Here(locks) => return Some(*locks),
                    LeaseLocation::Elsewhere(lease) => {
                        delegation.remember_holder(&self.queue.key, lease.clone()).await;
                        lease
                    }
                }
            }
        };

        let forwarder =
            self.forwarder.get_or_insert_with(|| Forwarder::new(&self.shop, &self.queue.key));
        match forwarder.forward_to(holder, &self.queue, &mut self.responses).await {
            ForwardEnd::Idle => None,
            ForwardEnd::LeaseMoved => {
                delegation.forget_holder(&self.queue.key).await;
                None
            }
            ForwardEnd::LeaseNeeded => {
                delegation.forget_holder(&self.queue.key).await;
                let acquiring = self.acquire();
                self.wait_for_own(acquiring).await
            }
        }
    }

    /// Waits for a lease that was requested with [`Leader::acquire`].
    pub async fn wait_for_own(&mut self, acquiring: PendingLease) -> Option<AcquiredLocks> {
        match self.wait_for(acquiring).await? {
            LeaseLocation::Here(locks) => Some(*locks),
            LeaseLocation::Elsewhere(_) => None,
        }
    }

    /// Waits for the item lease, and prepares the waiting entries. If it can't be acquired, rejects
    /// the entries that waited for it.
    async fn wait_for(&mut self, mut acquiring: PendingLease) -> Option<LeaseLocation> {
        let began = Instant::now();
        // Clients that wait for a response send no more than the last batch had: once as many are
        // here, their keys are locked in one round trip.
        let mut awaited =
            if self.expected_batch_size > 1 { self.expected_batch_size } else { usize::MAX };
        loop {
            let forwarder = &mut self.forwarder;
            let event = timeout(PREPARE_INTERVAL, async {
                tokio::select! {
                    () = self.queue.arrived(awaited) => {}
                    () = answered(forwarder) => {}
                }
            });
            let look_up = match select(&mut acquiring, Box::pin(event)).await {
                Either::Left(_) => break,
                Either::Right((event, _)) => event.is_err(),
            };
            if let Some(forwarder) = &mut self.forwarder {
                forwarder.take_answers(&self.queue, &mut self.responses).await;
                forwarder.give_up(Some(Instant::now()), &self.queue, &mut self.responses).await;
            }
            if look_up && self.queue.waiting() == 0 && !self.has_forwarded() {
                // The queue is empty: drops the request, so that others need not wait for it.
                return None;
            }

            // If the item lease is granted during this, the borrowed entries are put back first.
            let preparing = pin!(self.prepare_waiting(look_up));
            if let Either::Left(((), preparing)) = select(&mut acquiring, preparing).await {
                preparing.await;
                break;
            }
            awaited = usize::MAX;
        }

        self.has_executed = false;
        self.batches_while_wanted = 0;
        let failure = match Pin::new(&mut acquiring).take_output()? {
            Ok(LeaseLocation::Here(mut locks)) => {
                if let Some(forwarder) = &mut self.forwarder {
                    forwarder.resolve(&mut locks, &self.queue, &mut self.responses).await;
                }
                return Some(LeaseLocation::Here(locks));
            }
            Ok(elsewhere) => return Some(elsewhere),
            Err(failure) => failure,
        };

        let until = match &failure {
            // Commands that joined later have not waited for the full timeout, and wait on.
            Failure::Rejected(Rejection::LockTimeout { .. }) => began,
            _ => Instant::now(),
        };
        // No other task resolves them: what their holder does with them is not known.
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.give_up(None, &self.queue, &mut self.responses).await;
        }
        self.reject_waiting(failure, until).await;
        None
    }

    fn has_forwarded(&self) -> bool {
        self.forwarder.as_ref().is_some_and(Forwarder::has_forwarded)
    }

    fn refused_by(&self) -> Option<&LeaseId> {
        self.forwarder.as_ref()?.refused_by.as_ref()
    }

    /// Responds to dead entries, and acquires the idempotency locks of the others in advance. With
    /// `look_up`, looks up their keys too, so that a duplicate of a command that any replica has
    /// executed gets its response without waiting longer.
    ///
    /// During an outage of Postgres it rejects them: the item lease may have been left to expire,
    /// and a wait for Postgres would follow.
    async fn prepare_waiting(&mut self, look_up: bool) {
        if let Some(outage) = self.shop.pool.recent_failure() {
            return self.reject_all(outage.into()).await;
        }

        // Borrowed, not taken: they keep their places, and count against the queue's limit.
        let now = Instant::now();
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.queue.borrow().into_iter().partition(|entry| entry.is_alive(now));
        self.responses.reject(dead, Error::deadline_passed()).await;

        let admitted = self.acquire_key_locks(&alive).await;
        let waiting = self.retain_admitted(alive, admitted);
        let (known, fresh): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|entry| entry.looked_up || !look_up);
        let fresh = self.responses.replay(fresh, PREPARE_LOOKUP_TIMEOUT).await;
        self.queue.put_back(known.into_iter().chain(fresh).collect());
    }

    /// Rejects the commands that joined by `until`; replays those whose key has a record.
    async fn reject_waiting(&mut self, failure: Failure, until: Instant) {
        let (early, later): (Vec<_>, Vec<_>) =
            self.queue.borrow().into_iter().partition(|entry| entry.joined_at <= until);
        self.queue.put_back(later);
        let early = self.responses.replay(early, LOOKUP_TIMEOUT).await;
        self.responses.reject(early, failure).await;
    }
}

/// Waits for answers to forwarded commands.
async fn answered(forwarder: &mut Option<Forwarder>) {
    match forwarder {
        Some(forwarder) => forwarder.answered().await,
        None => pending().await,
    }
}

async fn wait_for_lease(locks: &ShopLocks, key: LockKey) -> Result<LeaseLocation, Failure> {
    let acquired = AcquiredLocks::acquire_lease(locks, key, Wait::Notify).await;
    acquired.map(|locks| LeaseLocation::Here(Box::new(locks)))
}

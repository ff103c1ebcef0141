//! How a leader gets the lease of its queue's key. If another replica holds it, the commands may go
//! there instead ([`super::forward`]); otherwise it waits for it, and prepares those that wait.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, MaybeDone, maybe_done, select};
use holdfast_lock::{LockKey, Wait};
use tokio::time::{Instant, timeout};

use super::delegation::RemoteLease;
use super::forward::ForwardEnd;
use super::leader::Leader;
use super::locks::AcquiredLocks;
use crate::failure::{Failure, Rejection};
use crate::locks::ShopLocks;

/// Interval at which a leader that waits for its lease looks after the entries that wait with it.
const PREPARE_INTERVAL: Duration = Duration::from_millis(50);

/// Where the lease is that a leader needs.
#[derive(Debug)]
pub(super) enum LeaseLocation {
    Here(Box<AcquiredLocks>),
    /// Held by another process, to which commands may be forwarded.
    Elsewhere(RemoteLease),
}

impl LeaseLocation {
    fn here(locks: AcquiredLocks) -> Self {
        Self::Here(Box::new(locks))
    }
}

type PendingLease = MaybeDone<BoxFuture<'static, Result<LeaseLocation, Failure>>>;

impl Leader {
    /// Requests the lease, in the order of its queue.
    pub(super) fn acquire(&self) -> PendingLease {
        let locks = self.shop.locks.clone();
        let key = self.queue.key.clone();
        maybe_done(Box::pin(async move { wait_for_lease(&locks, key).await }))
    }

    /// Acquires the lease, or finds the process that holds it, in one call of Redis if it is free.
    fn acquire_or_find(&self) -> PendingLease {
        let delegation = self.shop.engine.delegation.clone();
        let locks = self.shop.locks.clone();
        let key = self.queue.key.clone();
        // Its holder in this process has no leader; behind it, the queue is this process's.
        if !delegation.is_running() || locks.leases().is_in_use_here(&key) {
            return self.acquire();
        }

        let refused = self.refused_by.clone();
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
                acquired => acquired.map(LeaseLocation::here),
            }
        }))
    }

    /// Returns the lease, once this process has it. `None` if no command needs it any more: they
    /// were executed elsewhere, or rejected.
    pub(super) async fn obtain_lease(&mut self) -> Option<AcquiredLocks> {
        let delegation = self.shop.engine.delegation.clone();
        if self.forwarded.is_empty() && !self.queue.has_forwardable_entries() {
            // Nobody asks who has the lease.
            let acquiring = self.acquire();
            return self.wait_for_own(acquiring).await;
        }

        let holder = match delegation.last_holder(&self.queue.key).await {
            Some(lease) if self.refused_by.as_ref() != Some(&lease.id) => lease,
            _ => {
                let acquiring = self.acquire_or_find();
                match self.wait_for(acquiring).await? {
                    LeaseLocation::Here(locks) => return Some(*locks),
                    LeaseLocation::Elsewhere(lease) => lease,
                }
            }
        };

        match self.forward_to(holder).await {
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
    pub(super) async fn wait_for_own(&mut self, acquiring: PendingLease) -> Option<AcquiredLocks> {
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
            let event = timeout(PREPARE_INTERVAL, async {
                tokio::select! {
                    () = self.queue.arrived(awaited) => {}
                    () = self.queue.answered() => {}
                }
            });
            let look_up = match select(&mut acquiring, Box::pin(event)).await {
                Either::Left(_) => break,
                Either::Right((event, _)) => event.is_err(),
            };
            self.take_answers().await;
            self.give_up_forwarded(false).await;
            if look_up && self.queue.waiting() == 0 && self.forwarded.is_empty() {
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

        self.batches = 0;
        let failure = match Pin::new(&mut acquiring).take_output()? {
            Ok(LeaseLocation::Here(mut locks)) => {
                self.resolve_forwarded(&mut locks).await;
                if let Some(guard) = locks.lease() {
                    self.queue.begin_lease(guard.lease_id());
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
        // Nobody else resolves them: what their holder does with them is not known.
        self.give_up_forwarded(true).await;
        self.reject_waiting(failure, until).await;
        None
    }
}

async fn wait_for_lease(locks: &ShopLocks, key: LockKey) -> Result<LeaseLocation, Failure> {
    let acquired = AcquiredLocks::acquire_lease(locks, key, Wait::Notify).await;
    acquired.map(LeaseLocation::here)
}

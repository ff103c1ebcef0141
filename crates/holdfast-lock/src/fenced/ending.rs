//! The steps of a key's actor that end a lease, or replace its fences.

use tokio::sync::oneshot;

use super::actor::{KeyActor, respond};
use super::local_state::{HeldLease, LocalState};
use super::protocol::{AcquireResponse, FENCES_PER_GRANT};
use crate::clock::monotonic_us;
use crate::observer::{Event, Source};
#[cfg(test)]
use crate::seeded::{Bug, is_seeded};
use crate::{Error, LockKind, Released};

impl KeyActor {
    pub(super) async fn release(&mut self) {
        let LocalState::Held(held) = std::mem::replace(&mut self.state, LocalState::Idle) else {
            return;
        };
        // One call releases the lock and queues this process again, behind those that wait.
        let next_id = (!self.waiters.is_empty()).then(|| self.new_id());
        let was_held = held.lease.is_held();
        // Before the call, which lets the next one have the lock: `close` releases under a guard.
        held.lease.lost.send_replace(true);
        #[cfg(test)]
        if is_seeded(Bug::HeldWhileClosed) {
            held.lease.lost.send_replace(false);
        }

        let ttl = self.ttl();
        let sent_us = monotonic_us();
        let protocol = &self.shared.protocol;
        let id = &held.lease.id;
        let remote_waiters = held.remote_waiter.is_some();
        let released =
            protocol.release(&self.key, id, ttl, next_id.as_deref(), remote_waiters).await;

        match released {
            Ok((was_held_in_redis, next)) => {
                let result =
                    if was_held && was_held_in_redis { Released::Held } else { Released::Lost };
                self.observe_end(&held, result);
                respond(held.release_responder, result);

                match (next_id, next) {
                    (Some(id), AcquireResponse::Granted(grant)) => {
                        self.start_lease(id, ttl, sent_us, grant, Source::Free);
                    }
                    (Some(id), AcquireResponse::Busy { fence, .. }) => {
                        self.state = self.queued(id, sent_us, Some(fence));
                    }
                    (None, _) => {}
                }
            }
            Err(error) => {
                self.observe_end(&held, Released::Unknown);
                respond(held.release_responder, Released::Unknown);

                // Neither id may keep others waiting: both may be in Redis.
                self.fail_waiters(held.lease.id.clone(), &error);
                if let Some(next_id) = next_id {
                    self.fail_waiters(next_id, &error);
                }
            }
        }
    }

    /// Observes the end of the last guard, unless there was none.
    pub(super) fn observe_end(&self, held: &HeldLease, released: Released) {
        if !held.in_use && held.ended_after.is_none() {
            return;
        }
        let (kind, held) = (LockKind::Fenced, held.held_for());
        self.shared.leases.observe(match released {
            Released::Lost => Event::Lost { kind, held },
            Released::Held => Event::Released { kind, held, confirmed: true },
            Released::Unknown => Event::Released { kind, held, confirmed: false },
        });
    }

    /// Releases what is held, also if a guard exists, which then is no longer held.
    pub(super) async fn close(&mut self, responder: oneshot::Sender<Released>) {
        for waiter in self.waiters.drain(..) {
            let _ = waiter.responder.send(Err(Error::Closed));
        }

        let result = match &mut self.state {
            LocalState::Held(held) => {
                let (closed, result) = oneshot::channel();
                let guard = held.release_responder.replace(closed);
                self.release().await;
                let result = result.await.unwrap_or(Released::Unknown);
                respond(guard, result);
                result
            }
            LocalState::Queued { .. } => {
                self.leave().await;
                Released::Held
            }
            LocalState::Idle => Released::Held,
        };
        let _ = responder.send(result);
    }

    pub(super) async fn raise_fence(&mut self, id: &str, floor: i64) -> Result<Option<i64>, Error> {
        let key = self.key.clone();
        let shared = self.shared.clone();
        // A guard that is late has no lease of which the fence could be raised.
        let Some(held) = self.held_by(id) else { return Ok(None) };

        match shared.protocol.raise_fence(&key, id, floor).await? {
            Some(grant) => {
                held.next_fence = grant.fence + 1;
                held.fences_left = FENCES_PER_GRANT - 1;
                Ok(Some(grant.fence))
            }
            None => {
                self.handle_loss();
                Ok(None)
            }
        }
    }
}

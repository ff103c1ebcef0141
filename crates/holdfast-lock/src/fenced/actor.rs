//! The actor of a key: its queue in this process, and the task that runs its protocol with Redis.
//!
//! The task lives while this process holds the lock or waits for it. It is never cancelled: callers
//! only send messages and await responses, so a caller that is dropped cannot interrupt the
//! protocol. A grant whose waiter left goes to the next waiter, or is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::guard::{ActorMessage, FencedGuard, Lease, Waiter};
use super::local_state::{HeldLease, LocalState, RemoteWaiter};
use super::protocol::{AcquireResponse, FENCES_PER_GRANT, Grant};
use super::shared::Shared;
use crate::clock::{lease_deadline_us, monotonic_us, random, renewals_end_us, us};
use crate::mail::TAKES_MAIL;
use crate::observer::{Event, Source};
#[cfg(test)]
use crate::seeded::{Bug, is_seeded};
use crate::time::{Instant, timeout};
use crate::{Error, LockKind, Released, inspect};

pub(super) struct KeyActor {
    pub(super) shared: Arc<Shared>,
    pub(super) key: String,
    sender: mpsc::UnboundedSender<ActorMessage>,
    pub(super) inbox: mpsc::UnboundedReceiver<ActorMessage>,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) state: LocalState,
    /// True while the observer knows the key as contended.
    contended: bool,
}

impl KeyActor {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: String,
        sender: mpsc::UnboundedSender<ActorMessage>,
        inbox: mpsc::UnboundedReceiver<ActorMessage>,
    ) -> Self {
        let waiters = VecDeque::new();
        Self { shared, key, sender, inbox, waiters, state: LocalState::Idle, contended: false }
    }

    /// Runs until no caller in this process holds the lock or waits for it.
    pub(super) async fn run(mut self) {
        loop {
            // All messages first: who joined before a release gets the lock without Redis.
            while let Ok(message) = self.inbox.try_recv() {
                self.handle(message).await;
            }
            self.waiters.retain(|waiter| !waiter.responder.is_closed());

            let mut contended = false;
            if let LocalState::Held(held) = &self.state {
                held.set_wanted(!self.waiters.is_empty());
                contended = held.remote_waiter.is_some();
            }
            self.set_contended(contended);

            match &self.state {
                LocalState::Idle if self.waiters.is_empty() => {
                    if self.try_retire() {
                        return;
                    }
                }
                LocalState::Idle => {
                    let waits = self.waiters.iter().any(|waiter| !waiter.only_try);
                    self.request(self.new_id(), waits, Source::Free).await;
                }
                LocalState::Queued { .. } if self.waiters.is_empty() => self.leave().await,
                LocalState::Queued { .. } => self.wait_in_queue().await,
                LocalState::Held(held) if held.in_use => self.hold_until_released().await,
                LocalState::Held(_) => self.hand_off_or_release().await,
            }
        }
    }

    /// Removes the actor from the map, unless a message has just arrived. Returns whether it did.
    fn try_retire(&mut self) -> bool {
        let mut actors = self.shared.actors.lock();
        // Waiters join under this lock, so none can join between the check and the removal.
        let over = self.inbox.is_empty();
        if over {
            actors.remove(&self.key);
        }
        over
    }

    pub(super) async fn handle(&mut self, message: ActorMessage) {
        match message {
            ActorMessage::Join(waiter) => self.join(waiter),
            ActorMessage::Released { id, responder } => match self.held_by(&id) {
                Some(held) => {
                    held.ended_after = Some(held.held_for());
                    held.in_use = false;
                    held.release_responder = responder;
                }
                None => respond(responder, Released::Lost),
            },
            ActorMessage::LeftToExpire { id } => {
                if let Some(held) = self.held_by(&id) {
                    let (kind, held) = (LockKind::Fenced, held.held_for());
                    self.shared.leases.observe(Event::LeftToExpire { kind, held });
                    // This process forgets the lease: local waiters queue like those of others.
                    self.state = LocalState::Idle;
                }
            }
            ActorMessage::RaiseFence { id, floor, responder } => {
                let response = self.raise_fence(&id, floor).await;
                let _ = responder.send(response);
            }
            ActorMessage::Granted { id, grant, .. } => self.handle_grant(&id, grant).await,
            ActorMessage::RemoteWaiter { .. } => {
                if let LocalState::Held(held) = &mut self.state {
                    held.note_remote_waiter(
                        monotonic_us(),
                        self.shared.timing.local_handoff_period,
                    );
                }
            }
            // It has woken `run`, which removes those who left.
            ActorMessage::WaiterLeft => {}
            ActorMessage::Close { responder } => self.close(responder).await,
        }
    }

    fn join(&mut self, waiter: Waiter) {
        if self.shared.leases.is_closed() {
            let _ = waiter.responder.send(Err(Error::Closed));
            return;
        }
        self.shared.leases.observe(Event::Joined { queue_length: self.waiters.len() });
        let free = matches!(self.state, LocalState::Idle) && self.waiters.is_empty();
        if waiter.only_try && !free {
            self.reject_waiters(vec![waiter]);
        } else {
            self.waiters.push_back(waiter);
        }
    }

    pub(super) fn held_by(&mut self, id: &str) -> Option<&mut HeldLease> {
        let LocalState::Held(held) = &mut self.state else { return None };
        let is_its_own = held.lease.id == id;
        #[cfg(test)]
        let is_its_own = is_its_own || is_seeded(Bug::HandoffToTwo);
        is_its_own.then_some(held)
    }

    /// Returns a new id, which says whether all who wait here take mail.
    pub(super) fn new_id(&self) -> String {
        let take_mail = self.waiters.iter().all(|waiter| waiter.takes_mail);
        let mark = if take_mail { TAKES_MAIL } else { "" };
        format!("{}.{}{mark}", self.shared.process, Uuid::new_v4().simple())
    }

    pub(super) fn ttl(&self) -> Duration {
        self.waiters.front().map_or(self.shared.timing.ttl, |waiter| waiter.ttl)
    }

    pub(super) async fn request(&mut self, id: String, waits: bool, source: Source) {
        let ttl = self.ttl();
        // Before the call: the lease in Redis ends later than the deadline that is computed from
        // it.
        let sent_us = monotonic_us();

        match self.shared.protocol.acquire(&self.key, &id, ttl, waits).await {
            Ok(AcquireResponse::Granted(grant)) => {
                self.start_lease(id, ttl, sent_us, grant, source)
            }
            Ok(AcquireResponse::Busy { fence, queued }) => {
                self.reject_try_waiters();
                #[cfg(test)]
                if is_seeded(Bug::LostWakeup) {
                    self.forget_grants();
                }

                let fence = match self.state {
                    // The place was lost since the last poll, so a message may still announce a
                    // grant that Redis no longer knows.
                    LocalState::Queued { .. } if queued => None,
                    LocalState::Queued { fence: None, .. } => None,
                    _ => Some(fence),
                };
                self.state = if waits { self.queued(id, sent_us, fence) } else { LocalState::Idle };
            }
            // Redis does not know this id. Leaving would only add to what a silent node has to do.
            Err(error) if !error.was_sent() && matches!(self.state, LocalState::Idle) => {
                self.respond_with(&error);
            }
            Err(error) => self.fail_waiters(id, &error),
        }
    }

    #[cfg(test)]
    fn forget_grants(&mut self) {
        let messages: Vec<ActorMessage> =
            std::iter::from_fn(|| self.inbox.try_recv().ok()).collect();
        for message in messages {
            if !matches!(message, ActorMessage::Granted { .. }) {
                let _ = self.sender.send(message);
            }
        }
    }

    fn reject_try_waiters(&mut self) {
        let waiters = self.waiters.drain(..);
        let (tries, waits): (Vec<_>, Vec<_>) = waiters.partition(|waiter| waiter.only_try);

        self.waiters = waits.into();
        self.reject_waiters(tries);
    }

    /// Responds with the holder, looked up in a task of its own that does not delay the actor.
    fn reject_waiters(&self, waiters: Vec<Waiter>) {
        if waiters.is_empty() {
            return;
        }

        let shared = self.shared.clone();
        let key = self.key.clone();
        self.shared.protocol.redis.spawn(async move {
            let holder = inspect::holder(&shared.protocol.redis, &key).await;
            for waiter in waiters {
                let _ = waiter.responder.send(holder.clone().map(Err));
            }
        });
    }

    pub(super) fn queued(&self, id: String, polled_us: u64, fence: Option<i64>) -> LocalState {
        // Of random length: processes that were queued together do not poll together.
        let pause = self.shared.timing.poll_interval.mul_f64(random(0.8..1.0));
        LocalState::Queued { id, poll_at: Instant::now() + pause, polled_us, fence }
    }

    /// Fails all waiters after an error of Redis. A separate task tries once to release what may
    /// have been acquired; if it fails, the grant or lease expires.
    pub(super) fn fail_waiters(&mut self, id: String, error: &Error) {
        self.leave_in_background(id);
        self.respond_with(error);
        self.state = LocalState::Idle;
    }

    fn respond_with(&mut self, error: &Error) {
        for waiter in self.waiters.drain(..) {
            let _ = waiter.responder.send(Err(error.clone()));
        }
    }

    fn leave_in_background(&self, id: String) {
        let shared = self.shared.clone();
        let key = self.key.clone();
        let leave = async move { shared.protocol.leave(&key, &id).await };
        self.shared.leases.spawn_release(&self.shared.protocol.redis, leave);
    }

    fn set_contended(&mut self, contended: bool) {
        if std::mem::replace(&mut self.contended, contended) != contended {
            self.shared.leases.observe(if contended {
                Event::ContentionStarted
            } else {
                Event::ContentionEnded
            });
        }
    }

    pub(super) fn start_lease(
        &mut self,
        id: String,
        ttl: Duration,
        sent_us: u64,
        grant: Grant,
        source: Source,
    ) {
        let lease = Lease {
            id,
            deadline_us: AtomicU64::new(lease_deadline_us(sent_us, ttl)),
            lost: watch::Sender::new(false),
            wanted: watch::Sender::new(false),
        };

        #[cfg(not(test))]
        let in_use = false;
        #[cfg(test)]
        let in_use = is_seeded(Bug::CancelLeaksLease)
            && self.waiters.iter().all(|waiter| waiter.responder.is_closed());

        self.state = LocalState::Held(HeldLease {
            lease: Arc::new(lease),
            ttl,
            next_fence: grant.fence,
            fences_left: FENCES_PER_GRANT,
            source,
            in_use,
            since_us: sent_us,
            ended_after: None,
            release_responder: None,
            lease_duration: ttl,
            renew_at_us: sent_us + us(ttl / 3),
            // Each guard has its own limit, and there is none yet.
            renewals_end_us: u64::MAX,
            handoffs: 0,
            remote_waiter: grant
                .remote_waiters
                .then(|| RemoteWaiter::since(sent_us, self.shared.timing.local_handoff_period)),
        });
    }

    /// Waits for a message while a guard is in use, until it is time to renew the lease.
    async fn hold_until_released(&mut self) {
        let LocalState::Held(held) = &self.state else { return };
        let pause = Duration::from_micros(held.next_check_us().saturating_sub(monotonic_us()));
        match timeout(pause, self.inbox.recv()).await {
            Ok(Some(message)) => self.handle(message).await,
            Ok(None) => {}
            Err(_) => self.renew().await,
        }
    }

    async fn renew(&mut self) {
        let LocalState::Held(held) = &mut self.state else { return };
        if !held.lease.is_held() {
            if held.renewals_ended() {
                tracing::warn!(key = self.key, "a lock expires: it was held for too long");
            }
            return self.handle_loss();
        }

        // The lease is left to expire. Until then the lock is held.
        if held.renewals_ended() {
            return;
        }

        let id = held.lease.id.clone();
        let ttl = held.ttl;
        let sent_us = monotonic_us();
        let confirmed = self.shared.protocol.confirm(&self.key, &id, ttl).await;
        #[cfg(test)]
        if is_seeded(Bug::RenewalAfterLoss) && matches!(confirmed, Ok(Some(_))) {
            held.lease.deadline_us.store(lease_deadline_us(sent_us, ttl), Ordering::Release);
        }
        match confirmed {
            // Confirmed too late: the guard may have reported the loss already.
            Ok(Some(_)) if !held.lease.is_held() => {
                self.leave_in_background(id);
                self.handle_loss();
            }
            Ok(Some(grant)) => {
                self.shared.leases.observe(Event::Renewed { kind: LockKind::Fenced });
                held.lease.deadline_us.store(lease_deadline_us(sent_us, ttl), Ordering::Release);
                // The first renewal of a grant, which is shorter, makes it a lease.
                held.lease_duration = ttl;
                held.renew_at_us = sent_us + us(ttl / 3);
                if grant.remote_waiters {
                    held.note_remote_waiter(sent_us, self.shared.timing.local_handoff_period);
                }
            }
            Ok(None) => self.handle_loss(),
            // The outcome is unknown: retries until the local deadline.
            Err(_) => held.renew_at_us = monotonic_us() + us(ttl / 20),
        }
    }

    /// Notifies the guard. Local waiters acquire the lock anew.
    pub(super) fn handle_loss(&mut self) {
        if let LocalState::Held(held) = std::mem::replace(&mut self.state, LocalState::Idle) {
            self.observe_end(&held, Released::Lost);
            held.lease.lost.send_replace(true);
            held.lease.wanted.send_replace(true);
            respond(held.release_responder, Released::Lost);
        }
    }

    async fn hand_off_or_release(&mut self) {
        while let Some(next) = self.take_next_holder() {
            if self.hand_off_to(next) {
                return;
            }
        }
        self.release().await;
    }

    /// Takes the first waiter out of the queue, if it may have the lease.
    fn take_next_holder(&mut self) -> Option<Waiter> {
        let LocalState::Held(held) = &self.state else { return None };
        let next = self.waiters.front()?;
        // The first guard is what Redis granted; those behind it take turns from other processes.
        let is_its_turn = held.next_fence_is_first() || held.may_hand_off_to(next);

        if is_its_turn && held.has_enough_left() { self.waiters.pop_front() } else { None }
    }

    /// Returns whether the waiter has got the guard; it may have left.
    fn hand_off_to(&mut self, next: Waiter) -> bool {
        let LocalState::Held(held) = &mut self.state else { return false };
        // The new holder is no longer a waiter.
        held.set_wanted(!self.waiters.is_empty());
        let guard = FencedGuard {
            fence: held.next_fence,
            lease: held.lease.clone(),
            actor: self.sender.clone(),
            released: false,
        };

        if let Err(response) = next.responder.send(Ok(Ok(guard))) {
            // The lease goes to the next waiter, so the returned guard must not release it.
            if let Ok(Ok(mut guard)) = response {
                guard.released = true;
            }
            return false;
        }

        let now_us = monotonic_us();
        let (kind, mut source) = (LockKind::Fenced, held.source);
        if let Some(held) = held.ended_after.take() {
            self.shared.leases.observe(Event::Released { kind, held, confirmed: true });
        }
        if !held.next_fence_is_first() {
            source = Source::LocalHandoff;
            held.handoffs += u32::from(held.remote_waiter.is_some());
        }
        let waited = Duration::from_micros(now_us.saturating_sub(next.joined_us));
        self.shared.leases.observe(Event::Acquired { kind, source, waited });

        held.since_us = now_us;
        held.renewals_end_us = renewals_end_us(next.max_hold);
        held.next_fence += 1;
        held.fences_left -= 1;
        held.in_use = true;
        respond(held.release_responder.take(), Released::Held);
        true
    }
}

impl Drop for KeyActor {
    fn drop(&mut self) {
        self.set_contended(false);
    }
}

pub(super) fn respond(responder: Option<oneshot::Sender<Released>>, released: Released) {
    if let Some(responder) = responder {
        let _ = responder.send(released);
    }
}

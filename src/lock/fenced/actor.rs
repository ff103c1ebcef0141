//! The actor of a key: its queue in this process, and the task that runs its protocol with Redis.
//!
//! The task lives while this process holds the lock or waits for it. It is never cancelled: callers
//! only send messages and await responses, so a caller that is dropped cannot interrupt the
//! protocol. A grant whose waiter left goes to the next waiter, or is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::figures::Figures;
use super::message::{Message, Waiter};
use super::talk::{Asked, BLOCK, Grant};
use super::tenure::{Rival, Tenure, deadline_us, us};
use super::{FencedGuard, Lease, Shared};
use crate::clock;
use crate::lock::{Error, Released, inspect};

/// The state of the lock in this process.
enum Ours {
    Nothing,
    /// Queued in Redis. Polls at `poll_at` regardless of messages: an owner that does not poll is
    /// skipped.
    Queued {
        owner: String,
        poll_at: Instant,
        /// When the last poll was sent; `fence` is the holder's fence at that poll. A grant with a
        /// larger fence was made after the poll and lasts at least for a grant's time from
        /// `asked_us`.
        asked_us: u64,
        fence: i64,
    },
    /// Held. Between two guards no local waiter owns the lease.
    Held(Tenure),
}

/// The actor of a key.
pub(super) struct Line {
    shared: Arc<Shared>,
    key: String,
    /// Cloned into guards, which send their messages to this actor.
    sender: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    waiters: VecDeque<Waiter>,
    ours: Ours,
    figures: Figures,
}

impl Line {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: String,
        sender: mpsc::UnboundedSender<Message>,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        let (waiters, ours, figures) = (VecDeque::new(), Ours::Nothing, Figures::default());
        Self { shared, key, sender, inbox, waiters, ours, figures }
    }

    /// Runs until no caller in this process holds the lock or waits for it.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.hear(message).await;
            }
            self.waiters.retain(|waiter| !waiter.reply.is_closed());
            let rivals = matches!(&self.ours, Ours::Held(t) if t.rival.is_some());
            self.figures.contended(rivals);
            if let Ours::Held(tenure) = &self.ours {
                let wanted = rivals || !self.waiters.is_empty();
                tenure
                    .lease
                    .wanted
                    .send_if_modified(|was| std::mem::replace(was, wanted) != wanted);
            }
            match &self.ours {
                Ours::Nothing if self.waiters.is_empty() => {
                    if self.is_over() {
                        return;
                    }
                }
                Ours::Nothing => self.ask().await,
                Ours::Queued { .. } if self.waiters.is_empty() => self.leave().await,
                Ours::Queued { .. } => self.wait_in_line().await,
                Ours::Held(tenure) if tenure.in_use => self.watch_over().await,
                Ours::Held(_) => self.pass_or_give_back().await,
            }
        }
    }

    /// Removes the actor from the map, unless a message has just arrived. Returns whether it did.
    fn is_over(&mut self) -> bool {
        let mut lines = self.shared.lines.lock();
        // Waiters join under this lock, so none can join between the check and the removal.
        let over = self.inbox.is_empty();
        if over {
            lines.remove(&self.key);
        }
        over
    }

    async fn hear(&mut self, message: Message) {
        match message {
            Message::Join(waiter) => self.join(waiter),
            Message::Released { owner, reply } => match self.tenure_of(&owner) {
                Some(tenure) => {
                    tenure.in_use = false;
                    tenure.giver = reply;
                }
                None => answer(reply, Released::Lost),
            },
            Message::Abandoned { owner } => {
                if self.tenure_of(&owner).is_some() {
                    self.ours = Ours::Nothing;
                }
            }
            Message::Refence { owner, floor, reply } => {
                let outcome = self.refence(&owner, floor).await;
                let _ = reply.send(outcome);
            }
            Message::Granted { owner, grant } => self.granted(&owner, grant).await,
            Message::Rival => {
                if let Ours::Held(tenure) = &mut self.ours {
                    tenure.hear_of_rival(clock::monotonic_us(), self.shared.times.turn);
                }
            }
            Message::Look => {}
        }
    }

    fn join(&mut self, waiter: Waiter) {
        Figures::joins(self.waiters.len());
        let free = matches!(self.ours, Ours::Nothing) && self.waiters.is_empty();
        if waiter.only_try && !free {
            self.turn_away(vec![waiter]);
        } else {
            self.waiters.push_back(waiter);
        }
    }

    fn tenure_of(&mut self, owner: &str) -> Option<&mut Tenure> {
        match &mut self.ours {
            Ours::Held(tenure) if tenure.lease.owner == owner => Some(tenure),
            _ => None,
        }
    }

    fn new_owner(&self) -> String {
        format!("{}.{}", self.shared.process, Uuid::new_v4().simple())
    }

    fn ttl(&self) -> Duration {
        self.waiters.front().map_or(self.shared.times.ttl, |waiter| waiter.ttl)
    }

    /// Tries to acquire the lock as a new owner.
    async fn ask(&mut self) {
        let owner = self.new_owner();
        let waits = self.waiters.iter().any(|waiter| !waiter.only_try);
        self.ask_as(owner, waits, "free").await;
    }

    async fn ask_as(&mut self, owner: String, waits: bool, kind: &'static str) {
        let ttl = self.ttl();
        let sent_us = clock::monotonic_us();
        match self.shared.talk.acquire(&self.key, &owner, ttl, waits).await {
            Ok(Asked::Granted(grant)) => self.hold(owner, ttl, sent_us, grant, kind),
            Ok(Asked::Taken { fence }) => {
                self.turn_away_who_only_tries();
                self.ours = if waits { self.queued(owner, sent_us, fence) } else { Ours::Nothing };
            }
            Err(error) => self.despair(owner, &error),
        }
    }

    fn turn_away_who_only_tries(&mut self) {
        let everybody = self.waiters.drain(..);
        let (tries, waits): (Vec<_>, Vec<_>) = everybody.partition(|waiter| waiter.only_try);
        self.waiters = waits.into();
        self.turn_away(tries);
    }

    /// Responds with the current holder. The lookup is a task of its own, so that it does not delay
    /// the actor.
    fn turn_away(&self, waiters: Vec<Waiter>) {
        if waiters.is_empty() {
            return;
        }
        let (redis, key) = (self.shared.talk.redis.clone(), self.key.clone());
        self.shared.talk.redis.runtime().spawn(async move {
            let holder = inspect::holder(&redis, &key).await;
            for waiter in waiters {
                let _ = waiter.reply.send(holder.clone().map(Err));
            }
        });
    }

    fn queued(&self, owner: String, asked_us: u64, fence: i64) -> Ours {
        let pause = self.shared.times.poll.mul_f64(rand::rng().random_range(0.8..1.0));
        Ours::Queued { owner, poll_at: Instant::now() + pause, asked_us, fence }
    }

    /// Fails all waiters after an error of Redis. A separate task tries once to release what may
    /// have been acquired; if it fails, the grant or lease expires.
    fn despair(&mut self, owner: String, error: &Error) {
        let (shared, key) = (self.shared.clone(), self.key.clone());
        self.shared
            .talk
            .redis
            .runtime()
            .spawn(async move { shared.talk.leave(&key, &owner).await });
        for waiter in self.waiters.drain(..) {
            let _ = waiter.reply.send(Err(error.clone()));
        }
        self.ours = Ours::Nothing;
    }

    fn hold(
        &mut self,
        owner: String,
        ttl: Duration,
        sent_us: u64,
        grant: Grant,
        kind: &'static str,
    ) {
        metrics::counter!("holdfast_lock_handoffs_total", "kind" => kind).increment(1);
        let lease = Lease {
            owner,
            deadline_us: AtomicU64::new(deadline_us(sent_us, ttl)),
            lost: watch::Sender::new(false),
            wanted: watch::Sender::new(false),
        };
        self.ours = Ours::Held(Tenure {
            lease: Arc::new(lease),
            ttl,
            next_fence: grant.fence,
            fences_left: BLOCK,
            in_use: false,
            giver: None,
            span: ttl,
            renew_at_us: sent_us + us(ttl / 3),
            passes: 0,
            rival: grant.rivals.then(|| Rival::since(sent_us, self.shared.times.turn)),
        });
    }

    /// Waits for a message until the next poll is due, then polls.
    async fn wait_in_line(&mut self) {
        let Ours::Queued { owner, poll_at, .. } = &self.ours else { return };
        let owner = owner.clone();
        match timeout_at(*poll_at, self.inbox.recv()).await {
            Ok(Some(message)) => self.hear(message).await,
            Ok(None) => {}
            Err(_) => self.ask_as(owner, true, "polled").await,
        }
    }

    /// Handles a grant message. If the grant was made after the last poll, it is as good as a
    /// confirmation: it lasts at least for a grant's time from that poll, however long the message
    /// took. It is then confirmed by the first renewal, if the lock is still in use. Any other
    /// grant is confirmed first.
    async fn granted(&mut self, granted: &str, grant: Grant) {
        let Ours::Queued { owner, asked_us, fence, .. } = &self.ours else { return };
        if owner != granted {
            return;
        }
        let (span, asked_us) = (self.shared.times.grant, *asked_us);
        let enough = clock::monotonic_us() + us(span / 3) < deadline_us(asked_us, span);
        if grant.fence <= *fence || !enough {
            return self.confirm().await;
        }
        let owner = owner.clone();
        self.hold(owner, span, asked_us, grant, "remote");
        let ttl = self.ttl();
        if let Ours::Held(tenure) = &mut self.ours {
            tenure.ttl = ttl;
        }
    }

    async fn confirm(&mut self) {
        let Ours::Queued { owner, .. } = &self.ours else { return };
        let (owner, ttl, sent_us) = (owner.clone(), self.ttl(), clock::monotonic_us());
        match self.shared.talk.confirm(&self.key, &owner, ttl).await {
            Ok(Some(grant)) => self.hold(owner, ttl, sent_us, grant, "remote"),
            // The grant is gone; the next poll queues again.
            Ok(None) => {}
            Err(error) => self.despair(owner, &error),
        }
    }

    async fn leave(&mut self) {
        if let Ours::Queued { owner, .. } = std::mem::replace(&mut self.ours, Ours::Nothing)
            && let Err(error) = self.shared.talk.leave(&self.key, &owner).await
        {
            // Redis skips the owner once it has not polled for three intervals.
            tracing::debug!(%error, "a place in line could not be given up");
        }
    }

    /// Waits for a message while a guard is in use, and renews the lease when it is time.
    async fn watch_over(&mut self) {
        let Ours::Held(tenure) = &self.ours else { return };
        let now = clock::monotonic_us();
        let pause = Duration::from_micros(tenure.renew_at_us.saturating_sub(now));
        match timeout(pause, self.inbox.recv()).await {
            Ok(Some(message)) => self.hear(message).await,
            Ok(None) => {}
            Err(_) => self.renew().await,
        }
    }

    async fn renew(&mut self) {
        let Ours::Held(tenure) = &mut self.ours else { return };
        if !tenure.lease.is_held() {
            return self.lose();
        }
        let (owner, ttl, sent_us) = (tenure.lease.owner.clone(), tenure.ttl, clock::monotonic_us());
        match self.shared.talk.confirm(&self.key, &owner, ttl).await {
            Ok(Some(grant)) => {
                metrics::counter!("holdfast_lock_renewals_total").increment(1);
                tenure.lease.deadline_us.store(deadline_us(sent_us, ttl), Ordering::Release);
                tenure.span = ttl;
                tenure.renew_at_us = sent_us + us(ttl / 3);
                if grant.rivals {
                    tenure.hear_of_rival(sent_us, self.shared.times.turn);
                }
            }
            Ok(None) => self.lose(),
            // The outcome is unknown: retries until the local deadline.
            Err(_) => tenure.renew_at_us = clock::monotonic_us() + us(ttl / 20),
        }
    }

    /// Handles the loss of the lease: notifies the guard. Local waiters acquire the lock anew.
    fn lose(&mut self) {
        if let Ours::Held(tenure) = std::mem::replace(&mut self.ours, Ours::Nothing) {
            metrics::counter!("holdfast_lock_lost_total").increment(1);
            tenure.lease.lost.send_replace(true);
            tenure.lease.wanted.send_replace(true);
            answer(tenure.giver, Released::Lost);
        }
    }

    /// Hands the lock off to the next local waiter, or releases it in Redis.
    async fn pass_or_give_back(&mut self) {
        let Ours::Held(tenure) = &mut self.ours else { return };
        let first = tenure.next_fence_is_first();
        while let Some(next) = self.waiters.front() {
            if !(first || tenure.may_pass_to(next)) || !tenure.has_enough_left() {
                break;
            }
            let Some(next) = self.waiters.pop_front() else { break };
            let guard = FencedGuard {
                fence: tenure.next_fence,
                lease: tenure.lease.clone(),
                line: self.sender.clone(),
                given_back: false,
            };
            match next.reply.send(Ok(Ok(guard))) {
                Ok(()) => {
                    if !first {
                        metrics::counter!("holdfast_lock_handoffs_total", "kind" => "local")
                            .increment(1);
                        tenure.passes += u32::from(tenure.rival.is_some());
                    }
                    tenure.next_fence += 1;
                    tenure.fences_left -= 1;
                    tenure.in_use = true;
                    answer(tenure.giver.take(), Released::Held);
                    return;
                }
                // The waiter has just left, and `send` returned its guard.
                Err(Ok(Ok(mut guard))) => guard.given_back = true,
                Err(_) => {}
            }
        }
        self.give_back().await;
    }

    async fn give_back(&mut self) {
        let Ours::Held(tenure) = std::mem::replace(&mut self.ours, Ours::Nothing) else { return };
        let again = (!self.waiters.is_empty()).then(|| self.new_owner());
        let was_held = tenure.lease.is_held();
        let (ttl, sent_us) = (self.ttl(), clock::monotonic_us());
        let (owner, rivals) = (&tenure.lease.owner, tenure.rival.is_some());
        let given_back =
            self.shared.talk.release(&self.key, owner, ttl, again.as_deref(), rivals).await;
        tenure.lease.lost.send_replace(true);
        match given_back {
            Ok(back) => {
                let held = was_held && back.was_held;
                answer(tenure.giver, if held { Released::Held } else { Released::Lost });
                match (again, back.again) {
                    (Some(owner), Asked::Granted(grant)) => {
                        self.hold(owner, ttl, sent_us, grant, "free");
                    }
                    (Some(owner), Asked::Taken { fence }) => {
                        self.ours = self.queued(owner, sent_us, fence);
                    }
                    (None, _) => {}
                }
            }
            Err(error) => {
                answer(tenure.giver, Released::Unknown);
                let owner = tenure.lease.owner.clone();
                self.despair(owner, &error);
                if let Some(again) = again {
                    self.despair(again, &error);
                }
            }
        }
    }

    async fn refence(&mut self, owner: &str, floor: i64) -> Result<Option<i64>, Error> {
        let key = self.key.clone();
        let shared = self.shared.clone();
        let Some(tenure) = self.tenure_of(owner) else { return Ok(None) };
        match shared.talk.refence(&key, owner, floor).await? {
            Some(grant) => {
                tenure.next_fence = grant.fence + 1;
                tenure.fences_left = BLOCK - 1;
                Ok(Some(grant.fence))
            }
            None => {
                self.lose();
                Ok(None)
            }
        }
    }
}

fn answer(reply: Option<oneshot::Sender<Released>>, released: Released) {
    if let Some(reply) = reply {
        let _ = reply.send(released);
    }
}

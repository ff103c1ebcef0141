//! One key's line in this process, and the one task that speaks of that key to Redis.
//!
//! The task lives while somebody here holds the lock or waits for it. It is never dropped half-way:
//! callers only send it messages and await answers, so a caller that goes away can't interrupt the
//! protocol. What is granted to somebody who has gone goes to the next one, or back.

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

/// How the lock stands, as far as this process is concerned.
enum Ours {
    Nothing,
    /// In line in Redis, to ask again at that time whatever is heard until then: who is not seen
    /// for long is passed over.
    Queued {
        owner: String,
        poll_at: Instant,
        /// When we last asked, and the fence of whoever had the lock then: a grant with a larger
        /// one was made after that, and lasts at least until a grant's time later.
        asked_us: u64,
        fence: i64,
    },
    /// Held; perhaps by nobody in particular at this moment.
    Held(Tenure),
}

/// One key's line.
pub(super) struct Line {
    shared: Arc<Shared>,
    key: String,
    /// For the guards, to speak to this line.
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

    /// Runs until nobody here has to do with the key any more.
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

    /// Takes the line off the map, unless somebody has just come.
    fn is_over(&mut self) -> bool {
        let mut lines = self.shared.lines.lock();
        // Messages are sent under this lock, so an empty inbox stays empty while we look.
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

    /// Asks Redis for the first time.
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

    /// Tells them who holds the lock instead: by a task of its own, for the line has other things
    /// to do than to look that up.
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

    /// Redis does not answer: everybody here is told. What may have been taken is given back by a
    /// task of its own, once; after that it ends with its grant or its lease.
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

    /// In line: until told, or until it is time to ask again.
    async fn wait_in_line(&mut self) {
        let Ours::Queued { owner, poll_at, .. } = &self.ours else { return };
        let owner = owner.clone();
        match timeout_at(*poll_at, self.inbox.recv()).await {
            Ok(Some(message)) => self.hear(message).await,
            Ok(None) => {}
            Err(_) => self.ask_as(owner, true, "polled").await,
        }
    }

    /// The word that we have the lock. It is as good as the answer to a confirmation if the grant
    /// was made after we last asked: then it can't end before a grant's time from that call on,
    /// however long the word took. The confirmation follows as a renewal, if it is needed at all.
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
            // A word that came late; the next poll gets in line again.
            Ok(None) => {}
            Err(error) => self.despair(owner, &error),
        }
    }

    async fn leave(&mut self) {
        if let Ours::Queued { owner, .. } = std::mem::replace(&mut self.ours, Ours::Nothing)
            && let Err(error) = self.shared.talk.leave(&self.key, &owner).await
        {
            // It is passed over as soon as it has not been seen for three polls.
            tracing::debug!(%error, "a place in line could not be given up");
        }
    }

    /// Somebody works under the lock: until it is given back, renewed when it is time.
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
            // Unknown: tried again until our own deadline says that it is over.
            Err(_) => tenure.renew_at_us = clock::monotonic_us() + us(ttl / 20),
        }
    }

    /// The lock is no longer ours. Whoever works under it is told; whoever waits asks anew.
    fn lose(&mut self) {
        if let Ours::Held(tenure) = std::mem::replace(&mut self.ours, Ours::Nothing) {
            metrics::counter!("holdfast_lock_lost_total").increment(1);
            tenure.lease.lost.send_replace(true);
            tenure.lease.wanted.send_replace(true);
            answer(tenure.giver, Released::Lost);
        }
    }

    /// The lock is ours and nobody here works under it: to the next one here, or back.
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
                // Gone in this moment. The guard comes back unused.
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

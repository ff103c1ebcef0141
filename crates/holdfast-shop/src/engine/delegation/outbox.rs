//! The replica's side of the messages: to whom commands may be forwarded, and the answers that wait
//! to be sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_lock::{Delivery, InboxState, LeaseId, LockKey, Locks};
use moka::future::Cache;
use moka::sync;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::mailbox::Mailboxes;
use super::message::{DelegationMessage, ForwardedOrder, MAILBOX, Seal};
use crate::engine::command_queue::QueueEntry;
use crate::engine::reply::{Address, AddressedAnswer, Answer};
use crate::failure::Error;
use crate::tasks::Tasks;

/// Time for which nothing is forwarded to a process that did not answer. It doubles each time that
/// the process does not answer after it: it may never, e.g. because its Redis lets it not
/// subscribe.
const MIN_SILENCE: Duration = Duration::from_secs(5);
const MAX_SILENCE: Duration = Duration::from_secs(80);
/// Longest time for which the holder of a key is remembered: each message checks it.
const HOLDER_TTL: Duration = Duration::from_secs(2);
const MAX_HOLDERS: u64 = 10_000;
/// Longest time for which a message can be on its way, and longer.
const ARRIVALS_TTL: Duration = Duration::from_secs(60);
const MAX_SENDERS: u64 = 10_000;

/// The lease of another process.
#[derive(Debug, Clone)]
pub(in crate::engine) struct RemoteLease {
    pub id: LeaseId,
    /// First fence of its grant.
    pub fence: i64,
}

/// Nothing is forwarded to a process until that time.
#[derive(Debug, Clone, Copy)]
struct Silence {
    until: Instant,
    length: Duration,
}

impl Silence {
    /// Returns the one after `last`. One that has not ended goes on: several leaders note the same.
    fn after(last: Option<Self>, now: Instant) -> Self {
        let length = match last {
            Some(last) if now < last.until => return last,
            Some(last) => MAX_SILENCE.min(2 * last.length),
            None => MIN_SILENCE,
        };
        Self { until: now + length, length }
    }

    /// Returns whether it is remembered: for as long again after its end.
    fn is_recent(self, now: Instant) -> bool {
        now < self.until + self.length
    }
}

/// The replica's part in delegation. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Delegation(Arc<SharedDelegation>);

#[derive(Debug)]
struct SharedDelegation {
    running: OnceLock<DelegationContext>,
    last_number: AtomicU64,
    /// The leases of other processes, by key.
    holders: Cache<LockKey, RemoteLease>,
    /// The processes that did not answer.
    silent: Mutex<HashMap<String, Silence>>,
    /// The highest number that has arrived from each sender.
    arrivals: sync::Cache<Address, u64>,
    /// The answers that wait for a message; of each address in it, one is being sent.
    outbox: Outbox,
    /// Where answers arrive.
    mailboxes: Mailboxes,
}

#[derive(Debug)]
pub(super) struct DelegationContext {
    pub locks: Locks,
    pub process: String,
    pub seal: Seal,
    pub tasks: Tasks,
    /// Of the inbox into which answers come.
    pub inbox: InboxState,
}

impl Default for Delegation {
    fn default() -> Self {
        Self(Arc::new(SharedDelegation {
            running: OnceLock::new(),
            last_number: AtomicU64::new(0),
            holders: Cache::builder().max_capacity(MAX_HOLDERS).time_to_live(HOLDER_TTL).build(),
            silent: Mutex::default(),
            arrivals: sync::Cache::builder()
                .max_capacity(MAX_SENDERS)
                .time_to_idle(ARRIVALS_TTL)
                .build(),
            outbox: Mutex::default(),
            mailboxes: Mailboxes::default(),
        }))
    }
}

impl Delegation {
    /// Returns whether it is the first call.
    pub(super) fn run(&self, running: DelegationContext) -> bool {
        self.0.running.set(running).is_ok()
    }

    pub(super) fn running(&self) -> Option<&DelegationContext> {
        self.0.running.get()
    }

    pub fn mailboxes(&self) -> &Mailboxes {
        &self.0.mailboxes
    }

    pub fn is_running(&self) -> bool {
        self.0.running.get().is_some()
    }

    /// Returns the lease under which another process was last seen to hold `key`, if commands may
    /// be forwarded to it.
    pub async fn last_holder(&self, key: &LockKey) -> Option<RemoteLease> {
        let lease = self.0.holders.get(key).await?;
        self.may_forward_to(&lease.id).then_some(lease)
    }

    pub async fn remember_holder(&self, key: &LockKey, lease: RemoteLease) {
        self.0.holders.insert(key.clone(), lease).await;
    }

    pub async fn forget_holder(&self, key: &LockKey) {
        self.0.holders.invalidate(key).await;
    }

    /// Returns whether the lease is that of a leader of another process, which is not known to be
    /// silent, and answers can arrive.
    pub fn may_forward_to(&self, lease: &LeaseId) -> bool {
        let Some(running) = self.0.running.get() else { return false };
        let process = lease.process_id();
        let silent = self.0.silent.lock();
        process != running.process
            && lease.takes_mail()
            && running.inbox.subscribed_since().is_some()
            && silent.get(process).is_none_or(|silence| silence.until < Instant::now())
    }

    /// Notes that a process did not receive a message.
    pub fn note_silence(&self, lease: &LeaseId) {
        let now = Instant::now();
        let mut silent = self.0.silent.lock();
        // Each start of a replica is another process: they would add up.
        silent.retain(|_, silence| silence.is_recent(now));
        let process = lease.process_id();
        let next = Silence::after(silent.get(process).copied(), now);
        silent.insert(process.to_owned(), next);
    }

    /// Notes that a process did not answer what was sent at `sent_at`, unless its answer may have
    /// been missed here.
    pub fn note_missing_answer(&self, lease: &LeaseId, sent_at: Instant) {
        let since = self.0.running.get().and_then(|running| running.inbox.subscribed_since());
        if since.is_some_and(|since| since <= sent_at.into_std()) {
            self.note_silence(lease);
        }
    }

    /// Notes that a process answers.
    pub fn note_answer(&self, lease: &LeaseId) {
        self.0.silent.lock().remove(lease.process_id());
    }

    /// Returns the number of a command that is forwarded.
    pub fn next_number(&self) -> u64 {
        self.0.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends orders to the holder of their lease. After an error they may have been received.
    pub async fn forward(
        &self,
        key: &LockKey,
        lease: &LeaseId,
        orders: Vec<ForwardedOrder>,
    ) -> Result<Delivery, Error> {
        let Some(running) = self.0.running.get() else { return Ok(Delivery::NotReceived) };
        let message = DelegationMessage::Commands {
            lease: lease.as_str().to_owned(),
            key: key.as_str().to_owned(),
            from: running.process.clone(),
            orders,
        };
        let sealed = running.seal.close(lease.process_id(), &message)?;
        Ok(running.locks.send_to_holder(key, lease, MAILBOX, &sealed).await?)
    }

    /// Returns the orders that have not arrived before. The numbers of a sender and key ascend:
    /// what is not above the highest has arrived already, or is late, and counts as lost. A second
    /// answer could say that it was not begun, while the first one says that it was executed.
    ///
    /// For the task that receives, which is the only one.
    pub fn first_arrivals(
        &self,
        from: &Address,
        orders: Vec<ForwardedOrder>,
    ) -> Vec<ForwardedOrder> {
        let before = self.0.arrivals.get(from).unwrap_or(0);
        let first: Vec<_> = orders.into_iter().filter(|order| order.number > before).collect();
        if let Some(highest) = first.iter().map(|order| order.number).max() {
            self.0.arrivals.insert(from.clone(), highest);
        }
        first
    }

    /// Answers commands: those of one address in one message. What comes while a message to that
    /// address is being sent shares the next one.
    pub fn answer(&self, answers: Vec<AddressedAnswer>) {
        let Some(running) = self.0.running.get() else { return };
        let mut outbox = self.0.outbox.lock();
        let mut idle = Vec::new();
        for (to, number, answer) in answers {
            let waiting = outbox.entry(to).or_insert_with_key(|to| {
                idle.push(to.clone());
                Vec::new()
            });
            waiting.push((number, answer));
        }
        drop(outbox);

        for to in idle {
            let delegation = self.clone();
            running.tasks.spawn(async move { delegation.send_answers(to).await });
        }
    }

    /// Returns commands that were not begun: the lease to which they were addressed has ended.
    pub fn return_to_senders(&self, unbegun: Vec<QueueEntry>) {
        let answers = unbegun.into_iter();
        let answers = answers.filter_map(|entry| entry.return_to_sender(Answer::LeaseEnded));
        self.answer(answers.collect());
    }

    async fn send_answers(self, to: Address) {
        let Some(running) = self.0.running.get() else { return };
        let mut sending = Sending { outbox: &self.0.outbox, to: Some(to) };
        while let Some((to, answers)) = sending.next() {
            let (process, key) = &to;
            let message = DelegationMessage::Answers { key: key.as_str().to_owned(), answers };
            let sent = match running.seal.close(process, &message) {
                Ok(sealed) => running.locks.send_to_process(process, MAILBOX, &sealed).await,
                Err(error) => return tracing::error!(%error, "answers can't be sent"),
            };
            if let Err(error) = sent {
                // Their sender resolves them.
                tracing::debug!(%error, "answers to forwarded commands are lost");
            }
        }
    }
}

type Outbox = Mutex<HashMap<Address, Vec<(u64, Answer)>>>;

/// The one that sends the answers to an address. If it ends early, the answers that wait are lost,
/// and the next one has another sender.
struct Sending<'a> {
    outbox: &'a Outbox,
    /// `None` once it has ended in order.
    to: Option<Address>,
}

impl Sending<'_> {
    /// Takes the answers that wait; `None` if there are none, and it has ended.
    fn next(&mut self) -> Option<(Address, Vec<(u64, Answer)>)> {
        let to = self.to.clone()?;
        let mut outbox = self.outbox.lock();
        let answers = outbox.get_mut(&to).map(std::mem::take).unwrap_or_default();
        if answers.is_empty() {
            // In one step: an answer after it has a sender of its own.
            outbox.remove(&to);
            self.to = None;
            return None;
        }
        Some((to, answers))
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            self.outbox.lock().remove(&to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        ("8081~a".into(), LockKey::new("{sku:tea}").unwrap())
    }

    #[test]
    fn silence_doubles_up_to_a_bound() {
        let now = Instant::now();
        let first = Silence::after(None, now);
        assert_eq!(first.until, now + MIN_SILENCE);
        assert_eq!(Silence::after(Some(first), now).until, first.until, "noted twice");
        let second = Silence::after(Some(first), first.until);
        assert_eq!(second.until - first.until, 2 * MIN_SILENCE);
        assert!(first.is_recent(first.until) && !first.is_recent(first.until + first.length));
        let mut last = second;
        for _ in 0..9 {
            last = Silence::after(Some(last), last.until);
        }
        assert_eq!(last.length, MAX_SILENCE);
    }

    #[test]
    fn sender_that_ends_early_leaves_no_answers_behind() {
        let outbox = Outbox::default();
        let put =
            |number| outbox.lock().entry(address()).or_default().push((number, Answer::Failed));
        put(1);
        let mut early = Sending { outbox: &outbox, to: Some(address()) };
        assert_eq!(early.next().unwrap().1.len(), 1);
        put(2);
        drop(early);
        assert!(outbox.lock().is_empty(), "nobody sends them");

        put(3);
        let mut orderly = Sending { outbox: &outbox, to: Some(address()) };
        assert!(orderly.next().is_some() && orderly.next().is_none());
        put(4);
        drop(orderly);
        assert_eq!(outbox.lock()[&address()].len(), 1, "those of its successor");
    }
}

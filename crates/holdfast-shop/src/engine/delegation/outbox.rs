//! The replica's side of the messages: to whom commands may be forwarded, and the answers that wait
//! to be sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_lock::{Delivery, LeaseId, LockKey, Locks};
use moka::future::Cache;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::message::{Answer, ForwardedOrder, MAILBOX, Message, Seal};
use crate::engine::entry::EntryResult;
use crate::failure::Error;
use crate::tasks::Tasks;

/// Time for which nothing is forwarded to a process that did not answer.
const SILENCE: Duration = Duration::from_secs(5);
/// Longest time for which the holder of a key is remembered: each message checks it.
const HOLDER_TTL: Duration = Duration::from_secs(2);
const MAX_HOLDERS: u64 = 10_000;

/// The lease of another process.
#[derive(Debug, Clone)]
pub(in crate::engine) struct RemoteLease {
    pub id: LeaseId,
    /// First fence of its grant.
    pub fence: i64,
}

/// The replica's part in delegation. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Delegation(Arc<SharedDelegation>);

#[derive(Debug)]
struct SharedDelegation {
    running: OnceLock<Running>,
    last_number: AtomicU64,
    /// The leases of other processes, by key.
    holders: Cache<LockKey, RemoteLease>,
    /// The processes that did not answer, each with the time until which nothing is forwarded.
    silent: Mutex<HashMap<String, Instant>>,
    /// The answers that wait for a message; of each address in it, one is being sent.
    outbox: Mutex<HashMap<Address, Vec<(u64, Answer)>>>,
}

/// The process that waits for answers, and the key of its queue.
pub(in crate::engine) type Address = (Arc<str>, LockKey);

#[derive(Debug)]
pub(super) struct Running {
    pub locks: Locks,
    pub process: String,
    pub seal: Seal,
    pub tasks: Tasks,
}

impl Default for Delegation {
    fn default() -> Self {
        Self(Arc::new(SharedDelegation {
            running: OnceLock::new(),
            last_number: AtomicU64::new(0),
            holders: Cache::builder().max_capacity(MAX_HOLDERS).time_to_live(HOLDER_TTL).build(),
            silent: Mutex::default(),
            outbox: Mutex::default(),
        }))
    }
}

/// An answer that is to be sent: where, and the number of its command.
pub(in crate::engine) type AddressedAnswer = (Address, u64, Answer);

/// The way of a result: to the caller in this process, or to the replica that sent the command.
#[derive(Debug)]
pub(in crate::engine) enum Reply {
    Caller(oneshot::Sender<EntryResult>),
    Replica { to: Address, number: u64 },
}

impl Reply {
    /// Sends the result to a caller. Returns it if it is for another replica: several of them
    /// share a message ([`Delegation::answer`]).
    #[must_use]
    pub fn send(self, result: EntryResult) -> Option<AddressedAnswer> {
        match self {
            Reply::Caller(caller) => {
                let _ = caller.send(result);
                None
            }
            Reply::Replica { to, number } => Some((to, number, Answer::of(result))),
        }
    }

    /// Returns whether nobody waits for the result.
    pub fn is_closed(&self) -> bool {
        match self {
            Reply::Caller(caller) => caller.is_closed(),
            // The command may be all that its sender waits for.
            Reply::Replica { .. } => false,
        }
    }

    /// Addresses an answer to a command of another replica.
    pub fn addressed(self, answer: Answer) -> Option<AddressedAnswer> {
        match self {
            Reply::Caller(_) => None,
            Reply::Replica { to, number } => Some((to, number, answer)),
        }
    }

    pub fn is_to_replica(&self) -> bool {
        matches!(self, Reply::Replica { .. })
    }
}

impl Delegation {
    /// Returns whether it is the first call.
    pub(super) fn run(&self, running: Running) -> bool {
        self.0.running.set(running).is_ok()
    }

    pub(super) fn running(&self) -> Option<&Running> {
        self.0.running.get()
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

    /// Returns whether the lease is another process's, which is not known to be silent.
    pub fn may_forward_to(&self, lease: &LeaseId) -> bool {
        let Some(running) = self.0.running.get() else { return false };
        let process = lease.process_id();
        let silent = self.0.silent.lock();
        process != running.process
            && silent.get(process).is_none_or(|until| *until < Instant::now())
    }

    /// Notes that a process did not receive a message, or did not answer in time.
    pub fn note_silence(&self, lease: &LeaseId) {
        let now = Instant::now();
        let mut silent = self.0.silent.lock();
        silent.retain(|_, until| *until > now);
        silent.insert(lease.process_id().to_owned(), now + SILENCE);
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
        let message = Message::Commands {
            lease: lease.as_str().to_owned(),
            key: key.as_str().to_owned(),
            from: running.process.clone(),
            orders,
        };
        let sealed = running.seal.close(lease.process_id(), &message)?;
        Ok(running.locks.send_to_holder(key, lease, MAILBOX, &sealed).await?)
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

    async fn send_answers(self, to: Address) {
        let Some(running) = self.0.running.get() else { return };
        loop {
            let answers = {
                let mut outbox = self.0.outbox.lock();
                let answers = outbox.get_mut(&to).map(std::mem::take).unwrap_or_default();
                if answers.is_empty() {
                    outbox.remove(&to);
                    return;
                }
                answers
            };

            let (process, key) = &to;
            let message = Message::Answers { key: key.as_str().to_owned(), answers };
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

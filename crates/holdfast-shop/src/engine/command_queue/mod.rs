//! The queues of commands that wait for their batch, one per key, without the leaders that serve
//! them.
//!
//! Guarantees: FIFO, except for entries that are put back in front; a full queue takes no entry.
//! Tests: `tests.rs`.

pub mod limit;
#[cfg(test)]
pub mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_lock::{LeaseId, LockKey};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Span;

use crate::RequestContext;
use crate::command::Command;
use crate::engine::batch::entry::BatchEntry;
use crate::engine::duplicates::InFlightKey;
use crate::engine::reply::{AddressedAnswer, Answer, ReplyRoute};
use crate::probe::Probe;
use limit::{AdaptiveQueueLimit, MAX_BATCH_SIZE};

/// A command that waits for its batch, or is in it.
#[derive(Debug)]
pub struct QueueEntry {
    pub command: Arc<dyn Command>,
    pub context: RequestContext,
    pub joined_at: Instant,
    pub key_lock_requested: bool,
    /// True once the record of its key was looked up, which happens once.
    pub looked_up: bool,
    /// True if this replica executes it: it was forwarded to this one, or is not to be forwarded
    /// again.
    pub stays_here: bool,
    pub in_flight: InFlightKey,
    /// The request's span, and below it that of its stage: `wait` until its locks are acquired,
    /// then `held` until its response.
    pub request: Span,
    pub stage: Span,
    pub reply: ReplyRoute,
}

impl QueueEntry {
    pub fn is_alive(&self, now: Instant) -> bool {
        now < self.context.deadline && !self.reply.is_closed()
    }

    /// Returns whether another replica may execute it.
    pub fn is_forwardable(&self) -> bool {
        // What a probe watches or holds is in this process.
        let is_plain = matches!(self.context.probe(), Probe::Off);
        is_plain && !self.stays_here && self.command.single_order().is_some()
    }

    /// Ends a command that was not begun, and returns the answer to the replica that forwarded it.
    #[must_use]
    pub fn return_to_sender(self, answer: Answer) -> Option<AddressedAnswer> {
        drop(self.in_flight);
        self.reply.addressed(answer)
    }

    pub fn entry(&self) -> BatchEntry<'_> {
        BatchEntry { command: self.command.as_ref(), context: &self.context, stage: &self.stage }
    }
}

/// The queues of all keys. A key has a queue while a leader serves it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CommandQueues(Arc<Mutex<HashMap<LockKey, CommandQueue>>>);

#[derive(Debug, Default)]
struct CommandQueue {
    entries: VecDeque<QueueEntry>,
    /// Number of borrowed entries, which will be put back and count as waiting.
    borrowed: usize,
    /// Number of entries that another replica executes, which count against the limit.
    forwarded: usize,
    /// The lease of its leader, under which commands of other replicas may join.
    lease: Option<LeaseId>,
    limit: AdaptiveQueueLimit,
    /// A number of waiting entries, and the signal that the queue has reached it.
    arrived: (usize, Arc<Notify>),
}

impl CommandQueue {
    fn waiting(&self) -> usize {
        self.entries.len() + self.borrowed
    }

    fn is_full(&self) -> bool {
        self.waiting() + self.forwarded >= self.limit.max_length()
    }

    fn take(&mut self, max: usize) -> TakenEntries {
        let mut taken = TakenEntries::default();
        let now = Instant::now();
        while taken.batch.len() < max
            && let Some(entry) = self.entries.pop_front()
        {
            // A dead one takes no place in the batch.
            if entry.is_alive(now) { taken.batch.push(entry) } else { taken.dead.push(entry) }
        }
        taken
    }

    fn push(&mut self, entry: QueueEntry) {
        self.entries.push_back(entry);
        if self.waiting() == self.arrived.0 {
            self.arrived.1.notify_one();
        }
    }
}

pub enum EnqueueResult {
    /// A leader must be started.
    First,
    Behind,
    Full,
}

#[derive(Default)]
pub struct TakenEntries {
    pub batch: Vec<QueueEntry>,
    /// Entries whose caller has gone or whose deadline has passed.
    pub dead: Vec<QueueEntry>,
}

impl CommandQueues {
    pub fn join(&self, key: &LockKey, entry: QueueEntry) -> EnqueueResult {
        let mut queues = self.0.lock();
        match queues.get_mut(key) {
            Some(queue) if queue.is_full() => EnqueueResult::Full,
            Some(queue) => {
                queue.push(entry);
                EnqueueResult::Behind
            }
            None => {
                let queue =
                    CommandQueue { entries: VecDeque::from([entry]), ..CommandQueue::default() };
                queues.insert(key.clone(), queue);
                EnqueueResult::First
            }
        }
    }

    /// Adds commands of another replica, addressed to `lease`. Returns those that were not added,
    /// each with its answer.
    pub fn join_forwarded(
        &self,
        key: &LockKey,
        lease: &LeaseId,
        entries: Vec<QueueEntry>,
    ) -> Vec<(QueueEntry, Answer)> {
        let mut refused = Vec::new();
        let mut queues = self.0.lock();
        let mut queue = queues.get_mut(key).filter(|queue| queue.lease.as_ref() == Some(lease));
        for entry in entries {
            match &mut queue {
                None => refused.push((entry, Answer::LeaseEnded)),
                Some(queue) if queue.is_full() => refused.push((entry, Answer::Overloaded)),
                Some(queue) => queue.push(entry),
            }
        }
        refused
    }

    pub fn of_leader(&self, key: LockKey) -> LeaderQueue {
        LeaderQueue { queues: self.clone(), key }
    }
}

/// The queue of one key, as its leader uses it. If the leader panics, the entries are dropped,
/// and the next command starts a new leader.
pub struct LeaderQueue {
    queues: CommandQueues,
    pub key: LockKey,
}

impl LeaderQueue {
    fn with<T>(&self, act: impl FnOnce(&mut CommandQueue) -> T) -> Option<T> {
        self.queues.0.lock().get_mut(&self.key).map(act)
    }

    /// Takes a batch to be executed under the lease. From here on, commands of other replicas may
    /// join that are addressed to it.
    pub fn take_under(&self, lease: Option<LeaseId>, max: usize) -> TakenEntries {
        self.with(|queue| {
            queue.lease = lease;
            queue.take(max)
        })
        .unwrap_or_default()
    }

    /// Takes entries that are not to be executed.
    pub fn take(&self, max: usize) -> TakenEntries {
        self.with(|queue| queue.take(max)).unwrap_or_default()
    }

    /// Takes the entries that may be forwarded, up to a batch, which counts as forwarded.
    pub fn take_forwardable(&self) -> TakenEntries {
        let mut taken = TakenEntries::default();
        let now = Instant::now();
        self.with(|queue| {
            // What stays keeps its order.
            let mut rest = VecDeque::new();
            for entry in std::mem::take(&mut queue.entries) {
                if taken.batch.len() >= MAX_BATCH_SIZE || !entry.is_forwardable() {
                    rest.push_back(entry);
                } else if entry.is_alive(now) {
                    taken.batch.push(entry);
                } else {
                    taken.dead.push(entry);
                }
            }
            queue.entries = rest;
            queue.forwarded += taken.batch.len();
        });
        taken
    }

    pub fn has_entries_that_stay(&self) -> bool {
        self.with(|queue| queue.entries.iter().any(|entry| !entry.is_forwardable()))
            .unwrap_or(false)
    }

    pub fn has_forwardable_entries(&self) -> bool {
        self.with(|queue| queue.entries.iter().any(QueueEntry::is_forwardable)).unwrap_or(false)
    }

    pub fn has_entries_of_replicas(&self) -> bool {
        self.with(|queue| queue.entries.iter().any(|entry| entry.reply.is_to_replica()))
            .unwrap_or(false)
    }

    /// Sets the number of entries that another replica executes.
    pub fn set_forwarded(&self, count: usize) {
        self.with(|queue| queue.forwarded = count);
    }

    /// Lets no more commands of other replicas join, and returns those that wait.
    pub fn end_lease(&self) -> Vec<QueueEntry> {
        let ended = self.with(|queue| {
            // Without a lease none of theirs has joined.
            if queue.lease.take().is_none() {
                return Vec::new();
            }

            let (theirs, own): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut queue.entries)
                .into_iter()
                .partition(|entry| entry.reply.is_to_replica());
            queue.entries = own;
            theirs.into()
        });
        ended.unwrap_or_default()
    }

    /// Takes all entries, until all or some are put back. They count as waiting.
    pub fn borrow(&self) -> Vec<QueueEntry> {
        let borrowed = self.with(|queue| {
            queue.borrowed = queue.entries.len();
            std::mem::take(&mut queue.entries).into()
        });
        borrowed.unwrap_or_default()
    }

    /// Puts entries back, in front of those that joined since.
    pub fn put_back(&self, entries: Vec<QueueEntry>) {
        self.with(|queue| {
            queue.borrowed = 0;
            for entry in entries.into_iter().rev() {
                queue.entries.push_front(entry);
            }
        });
    }

    pub fn record_batch(&self, commands: usize, took: Duration) {
        self.with(|queue| queue.limit.record_batch(commands, took));
    }

    pub fn waiting(&self) -> usize {
        self.with(|queue| queue.waiting()).unwrap_or(0)
    }

    pub async fn arrived(&self, count: usize) {
        let notified = self.with(|queue| {
            queue.arrived.0 = count;
            queue.arrived.1.clone()
        });
        let Some(notified) = notified else { return };
        // The signal may be an old one: they may have been taken since.
        while self.waiting() < count {
            notified.notified().await;
        }
    }

    pub fn close_if_empty(&self) -> bool {
        // In one step: a command that joins after it starts a leader of its own.
        let mut queues = self.queues.0.lock();
        let empty =
            queues.get(&self.key).is_none_or(|queue| queue.waiting() + queue.forwarded == 0);
        if empty {
            queues.remove(&self.key);
        }
        empty
    }
}

impl Drop for LeaderQueue {
    fn drop(&mut self) {
        // Commands would wait in it for a leader that has ended.
        if std::thread::panicking() {
            self.queues.0.lock().remove(&self.key);
        }
    }
}

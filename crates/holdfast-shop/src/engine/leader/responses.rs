//! What the commands of a leader get for a response, and the locks of their idempotency keys, which
//! Redis has until then.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::yield_now;

use crate::Shop;
use crate::engine::batch::entry::EntryResult;
use crate::engine::command_queue::QueueEntry;
use crate::engine::duplicates::{KeyLocks, keeps_lock};
use crate::engine::reply::AddressedAnswer;
use crate::failure::{Error, Failure};

impl QueueEntry {
    /// Responds to a caller in this process, or returns the answer to another replica.
    #[must_use]
    pub fn respond(self, result: EntryResult) -> Option<AddressedAnswer> {
        // First, because a client with its response may use the key again at once.
        drop(self.in_flight);
        self.reply.send(result)
    }
}

/// The responses of one leader.
pub struct Responses {
    shop: Shop,
    /// The locks of the commands' idempotency keys, in Redis.
    pub(super) key_locks: KeyLocks,
}

impl Responses {
    pub fn new(shop: &Shop) -> Self {
        Self { shop: shop.clone(), key_locks: KeyLocks::new(&shop.locks, true) }
    }

    /// Sends the results. Before a result that wrote nothing, releases the idempotency lock,
    /// because the client may use the key again at once.
    pub async fn respond(&mut self, done: Vec<(QueueEntry, EntryResult)>) {
        let (kept, open): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(_, result)| keeps_lock(result));
        // At once: nothing of theirs is to be released.
        let mut answers = Vec::new();
        for (entry, result) in kept {
            // A command that was forwarded at once has its lock at the other replica.
            if entry.key_lock_requested {
                self.key_locks.leave_to_expire(entry.command.idempotency());
            }
            answers.extend(entry.respond(result));
        }
        self.answer(answers).await;
        if open.is_empty() {
            return;
        }

        self.key_locks.release(open.iter().map(|(entry, _)| entry.command.idempotency())).await;
        let mut unread = Vec::new();
        let mut answers = Vec::new();
        for (entry, result) in open {
            match result {
                Err(failure) if failure.precedes_read() => unread.push((entry, failure)),
                result => answers.extend(entry.respond(result)),
            }
        }
        self.replay_or_reject(unread);
        self.answer(answers).await;
    }

    /// Sends answers to other replicas, ahead of the leader's next batch: they would wait behind
    /// its decisions, since the process may have one thread for both.
    async fn answer(&self, answers: Vec<AddressedAnswer>) {
        if answers.is_empty() {
            return;
        }
        self.shop.engine.delegation.answer(answers);
        // The tasks that send them are next.
        yield_now().await;
    }

    pub async fn reject(
        &mut self,
        entries: impl IntoIterator<Item = QueueEntry>,
        failure: impl Into<Failure>,
    ) {
        let failure = failure.into();
        let rejected = entries.into_iter().map(|entry| (entry, Err(failure.clone())));
        self.respond(rejected.collect()).await;
    }

    /// Rejects commands that were not executed elsewhere, once their keys are free; replays those
    /// whose key has a record.
    pub async fn release_and_reject(&mut self, rejected: Vec<(QueueEntry, Failure)>) {
        let requests = rejected.iter().map(|(entry, _)| entry.command.idempotency());
        self.key_locks.release(requests).await;
        self.replay_or_reject(rejected);
    }

    /// Replays the keys' records, or rejects, in a task of its own: other entries do not wait.
    pub(super) fn replay_or_reject(&self, rejected: Vec<(QueueEntry, Failure)>) {
        if rejected.is_empty() {
            return;
        }

        let duplicates = self.shop.engine.duplicates.clone();
        let delegation = self.shop.engine.delegation.clone();
        self.shop.tasks.spawn(async move {
            let responses = rejected.into_iter().map(async |(entry, failure)| {
                let request = entry.command.idempotency();
                let result = match failure {
                    Failure::Error(Error::Overloaded(_)) => {
                        duplicates.replay_at_once_or(request, failure).await
                    }
                    _ => duplicates.replay_or(request, failure).await,
                };
                delegation.answer(entry.respond(result).into_iter().collect());
            });
            join_all(responses).await;
        });
    }

    /// Responds to the entries whose key has a record, and returns the others; all of them if
    /// Postgres does not respond in time. Once per entry, because it may delay the next batch.
    pub async fn replay(&mut self, entries: Vec<QueueEntry>, within: Duration) -> Vec<QueueEntry> {
        let duplicates = &self.shop.engine.duplicates;
        let lookups =
            entries.iter().map(|entry| duplicates.find(entry.command.idempotency(), within));
        let found = join_all(lookups).await;

        let mut done = Vec::new();
        let mut rest = Vec::new();
        for (mut entry, replay) in entries.into_iter().zip(found) {
            entry.looked_up = true;
            match replay {
                Some(replay) => done.push((entry, replay)),
                None => rest.push(entry),
            }
        }
        self.respond(done).await;
        rest
    }
}

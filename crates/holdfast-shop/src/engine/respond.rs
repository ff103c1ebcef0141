//! What the commands of a leader get for a response, and the locks of their idempotency keys, which
//! Redis has until then.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::{IdempotencyLockResult, IdempotencyLocks};

use super::delegation::AddressedAnswer;
use super::entry::EntryResult;
use super::queue::QueueEntry;
use super::replay::{FULL_QUEUE_LOOKUP_TIMEOUT, LOOKUP_TIMEOUT};
use crate::Shop;
use crate::failure::{Error, Failure, Rejection};
use crate::idempotency::IdempotencyRequest;

impl QueueEntry {
    /// Responds to a caller in this process, or returns the answer to another replica.
    #[must_use]
    pub(super) fn respond(self, result: EntryResult) -> Option<AddressedAnswer> {
        // First, because a client with its response may use the key again at once.
        drop(self.in_flight);
        self.reply.send(result)
    }
}

/// The responses of one leader.
pub(super) struct Responses {
    shop: Shop,
    /// The locks of the commands' idempotency keys, in Redis.
    key_locks: IdempotencyLocks,
}

impl Responses {
    pub(super) fn new(shop: &Shop) -> Self {
        Self { shop: shop.clone(), key_locks: IdempotencyLocks::new(shop.locks.leases()) }
    }

    /// Requests the idempotency locks that were not requested yet, in one round trip. Returns one
    /// result per entry.
    pub(super) async fn acquire_key_locks(
        &mut self,
        entries: &[QueueEntry],
    ) -> Vec<Result<(), Failure>> {
        let missing = entries.iter().filter(|entry| !entry.key_lock_requested);
        let requests: Vec<_> = missing.map(|entry| entry.command.idempotency()).collect();
        // In a Cluster another node may have the item's lock; one Redis that does not respond
        // rejects every write under its locks.
        let go_on = self.shop.locks.redis().is_cluster();
        let mut acquired =
            acquire_idempotency_locks(&mut self.key_locks, &requests, go_on).await.into_iter();

        let requested = entries.iter().map(|entry| entry.key_lock_requested);
        requested
            .map(|before| if before { Ok(()) } else { acquired.next().unwrap_or(Ok(())) })
            .collect()
    }

    /// Returns the entries that may go on; the duplicates of requests in flight get a response.
    pub(super) fn retain_admitted(
        &self,
        entries: Vec<QueueEntry>,
        admitted: Vec<Result<(), Failure>>,
    ) -> Vec<QueueEntry> {
        let mut retained = Vec::with_capacity(entries.len());
        let mut rejected = Vec::new();
        for (mut entry, admitted) in entries.into_iter().zip(admitted) {
            entry.key_lock_requested = true;
            match admitted {
                Ok(()) => retained.push(entry),
                Err(failure) => rejected.push((entry, failure)),
            }
        }
        self.replay_or_reject(rejected);
        retained
    }

    /// Sends the results. Before a result that wrote nothing, releases the idempotency lock,
    /// because the client may use the key again at once.
    pub(super) async fn respond(&mut self, done: Vec<(QueueEntry, EntryResult)>) {
        let (kept, open): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(_, result)| keeps_idempotency_lock(result));
        // At once: nothing of theirs is to be released.
        let mut answers = Vec::new();
        for (entry, result) in kept {
            self.key_locks.leave_to_expire(&entry.command.idempotency().lock_name());
            answers.extend(entry.respond(result));
        }
        self.shop.engine.delegation.answer(answers);

        let names: Vec<String> =
            open.iter().map(|(entry, _)| entry.command.idempotency().lock_name()).collect();
        self.key_locks.release(&names).await;
        let mut unread = Vec::new();
        let mut answers = Vec::new();
        for (entry, result) in open {
            match result {
                Err(failure) if failure.precedes_read() => unread.push((entry, failure)),
                result => answers.extend(entry.respond(result)),
            }
        }
        self.shop.engine.delegation.answer(answers);
        self.replay_or_reject(unread);
    }

    pub(super) async fn reject(
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
    pub(super) async fn release_and_reject(&mut self, rejected: Vec<(QueueEntry, Failure)>) {
        let names: Vec<String> =
            rejected.iter().map(|(entry, _)| entry.command.idempotency().lock_name()).collect();
        self.key_locks.release(&names).await;
        self.replay_or_reject(rejected);
    }

    /// Replays the keys' records, or rejects, in a task of its own: other entries do not wait.
    pub(super) fn replay_or_reject(&self, rejected: Vec<(QueueEntry, Failure)>) {
        if rejected.is_empty() {
            return;
        }

        let replays = self.shop.engine.replays.clone();
        let delegation = self.shop.engine.delegation.clone();
        self.shop.tasks.spawn(async move {
            let responses = rejected.into_iter().map(async |(entry, failure)| {
                let request = entry.command.idempotency();
                let within = match failure {
                    Failure::Error(Error::Overloaded(_)) => FULL_QUEUE_LOOKUP_TIMEOUT,
                    _ => LOOKUP_TIMEOUT,
                };
                let result = replays.find_or(request, within, failure).await;
                delegation.answer(entry.respond(result).into_iter().collect());
            });
            join_all(responses).await;
        });
    }

    /// Responds to the entries whose key has a record, and returns the others; all of them if
    /// Postgres does not respond in time. Once per entry, because it may delay the next batch.
    pub(super) async fn replay(
        &mut self,
        entries: Vec<QueueEntry>,
        within: Duration,
    ) -> Vec<QueueEntry> {
        let replays = &self.shop.engine.replays;
        let lookups = entries.iter().map(|entry| replays.find(entry.command.idempotency(), within));
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

/// Acquires the locks of idempotency keys, in one round trip. Returns one result per key.
///
/// If `go_on`, a key whose lock cannot be had goes on without: the lock only answers duplicates
/// sooner. Of two commands with the same key, the second reads the record of the first, or fails to
/// insert its own.
pub(super) async fn acquire_idempotency_locks(
    locks: &mut IdempotencyLocks,
    requests: &[&IdempotencyRequest],
    go_on: bool,
) -> Vec<Result<(), Failure>> {
    if requests.is_empty() {
        return Vec::new();
    }
    let keys: Vec<(String, String)> =
        requests.iter().map(|request| (request.lock_name(), request.fingerprint_hex())).collect();

    let mut results = Vec::with_capacity(keys.len());
    for acquired in locks.acquire(&keys).await {
        results.push(match acquired {
            Ok(IdempotencyLockResult::Acquired) => Ok(()),
            Ok(IdempotencyLockResult::InFlight) => Err(Rejection::KeyInFlight.into()),
            Ok(IdempotencyLockResult::Mismatch) => Err(Rejection::KeyMismatch.into()),
            Err(_) if go_on => Ok(()),
            Err(error) => Err(error.into()),
        });
    }
    results
}

/// Returns whether the idempotency lock is left to expire, because its command was executed now or
/// has an unknown outcome. A duplicate that arrives meanwhile is rejected or replayed without a
/// place in a batch.
pub(super) fn keeps_idempotency_lock(result: &EntryResult) -> bool {
    match result {
        Ok(executed) => !executed.replayed,
        Err(Failure::Error(Error::Unavailable { outcome_unknown, .. })) => *outcome_unknown,
        Err(_) => false,
    }
}

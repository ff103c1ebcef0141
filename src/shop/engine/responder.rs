//! Responds to the commands of a leader, whose idempotency keys it locks in Redis until then.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::{IdempotencyLockResult, IdempotencyLocks};

use super::entry::EntryResult;
use super::queue::QueueEntry;
use super::replay::LOOKUP_TIMEOUT;
use crate::shop::Shop;
use crate::shop::failure::{Error, Failure, Rejection};
use crate::shop::idempotency::IdempotencyRequest;

pub(super) struct Responder {
    shop: Shop,
    idempotency_locks: IdempotencyLocks,
}

impl Responder {
    pub(super) fn new(shop: &Shop) -> Self {
        Self { shop: shop.clone(), idempotency_locks: IdempotencyLocks::new(shop.locks.leases()) }
    }

    /// Requests the idempotency locks that were not requested yet, in one round trip. Returns one
    /// result per entry.
    pub(super) async fn acquire_idempotency_locks(
        &mut self,
        entries: &[QueueEntry],
    ) -> Vec<Result<(), Failure>> {
        let missing = entries.iter().filter(|entry| !entry.key_lock_requested);
        let requests: Vec<_> = missing.map(|entry| entry.command.idempotency()).collect();
        // In a Cluster another node may have the item's lock; one Redis that does not respond
        // rejects every write under its locks.
        let go_on = self.shop.locks.redis().is_cluster();
        let acquired =
            acquire_idempotency_locks(&mut self.idempotency_locks, &requests, go_on).await;
        let mut acquired = acquired.into_iter();
        let result = |entry: &QueueEntry| match entry.key_lock_requested {
            true => Ok(()),
            false => acquired.next().unwrap_or(Ok(())),
        };
        entries.iter().map(result).collect()
    }

    /// Returns the entries that may go on, and responds to the duplicates of requests in flight.
    pub(super) fn retain_admitted(
        &self,
        entries: Vec<QueueEntry>,
        acquired: Vec<Result<(), Failure>>,
    ) -> Vec<QueueEntry> {
        let (mut admitted, mut rejected) = (Vec::with_capacity(entries.len()), Vec::new());
        for (mut entry, acquired) in entries.into_iter().zip(acquired) {
            entry.key_lock_requested = true;
            match acquired {
                Ok(()) => admitted.push(entry),
                Err(failure) => rejected.push((entry, failure)),
            }
        }
        self.replay_or_reject(rejected);
        admitted
    }

    /// Replays the keys' records, or rejects, in a task of its own: other entries do not wait.
    fn replay_or_reject(&self, rejected: Vec<(QueueEntry, Failure)>) {
        if rejected.is_empty() {
            return;
        }
        let replays = self.shop.engine.replays.clone();
        self.shop.tasks.spawn(async move {
            let responses = rejected.into_iter().map(async |(entry, failure)| {
                let request = entry.command.idempotency();
                let result = replays.find_or(request, LOOKUP_TIMEOUT, failure).await;
                entry.respond(result);
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
        let (mut done, mut rest) = (Vec::new(), Vec::new());
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

    /// Sends the results. Before a result that wrote nothing, releases the idempotency lock,
    /// because the client may use the key again at once.
    pub(super) async fn respond(&mut self, done: Vec<(QueueEntry, EntryResult)>) {
        let (kept, open): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(_, result)| keeps_idempotency_lock(result));
        for (entry, result) in kept {
            self.idempotency_locks.leave_to_expire(&entry.command.idempotency().lock_name());
            entry.respond(result);
        }
        let names: Vec<String> =
            open.iter().map(|(entry, _)| entry.command.idempotency().lock_name()).collect();
        self.idempotency_locks.release(&names).await;
        let mut unread = Vec::new();
        for (entry, result) in open {
            match result {
                Err(failure) if failure.precedes_read() => unread.push((entry, failure)),
                result => entry.respond(result),
            }
        }
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
    let acquired = locks.acquire(&keys).await.into_iter();
    let result = |lock: Result<_, holdfast_lock::Error>| match lock {
        Ok(IdempotencyLockResult::Acquired) => Ok(()),
        Ok(IdempotencyLockResult::InFlight) => Err(Rejection::KeyInFlight.into()),
        Ok(IdempotencyLockResult::Mismatch) => Err(Rejection::KeyMismatch.into()),
        Err(_) if go_on => Ok(()),
        Err(error) => Err(error.into()),
    };
    acquired.map(result).collect()
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

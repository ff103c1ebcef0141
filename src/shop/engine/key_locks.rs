//! The idempotency keys of a leader's commands: their locks, their replays and the responses.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::{KeyLock, KeyLocks};

use super::batch::EntryResult;
use super::direct::keeps_key_lock;
use super::queue::QueuedCommand;
use super::replay::LOOKUP_TIMEOUT;
use crate::shop::Shop;
use crate::shop::failure::{Error, Failure, Rejection};
use crate::shop::store::key_records;

/// The key locks of a leader's commands, which are released when it responds.
pub(super) struct CommandKeys {
    shop: Shop,
    locks: KeyLocks,
}

impl CommandKeys {
    pub(super) fn new(shop: &Shop) -> Self {
        Self { shop: shop.clone(), locks: KeyLocks::new(shop.locks.leases()) }
    }

    /// Acquires the key locks that are missing, in one round trip. Returns one result per entry.
    pub(super) async fn acquire(&mut self, entries: &[QueuedCommand]) -> Vec<Result<(), Failure>> {
        let fresh = entries.iter().filter(|entry| !entry.has_key_lock);
        let requests = fresh.map(|entry| entry.command.idempotency());
        let requested: Vec<(String, String)> =
            requests.map(|request| (request.lock_name(), request.fingerprint_hex())).collect();
        if requested.is_empty() {
            return vec![Ok(()); entries.len()];
        }
        let mut acquired = self.locks.acquire(&requested).await.map(Vec::into_iter);
        let result = |entry: &QueuedCommand| match &mut acquired {
            _ if entry.has_key_lock => Ok(()),
            Ok(locks) => match locks.next() {
                Some(KeyLock::Acquired) => Ok(()),
                Some(KeyLock::Mismatch) => Err(Rejection::KeyMismatch.into()),
                Some(KeyLock::InFlight) | None => Err(Rejection::KeyInFlight.into()),
            },
            Err(error) => Err(Error::from(error.clone()).into()),
        };
        entries.iter().map(result).collect()
    }

    /// Returns the entries with a key lock, and responds to the others.
    pub(super) fn retain_locked(
        &self,
        entries: Vec<QueuedCommand>,
        acquired: Vec<Result<(), Failure>>,
    ) -> Vec<QueuedCommand> {
        let (mut locked, mut unlocked) = (Vec::with_capacity(entries.len()), Vec::new());
        for (mut entry, acquired) in entries.into_iter().zip(acquired) {
            match acquired {
                Ok(()) => {
                    entry.has_key_lock = true;
                    locked.push(entry);
                }
                Err(failure) => unlocked.push((entry, failure)),
            }
        }
        if !unlocked.is_empty() {
            // In a task of its own: the entries with a key lock do not wait for it.
            let responding = respond_unlocked(self.shop.clone(), unlocked);
            self.shop.running.spawn_on(responding, &self.shop.runtime);
        }
        locked
    }

    /// Responds to the entries whose key has a record, and returns the others; all of them if
    /// Postgres does not respond in time. Once per entry, because it may delay the next batch.
    pub(super) async fn replay(
        &mut self,
        entries: Vec<QueuedCommand>,
        within: Duration,
    ) -> Vec<QueuedCommand> {
        let (shop, replays) = (&self.shop, &self.shop.engine.replays);
        let lookups = entries.iter().map(|entry| {
            let command = entry.command.clone();
            async move { replays.find(shop, command.idempotency(), within).await }
        });
        let found = join_all(lookups).await;
        let (mut done, mut rest) = (Vec::new(), Vec::new());
        for (mut entry, replay) in entries.into_iter().zip(found) {
            entry.looked_up = true;
            match replay {
                Some(replay) => done.push((entry, key_records::replayed(replay))),
                None => rest.push(entry),
            }
        }
        self.respond(done).await;
        rest
    }

    /// Sends the results. Before a result that wrote nothing, releases the key lock, because the
    /// client may use the key again at once.
    pub(super) async fn respond(&mut self, done: Vec<(QueuedCommand, EntryResult)>) {
        let (kept, open): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(_, result)| keeps_key_lock(result));
        for (entry, result) in kept {
            self.locks.leave_to_expire(&entry.command.idempotency().lock_name());
            entry.respond(result);
        }
        self.release(open.iter().map(|(entry, _)| entry)).await;
        for (entry, result) in open {
            entry.respond(result);
        }
    }

    pub(super) async fn reject(
        &mut self,
        entries: impl IntoIterator<Item = QueuedCommand>,
        failure: &Failure,
    ) {
        let rejected = entries.into_iter().map(|entry| (entry, Err(failure.clone())));
        self.respond(rejected.collect()).await;
    }

    async fn release(&mut self, entries: impl Iterator<Item = &QueuedCommand>) {
        let locked = entries.filter(|entry| entry.has_key_lock);
        let names: Vec<String> =
            locked.map(|entry| entry.command.idempotency().lock_name()).collect();
        if !names.is_empty() {
            self.locks.release(&names).await;
        }
    }
}

/// Responds to entries without a key lock: replays the key's record, or rejects.
async fn respond_unlocked(shop: Shop, entries: Vec<(QueuedCommand, Failure)>) {
    let responses = entries.into_iter().map(|(entry, failure)| {
        let shop = &shop;
        async move {
            let (replays, request) = (&shop.engine.replays, entry.command.idempotency());
            let result = replays.find_or(shop, request, LOOKUP_TIMEOUT, failure).await;
            entry.respond(result);
        }
    });
    join_all(responses).await;
}

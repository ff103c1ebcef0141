//! The locks of idempotency keys in Redis, of one leader or of one single command: they answer the
//! duplicates on other replicas while a command is executed, and for a while after it.

use holdfast_lock::{IdempotencyLockResult, IdempotencyLocks};

use crate::engine::batch::entry::EntryResult;
use crate::failure::{Error, Failure, Rejection};
use crate::idempotency::IdempotencyRequest;
use crate::locks::ShopLocks;

pub struct KeyLocks {
    locks: IdempotencyLocks,
    /// True if a command goes on without a lock that cannot be had: the lock only answers
    /// duplicates sooner. Of two commands with the same key, the second reads the record of the
    /// first, or fails to insert its own.
    is_optional: bool,
}

impl KeyLocks {
    /// The locks of commands whose values may be locked in Redis.
    pub fn new(locks: &ShopLocks, values_are_in_redis: bool) -> Self {
        // In a Cluster another node may have the value's lock; one Redis that does not respond
        // rejects every write under its locks.
        let is_optional = !values_are_in_redis || locks.redis().is_cluster();
        Self { locks: IdempotencyLocks::new(locks.leases()), is_optional }
    }

    /// Acquires locks in one round trip. Returns one result per key.
    pub async fn acquire(&mut self, requests: &[&IdempotencyRequest]) -> Vec<Result<(), Failure>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let keys: Vec<(String, String)> = requests
            .iter()
            .map(|request| (request.lock_name(), request.fingerprint_hex()))
            .collect();

        let mut results = Vec::with_capacity(keys.len());
        for acquired in self.locks.acquire(&keys).await {
            results.push(match acquired {
                Ok(IdempotencyLockResult::Acquired) => Ok(()),
                Ok(IdempotencyLockResult::InFlight) => Err(Rejection::KeyInFlight.into()),
                Ok(IdempotencyLockResult::Mismatch) => Err(Rejection::KeyMismatch.into()),
                Err(_) if self.is_optional => Ok(()),
                Err(error) => Err(error.into()),
            });
        }
        results
    }

    pub fn leave_to_expire(&mut self, request: &IdempotencyRequest) {
        self.locks.leave_to_expire(&request.lock_name());
    }

    /// Releases locks. Before a response: the client may use the key again at once.
    pub async fn release<'r>(&mut self, requests: impl Iterator<Item = &'r IdempotencyRequest>) {
        let names: Vec<String> = requests.map(IdempotencyRequest::lock_name).collect();
        self.locks.release(&names).await;
    }
}

/// Returns whether the lock is left to expire, because its command was executed now or has an
/// unknown outcome. A duplicate that arrives before that is rejected or replayed without a place in
/// a batch.
pub fn keeps_lock(result: &EntryResult) -> bool {
    match result {
        Ok(executed) => !executed.replayed,
        Err(Failure::Error(Error::Unavailable { outcome_unknown, .. })) => *outcome_unknown,
        Err(_) => false,
    }
}

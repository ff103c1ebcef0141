//! The idempotency keys of the commands that this process executes, each with its fingerprint.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shop::failure::Rejection;
use crate::shop::idempotency::IdempotencyRequest;

/// Cheap to clone; clones share one map.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlightKeys(Arc<Mutex<HashMap<String, [u8; 32]>>>);

/// A key in flight, until this is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    keys: InFlightKeys,
    name: String,
}

impl InFlightKeys {
    /// Registers a command; rejects a second one with its key.
    pub(super) fn register(&self, request: &IdempotencyRequest) -> Result<InFlight, Rejection> {
        let name = request.lock_name();
        let mut all = self.all();
        match all.get(&name) {
            None => {
                all.insert(name.clone(), request.fingerprint);
                Ok(InFlight { keys: self.clone(), name })
            }
            Some(fingerprint) if *fingerprint == request.fingerprint => Err(Rejection::KeyInFlight),
            Some(_) => Err(Rejection::KeyMismatch),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, [u8; 32]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.keys.all().remove(&self.name);
    }
}

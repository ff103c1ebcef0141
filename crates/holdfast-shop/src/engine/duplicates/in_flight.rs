//! The idempotency keys of the commands that this process executes, each with its fingerprint.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::failure::Rejection;
use crate::idempotency::IdempotencyRequest;

#[derive(Debug, Clone, Default)]
pub struct InFlightKeys(Arc<Mutex<HashMap<Uuid, [u8; 32]>>>);

#[derive(Debug)]
pub struct InFlightKey {
    keys: InFlightKeys,
    id: Uuid,
}

impl InFlightKeys {
    pub fn register(&self, request: &IdempotencyRequest) -> Result<InFlightKey, Rejection> {
        let mut all = self.0.lock();
        match all.get(&request.id) {
            None => {
                all.insert(request.id, request.fingerprint);
                Ok(InFlightKey { keys: self.clone(), id: request.id })
            }
            Some(fingerprint) if *fingerprint == request.fingerprint => Err(Rejection::KeyInFlight),
            // No retry, but a client that uses a key twice.
            Some(_) => Err(Rejection::KeyMismatch),
        }
    }
}

impl Drop for InFlightKey {
    fn drop(&mut self) {
        self.keys.0.lock().remove(&self.id);
    }
}

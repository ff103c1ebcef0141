//! Bounds the callers of this process that wait for the same lock.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Error, LockKey};

/// Upper bound of the waiters per key and process. The last one waits for a second if each holder
/// takes a millisecond; more would wait in vain, and each that polls is a load on Redis.
pub const MAX_WAITERS: usize = 1_024;

#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<HashMap<LockKey, usize>>>);

impl Waiters {
    /// Counts the caller as a waiter until the place is dropped; fails with [`Error::QueueFull`].
    pub(crate) fn join<'a>(&'a self, key: &'a LockKey) -> Result<WaiterPlace<'a>, Error> {
        let mut counts = self.0.lock();
        match counts.get_mut(key) {
            Some(count) if *count == MAX_WAITERS => return Err(Error::QueueFull(key.clone())),
            Some(count) => *count += 1,
            None => _ = counts.insert(key.clone(), 1),
        }
        Ok(WaiterPlace { waiters: self, key })
    }
}

pub(crate) struct WaiterPlace<'a> {
    waiters: &'a Waiters,
    key: &'a LockKey,
}

impl Drop for WaiterPlace<'_> {
    fn drop(&mut self) {
        let mut counts = self.waiters.0.lock();
        match counts.get_mut(self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = counts.remove(self.key),
        }
    }
}

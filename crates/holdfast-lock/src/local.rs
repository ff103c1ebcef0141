//! `local`: a mutex in this process, one per key.
//!
//! # Guarantee
//! Of all requests that *this process* serves, one at a time holds a key; the others wait in FIFO
//! order. Exact with one process, and as fast as a lock can be.
//!
//! # Breaks when
//! There is a second process: each has a mutex of its own.
//!
//! # Seen in the wild
//! `synchronized`, `sync.Mutex`, `asyncio.Lock` around a read-modify-write in a service that was
//! later scaled to two.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Fifo, OwnedMutexGuard};

use crate::time::{Instant, timeout_at};
use crate::{LockKey, Wait};

type MutexMap = Mutex<HashMap<LockKey, Weak<Fifo<()>>>>;

/// The mutexes of the keys that are held or waited for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalLocks(Arc<MutexMap>);

impl LocalLocks {
    /// Waits in FIFO order until `until`; returns `None` if the mutex is still held then, or at
    /// once with [`Wait::Try`]. A dropped future leaves the queue.
    pub(crate) async fn acquire(
        &self,
        key: &LockKey,
        wait: Wait,
        until: Instant,
    ) -> Option<LocalGuard> {
        let reference =
            MutexRef { map: self.0.clone(), key: key.clone(), mutex: Some(self.mutex(key)) };
        let mutex = reference.mutex.clone()?;

        let held = match wait {
            Wait::Try => mutex.try_lock_owned().ok(),
            Wait::Retry | Wait::Notify => timeout_at(until, mutex.lock_owned()).await.ok(),
        }?;
        Some(LocalGuard { _held: held, _reference: reference })
    }

    fn mutex(&self, key: &LockKey) -> Arc<Fifo<()>> {
        let mut map = self.0.lock();
        if let Some(mutex) = map.get(key).and_then(Weak::upgrade) {
            return mutex;
        }
        let mutex = Arc::new(Fifo::new(()));
        map.insert(key.clone(), Arc::downgrade(&mutex));
        mutex
    }
}

/// A held mutex, released on drop. The field order matters: the mutex is released before the
/// reference checks whether it was the last one.
#[derive(Debug)]
pub(crate) struct LocalGuard {
    _held: OwnedMutexGuard<()>,
    _reference: MutexRef,
}

/// A reference to the mutex by a holder or waiter; the last one removes the key from the map.
#[derive(Debug)]
struct MutexRef {
    map: Arc<MutexMap>,
    key: LockKey,
    mutex: Option<Arc<Fifo<()>>>,
}

impl Drop for MutexRef {
    fn drop(&mut self) {
        let mut map = self.map.lock();
        drop(self.mutex.take());
        if map.get(&self.key).is_some_and(|mutex| mutex.strong_count() == 0) {
            map.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn unused_key_takes_no_memory() {
        let locks = LocalLocks::default();
        let key = LockKey::new("{sku:tea}").unwrap();
        let held = locks.acquire(&key, Wait::Notify, soon()).await.unwrap();
        assert!(locks.acquire(&key, Wait::Try, soon()).await.is_none());
        assert_eq!(locks.0.lock().len(), 1);
        drop(held);
        assert_eq!(locks.0.lock().len(), 0);
    }

    #[tokio::test]
    async fn waiters_are_served_in_fifo_order() {
        let locks = LocalLocks::default();
        let key = LockKey::new("{sku:tea}").unwrap();
        let held = locks.acquire(&key, Wait::Notify, soon()).await.unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for name in 0..3 {
            let mut waiting = Box::pin({
                let (locks, key, sender) = (locks.clone(), key.clone(), sender.clone());
                async move {
                    let _guard = locks.acquire(&key, Wait::Notify, soon()).await.unwrap();
                    sender.send(name).unwrap();
                }
            });
            // The first poll joins the queue.
            assert!(futures_util::poll!(&mut waiting).is_pending());
            tokio::spawn(waiting);
        }
        drop(held);
        for name in 0..3 {
            assert_eq!(receiver.recv().await, Some(name));
        }
    }
}

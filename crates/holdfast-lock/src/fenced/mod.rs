//! `fenced`: a lease with a fence, FIFO within a process, with handoff between processes.
//!
//! Guarantees: each acquisition has a random id and a fence above all earlier fences of its key,
//! while Redis keeps its counter; [`FencedGuard::raise_fence`] raises a lost counter above the
//! row's fence. The deadline of a guard is measured from before the call to Redis that it rests on.
//! A waiter that leaves or dies is skipped, and a dropped guard is released.
//!
//! Does not exclude a second holder when the first is paused past its lease, Redis loses data or
//! its clock jumps ahead. The fence then rejects the stale write; a write without its fence is
//! unprotected. If Redis's clock jumps back, the lease of a dead holder lasts longer. The wall
//! clocks of clients decide nothing.
//!
//! Sources: Kleppmann, *How to do distributed locking* (2016) for fences; lock cohorting (Dice,
//! Marathe, Shavit, `PPoPP` 2012) for local handoffs; queue locks (MCS, 1991) for handoffs.

mod actor;
mod ending;
mod guard;
mod listener;
mod local_state;
mod protocol;
mod shared;
mod waiting;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::lease::{Leases, all_of};
use crate::process::ProcessIdentity;
use crate::redis::RESPONSE_TIMEOUT;
use crate::time::{Instant, timeout_at};
use crate::{Error, Holder, ProbeFailure, Redis, Released, Settings, Wait};
use crate::{clock, inspect};
use actor::KeyActor;
pub use guard::FencedGuard;
use guard::{ActorMessage, Waiter};
#[doc(hidden)]
pub use protocol::FENCES_PER_GRANT;
use protocol::Protocol;
pub use protocol::Timing;
#[cfg(test)]
pub(crate) use protocol::script_of;
use shared::{MAX_WAITING_HINTS, Shared};

/// Timeout of a single attempt, which has no time to wait: two calls of Redis, because the actor
/// may be in one already.
const TRY_TIMEOUT: Duration = RESPONSE_TIMEOUT.saturating_mul(2);

/// The fenced locks of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FencedLocks(Arc<Shared>);

impl FencedLocks {
    /// Subscribes to the process's channel, in the background, until the last clone is dropped.
    pub(crate) fn new(
        redis: Redis,
        settings: &Settings,
        process: &ProcessIdentity,
        leases: Leases,
    ) -> Self {
        let shared = Arc::new(Shared {
            protocol: Protocol::new(redis.clone(), &settings.key_prefix, &settings.fenced),
            timing: settings.fenced.clone(),
            leases,
            process: process.id(),
            actors: Mutex::default(),
            hint_places: Arc::new(Semaphore::new(MAX_WAITING_HINTS)),
            listener: OnceLock::new(),
        });

        // A weak reference: the task must not keep alive what ends it.
        let listening = listener::listen(redis.clone(), Arc::downgrade(&shared));
        let _ = shared.listener.set(AbortOnDropHandle::new(redis.spawn(listening)));
        Self(shared)
    }

    /// Does what the locks do, on each server that stores keys, on keys of its own.
    pub(crate) async fn probe(&self, prefix: &str) -> Result<(), ProbeFailure> {
        let protocol = &self.0.protocol;
        // Without a hash tag, its keys lie in several slots: if the server is a node of a Cluster,
        // it refuses that, even if it owns all of them.
        let keys = protocol.redis.key_of_each_primary(&format!("{prefix}probe")).await;
        let keys = keys.map_err(|error| ProbeFailure::Locks(error.into()))?;
        let id = format!("{}.probe", self.0.process);
        let results = join_all(keys.iter().map(|key| protocol.probe(key, &id))).await;

        // That no lock can be acquired is worse than a missing notification.
        let failures = results.into_iter().filter_map(Result::err);
        match failures.min_by_key(|failure| matches!(failure, ProbeFailure::Messages(_))) {
            Some(worst) => Err(worst),
            None => Ok(()),
        }
    }

    /// Releases what the process holds, and leaves its queues. No acquisition may succeed by now.
    pub(crate) async fn close(&self) -> Released {
        let actors: Vec<_> = self.0.actors.lock().values().cloned().collect();
        let closing = actors.into_iter().map(async |actor| {
            let (responder, response) = oneshot::channel();
            // An actor that has ended holds nothing, unless it panicked.
            match actor.send(ActorMessage::Close { responder }) {
                Ok(()) => response.await.unwrap_or(Released::Unknown),
                Err(_) => Released::Held,
            }
        });
        all_of(join_all(closing).await)
    }

    /// Returns whether this process holds the lock or waits for it.
    pub(crate) fn has_actor(&self, redis_key: &str) -> bool {
        self.0.actors.lock().contains_key(redis_key)
    }

    /// Acquires the lock; tries once if there is no time to wait. Returns the holder if the lock is
    /// not acquired in time; looking it up in Redis takes up to 0.8 s more.
    ///
    /// FIFO among the waiters of this process. Other processes are served in the order of their
    /// tickets, after a few local handoffs ([`Timing::local_handoff_period`]). Cancel safe: a
    /// dropped waiter is skipped, and a grant without a waiter is handed off.
    pub(crate) async fn acquire(
        &self,
        redis_key: &str,
        ttl: Duration,
        max_hold: Option<Duration>,
        wait: Wait,
        until: Instant,
        takes_mail: bool,
    ) -> Result<Result<FencedGuard, Holder>, Error> {
        let now = Instant::now();
        let only_try = wait == Wait::Try || until <= now;
        let until = if only_try { now + TRY_TIMEOUT } else { until };

        let (responder, response) = oneshot::channel();
        let joined_us = clock::monotonic_us();
        let waiter = Waiter { responder, joined_us, only_try, ttl, max_hold, takes_mail };
        self.send(redis_key, ActorMessage::Join(waiter));

        // Dropping the receiver leaves the queue; the place then wakes the actor.
        let mut queue_place = QueuePlace { shared: &self.0, redis_key, has_guard: false };
        match timeout_at(until, response).await {
            Ok(Ok(Ok(Ok(guard)))) => {
                queue_place.has_guard = true;
                Ok(Ok(guard))
            }
            Ok(Ok(Ok(Err(holder)))) => Ok(Err(holder)),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) | Err(_) => {
                // A Redis that does not respond is an error, not a busy lock.
                inspect::holder(&self.0.protocol.redis, redis_key).await.map(Err)
            }
        }
    }

    /// Sends a message to the key's actor; starts it if there is none.
    fn send(&self, redis_key: &str, message: ActorMessage) {
        let mut actors = self.0.actors.lock();
        let message = match actors.get(redis_key) {
            Some(actor) => match actor.send(message) {
                Ok(()) => return,
                Err(mpsc::error::SendError(message)) => message,
            },
            None => message,
        };

        // An actor that ends removes itself from the map under this lock, so there is at most one.
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send(message);
        actors.insert(redis_key.to_owned(), sender.clone());
        let actor = KeyActor::new(self.0.clone(), redis_key.to_owned(), sender, receiver);
        self.0.protocol.redis.spawn(actor.run());
    }
}

/// A place in the queue. Dropped without a guard, it wakes the actor, which skips the waiter.
struct QueuePlace<'a> {
    shared: &'a Shared,
    redis_key: &'a str,
    has_guard: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if !self.has_guard {
            self.shared.notify(self.redis_key, ActorMessage::WaiterLeft);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaseId;

    impl FencedLocks {
        /// For what happens before an answer of Redis, or without one.
        pub fn without_redis() -> Self {
            let redis = Redis::open("redis://127.0.0.1:1").unwrap();
            Self::new(redis, &Settings::default(), &ProcessIdentity::new(None), Leases::new(None))
        }
    }

    #[tokio::test]
    async fn id_says_whether_all_who_wait_take_mail() {
        let locks = FencedLocks::without_redis();
        let (sender, inbox) = mpsc::unbounded_channel();
        let mut actor = KeyActor::new(locks.0.clone(), "key".to_owned(), sender, inbox);

        for (takes_mail, all_take_mail) in [(true, true), (true, true), (false, false)] {
            let (responder, _) = oneshot::channel();
            let (ttl, max_hold) = (Duration::from_secs(1), None);
            let waiter =
                Waiter { responder, joined_us: 0, only_try: false, ttl, max_hold, takes_mail };
            actor.waiters.push_back(waiter);
            assert_eq!(LeaseId::new(actor.new_id()).takes_mail(), all_take_mail);
        }
    }
}

//! `fenced`: a lease with a fence, FIFO within a process, with handoff between processes.
//!
//! Guarantees: each acquisition has a random owner and a fence above all earlier fences of its key,
//! while Redis keeps its counter; [`FencedGuard::refence`] raises a lost counter above the row's
//! fence. The deadline of a guard is measured from before the call to Redis that it rests on. A
//! waiter that leaves or dies is skipped, and a dropped guard is released.
//!
//! Does not exclude a second holder when the first is paused past its lease, Redis loses data or
//! its clock jumps ahead. The fence and the row's version then reject the stale write
//! (`shop::strategy::fenced`); a write without its fence is unprotected. If Redis's clock jumps
//! back, the lease of a dead holder lasts longer. Client clocks decide nothing.
//!
//! Sources: Kleppmann, *How to do distributed locking* (2016) for fences; lock cohorting (Dice,
//! Marathe, Shavit, `PPoPP` 2012) for local handoffs; queue locks (MCS, 1991) for handoffs.
//! Tests: `tests/lock`, `tests/model`.

mod actor;
mod figures;
mod hear;
mod message;
mod talk;
mod tenure;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::process::Process;
use super::{Error, Guard, Holder, LockKey, Redis, Released, Wait};
use crate::clock;
use actor::Line;
use message::{Message, Waiter};
use talk::Talk;

/// Timing of the fenced lock.
#[derive(Debug, Clone)]
pub struct Times {
    /// Duration of a lease between renewals.
    pub ttl: Duration,
    /// Time within which a process must confirm a grant, before it expires.
    pub grant: Duration,
    /// Interval at which a waiting process polls, in case a message was lost. With a round trip it
    /// must be less than half of `grant`. A process that does not poll for three intervals is
    /// skipped.
    pub poll: Duration,
    /// Time for which a process continues local handoffs after it learns that another process
    /// waits: at most eight, and only to waiters that joined before that.
    pub turn: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(3),
            grant: Duration::from_millis(600),
            poll: Duration::from_millis(200),
            turn: Duration::from_millis(100),
        }
    }
}

/// Options of an acquisition.
#[derive(Debug)]
pub struct Asking {
    /// Does not wait if [`Wait::Try`], otherwise queues.
    pub wait: Wait,
    /// Duration of the lease; defaults to [`Times::ttl`]. A local handoff does not change it.
    pub ttl: Option<Duration>,
    /// Time at which waiting ends.
    pub until: Instant,
}

/// The fenced locks of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FencedLocks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    talk: Talk,
    times: Times,
    /// Identifies this process in owners and names its channel. New with every start.
    process: String,
    /// Queues of the keys that this process holds or waits for.
    lines: Mutex<HashMap<String, mpsc::UnboundedSender<Message>>>,
}

impl FencedLocks {
    /// Creates the fenced locks of `process` on `redis`, where every key begins with `prefix`.
    /// Subscribes to the process's channel in the background until the last clone is dropped; sends
    /// nothing else yet.
    #[must_use]
    pub fn new(redis: Redis, prefix: &str, times: Times, process: &Process) -> Self {
        let shared = Arc::new(Shared {
            talk: Talk::new(redis.clone(), prefix, &times),
            times,
            process: process.id(),
            lines: Mutex::default(),
        });
        redis.runtime().spawn(hear::listen(redis.clone(), Arc::downgrade(&shared)));
        Self(shared)
    }

    /// Acquires the lock on `key`. Returns the holder instead if the lock is not acquired in time;
    /// looking it up in Redis takes up to 0.8 s more.
    ///
    /// FIFO among the waiters of this process. Other processes are served in the order of their
    /// tickets, but the holding process first makes a few local handoffs ([`Times::turn`]).
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond. What may have been acquired is released.
    ///
    /// # Cancel safety
    /// Safe: a dropped waiter is skipped, and a grant without a waiter is handed off.
    pub async fn acquire(
        &self,
        key: LockKey,
        redis_key: String,
        asking: Asking,
    ) -> Result<Result<Guard, Holder>, Error> {
        let Asking { wait, ttl, until } = asking;
        let (reply, answer) = oneshot::channel();
        let waiter = Waiter {
            reply,
            joined_us: clock::monotonic_us(),
            only_try: wait == Wait::Try,
            ttl: ttl.unwrap_or(self.0.times.ttl),
        };
        self.0.send(&redis_key, Message::Join(waiter));
        // Dropping the receiver leaves the queue; unless answered, `place` then wakes the actor.
        let mut place = Place { shared: self.0.clone(), redis_key, answered: false };
        let answer = timeout_at(until, answer).await;
        match answer {
            Ok(Ok(Ok(Ok(guard)))) => {
                place.answered = true;
                Ok(Ok(Guard::fenced(key, guard)))
            }
            Ok(Ok(Ok(Err(holder)))) => Ok(Err(holder)),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) | Err(_) => {
                let holder = super::inspect::holder(&self.0.talk.redis, &place.redis_key).await;
                Ok(Err(holder.unwrap_or_default()))
            }
        }
    }
}

impl Shared {
    /// Sends a message to the key's actor; starts it if there is none.
    fn send(self: &Arc<Self>, redis_key: &str, message: Message) {
        let mut lines = self.lines.lock();
        let message = match lines.get(redis_key) {
            Some(line) => match line.send(message) {
                Ok(()) => return,
                Err(mpsc::error::SendError(message)) => message,
            },
            None => message,
        };
        // An actor that ends removes itself from the map under this lock, so there is at most one.
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send(message);
        lines.insert(redis_key.to_owned(), sender.clone());
        let line = Line::new(self.clone(), redis_key.to_owned(), sender, receiver);
        self.talk.redis.runtime().spawn(line.run());
    }

    /// Sends a message to the key's actor, if there is one.
    fn tell(&self, redis_key: &str, message: Message) {
        let lines = self.lines.lock();
        if let Some(line) = lines.get(redis_key) {
            let _ = line.send(message);
        }
    }
}

/// A place in the queue. Dropped without a response, it wakes the actor, which skips the waiter.
struct Place {
    shared: Arc<Shared>,
    redis_key: String,
    answered: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.tell(&self.redis_key, Message::Look);
        }
    }
}

/// The lease of one owner, renewed by its actor and observed by its guards.
#[derive(Debug)]
struct Lease {
    owner: String,
    /// On the machine's monotonic clock, which counts suspended time.
    deadline_us: AtomicU64,
    lost: watch::Sender<bool>,
    /// True if a waiter of this or another process is known, or if the lock was lost.
    wanted: watch::Sender<bool>,
}

impl Lease {
    fn is_held(&self) -> bool {
        !*self.lost.borrow() && clock::monotonic_us() < self.deadline_us.load(Ordering::Acquire)
    }
}

/// An acquired fenced lock, whose lease may have expired since.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct FencedGuard {
    fence: i64,
    lease: Arc<Lease>,
    line: mpsc::UnboundedSender<Message>,
    given_back: bool,
}

impl FencedGuard {
    /// Returns the fence of this acquisition: larger than all earlier ones of its key while Redis
    /// keeps its data. The protected resource must compare it; nothing else does.
    #[must_use]
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns whether the lease has not expired, as far as this machine knows. Does not call
    /// Redis.
    ///
    /// After `false` the caller must not rely on the lock again. `true` may be outdated when the
    /// caller reads it, and if Redis lost the lock, it is wrong until the next renewal.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns whether another waiter is known, in this or another process. A hint for a holder
    /// that could either continue or release.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self.lease.wanted.borrow()
    }

    /// Waits until [`FencedGuard::is_wanted`], or until a renewal finds the lock lost.
    ///
    /// # Cancel safety
    /// Safe: has no side effects.
    pub async fn wanted(&self) {
        let _ = self.lease.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Checks [`FencedGuard::is_held`], for `?` before a step that cannot be undone and has no
    /// fence.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease has expired. `Ok` guarantees no more than `is_held`.
    pub fn ensure_held(&self) -> Result<(), Error> {
        if self.is_held() { Ok(()) } else { Err(Error::Lost) }
    }

    /// Waits until the lock is no longer held: the lease expires by this machine's clock, or a
    /// renewal finds it lost. Never returns earlier, and at the latest when the lease expires.
    ///
    /// # Cancel safety
    /// Safe: has no side effects.
    pub async fn lost(&self) {
        let mut lost = self.lease.lost.subscribe();
        loop {
            let left = self.lease.deadline_us.load(Ordering::Acquire);
            let left = Duration::from_micros(left.saturating_sub(clock::monotonic_us()));
            if *lost.borrow_and_update() || left.is_zero() {
                return;
            }
            // Each renewal moves the deadline, so the loop reads it again.
            let _ = tokio::time::timeout(left, lost.changed()).await;
        }
    }

    /// Replaces this guard's fence by one above `floor`, after a row had a higher fence than this
    /// guard because Redis lost its counter. Returns `None` if Redis reports that the lock is lost.
    ///
    /// The counter in Redis only increases, and the lock stays held.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not respond; this guard keeps its fence.
    ///
    /// # Cancel safety
    /// Safe: this guard keeps its fence, and the new fence is skipped.
    pub async fn refence(&mut self, floor: i64) -> Result<Option<i64>, Error> {
        let (reply, answer) = oneshot::channel();
        let owner = self.lease.owner.clone();
        if self.line.send(Message::Refence { owner, floor, reply }).is_err() {
            return Ok(None);
        }
        let fence = answer.await.unwrap_or(Ok(None))?;
        if let Some(fence) = fence {
            self.fence = fence;
        }
        Ok(fence)
    }

    /// Hands the lock off to the next waiter of this process, or releases it in Redis, where the
    /// next process is granted it.
    ///
    /// After a local handoff, `Held` is by this process's clock; otherwise Redis confirmed it. Does
    /// not fail: after [`Released::Unknown`] the lock ends with its lease.
    ///
    /// # Cancel safety
    /// Safe, even before the first poll: the lock is released, and only the result is lost.
    pub async fn release(mut self) -> Released {
        self.given_back = true;
        let (reply, answer) = oneshot::channel();
        let owner = self.lease.owner.clone();
        match self.line.send(Message::Released { owner, reply: Some(reply) }) {
            Ok(()) => answer.await.unwrap_or(Released::Unknown),
            // The actor has ended, so the lock is no longer held.
            Err(_) => Released::Lost,
        }
    }

    /// Leaves the lock to expire: it is neither renewed nor released. Other callers wait for the
    /// rest of the lease.
    pub fn leave_to_expire(mut self) {
        self.given_back = true;
        let owner = self.lease.owner.clone();
        let _ = self.line.send(Message::Abandoned { owner });
    }
}

impl Drop for FencedGuard {
    fn drop(&mut self) {
        if !self.given_back {
            let owner = self.lease.owner.clone();
            let _ = self.line.send(Message::Released { owner, reply: None });
        }
    }
}

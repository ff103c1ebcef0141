//! `fenced`: the lock of this project.
//!
//! # Guarantee
//! - **Owner**: 128 random bits per lease. An acquisition is an owner and a fence, never a thread
//!   and never a process.
//! - **A fence with every acquisition**, larger than every one given out before for that key while
//!   Redis remembers, and raised above the row's by [`FencedGuard::refence`] when it has forgotten.
//! - **Two levels.** In a process one line per key, first come first served, whose head alone talks
//!   to Redis (`actor`). A lock that is given back goes to the next one in that line without Redis;
//!   between processes the release itself grants it to the next process, which is told.
//! - **A guard rests on a call that this process made and that was answered**: its deadline runs
//!   from before that call was sent. Whoever was granted the lock while it waited needs no second
//!   call for that: a grant with a fence above the one that its last poll was told was made after
//!   that poll, and can't end before a grant's time from then on. It is confirmed by the first
//!   renewal, if the guard is out for so long; when the word comes too late for that, before.
//! - **A guard that ran out**, by the renewal's or the clock's word, says so:
//!   [`FencedGuard::lost`], [`FencedGuard::ensure_held`].
//! - **Nothing is left behind.** Whoever stops waiting is passed over; a guard that is dropped is
//!   given back; a process that dies is passed over within a second, its lease ends by itself.
//!
//! # Breaks when
//! It does not keep two holders apart when a holder is paused past its lease: no lock with an
//! expiry can. It makes that harmless: the fence and the row's version refuse the late write
//! (`shop::strategy::fenced`). A holder that writes without showing its fence is not protected.
//!
//! A client's time of day decides nothing, Redis's does. Jumps it ahead, leases end early: there
//! may be two holders until the first one's next renewal, and the fence tells them apart. Jumps it
//! back, whoever lives goes on, and the lease of somebody dead lasts as much longer.
//!
//! # Seen in the wild
//! Fences: Kleppmann, *How to do distributed locking* (2016). Passing inside a process first: lock
//! cohorting (Dice, Marathe, Shavit, `PPoPP` 2012). The release that grants: queue locks (MCS,
//! 1991).

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

/// How a fenced lock keeps time.
#[derive(Debug, Clone)]
pub struct Times {
    /// A lease, while it is not renewed.
    pub ttl: Duration,
    /// How long a process that was granted the lock has to confirm it.
    pub grant: Duration,
    /// How often a waiting process asks although nobody told it anything. With a round trip it is
    /// less than half of `grant`; who was not seen for three of them is passed over.
    pub poll: Duration,
    /// How long a process still passes the lock on inside when it hears that another one waits;
    /// at most eight times, and only to those that were in line before.
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

/// How one waits for the lock.
#[derive(Debug)]
pub struct Asking {
    /// Not at all with [`Wait::Try`].
    pub wait: Wait,
    /// The lease's time, if not the usual one; passed on inside the process it stays what it was.
    pub ttl: Option<Duration>,
    /// Until when.
    pub until: Instant,
}

/// The fenced locks of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FencedLocks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    talk: Talk,
    times: Times,
    /// This process, in owners and as the name of its channel. New with every start.
    process: String,
    /// The lines of the keys that somebody holds or waits for.
    lines: Mutex<HashMap<String, mpsc::UnboundedSender<Message>>>,
}

impl FencedLocks {
    /// The locks of that process over that Redis; `prefix` is what every key begins with. Nothing
    /// is asked of Redis yet but to listen, in the background, until the last clone is gone.
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

    /// Takes the lock on `key`; the holder's particulars when it is still taken when the time is up
    /// (Redis is asked for them, up to 0.8 s more).
    ///
    /// First come, first served among the waiters of this process. Between processes nobody barges,
    /// but a process passes the lock on inside itself a few times before others have it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer. What may have been taken is given back.
    ///
    /// # Cancel safety
    /// Safe: whoever stops waiting is passed over, and what was granted to nobody is handed on.
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
        // Whether it is answered or not: dropping `answer` is what leaves the line.
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
    /// To the line of that key; begins one if there is none.
    fn send(self: &Arc<Self>, redis_key: &str, message: Message) {
        let mut lines = self.lines.lock();
        let message = match lines.get(redis_key) {
            Some(line) => match line.send(message) {
                Ok(()) => return,
                Err(mpsc::error::SendError(message)) => message,
            },
            None => message,
        };
        // A line that ends takes itself off the map under this very lock, so there is one at most.
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send(message);
        lines.insert(redis_key.to_owned(), sender.clone());
        let line = Line::new(self.clone(), redis_key.to_owned(), sender, receiver);
        self.talk.redis.runtime().spawn(line.run());
    }

    /// To the line of that key, if there is one.
    fn tell(&self, redis_key: &str, message: Message) {
        let lines = self.lines.lock();
        if let Some(line) = lines.get(redis_key) {
            let _ = line.send(message);
        }
    }
}

/// Standing in line. Whoever leaves without an answer says so, so that nobody waits for the dead.
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

/// One owner's time with the lock, renewed by its line and watched by its guards.
#[derive(Debug)]
struct Lease {
    owner: String,
    /// On the machine's monotonic clock, suspended time counted.
    deadline_us: AtomicU64,
    lost: watch::Sender<bool>,
    /// Whether somebody waits for it, here or in another process.
    wanted: watch::Sender<bool>,
}

impl Lease {
    fn is_held(&self) -> bool {
        !*self.lost.borrow() && clock::monotonic_us() < self.deadline_us.load(Ordering::Acquire)
    }
}

/// Proof that one holds a fenced lock, or held it.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct FencedGuard {
    fence: i64,
    lease: Arc<Lease>,
    line: mpsc::UnboundedSender<Message>,
    given_back: bool,
}

impl FencedGuard {
    /// The number of this acquisition: larger than every one before it for its key, as long as
    /// Redis forgets nothing. The protected thing must compare it; nothing else does.
    #[must_use]
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Whether the lease has not run out yet, as far as this machine can know, without asking.
    ///
    /// `false` is certain to stay so. `true` may be over before the caller has looked at it, and
    /// is wrong until the next renewal when Redis has forgotten the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Whether somebody else is known to wait for the lock, in this process or in another. A hint,
    /// for a holder that could go on or let others have their turn.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self.lease.wanted.borrow()
    }

    /// Returns when [`FencedGuard::is_wanted`], or when a renewal found the lock gone.
    ///
    /// # Cancel safety
    /// Safe: it only listens.
    pub async fn wanted(&self) {
        let _ = self.lease.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// [`FencedGuard::is_held`], for `?`: asked before a step that can't be undone and can't show
    /// its fence.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease has run out. `Ok` promises no more than `is_held` does.
    pub fn ensure_held(&self) -> Result<(), Error> {
        if self.is_held() { Ok(()) } else { Err(Error::Lost) }
    }

    /// Returns when the lock is no longer held: the lease ran out by this machine's clock, or the
    /// renewal found it gone. Not before, and at the latest with the lease.
    ///
    /// # Cancel safety
    /// Safe: it only listens.
    pub async fn lost(&self) {
        let mut lost = self.lease.lost.subscribe();
        loop {
            let left = self.lease.deadline_us.load(Ordering::Acquire);
            let left = Duration::from_micros(left.saturating_sub(clock::monotonic_us()));
            if *lost.borrow_and_update() || left.is_zero() {
                return;
            }
            // The deadline moves with every renewal, so it is looked at again.
            let _ = tokio::time::timeout(left, lost.changed()).await;
        }
    }

    /// A new number above `floor`, because a row knows a higher one than this guard's: Redis has
    /// forgotten. `None` when Redis says that the lock is no longer ours.
    ///
    /// Redis's counter is only ever raised, and the lock stays held meanwhile.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis does not answer; this guard keeps its number.
    ///
    /// # Cancel safety
    /// Safe: this guard keeps its number, and a new one that nobody takes is skipped.
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

    /// Gives the lock back: to the next in this process's line, or to the next process.
    ///
    /// `Held` inside the process is by its own clock; between processes Redis has said so. It does
    /// not fail: [`Released::Unknown`] ends with the lease.
    ///
    /// # Cancel safety
    /// Safe, even before the first poll: the lock is given back all the same; only what that found
    /// out is not learned.
    pub async fn release(mut self) -> Released {
        self.given_back = true;
        let (reply, answer) = oneshot::channel();
        let owner = self.lease.owner.clone();
        match self.line.send(Message::Released { owner, reply: Some(reply) }) {
            Ok(()) => answer.await.unwrap_or(Released::Unknown),
            // The line has ended: it had nothing to hold any more.
            Err(_) => Released::Lost,
        }
    }

    /// Leaves the lock to its expiry: it is neither renewed nor given back. Others wait for what is
    /// left of the lease.
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

//! `redlock`: the textbook lease on a majority of several independent Redis servers.
//!
//! # Guarantee
//! A holder has the lock on more than half of the nodes, so it survives the loss of the others.
//! Nodes are asked in parallel, each with a short timeout; what was acquired without a majority, or
//! granted late, is released. The lease is valid for its TTL less the time to acquire it and the
//! clock drift.
//!
//! # Breaks when
//! The process is paused past its lease, the nodes' clocks drift apart by more than allowed, or a
//! node restarts without its data. There is **no fence**: the greatest of a majority's counters is
//! not monotonic unless it is written back first.
//!
//! # Seen in the wild
//! antirez, *Distributed locks with Redis*; redsync, rslock. Against it: Kleppmann (2016).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::jittered;
use crate::clock::monotonic_us;
use crate::process::Process;
use crate::task::AbortOnDrop;
use crate::{Error, Holder, Redis, Released, Wait, inspect};

/// Divisor of the TTL: a node's timeout is this part of it, at most [`MAX_NODE_TIMEOUT`].
const NODE_TIMEOUT_DIVISOR: u32 = 20;
/// Upper bound of a node's timeout; a reachable node responds within about 1 ms.
const MAX_NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// Nodes that stay slow this long count as unavailable, which must be reported within 2 s.
const MAX_TIME_WITHOUT_MAJORITY: Duration = Duration::from_millis(1_500);

/// The nodes. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Quorum {
    nodes: Vec<Redis>,
    process: Process,
}

impl Quorum {
    /// Creates a quorum of these nodes. An even number tolerates no more failures than one node
    /// less.
    #[must_use]
    pub fn new(nodes: Vec<Redis>, process: Process) -> Self {
        Self { nodes, process }
    }

    /// Returns the number of nodes that make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Acquires the lock on a majority. With [`Wait::Try`] it makes one attempt, otherwise it polls
    /// until `until`. Returns `None` if the last attempt did not get a majority. Waiters are served
    /// in no particular order. The lease is extended until its release.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too many nodes for a majority are unavailable or stay slow for 1.5
    /// s.
    ///
    /// # Cancel safety
    /// Safe: background tasks release what was, and what may still be, acquired.
    pub async fn acquire(
        &self,
        redis_key: &str,
        ttl: Duration,
        retry: Duration,
        wait: Wait,
        until: Instant,
    ) -> Result<Option<QuorumLease>, Error> {
        let slow_until = Instant::now() + MAX_TIME_WITHOUT_MAJORITY;
        loop {
            let unanswered = match self.attempt(redis_key, ttl).await? {
                QuorumAttempt::Acquired(lease) => return Ok(Some(lease)),
                QuorumAttempt::Busy => None,
                QuorumAttempt::Unanswered(error) => Some(error),
            };
            let next = Instant::now() + jittered(retry);
            match unanswered {
                Some(error) if wait == Wait::Try || next > until.min(slow_until) => {
                    return Err(error);
                }
                None if wait == Wait::Try || next > until => return Ok(None),
                _ => sleep_until(next).await,
            }
        }
    }

    /// Returns the holder on a majority, according to the nodes that respond within 50 ms.
    pub async fn holder(&self, redis_key: &str) -> Holder {
        let states = self.nodes.iter().map(|node| inspect::key_state(node, redis_key));
        let states = join_all(states.map(|key_state| timeout(MAX_NODE_TIMEOUT, key_state))).await;
        let seen: Vec<_> = states.into_iter().flatten().flatten().collect();
        let votes = |value: &str| seen.iter().filter(|key_state| key_state.value == value).count();
        let most = seen.iter().filter(|key_state| votes(&key_state.value) >= self.majority());
        // The majority may end with its shortest lease.
        most.min_by_key(|key_state| key_state.remaining)
            .map(inspect::KeyState::holder)
            .unwrap_or_default()
    }

    async fn attempt(&self, redis_key: &str, ttl: Duration) -> Result<QuorumAttempt, Error> {
        let sent_us = monotonic_us();
        // Armed before the first command is sent: dropping it releases what a node granted or will
        // grant.
        let held = QuorumOwner {
            quorum: self.clone(),
            key: redis_key.to_owned(),
            owner: self.process.new_owner(),
            released: Arc::default(),
            release_on_drop: true,
        };
        let votes = self.poll(ttl, |node| acquire_on(node, &held, ttl)).await;
        let spent_us = monotonic_us() - sent_us;
        if votes.yes >= self.majority() && spent_us < usable_us(ttl) {
            let deadline_us = sent_us + usable_us(ttl);
            let renewal = renew(held.clone_without_release(), ttl, deadline_us);
            let renewal = AbortOnDrop::spawn(self.nodes[0].runtime(), renewal);
            return Ok(QuorumAttempt::Acquired(QuorumLease { renewal, held }));
        }
        // A task releases it on every node, so the caller does not wait for slow ones.
        drop(held);
        match votes.error {
            Some(error) if votes.no + votes.yes + votes.slow < self.majority() => Err(error),
            Some(error) if votes.no + votes.yes < self.majority() => {
                Ok(QuorumAttempt::Unanswered(error))
            }
            _ => Ok(QuorumAttempt::Busy),
        }
    }

    /// Asks all nodes in parallel. Returns once a majority has agreed, or all nodes have responded
    /// or timed out.
    ///
    /// Each request runs in its own task and completes even if its response is no longer awaited: a
    /// lock on a bare majority would be lost with the first of its nodes.
    async fn poll<F>(&self, ttl: Duration, ask: impl Fn(Redis) -> F) -> Votes
    where
        F: Future<Output = Result<bool, crate::redis::Error>> + Send + 'static,
    {
        let slow_until = (ttl / NODE_TIMEOUT_DIVISOR).min(MAX_NODE_TIMEOUT);
        let asked = self.nodes.iter().map(|node| node.runtime().spawn(ask(node.clone())));
        let mut answers: FuturesUnordered<_> =
            asked.map(|answer| timeout(slow_until, answer)).collect();
        let mut votes = Votes::default();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Ok(Ok(true))) => votes.yes += 1,
                Ok(Ok(Ok(false))) => votes.no += 1,
                Ok(Ok(Err(error))) => votes.error = Some(error.into()),
                Ok(Err(_)) | Err(_) => {
                    votes.slow += 1;
                    votes.error.get_or_insert_with(too_slow);
                }
            }
            if votes.yes >= self.majority() {
                break;
            }
        }
        votes
    }
}

/// The result of asking all nodes once.
enum QuorumAttempt {
    Acquired(QuorumLease),
    /// A majority responded, but the lock was not acquired.
    Busy,
    /// Too few nodes responded to decide; slow ones may respond next time.
    Unanswered(Error),
}

#[derive(Default)]
struct Votes {
    yes: usize,
    no: usize,
    /// Nodes that did not respond in time.
    slow: usize,
    error: Option<Error>,
}

fn too_slow() -> Error {
    crate::redis::Error::timed_out().into()
}

/// Returns the usable part of a lease: the TTL less the clock drift, 1 % plus 2 ms.
fn usable_us(ttl: Duration) -> u64 {
    let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
    ttl_us.saturating_sub(ttl_us / 100 + 2_000)
}

/// A lease on a majority, extended by a task. It has no fence.
#[derive(Debug)]
pub(crate) struct QuorumLease {
    /// Declared before `held`, so that the extension stops before the release.
    renewal: AbortOnDrop,
    held: QuorumOwner,
}

impl QuorumLease {
    /// Releases the lease on all nodes. Returns [`Released::Held`] if a majority still had it.
    ///
    /// # Cancel safety
    /// Safe: a task per node completes the release. Dropping the future before its first poll has
    /// the effect of dropping the lease.
    pub async fn release(self) -> Released {
        drop(self.renewal);
        self.held.release_all().await
    }

    /// Stops the extension and leaves the lease to its expiry.
    pub fn leave_to_expire(mut self) {
        self.held.release_on_drop = false;
    }
}

/// An owner value that is, or may be, on some of the nodes.
#[derive(Debug)]
struct QuorumOwner {
    quorum: Quorum,
    key: String,
    owner: String,
    /// Set on release: a node that grants the lock afterwards is released again.
    released: Arc<AtomicBool>,
    release_on_drop: bool,
}

impl QuorumOwner {
    /// Returns the same owner value, without releasing it on drop.
    fn clone_without_release(&self) -> QuorumOwner {
        QuorumOwner {
            quorum: self.quorum.clone(),
            key: self.key.clone(),
            owner: self.owner.clone(),
            released: self.released.clone(),
            release_on_drop: false,
        }
    }

    /// Releases the lock on every node by compare-and-delete. Returns [`Released::Held`] if a
    /// majority still had it. A node that grants it afterwards is released then.
    async fn release_all(mut self) -> Released {
        self.release_on_drop = false;
        self.released.store(true, Ordering::SeqCst);
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let majority = self.quorum.majority();
        let mut asked: FuturesUnordered<_> = self
            .quorum
            .nodes
            .iter()
            .map(|node| {
                let (node, key, owner) = (node.clone(), key.clone(), owner.clone());
                let runtime = node.runtime().clone();
                runtime.spawn(async move { node.delete_if(&key, &owner).await })
            })
            .collect();
        let (mut held, mut lost) = (0, 0);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(Ok(true)) => held += 1,
                Ok(Ok(false)) => lost += 1,
                _ => {}
            }
            if held >= majority {
                return Released::Held;
            }
        }
        if lost >= majority { Released::Lost } else { Released::Unknown }
    }
}

impl Drop for QuorumOwner {
    fn drop(&mut self) {
        if !self.release_on_drop {
            return;
        }
        let held = self.clone_without_release();
        if let Some(node) = self.quorum.nodes.first() {
            node.runtime().clone().spawn(held.release_all());
        }
    }
}

/// Acquires the lock on one node, and deletes it again if it was released by then.
fn acquire_on(
    node: Redis,
    held: &QuorumOwner,
    ttl: Duration,
) -> impl Future<Output = Result<bool, crate::redis::Error>> + Send + 'static {
    let held = held.clone_without_release();
    async move {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("SET");
        command.arg(&held.key).arg(&held.owner).arg("NX").arg("PX").arg(ttl_ms);
        let taken = node.query::<Option<String>>(command).await?.is_some();
        if taken && held.released.load(Ordering::SeqCst) {
            node.delete_if(&held.key, &held.owner).await?;
        }
        Ok(taken)
    }
}

/// Extends the lease on a majority every third of its TTL. A failed extension does not release it,
/// and is retried until the lease ends.
///
/// Nodes without the lock (they were unavailable, or lost their data) are asked for it again only
/// after a majority was extended without them: a holder that lost its majority cannot exclude that
/// another one held the lock since.
async fn renew(held: QuorumOwner, ttl: Duration, mut deadline_us: u64) {
    let mut pause = ttl / 3;
    loop {
        tokio::time::sleep(pause).await;
        let sent_us = monotonic_us();
        if sent_us >= deadline_us {
            return;
        }
        let votes = held.quorum.poll(ttl, |node| {
            let held = held.clone_without_release();
            async move { node.renew_if(&held.key, &held.owner, ttl).await }
        });
        if votes.await.yes < held.quorum.majority() {
            pause = ttl / 10;
            continue;
        }
        deadline_us = sent_us + usable_us(ttl);
        pause = ttl / 3;
        for node in &held.quorum.nodes {
            node.runtime().spawn(acquire_on(node.clone(), &held, ttl));
        }
    }
}

//! `redlock`: the textbook lease on a majority of several independent Redis.
//!
//! # Guarantee
//! The lock is held by whoever got it on more than half of the nodes, so it survives the loss of
//! the others. Nodes are asked in parallel, each for a short time; what was acquired without a
//! majority, or is granted late, is released. The lease counts for its time less what asking took,
//! less the drift of clocks.
//!
//! # Breaks when
//! The process is paused past its lease, or the clocks of nodes drift apart by more than allowed,
//! or a node restarts without its data. It has **no fence**, and its type says so: the greatest of
//! a majority's counters does not grow monotonically unless it is written back first.
//!
//! # Seen in the wild
//! antirez, *Distributed locks with Redis*; redsync, rslock. Against it: Kleppmann (2016).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::owner::jittered;
use crate::clock::monotonic_us;
use crate::lock::process::Process;
use crate::lock::{Error, Holder, Redis, Released, Wait, inspect};

/// One node may take this part of the lease to answer, and not more than [`NODE_LIMIT`].
const NODE_PART: u32 = 20;
/// A node that is there answers in a millisecond.
const NODE_LIMIT: Duration = Duration::from_millis(50);
/// Nodes that stay slow for so long are as good as away; that must be told within 2 s.
const SLOW_LIMIT: Duration = Duration::from_millis(1_500);

/// The nodes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quorum {
    nodes: Vec<Redis>,
    process: Process,
}

impl Quorum {
    /// A quorum of those nodes. An even number tolerates no more than one less does.
    #[must_use]
    pub fn new(nodes: Vec<Redis>, process: Process) -> Self {
        Self { nodes, process }
    }

    /// How many nodes are more than half.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Takes the lock on a majority, trying until `until` when told to; `None` when a majority is
    /// somebody else's then. In no order. The lease is extended until it is given back.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when so many nodes are away, or stay slow for 1.5 s, that there can
    /// be no majority.
    ///
    /// # Cancel safety
    /// Safe: what was taken, and what may still be taken, is given back.
    pub async fn acquire(
        &self,
        redis_key: &str,
        ttl: Duration,
        retry: Duration,
        wait: Wait,
        until: Instant,
    ) -> Result<Option<QuorumLease>, Error> {
        let patience = Instant::now() + SLOW_LIMIT;
        loop {
            let unanswered = match self.attempt(redis_key, ttl).await? {
                Attempt::Won(lease) => return Ok(Some(lease)),
                Attempt::Taken => None,
                Attempt::Unanswered(error) => Some(error),
            };
            let next = Instant::now() + jittered(retry);
            match unanswered {
                Some(error) if wait == Wait::Try || next > until.min(patience) => {
                    return Err(error);
                }
                None if wait == Wait::Try || next > until => return Ok(None),
                _ => sleep_until(next).await,
            }
        }
    }

    /// The holder on a majority, as far as the nodes respond within a moment.
    pub async fn holder(&self, redis_key: &str) -> Holder {
        let looks = self.nodes.iter().map(|node| inspect::look(node, redis_key));
        let looks = join_all(looks.map(|look| timeout(NODE_LIMIT, look))).await;
        let seen: Vec<_> = looks.into_iter().flatten().flatten().collect();
        let votes = |value: &str| seen.iter().filter(|look| look.value == value).count();
        let most = seen.iter().filter(|look| votes(&look.value) >= self.majority());
        // Once the shortest of them has ended there may be no majority any more.
        most.min_by_key(|look| look.remaining).map(inspect::Look::holder).unwrap_or_default()
    }

    async fn attempt(&self, redis_key: &str, ttl: Duration) -> Result<Attempt, Error> {
        let sent_us = monotonic_us();
        // Armed before anything is sent: dropping it gives back whatever was or will be granted.
        let held = Held {
            quorum: self.clone(),
            key: redis_key.to_owned(),
            owner: self.process.new_owner(),
            over: Arc::default(),
            armed: true,
        };
        let votes = self.poll(ttl, |node| take_node(node, &held, ttl)).await;
        let spent_us = monotonic_us() - sent_us;
        if votes.yes >= self.majority() && spent_us < usable_us(ttl) {
            let deadline_us = sent_us + usable_us(ttl);
            let renewal = Renewal(self.nodes[0].runtime().spawn(renew(
                held.watcher(),
                ttl,
                sent_us + usable_us(ttl),
            )));
            return Ok(Attempt::Won(QuorumLease { renewal, held, deadline_us }));
        }
        // Given back on every node by a task of its own: nobody waits for the slow ones.
        drop(held);
        match votes.away {
            Some(error) if votes.no + votes.yes + votes.slow < self.majority() => Err(error),
            Some(error) if votes.no + votes.yes < self.majority() => Ok(Attempt::Unanswered(error)),
            _ => Ok(Attempt::Taken),
        }
    }

    /// Asks all nodes at once. Returns when a majority has agreed, or none is left to wait for.
    ///
    /// A node whose answer is not waited for is asked all the same, by a task of its own: a lock on
    /// a bare majority would be lost with its first node.
    async fn poll<F>(&self, ttl: Duration, ask: impl Fn(Redis) -> F) -> Votes
    where
        F: Future<Output = Result<bool, redis::RedisError>> + Send + 'static,
    {
        let patience = (ttl / NODE_PART).min(NODE_LIMIT);
        let asked = self.nodes.iter().map(|node| node.runtime().spawn(ask(node.clone())));
        let mut answers: FuturesUnordered<_> =
            asked.map(|answer| timeout(patience, answer)).collect();
        let mut votes = Votes::default();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Ok(Ok(true))) => votes.yes += 1,
                Ok(Ok(Ok(false))) => votes.no += 1,
                Ok(Ok(Err(error))) => votes.away = Some(error.into()),
                Ok(Err(_)) | Err(_) => {
                    votes.slow += 1;
                    votes.away.get_or_insert_with(too_slow);
                }
            }
            if votes.yes >= self.majority() {
                break;
            }
        }
        votes
    }
}

/// What came of asking all nodes once.
enum Attempt {
    Won(QuorumLease),
    /// A majority answered, and it is somebody else's.
    Taken,
    /// So many nodes were slow that nobody knows; they may be faster next time.
    Unanswered(Error),
}

#[derive(Default)]
struct Votes {
    yes: usize,
    no: usize,
    /// Did not answer in time.
    slow: usize,
    away: Option<Error>,
}

fn too_slow() -> Error {
    redis::RedisError::from((redis::ErrorKind::Io, "a node did not answer in time")).into()
}

/// What of a lease counts: less the drift of clocks, one part in a hundred and 2 ms.
fn usable_us(ttl: Duration) -> u64 {
    let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
    ttl_us.saturating_sub(ttl_us / 100 + 2_000)
}

/// A lease on a majority, being extended. It has no fence.
#[derive(Debug)]
pub struct QuorumLease {
    /// Before `held`: nothing is extended after it was given back.
    renewal: Renewal,
    held: Held,
    deadline_us: u64,
}

impl QuorumLease {
    /// The end of the first lease, on the monotonic clock; extensions move it.
    #[must_use]
    pub fn deadline_us(&self) -> u64 {
        self.deadline_us
    }

    /// Gives it back everywhere; [`Released::Held`] if a majority still had it.
    ///
    /// # Cancel safety
    /// Safe: the nodes are asked by tasks of their own. Before the first poll, as by dropping.
    pub async fn release(self) -> Released {
        drop(self.renewal);
        self.held.give_back().await
    }

    /// Leaves it to its expiry: it is neither extended nor given back.
    pub fn leave_to_expire(mut self) {
        self.held.armed = false;
    }
}

#[derive(Debug)]
struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An owner that is, or may be, on some of the nodes.
#[derive(Debug)]
struct Held {
    quorum: Quorum,
    key: String,
    owner: String,
    /// It was given back: whoever is granted it after all lets go.
    over: Arc<AtomicBool>,
    armed: bool,
}

impl Held {
    /// The same owner, for those who must not give it back.
    fn watcher(&self) -> Held {
        Held {
            quorum: self.quorum.clone(),
            key: self.key.clone(),
            owner: self.owner.clone(),
            over: self.over.clone(),
            armed: false,
        }
    }

    /// Compares and deletes on every node; held if a majority still had it. A node that has not
    /// granted it yet lets go when it does.
    async fn give_back(mut self) -> Released {
        self.armed = false;
        self.over.store(true, Ordering::SeqCst);
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

impl Drop for Held {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let held = self.watcher();
        if let Some(node) = self.quorum.nodes.first() {
            node.runtime().clone().spawn(held.give_back());
        }
    }
}

/// Asks one node for the lock, and lets go of it again if it was given back meanwhile.
fn take_node(
    node: Redis,
    held: &Held,
    ttl: Duration,
) -> impl Future<Output = Result<bool, redis::RedisError>> + Send + 'static {
    let held = held.watcher();
    async move {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("SET");
        command.arg(&held.key).arg(&held.owner).arg("NX").arg("PX").arg(ttl_ms);
        let taken = node.query::<Option<String>>(command).await?.is_some();
        if taken && held.over.load(Ordering::SeqCst) {
            node.delete_if(&held.key, &held.owner).await?;
        }
        Ok(taken)
    }
}

/// Extends the lease on a majority after every third of it. A failed extension unlocks nothing: it
/// is tried again until the lease is over.
///
/// Nodes that do not have the lock (they were away, or have forgotten) are asked for it again, but
/// only after a majority has been extended without them: whoever has lost the majority for a moment
/// can't know who had it meanwhile.
async fn renew(held: Held, ttl: Duration, mut deadline_us: u64) {
    let mut pause = ttl / 3;
    loop {
        tokio::time::sleep(pause).await;
        let sent_us = monotonic_us();
        if sent_us >= deadline_us {
            return;
        }
        let votes = held.quorum.poll(ttl, |node| {
            let held = held.watcher();
            async move { node.renew_if(&held.key, &held.owner, ttl).await }
        });
        if votes.await.yes < held.quorum.majority() {
            pause = ttl / 10;
            continue;
        }
        deadline_us = sent_us + usable_us(ttl);
        pause = ttl / 3;
        for node in &held.quorum.nodes {
            node.runtime().spawn(take_node(node.clone(), &held, ttl));
        }
    }
}

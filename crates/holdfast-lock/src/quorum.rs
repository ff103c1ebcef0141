//! Redlock: the textbook lease on a majority (a quorum) of several independent Redis servers.
//!
//! # Guarantee
//! A holder has the lock on more than half of the nodes, so it survives the loss of the others.
//! Nodes are called in parallel, each with a short timeout; what was acquired without a majority,
//! or granted late, is released. The lease is valid for its TTL less the time to acquire it and the
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
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;

use crate::clock::{lease_deadline_us, monotonic_us, renewals_end_us};
use crate::kind::PollingRequest;
use crate::lease::{Closable, LeaseRecord, Leases};
use crate::process::ProcessIdentity;
use crate::redis::{Error as RedisError, set_if_absent};
use crate::time::{Instant, sleep, timeout};
use crate::{Error, Holder, Redis, Released, inspect};

/// Divisor of the TTL: a node's timeout is this part of it, at most [`MAX_NODE_TIMEOUT`].
const NODE_TIMEOUT_DIVISOR: u32 = 20;
/// Upper bound of a node's timeout; a reachable node responds within about 1 ms.
const MAX_NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// Time without responses of a majority after which the nodes are unavailable: a caller learns of
/// an outage within two seconds, however long it would wait for a busy lock.
const MAX_TIME_WITHOUT_MAJORITY: Duration = Duration::from_millis(1_500);

/// Time after which a probe's lock expires if its release is lost.
const PROBE_TTL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Quorum {
    nodes: Vec<Redis>,
    process: ProcessIdentity,
}

impl Quorum {
    pub fn new(nodes: Vec<Redis>, process: ProcessIdentity) -> Self {
        Self { nodes, process }
    }

    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Acquires the lock on a majority, or returns `None` if the last attempt did not get one.
    /// Waiters are served in no particular order. Fails if too many nodes for a majority are
    /// unavailable, or are slow for 1.5 s or in all attempts. Cancel safe: background tasks release
    /// what was, and what may still be, acquired.
    pub async fn acquire(&self, request: PollingRequest<'_>) -> Result<Option<QuorumLease>, Error> {
        let mut slow_since = Instant::now();
        let mut was_busy = false;
        loop {
            let undecided = match self.attempt(request).await? {
                QuorumAttempt::Acquired(lease) => return Ok(Some(lease)),
                QuorumAttempt::Busy => {
                    slow_since = Instant::now();
                    was_busy = true;
                    None
                }
                QuorumAttempt::Undecided(error) => Some(error),
            };

            let too_slow = undecided.is_some() && slow_since.elapsed() >= MAX_TIME_WITHOUT_MAJORITY;
            if too_slow || !request.next_attempt().await {
                return match undecided {
                    Some(error) if too_slow || !was_busy => Err(error.into()),
                    _ => Ok(None),
                };
            }
        }
    }

    /// Returns the holder on a majority, according to the nodes that respond within 50 ms.
    pub async fn holder(&self, redis_key: &str) -> Holder {
        let asked = self.nodes.iter().map(|node| inspect::value_and_holder(node, redis_key));
        let responses = join_all(asked.map(|asked| timeout(MAX_NODE_TIMEOUT, asked))).await;
        let found: Vec<_> = responses.into_iter().flatten().flatten().collect();

        let agreed = found.iter().filter(|(value, _)| {
            let votes = found.iter().filter(|(other, _)| other == value).count();
            votes >= self.majority()
        });
        // The majority may end with its shortest lease.
        let shortest = agreed.min_by_key(|(_, holder)| holder.remaining);
        shortest.map(|(_, holder)| holder.clone()).unwrap_or_default()
    }

    /// Checks that a majority grants and releases a lock, whose key begins with `start`.
    pub async fn probe(&self, start: &str) -> Result<(), Error> {
        let owner = self.process.new_owner();
        let key = format!("{start}:{owner}");
        let probes = self.nodes.iter().map(async |node| {
            let set = set_if_absent(&key, &owner, PROBE_TTL);
            node.send::<Option<String>>(set).await?;
            node.delete_if(&key, &owner).await
        });
        let results = join_all(probes).await;

        let passed = results.iter().filter(|result| result.is_ok()).count();
        match results.into_iter().find_map(Result::err) {
            Some(error) if passed < self.majority() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn attempt(&self, request: PollingRequest<'_>) -> Result<QuorumAttempt, Error> {
        let PollingRequest { kind, asked_us, redis_key, ttl, max_hold, leases, .. } = request;
        // Before the first request: the lease counts from the node that granted it first.
        let sent_us = monotonic_us();
        let owner = QuorumOwner {
            quorum: self.clone(),
            key: redis_key.to_owned(),
            owner: self.process.new_owner(),
            released: Arc::default(),
        };
        // Exists before the first command is sent: dropping it releases, in the background, what a
        // node has granted or will grant.
        let leases = leases.clone();
        let mut lease =
            QuorumLease { renewal: None, owner, leases, record: None, release_on_drop: true };
        let votes = self.poll(ttl, |node| lease.owner.clone().acquire_on(node, ttl)).await;

        // A majority that was slow may have lost the first locks again.
        let deadline_us = lease_deadline_us(sent_us, ttl);
        if votes.yes >= self.majority() && monotonic_us() < deadline_us {
            let record = LeaseRecord::new(&lease.leases, kind, asked_us, deadline_us);
            let record = Arc::new(record);
            lease.record = Some(Arc::clone(&record));
            let acquired =
                ClosableQuorumLease { owner: lease.owner.clone(), record: Arc::clone(&record) };
            lease.leases.add(&lease.owner.owner, Arc::new(acquired))?;

            let end_us = renewals_end_us(max_hold);
            let renewal = renew(lease.owner.clone(), record, ttl, deadline_us, end_us);
            lease.renewal = Some(AbortOnDropHandle::new(self.nodes[0].spawn(renewal)));
            return Ok(QuorumAttempt::Acquired(lease));
        }

        let responses = votes.yes + votes.no;
        match votes.error {
            Some(error) if responses + votes.slow < self.majority() => Err(error.into()),
            Some(error) if responses < self.majority() => Ok(QuorumAttempt::Undecided(error)),
            _ => Ok(QuorumAttempt::Busy),
        }
    }

    /// Asks all nodes in parallel. Returns once a majority has agreed, or all nodes have responded
    /// or timed out.
    ///
    /// Each request runs in its own task and completes even if its response is no longer awaited: a
    /// lock on a bare majority would be lost with the first of its nodes.
    async fn poll<F>(&self, ttl: Duration, request: impl Fn(Redis) -> F) -> NodeVotes
    where
        F: Future<Output = Result<bool, RedisError>> + Send + 'static,
    {
        let node_timeout = (ttl / NODE_TIMEOUT_DIVISOR).min(MAX_NODE_TIMEOUT);
        let requests = self.nodes.iter().map(|node| node.spawn(request(node.clone())));
        let mut responses: FuturesUnordered<_> =
            requests.map(|response| timeout(node_timeout, response)).collect();

        let mut votes = NodeVotes::default();
        while let Some(response) = responses.next().await {
            match response {
                Ok(Ok(Ok(true))) => votes.yes += 1,
                Ok(Ok(Ok(false))) => votes.no += 1,
                Ok(Ok(Err(error))) => votes.error = Some(error),
                Ok(Err(_)) | Err(_) => {
                    votes.slow += 1;
                    votes.error.get_or_insert_with(RedisError::timed_out);
                }
            }

            if votes.yes >= self.majority() {
                break;
            }
        }
        votes
    }
}

enum QuorumAttempt {
    Acquired(QuorumLease),
    /// A majority responded, but the lock was not acquired.
    Busy,
    /// Too few nodes responded to decide; slow ones may respond next time.
    Undecided(RedisError),
}

#[derive(Default)]
struct NodeVotes {
    yes: usize,
    no: usize,
    /// Nodes that did not respond in time.
    slow: usize,
    error: Option<RedisError>,
}

/// A lease that is, or may be, on some of the nodes. It has no fence.
#[derive(Debug)]
pub(crate) struct QuorumLease {
    renewal: Option<AbortOnDropHandle<()>>,
    owner: QuorumOwner,
    leases: Leases,
    /// Absent until it is known to be acquired.
    record: Option<Arc<LeaseRecord>>,
    release_on_drop: bool,
}

/// An acquired lease, as `Locks::close` releases it.
#[derive(Debug)]
struct ClosableQuorumLease {
    owner: QuorumOwner,
    record: Arc<LeaseRecord>,
}

impl Closable for ClosableQuorumLease {
    fn close(&self) -> Pin<Box<dyn Future<Output = Released> + Send + '_>> {
        Box::pin(async {
            let released = self.owner.clone().release().await;
            self.record.record_release(released);
            released
        })
    }
}

impl QuorumLease {
    pub fn record(&self) -> Option<&LeaseRecord> {
        self.record.as_deref()
    }

    /// Stops the extension, then releases the lease on all nodes.
    pub async fn release(mut self) -> Released {
        self.renewal = None;
        self.release_on_drop = false;
        let released = self.owner.clone().release().await;
        if let Some(record) = &self.record {
            record.record_release(released);
        }
        released
    }

    pub fn leave_to_expire(mut self) {
        self.release_on_drop = false;
        if let Some(record) = &self.record {
            record.record_leaving();
        }
    }
}

impl Drop for QuorumLease {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            self.leases.remove(&self.owner.owner);
            record.record_release(Released::Unknown);
        }
        if self.release_on_drop {
            self.renewal = None;
            self.leases.spawn_release(&self.owner.quorum.nodes[0], self.owner.clone().release());
        }
    }
}

#[derive(Debug, Clone)]
struct QuorumOwner {
    quorum: Quorum,
    key: String,
    owner: String,
    /// Set on release: a node that grants the lock afterwards is released again.
    released: Arc<AtomicBool>,
}

impl QuorumOwner {
    /// Acquires the lock on one node, and deletes it again if it was released by then.
    async fn acquire_on(self, node: Redis, ttl: Duration) -> Result<bool, RedisError> {
        let command = set_if_absent(&self.key, &self.owner, ttl);
        let created = node.send::<Option<String>>(command).await?.is_some();
        if created && self.released.load(Ordering::SeqCst) {
            node.for_release().delete_if(&self.key, &self.owner).await?;
        }
        Ok(created)
    }

    /// Releases the lock on every node, in a task each. Returns [`Released::Held`] if a majority
    /// still had it.
    async fn release(self) -> Released {
        // First: a node that grants the lock from now on is released by `acquire_on`.
        self.released.store(true, Ordering::SeqCst);
        let majority = self.quorum.majority();
        let deletions = self.quorum.nodes.iter().map(|node| {
            let (owner, releasing) = (self.clone(), node.for_release());
            node.spawn(async move { releasing.delete_if(&owner.key, &owner.owner).await })
        });
        let mut responses: FuturesUnordered<_> = deletions.collect();

        let mut held = 0;
        let mut lost = 0;
        while let Some(response) = responses.next().await {
            match response {
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

/// Extends the lease on a majority every third of its TTL, until `end_us`. A failed extension does
/// not release it, and is retried until the lease ends.
///
/// Nodes without the lock (they were unavailable, or lost their data) receive it again only
/// after a majority was extended without them: a holder that lost its majority cannot exclude that
/// another one held the lock since.
async fn renew(
    owner: QuorumOwner,
    record: Arc<LeaseRecord>,
    ttl: Duration,
    mut deadline_us: u64,
    end_us: u64,
) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause).await;
        let sent_us = monotonic_us();
        if sent_us >= deadline_us {
            return record.record_loss();
        }
        if sent_us >= end_us {
            tracing::warn!(key = owner.key, "a lock expires: it was held for too long");
            return;
        }

        let votes = owner.quorum.poll(ttl, |node| {
            let owner = owner.clone();
            async move { node.renew_if(&owner.key, &owner.owner, ttl).await }
        });
        if votes.await.yes < owner.quorum.majority() {
            pause = ttl / 10;
            continue;
        }

        deadline_us = lease_deadline_us(sent_us, ttl);
        record.record_renewal(deadline_us);
        pause = ttl / 3;
        for node in &owner.quorum.nodes {
            node.spawn(owner.clone().acquire_on(node.clone(), ttl));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A node that replies `OK` to everything, and has heard the sent commands.
    async fn node(heard: Arc<parking_lot::Mutex<String>>) -> Redis {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = client.read(&mut buffer).await {
                let commands = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let replies = "+OK\r\n".repeat(1 + commands.matches("\r\n*").count());
                heard.lock().push_str(&commands);
                client.write_all(replies.as_bytes()).await.unwrap();
            }
        });
        Redis::open(&url).unwrap()
    }

    #[tokio::test]
    async fn grant_after_release_is_deleted() {
        for released in [false, true] {
            let heard = Arc::default();
            let node = node(Arc::clone(&heard)).await;
            let process = ProcessIdentity::new(None);
            let owner = QuorumOwner {
                quorum: Quorum::new(vec![node.clone()], process),
                key: "lock".to_owned(),
                owner: "me".to_owned(),
                released: Arc::new(AtomicBool::new(released)),
            };
            // The reply to the deletion makes no sense.
            let _ = owner.acquire_on(node, Duration::from_secs(1)).await;
            assert_eq!(heard.lock().contains("EVAL"), released);
        }
    }
}

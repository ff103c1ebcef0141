//! Rate limits per client, shared by all replicas through Redis.
//!
//! Guarantees: per [`Policy`] and name, all replicas together admit at most `burst + rate × w`
//! requests in any time span `w` (one more by rounding), by the clock of Redis. A rejection by a
//! bucket that is known to be empty costs no call to Redis, and a busy client's request rarely
//! does: a replica leases the permits it expects to need within 200 ms, and concurrent requests for
//! permits share one call.
//!
//! Does not guarantee that the whole limit is usable: permits leased by a replica that the client
//! no longer uses are lost (at most 200 ms of the rate per replica), and a bucket found empty is
//! not asked again for up to 50 ms. If Redis loses its data, a burst is possible again. While Redis
//! is unavailable, or thousands of requests wait for it, each replica applies the whole limit
//! alone. Memory is bounded: [`MAX_CLIENTS`] names per process; in Redis a bucket expires as soon
//! as it is full. Tests: `tests/it/rate_limits.rs`.

pub mod bucket;
mod local_bucket;
mod permit_server;
mod rate;

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio_util::task::TaskTracker;

use crate::coalesce::{CoalesceError, Coalescer};
use crate::metrics::RATE_LIMIT_REJECTIONS;
use crate::tasks::Tasks;
use holdfast_lock::Redis;
use holdfast_lock::clock::monotonic_us;
use local_bucket::{PermitResult, SharedLocalBucket};
use permit_server::{ClientBucket, PermitServer};

pub use rate::{Policy, Rate};

/// Upper bound of names in memory; a request of an evicted name costs a call.
const MAX_CLIENTS: u64 = 50_000;
/// Idle time after which a name is evicted.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

/// A client's status under one limit, as far as this replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    pub policy: Policy,
    pub left: u64,
    /// Time until a whole burst is available, in seconds, rounded up.
    pub full_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitDecision {
    Admitted(Vec<LimitStatus>),
    Rejected {
        by: Policy,
        wait: Duration,
        /// The status under all limits of the request.
        statuses: Vec<LimitStatus>,
    },
}

/// The rate limits of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    server: Arc<PermitServer>,
    /// Each requests one permit of each bucket.
    requests: Coalescer<(), Vec<ClientBucket>, Vec<PermitResult>, CoalesceError>,
    locals: Cache<String, SharedLocalBucket>,
}

impl Limiter {
    /// Creates limits that all processes with the same Redis and prefix share.
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let locals = Cache::builder().max_capacity(MAX_CLIENTS).time_to_idle(IDLE_TIMEOUT).build();
        let tasks = Tasks { runtime: redis.runtime().clone(), running: TaskTracker::new() };
        let server = Arc::new(PermitServer::new(redis, prefix));
        let called = server.clone();
        let requests = Coalescer::new(&tasks, move |(), requests| {
            let server = called.clone();
            async move { Ok(server.take_permits(requests).await) }
        });
        Self { server, requests, locals }
    }

    /// Takes one permit of each limit for its name, or rejects the request. A rejection costs no
    /// permit if this replica knows of it in advance; if Redis has to be asked, permits granted by
    /// the request's other limits are spent.
    ///
    /// A call to Redis times out after 200 ms; then this replica applies the limit alone.
    ///
    /// # Cancel safety
    /// Safe: permits on their way to a dropped future are lost, and nothing else.
    pub async fn admit(&self, limits: &[(Policy, &str)]) -> LimitDecision {
        let buckets: Vec<ClientBucket> =
            limits.iter().map(|(policy, client)| self.bucket(*policy, client)).collect();
        let now_us = monotonic_us();
        // Checks all limits before it spends a permit.
        for bucket in &buckets {
            let decision = bucket.local.lock().peek(now_us);
            if let PermitResult::Rejected { wait_us } = decision {
                return reject(&buckets, bucket.policy, wait_us);
            }
        }
        let mut missing = buckets.clone();
        missing.retain(|bucket| bucket.local.lock().spend(now_us) != PermitResult::Granted);
        if !missing.is_empty() {
            let results = self.request_permits(missing.clone()).await;
            for (bucket, mut decision) in missing.iter().zip(results) {
                let Policy { rate, .. } = bucket.policy;
                if decision == PermitResult::Unknown {
                    decision = bucket.local.lock().take_degraded(rate, monotonic_us());
                }
                if let PermitResult::Rejected { wait_us } = decision {
                    return reject(&buckets, bucket.policy, wait_us);
                }
            }
        }
        LimitDecision::Admitted(statuses(&buckets))
    }

    /// Remembers an address of a user for `ttl`, unless the user has used many others since; see
    /// [`Limiter::is_remembered`]. Does nothing while Redis is unavailable.
    pub async fn remember(&self, user: &str, address: &str, ttl: Duration) {
        self.server.remember(user, address, ttl).await;
    }

    /// Returns whether the user's address is remembered, by one call; `false` while Redis is
    /// unavailable.
    pub async fn is_remembered(&self, user: &str, address: &str) -> bool {
        self.server.is_remembered(user, address).await
    }

    /// Requests one permit of each bucket; requests that arrive during a call share the next one. A
    /// result is unknown if Redis does not respond or too many requests wait.
    async fn request_permits(&self, buckets: Vec<ClientBucket>) -> Vec<PermitResult> {
        let unknown = vec![PermitResult::Unknown; buckets.len()];
        if self.server.is_degraded() {
            return unknown;
        }
        self.requests.look_up((), buckets).await.unwrap_or(unknown)
    }

    fn bucket(&self, policy: Policy, client: &str) -> ClientBucket {
        let name = format!("{}:{client}", policy.name);
        let local = self.locals.get_with_by_ref(&name, SharedLocalBucket::default);
        ClientBucket { policy, name, local }
    }
}

fn reject(buckets: &[ClientBucket], by: Policy, wait_us: u64) -> LimitDecision {
    metrics::counter!(RATE_LIMIT_REJECTIONS, "limit" => by.name).increment(1);
    let statuses = statuses(buckets);
    LimitDecision::Rejected { by, wait: Duration::from_micros(wait_us), statuses }
}

fn statuses(buckets: &[ClientBucket]) -> Vec<LimitStatus> {
    let now_us = monotonic_us();
    let status = |bucket: &ClientBucket| {
        let local = bucket.local.lock();
        let full_s = local.full_us(now_us).div_ceil(1_000_000);
        LimitStatus { policy: bucket.policy, left: local.left(now_us), full_s }
    };
    buckets.iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy { name: "address", rate: text.parse().unwrap_or_else(|_| unreachable!()) }
    }

    /// A limiter whose Redis is unavailable.
    fn limiter_without_redis() -> Limiter {
        let redis = Redis::open("redis://127.0.0.1:1").unwrap_or_else(|_| unreachable!());
        Limiter::new(redis, "test:")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replica_limits_locally_without_redis() {
        let limiter = limiter_without_redis();
        let policy = policy("1/h:20");
        let mut passed = 0;
        for _ in 0..100 {
            passed += usize::from(matches!(
                limiter.admit(&[(policy, "1.2.3.4")]).await,
                LimitDecision::Admitted(_)
            ));
        }
        assert_eq!(passed, 20);
        let other = limiter.admit(&[(policy, "1.2.3.5")]).await;
        assert!(matches!(other, LimitDecision::Admitted(_)), "{other:?}");
        assert!(!limiter.is_remembered("alice", "1.2.3.4").await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_addresses_use_bounded_memory() {
        let limiter = limiter_without_redis();
        let policy = policy("50/s");
        for n in 0..200_000_u32 {
            let bucket = limiter.bucket(policy, &std::net::Ipv4Addr::from(n).to_string());
            bucket.local.lock().spend(0);
        }
        limiter.locals.run_pending_tasks();
        assert!(limiter.locals.entry_count() <= MAX_CLIENTS, "{}", limiter.locals.entry_count());
    }
}

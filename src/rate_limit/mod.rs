//! Rate limits per client, shared by all replicas through Redis.
//!
//! Guarantees: per [`Policy`] and name, all replicas together admit at most `burst + rate × w`
//! requests in any time span `w` (one more by rounding), by the clock of Redis. A rejection by a
//! bucket that is known to be empty costs no call to Redis, and a busy client's request rarely
//! does: one call leases permits for 200 ms, as many as the client spent before.
//!
//! Does not guarantee that the whole limit is usable: permits leased by a replica that the client
//! no longer uses are lost (at most 200 ms of the rate per replica), and a bucket found empty is
//! not asked again for up to 50 ms. If Redis loses its data, a burst is possible again. While Redis
//! is unavailable, each replica applies the whole limit alone. Memory is bounded: [`MAX_CLIENTS`]
//! names per process; in Redis a bucket expires as soon as it is full. Tests:
//! `tests/it/rate_limits.rs`.

pub mod bucket;
mod local_bucket;
mod rate;
mod redis_buckets;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::Redis;
use holdfast_lock::clock::monotonic_us;
use moka::sync::Cache;
use parking_lot::Mutex;

use crate::metrics::RATE_LIMIT_REJECTIONS;
use local_bucket::{LocalBucket, PermitResult};
use redis_buckets::RedisBuckets;

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
    redis: Arc<RedisBuckets>,
    clients: Cache<String, Arc<ClientBucket>>,
}

/// The bucket of one client under one limit.
#[derive(Debug)]
struct ClientBucket {
    policy: Policy,
    /// Identifies the bucket in Redis, after the prefix.
    name: String,
    local: Mutex<LocalBucket>,
    /// Held while Redis is called: the requests behind it spend the permits that the call leases.
    turn: tokio::sync::Mutex<()>,
}

impl Limiter {
    /// Creates limits that all processes with the same Redis and prefix share.
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let clients = Cache::builder().max_capacity(MAX_CLIENTS).time_to_idle(IDLE_TIMEOUT).build();
        Self { redis: Arc::new(RedisBuckets::new(redis, prefix)), clients }
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
        let buckets: Vec<Arc<ClientBucket>> =
            limits.iter().map(|(policy, client)| self.bucket(*policy, client)).collect();

        // Checks all limits before it spends a permit.
        let now_us = monotonic_us();
        for bucket in &buckets {
            let known = bucket.local.lock().peek(now_us);
            if let Some(PermitResult::Rejected { wait_us }) = known {
                return reject(&buckets, bucket.policy, wait_us);
            }
        }

        let results = join_all(buckets.iter().map(|bucket| self.take_permit(bucket))).await;
        for (bucket, result) in buckets.iter().zip(results) {
            if let PermitResult::Rejected { wait_us } = result {
                return reject(&buckets, bucket.policy, wait_us);
            }
        }
        LimitDecision::Admitted(statuses(&buckets))
    }

    async fn take_permit(&self, bucket: &ClientBucket) -> PermitResult {
        let known = bucket.local.lock().spend(monotonic_us());
        if let Some(result) = known {
            return result;
        }

        let _turn = bucket.turn.lock().await;
        // The call of another request may have leased a permit for this one.
        let known = bucket.local.lock().spend(monotonic_us());
        if let Some(result) = known {
            return result;
        }

        let rate = bucket.policy.rate;
        let called_us = monotonic_us();
        let lease = bucket.local.lock().next_lease(rate, called_us);
        let grant = self.redis.take(&bucket.name, rate, lease).await;

        let now_us = monotonic_us();
        let mut local = bucket.local.lock();
        match grant {
            Some(grant) => local.record_grant(rate, grant, called_us, now_us),
            None => local.take_degraded(rate, now_us),
        }
    }

    /// Remembers an address of a user for `ttl`, unless the user has used many others since; see
    /// [`Limiter::is_remembered`]. Does nothing while Redis is unavailable.
    pub async fn remember(&self, user: &str, address: &str, ttl: Duration) {
        self.redis.remember(user, address, ttl).await;
    }

    /// Returns whether the user's address is remembered, by one call; `false` while Redis is
    /// unavailable.
    pub async fn is_remembered(&self, user: &str, address: &str) -> bool {
        self.redis.is_remembered(user, address).await
    }

    fn bucket(&self, policy: Policy, client: &str) -> Arc<ClientBucket> {
        let name = format!("{}:{client}", policy.name);
        self.clients.get_with_by_ref(&name, || {
            Arc::new(ClientBucket {
                policy,
                name: name.clone(),
                local: Mutex::default(),
                turn: tokio::sync::Mutex::default(),
            })
        })
    }
}

fn reject(buckets: &[Arc<ClientBucket>], by: Policy, wait_us: u64) -> LimitDecision {
    metrics::counter!(RATE_LIMIT_REJECTIONS, "limit" => by.name).increment(1);
    let statuses = statuses(buckets);
    LimitDecision::Rejected { by, wait: Duration::from_micros(wait_us), statuses }
}

fn statuses(buckets: &[Arc<ClientBucket>]) -> Vec<LimitStatus> {
    let now_us = monotonic_us();
    let status = |bucket: &Arc<ClientBucket>| {
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
        Policy { name: "address", rate: text.parse().unwrap() }
    }

    /// A limiter whose Redis is unavailable.
    fn limiter_without_redis() -> Limiter {
        let redis = Redis::open("redis://127.0.0.1:1").unwrap();
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
        limiter.clients.run_pending_tasks();
        assert!(limiter.clients.entry_count() <= MAX_CLIENTS, "{}", limiter.clients.entry_count());
    }
}

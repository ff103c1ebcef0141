//! Rate limits per client, shared by all replicas through Redis.
//!
//! Guarantees: per [`Policy`] and name, all replicas together admit at most `burst + rate × w`
//! requests in any time span `w` by the clock of Redis, and one lease per replica more: the permits
//! of 200 ms of the rate. A rejection by a bucket that is known to be empty costs no call to Redis,
//! and a busy client's request rarely does.
//!
//! Permits leased by a replica that the client no longer uses are lost, and a bucket found empty is
//! not asked again for up to 50 ms. If Redis loses its data, a burst is possible again. While Redis
//! is unavailable, each replica applies the limits alone. Memory is bounded: [`MAX_CLIENTS`] names
//! per process; in Redis a bucket expires as soon as it is full. Tests: `tests/it/rate_limits.rs`.

mod rate;

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_lock::Redis;
use holdfast_lock::clock::monotonic_us;
use moka::sync::Cache;
use redis::Script;
use tokio::sync::Mutex;
use tokio::time::timeout;

use holdfast_base::metrics::define_metrics;
use rate::Bucket;

pub use rate::{Policy, Rate};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bucket.lua")));

static REMEMBER_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("remember.lua")));

/// Upper bound of names in memory; a request of an evicted name costs a call.
const MAX_CLIENTS: u64 = 50_000;
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Upper bound of the remembered addresses of a user: more than a person has.
const MAX_ADDRESSES_PER_USER: usize = 64;
/// Timeout of a call, after which the limit of this replica alone decides.
const CALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Time after which a Redis that was unavailable is asked again, by one request.
const RETRY_AFTER_US: u64 = 400_000;

define_metrics! {
    RATE_LIMIT_REJECTIONS: "holdfast_rate_limit_rejections_total", Counter ["limit"] &[],
        "Requests rejected by a rate limit";
    RATE_LIMIT_CALLS: "holdfast_rate_limit_calls_total", Counter [] &[],
        "Calls to Redis for permits, each for all waiting requests";
    RATE_LIMIT_DEGRADED: "holdfast_rate_limit_degraded", Gauge [] &[],
        "1 while Redis grants no permits and this replica applies the rate limits alone, until a request asks it again";
}

#[derive(Debug, Clone, Copy)]
pub struct LimitStatus {
    pub policy: Policy,
    pub left: u64,
    /// Time until a whole burst is available, in seconds, rounded up.
    pub full_s: u64,
    /// The wait for the next permit of a rejected request; 0 for an admitted one.
    pub wait_us: u64,
}

#[derive(Debug, Clone)]
pub struct Limiter {
    redis: Redis,
    prefix: String,
    clients: Cache<String, Arc<ClientBucket>>,
    /// Set while Redis is unavailable: when it is asked again. 0 otherwise.
    retry_at_us: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ClientBucket {
    policy: Policy,
    name: String,
    /// Held while Redis is called: the requests behind it spend the permits that the call leases.
    bucket: Mutex<Bucket>,
}

impl Limiter {
    pub fn new(redis: Redis, prefix: &str) -> Self {
        metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
        let clients = Cache::builder().max_capacity(MAX_CLIENTS).time_to_idle(IDLE_TIMEOUT).build();
        Self { redis, prefix: prefix.to_owned(), clients, retry_at_us: Arc::default() }
    }

    /// Takes one permit of each limit for its name, or rejects the request. A rejection costs no
    /// permit if this replica knows of it in advance; if Redis has to be asked, permits granted by
    /// the request's other limits are spent.
    ///
    /// # Cancel safety
    /// Safe: permits on their way to a dropped future are lost, and nothing else.
    pub async fn admit(&self, limits: &[(Policy, String)]) -> Vec<LimitStatus> {
        let buckets: Vec<_> =
            limits.iter().map(|(policy, client)| self.bucket(*policy, client)).collect();

        let mut statuses = Vec::new();
        for client in &buckets {
            statuses.push(client.status(&*client.bucket.lock().await, monotonic_us()));
        }
        if statuses.iter().all(|status| status.wait_us == 0) {
            statuses = join_all(buckets.iter().map(|bucket| self.take(bucket))).await;
        }

        if let Some(by) = statuses.iter().find(|status| status.wait_us > 0) {
            metrics::counter!(RATE_LIMIT_REJECTIONS, "limit" => by.policy.name).increment(1);
        }
        statuses
    }

    async fn take(&self, client: &ClientBucket) -> LimitStatus {
        let rate = client.policy.rate;
        let mut bucket = client.bucket.lock().await;
        let now_us = monotonic_us();

        // Another request may have found it empty, or leased a permit for this one.
        if bucket.wait_us(now_us) == 0 {
            if !bucket.has_lease(now_us) {
                let requested = bucket.next_request(rate, now_us);
                match self.call(&client.name, rate, requested).await {
                    Some((granted, full_us)) => bucket.lease(rate, now_us, granted, full_us),
                    None => bucket.take_alone(rate, now_us, 1),
                }
            }

            if bucket.spend(rate, now_us) {
                return LimitStatus { wait_us: 0, ..client.status(&bucket, now_us) };
            }
        }
        client.status(&bucket, now_us)
    }

    /// Takes permits in Redis: their number, and the time until the bucket is full. `None` if Redis
    /// does not respond.
    async fn call(&self, name: &str, rate: Rate, requested: u64) -> Option<(u64, u64)> {
        let retry_at_us = self.retry_at_us.load(Ordering::Relaxed);
        if retry_at_us > 0 {
            let now_us = monotonic_us();
            if now_us < retry_at_us {
                return None;
            }
            // Further requests do not wait with this one.
            self.retry_at_us.store(now_us + RETRY_AFTER_US, Ordering::Relaxed);
        }

        metrics::counter!(RATE_LIMIT_CALLS).increment(1);
        let mut call = SCRIPT.key(self.key("limit", name));
        call.arg(&[rate.permits, rate.period_us, rate.burst, requested]);
        let redis = self.redis.clone();
        let cause = match in_time(async move { redis.run_script(call).await }).await {
            Ok(grant) => {
                if self.retry_at_us.swap(0, Ordering::Relaxed) > 0 {
                    tracing::info!(
                        "Redis grants permits again: the replicas share their rate limits"
                    );
                    metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
                }
                return Some(grant);
            }
            Err(cause) => cause,
        };

        // Said once, by the first task that finds it out.
        if self.retry_at_us.swap(monotonic_us() + RETRY_AFTER_US, Ordering::Relaxed) == 0 {
            tracing::warn!(
                cause,
                "Redis grants no permits: this replica applies its rate limits alone"
            );
            metrics::gauge!(RATE_LIMIT_DEGRADED).set(1.0);
        }
        None
    }

    /// Remembers an address of a user for `ttl`, unless the user has used many others since. Does
    /// nothing while Redis is unavailable.
    pub async fn remember(&self, user: &str, address: &str, ttl: Duration) {
        if self.is_away() {
            return;
        }
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut call = REMEMBER_SCRIPT.key(self.key("known", user));
        call.arg(address).arg(ttl_ms).arg(MAX_ADDRESSES_PER_USER);
        let redis = self.redis.clone();
        let _ = in_time(async move { redis.run_script::<()>(call).await }).await;
    }

    /// Returns whether the user's address is remembered; `false` while Redis is unavailable.
    pub async fn is_remembered(&self, user: &str, address: &str) -> bool {
        if self.is_away() {
            return false;
        }
        let mut command = redis::cmd("ZSCORE");
        command.arg(self.key("known", user)).arg(address);
        let redis = self.redis.clone();
        let found = in_time(async move { redis.query::<Option<f64>>(command).await }).await;
        matches!(found, Ok(Some(_)))
    }

    /// Returns whether Redis did not respond lately.
    fn is_away(&self) -> bool {
        monotonic_us() < self.retry_at_us.load(Ordering::Relaxed)
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}:{{{name}}}", self.prefix)
    }

    fn bucket(&self, policy: Policy, client: &str) -> Arc<ClientBucket> {
        let name = format!("{}:{client}", policy.name);
        self.clients.get_with_by_ref(&name, || {
            Arc::new(ClientBucket { policy, name: name.clone(), bucket: Mutex::default() })
        })
    }
}

impl ClientBucket {
    fn status(&self, bucket: &Bucket, now_us: u64) -> LimitStatus {
        LimitStatus {
            policy: self.policy,
            left: bucket.left(self.policy.rate, now_us),
            full_s: bucket.full_us(now_us).div_ceil(1_000_000),
            wait_us: bucket.wait_us(now_us),
        }
    }
}

/// Waits for a call to Redis until [`CALL_TIMEOUT`]. The call goes on in its task: one that is
/// dropped does not find out that a server is silent, and none looks for the next primary.
async fn in_time<T: Send + 'static, E: Error + Send + 'static>(
    call: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, tokio::spawn(call)).await {
        Ok(Ok(result)) => result.map_err(|error| error.to_string()),
        Ok(Err(panic)) => Err(panic.to_string()),
        Err(timeout) => Err(timeout.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limiter whose Redis is unavailable.
    fn limiter_without_redis() -> Limiter {
        let redis = Redis::open("redis://127.0.0.1:1").unwrap();
        Limiter::new(redis, "test:")
    }

    fn limit(rate: &str, client: impl ToString) -> (Policy, String) {
        (Policy { name: "address", rate: rate.parse().unwrap() }, client.to_string())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replica_limits_locally_without_redis() {
        let limiter = limiter_without_redis();
        let mut passed = 0;
        for _ in 0..100 {
            let statuses = limiter.admit(&[limit("1/h:20", "1.2.3.4")]).await;
            passed += usize::from(statuses[0].wait_us == 0);
        }
        assert_eq!(passed, 20);
        let other = limiter.admit(&[limit("1/h:20", "1.2.3.5")]).await;
        assert_eq!(other[0].wait_us, 0);
        assert!(!limiter.is_remembered("alice", "1.2.3.4").await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_addresses_use_bounded_memory() {
        let limiter = limiter_without_redis();
        for n in 0..200_000_u32 {
            let (policy, client) = limit("50/s", n);
            limiter.bucket(policy, &client);
        }
        limiter.clients.run_pending_tasks();
        assert!(limiter.clients.entry_count() <= MAX_CLIENTS, "{}", limiter.clients.entry_count());
    }
}

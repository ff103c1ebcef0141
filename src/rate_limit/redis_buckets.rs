//! The buckets in Redis. If a call fails, nothing is asked until Redis grants permits again.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use holdfast_lock::Redis;
use holdfast_lock::clock::jittered;
use redis::Script;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::bucket::{BucketGrant, script_arguments};
use super::rate::Rate;
use crate::metrics::{RATE_LIMIT_CALLS, RATE_LIMIT_DEGRADED};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bucket.lua")));

static REMEMBER_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("remember.lua")));

/// Upper bound of the remembered addresses of a user: more than a person has.
const MAX_ADDRESSES_PER_USER: usize = 64;
/// Timeout of a call, after which the limit of this replica alone decides.
const CALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Mean interval of the checks for a Redis that was unavailable.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct RedisBuckets {
    redis: Redis,
    prefix: String,
    /// Set when a call failed, until a probe's call succeeds; no other is made while it is set.
    degraded: AtomicBool,
}

impl RedisBuckets {
    pub fn new(redis: Redis, prefix: &str) -> Self {
        metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
        Self { redis, prefix: prefix.to_owned(), degraded: AtomicBool::new(false) }
    }

    /// Takes a permit for a waiting request, and `lease` for later ones; `None` if Redis does not
    /// respond.
    pub async fn take(self: &Arc<Self>, name: &str, rate: Rate, lease: u64) -> Option<BucketGrant> {
        if self.is_degraded() {
            return None;
        }
        match self.call(name, rate, lease).await {
            Ok(grant) => Some(grant),
            Err(cause) => {
                self.enter_degraded(&cause);
                None
            }
        }
    }

    async fn call(&self, name: &str, rate: Rate, lease: u64) -> Result<BucketGrant, String> {
        metrics::counter!(RATE_LIMIT_CALLS).increment(1);
        let mut call = SCRIPT.key(self.key("limit", name));
        call.arg(&script_arguments(rate)).arg(1).arg(lease);
        let response = timeout(CALL_TIMEOUT, self.redis.run_script(call)).await;
        let response = response.map_err(|timeout| timeout.to_string())?;

        let (granted, leased, left, wait_us, full_us) =
            response.map_err(|error| error.to_string())?;
        Ok(BucketGrant { granted, leased, left, wait_us, full_us })
    }

    fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed)
    }

    fn enter_degraded(self: &Arc<Self>, cause: &dyn Display) {
        if self.degraded.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%cause, "Redis grants no permits: this replica applies its rate limits alone");
        metrics::gauge!(RATE_LIMIT_DEGRADED).set(1.0);
        self.redis.runtime().spawn(probe_until_available(Arc::downgrade(self)));
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}:{{{name}}}", self.prefix)
    }

    /// Remembers an address of a user, and forgets the longest unused one of too many.
    pub async fn remember(&self, user: &str, address: &str, ttl: Duration) {
        if !self.is_degraded() {
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let mut call = REMEMBER_SCRIPT.key(self.key("known", user));
            call.arg(address).arg(ttl_ms).arg(MAX_ADDRESSES_PER_USER);
            let _ = timeout(CALL_TIMEOUT, self.redis.run_script::<()>(call)).await;
        }
    }

    /// Returns whether the user's address is remembered; `false` if Redis is unavailable.
    pub async fn is_remembered(&self, user: &str, address: &str) -> bool {
        if self.is_degraded() {
            return false;
        }
        let mut command = redis::cmd("ZSCORE");
        command.arg(self.key("known", user)).arg(address);
        let found = timeout(CALL_TIMEOUT, self.redis.query::<Option<f64>>(command)).await;
        matches!(found, Ok(Ok(Some(_))))
    }
}

/// Takes a permit of a bucket of its own, until Redis grants it or the [`RedisBuckets`] are
/// dropped: a Redis that is full responds to a `PING`.
async fn probe_until_available(buckets: Weak<RedisBuckets>) {
    let name = format!("probe:{}", Uuid::new_v4().simple());
    loop {
        sleep(jittered(PROBE_INTERVAL)).await;
        let Some(buckets) = buckets.upgrade() else { return };
        if buckets.call(&name, Rate::PROBE, 0).await.is_ok() {
            tracing::info!("Redis grants permits again: the replicas share their rate limits");
            metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
            buckets.degraded.store(false, Ordering::Relaxed);
            return;
        }
    }
}

//! Takes permits from the buckets in Redis. If a call fails, this replica applies the whole limit
//! alone until Redis grants permits again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::future::try_join_all;
use holdfast_lock::Redis;
use holdfast_lock::clock::{jittered, monotonic_us};
use holdfast_lock::redis::Error as RedisError;
use redis::Script;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::bucket::{self, BucketGrant};
use super::local_bucket::{PermitResult, SharedLocalBucket};
use super::rate::{Policy, Rate};
use crate::metrics::{RATE_LIMIT_CALLS, RATE_LIMIT_DEGRADED};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bucket.lua")));

static REMEMBER_SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("remember.lua")));

/// Upper bound of the remembered addresses of a user: more than a person has.
const MAX_ADDRESSES_PER_USER: usize = 64;
/// Upper bound of buckets per script, because it blocks Redis for all other clients.
const MAX_BUCKETS_PER_SCRIPT: usize = 128;
/// Timeout of a call, after which the limit of this replica alone decides.
const CALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Mean interval of the checks for a Redis that was unavailable.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);

/// The buckets in Redis.
#[derive(Debug)]
pub(super) struct PermitServer {
    redis: Redis,
    prefix: String,
    /// Set when a call failed, until a probe's call succeeds; no other is made while it is set.
    degraded: AtomicBool,
}

/// The bucket of one client under one limit, with its local state.
#[derive(Debug, Clone)]
pub(super) struct ClientBucket {
    pub policy: Policy,
    /// Identifies the bucket in Redis, after the prefix.
    pub name: String,
    pub local: SharedLocalBucket,
}

/// The requests that wait for permits of one bucket, in FIFO order.
struct WaitingRequests<'r> {
    bucket: &'r ClientBucket,
    results: Vec<&'r mut PermitResult>,
    /// Number of permits to lease.
    lease: u64,
}

impl PermitServer {
    pub fn new(redis: Redis, prefix: &str) -> Self {
        metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
        Self { redis, prefix: prefix.to_owned(), degraded: AtomicBool::new(false) }
    }

    /// Returns whether Redis is not called, because it did not respond last.
    pub fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed)
    }

    /// Takes the permits of these requests, as far as no lease in the local state covers them by
    /// now.
    pub async fn take_permits(
        self: &Arc<Self>,
        requests: Vec<Vec<ClientBucket>>,
    ) -> Vec<Vec<PermitResult>> {
        let called_us = monotonic_us();
        let mut results: Vec<Vec<PermitResult>> =
            requests.iter().map(|buckets| vec![PermitResult::Unknown; buckets.len()]).collect();
        let mut waiting: BTreeMap<&str, WaitingRequests<'_>> = BTreeMap::new();
        for (bucket, result) in requests.iter().flatten().zip(results.iter_mut().flatten()) {
            let mut local = bucket.local.lock();
            *result = local.spend(called_us);
            if *result == PermitResult::Unknown {
                let lease = local.lease_size(bucket.policy.rate, called_us);
                let new = || WaitingRequests { bucket, results: Vec::new(), lease };
                waiting.entry(&bucket.name).or_insert_with(new).results.push(result);
            }
        }
        if waiting.is_empty() {
            return results;
        }
        metrics::counter!(RATE_LIMIT_CALLS).increment(1);
        let waiting: Vec<WaitingRequests<'_>> = waiting.into_values().collect();
        match timeout(CALL_TIMEOUT, self.call(&waiting)).await {
            Ok(Ok(grants)) => {
                for (requests, grant) in waiting.into_iter().zip(grants) {
                    requests.respond(grant, called_us);
                }
            }
            Ok(Err(error)) => self.enter_degraded(&error),
            Err(timeout) => self.enter_degraded(&timeout),
        }
        results
    }

    async fn call(&self, waiting: &[WaitingRequests<'_>]) -> Result<Vec<BucketGrant>, RedisError> {
        let call = |waiting: &[WaitingRequests<'_>]| {
            let mut call = SCRIPT.prepare_invoke();
            for WaitingRequests { bucket: ClientBucket { policy, name, .. }, results, lease } in
                waiting
            {
                call.key(self.key("limit", name));
                call.arg(&bucket::script_arguments(policy.rate)).arg(results.len()).arg(*lease);
            }
            self.redis.run_script::<Vec<(u64, u64, u64, u64, u64)>>(call)
        };
        // In a Cluster the buckets lie on several nodes.
        let per_script = if self.redis.is_cluster() { 1 } else { MAX_BUCKETS_PER_SCRIPT };
        let responses = try_join_all(waiting.chunks(per_script).map(call)).await?;
        let grant = |(granted, leased, left, wait_us, full_us)| BucketGrant {
            granted,
            leased,
            left,
            wait_us,
            full_us,
        };
        Ok(responses.into_iter().flatten().map(grant).collect())
    }

    /// Applies the limits in this replica alone until Redis grants permits again.
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

/// Takes a permit of a bucket of its own, until Redis grants it or the [`PermitServer`] is dropped:
/// a Redis that is full responds to a `PING`.
async fn probe_until_available(server: Weak<PermitServer>) {
    let policy = Policy { name: "probe", rate: Rate::PROBE };
    let name = format!("probe:{}", Uuid::new_v4().simple());
    let bucket = ClientBucket { policy, name, local: SharedLocalBucket::default() };
    loop {
        sleep(jittered(PROBE_INTERVAL)).await;
        let Some(server) = server.upgrade() else { return };
        let mut result = PermitResult::Unknown;
        let requests = WaitingRequests { bucket: &bucket, results: vec![&mut result], lease: 0 };
        if matches!(timeout(CALL_TIMEOUT, server.call(&[requests])).await, Ok(Ok(_))) {
            tracing::info!("Redis grants permits again: the replicas share their rate limits");
            metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
            server.degraded.store(false, Ordering::Relaxed);
            return;
        }
    }
}

impl WaitingRequests<'_> {
    fn respond(self, grant: BucketGrant, called_us: u64) {
        let mut local = self.bucket.local.lock();
        local.record_grant(self.bucket.policy.rate, grant, called_us, monotonic_us());
        let granted = usize::try_from(grant.granted).unwrap_or(usize::MAX);
        for (place, result) in self.results.into_iter().enumerate() {
            let rejected = PermitResult::Rejected { wait_us: grant.wait_us };
            *result = if place < granted { PermitResult::Granted } else { rejected };
        }
    }
}

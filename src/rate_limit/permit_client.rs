//! Takes permits from the buckets in Redis, with one call at a time per process.
//!
//! Requests that arrive during a call share the next one. If a call fails, this replica applies the
//! whole limit alone until Redis responds again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use holdfast_lock::Redis;
use holdfast_lock::clock::monotonic_us;
use holdfast_lock::redis::Error as RedisError;
use parking_lot::Mutex;
use rand::RngExt as _;
use redis::Script;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::bucket::{self, BucketGrant};
use super::local_bucket::PermitResult;
use super::{LimitCheck, Rate, SharedLocalBucket};
use crate::metrics::{RATE_LIMIT_CALLS, RATE_LIMIT_DEGRADED};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("bucket.lua")));

/// Upper bound of buckets per call, because a script blocks Redis for all other clients.
const MAX_BUCKETS_PER_CALL: usize = 128;
/// Timeout of a call, after which the limit of this replica alone decides.
const CALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Interval of the checks for a Redis that was unavailable; each is jittered by half of it.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct PermitClient {
    redis: Redis,
    prefix: String,
    pending: Mutex<PendingRequests>,
    /// Set when a call failed, until Redis responds again; Redis is not called while it is set.
    degraded: AtomicBool,
}

#[derive(Debug, Default)]
struct PendingRequests {
    waiters: HashMap<String, BucketWaiters>,
    /// True while a task calls Redis; requests that join are part of its next call.
    has_task: bool,
}

/// Requests that wait for permits of one bucket.
#[derive(Debug)]
struct BucketWaiters {
    rate: Rate,
    local: SharedLocalBucket,
    senders: Vec<oneshot::Sender<PermitResult>>,
}

#[derive(Debug)]
struct BucketRequest {
    name: String,
    waiters: BucketWaiters,
    /// Number of permits to lease.
    lease: u64,
}

impl PermitClient {
    pub fn new(redis: Redis, prefix: &str) -> Self {
        let (pending, degraded) = (Mutex::default(), AtomicBool::new(false));
        Self { redis, prefix: prefix.to_owned(), pending, degraded }
    }

    /// Requests one permit per check. A result is unknown if Redis does not respond.
    pub async fn request_permits(self: &Arc<Self>, checks: &[LimitCheck]) -> Vec<PermitResult> {
        if self.degraded.load(Ordering::Relaxed) {
            return vec![PermitResult::Unknown; checks.len()];
        }
        let (receivers, has_task) = {
            let mut pending = self.pending.lock();
            let receivers: Vec<_> = checks.iter().map(|check| pending.join(check)).collect();
            (receivers, std::mem::replace(&mut pending.has_task, true))
        };
        if !has_task {
            let client = Arc::clone(self);
            self.redis.runtime().spawn(async move { client.call_until_empty().await });
        }
        // The calling task may have panicked: the local limit decides then.
        let results = join_all(receivers).await.into_iter();
        results.map(|result| result.unwrap_or(PermitResult::Unknown)).collect()
    }

    async fn call_until_empty(self: &Arc<Self>) {
        let _reset = ResetOnPanic(self);
        while let Some(requests) = self.take_requests() {
            if requests.is_empty() {
                continue;
            }
            let called_us = monotonic_us();
            metrics::counter!(RATE_LIMIT_CALLS).increment(1);
            let grants = match timeout(CALL_TIMEOUT, self.call(&requests)).await {
                Ok(grants) => grants.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} ms", CALL_TIMEOUT.as_millis())),
            };
            match grants {
                Ok(grants) => {
                    for (request, grant) in requests.into_iter().zip(grants) {
                        request.waiters.respond(grant, called_us);
                    }
                }
                Err(cause) => {
                    self.enter_degraded(&cause);
                    for sender in requests.into_iter().flat_map(|request| request.waiters.senders) {
                        let _ = sender.send(PermitResult::Unknown);
                    }
                }
            }
        }
    }

    /// Returns the buckets of the next call; `None` if no request waits, and then the task ends.
    /// Requests that a lease in the local state covers by now pass without a call.
    fn take_requests(&self) -> Option<Vec<BucketRequest>> {
        let mut pending = self.pending.lock();
        let names: Vec<String> =
            pending.waiters.keys().take(MAX_BUCKETS_PER_CALL).cloned().collect();
        let mut requests = Vec::with_capacity(names.len());
        for name in names {
            let Some(mut waiters) = pending.waiters.remove(&name) else { continue };
            let now_us = monotonic_us();
            let local = waiters.local.clone();
            let mut local = local.lock();
            waiters.senders.retain(|sender| !sender.is_closed());
            while !waiters.senders.is_empty() && local.spend(now_us) == PermitResult::Granted {
                waiters.senders.pop().map(|sender| sender.send(PermitResult::Granted));
            }
            if !waiters.senders.is_empty() {
                let lease = local.lease_size(waiters.rate, now_us);
                requests.push(BucketRequest { name, waiters, lease });
            }
        }
        if requests.is_empty() && pending.waiters.is_empty() {
            pending.has_task = false;
            return None;
        }
        Some(requests)
    }

    async fn call(&self, requests: &[BucketRequest]) -> Result<Vec<BucketGrant>, RedisError> {
        let call = |requests: &[BucketRequest]| {
            let mut call = SCRIPT.prepare_invoke();
            for BucketRequest { name, waiters: BucketWaiters { rate, senders, .. }, lease } in
                requests
            {
                call.key(format!("{}limit:{{{name}}}", self.prefix));
                call.arg(&bucket::script_arguments(*rate)).arg(senders.len()).arg(*lease);
            }
            self.redis.run_script::<Vec<(u64, u64, u64, u64, u64)>>(call)
        };
        // In a Cluster the buckets lie on several nodes.
        let per_call = if self.redis.is_cluster() { 1 } else { MAX_BUCKETS_PER_CALL };
        let responses = try_join_all(requests.chunks(per_call).map(call)).await?;
        let grant = |(granted, leased, left, wait_us, full_us)| BucketGrant {
            granted,
            leased,
            left,
            wait_us,
            full_us,
        };
        Ok(responses.into_iter().flatten().map(grant).collect())
    }

    /// Lets each replica apply the limits alone until Redis responds again.
    fn enter_degraded(self: &Arc<Self>, cause: &str) {
        if self.degraded.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            why = cause,
            "limits are not shared while Redis is away: each replica keeps its own"
        );
        metrics::gauge!(RATE_LIMIT_DEGRADED).set(1.0);
        let client = Arc::downgrade(self);
        self.redis.runtime().spawn(probe_until_back(client));
    }

    pub async fn remember(&self, name: &str, ttl: Duration) {
        let mut command = redis::cmd("SET");
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        command.arg(self.remembered_key(name)).arg(1).arg("PX").arg(ttl_ms);
        self.query::<()>(command).await;
    }

    pub async fn is_remembered(&self, name: &str) -> bool {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.remembered_key(name));
        self.query(command).await == Some(1_u64)
    }

    fn remembered_key(&self, name: &str) -> String {
        format!("{}known:{{{name}}}", self.prefix)
    }

    /// Sends a command; returns `None` if Redis is unavailable.
    async fn query<T: redis::FromRedisValue + Send + 'static>(
        &self,
        command: redis::Cmd,
    ) -> Option<T> {
        if self.degraded.load(Ordering::Relaxed) {
            return None;
        }
        timeout(CALL_TIMEOUT, self.redis.query(command)).await.ok()?.ok()
    }
}

/// Checks until Redis responds or the [`PermitClient`] is dropped.
async fn probe_until_back(client: Weak<PermitClient>) {
    loop {
        let pause = PROBE_INTERVAL.mul_f64(rand::rng().random_range(0.5..1.5));
        sleep(pause).await;
        let Some(client) = client.upgrade() else { return };
        if matches!(timeout(CALL_TIMEOUT, client.redis.ping()).await, Ok(Ok(()))) {
            tracing::info!("Redis is back: limits are shared again");
            metrics::gauge!(RATE_LIMIT_DEGRADED).set(0.0);
            client.degraded.store(false, Ordering::Relaxed);
            return;
        }
    }
}

impl PendingRequests {
    fn join(&mut self, check: &LimitCheck) -> oneshot::Receiver<PermitResult> {
        let (sender, receiver) = oneshot::channel();
        let waiters = self.waiters.entry(check.name.clone()).or_insert_with(|| BucketWaiters {
            rate: check.policy.rate,
            local: check.local.clone(),
            senders: Vec::new(),
        });
        waiters.senders.push(sender);
        receiver
    }
}

impl BucketWaiters {
    /// Assigns the granted permits in FIFO order.
    fn respond(self, grant: BucketGrant, called_us: u64) {
        self.local.lock().record_grant(self.rate, grant, called_us, monotonic_us());
        let granted = usize::try_from(grant.granted).unwrap_or(usize::MAX);
        for (place, sender) in self.senders.into_iter().enumerate() {
            let rejected = PermitResult::Rejected { wait_us: grant.wait_us };
            let _ = sender.send(if place < granted { PermitResult::Granted } else { rejected });
        }
    }
}

/// Resets the pending requests if the calling task panics: the next request starts a new task.
struct ResetOnPanic<'c>(&'c PermitClient);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.pending.lock() = PendingRequests::default();
        }
    }
}

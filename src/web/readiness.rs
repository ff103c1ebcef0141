//! The readiness of a replica: Postgres must be writable, Redis must do what a lock does, and the
//! replica must not be shutting down.
//!
//! Health endpoints have no rate limit, so one check serves all probes of [`RESULT_TTL`]. It takes
//! at most [`CHECK_TIMEOUT`]: a component that is unavailable is reported within two seconds.
//! Tests: `tests/it/readiness.rs`, `tests/it/shutdown.rs`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_lock::ProbeFailure;
use moka::future::Cache;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::timeout;

use holdfast_base::metrics::define_metrics;
use holdfast_shop::Shop;
use holdfast_shop::db::ErrorClass;

const CHECK_TIMEOUT: Duration = Duration::from_millis(1_800);
/// Lifetime of a result. Shorter than the interval of a probe, which is a second or more.
const RESULT_TTL: Duration = Duration::from_millis(250);

define_metrics! {
    REDIS_OK: "holdfast_redis_ok", Gauge [] &[],
        "1 if Redis does what a lock does, 0 if not; absent under a strategy without Redis";
}

#[derive(Debug)]
pub struct Readiness {
    /// The last check; concurrent callers share one.
    check: Cache<(), ComponentCheck>,
    /// The state of Redis that the log says.
    redis: Mutex<RedisState>,
    /// True if the last check found a Postgres that is read-only.
    read_only: AtomicBool,
    shutting_down: AtomicBool,
}

impl Default for Readiness {
    fn default() -> Self {
        let check = Cache::builder().time_to_live(RESULT_TTL).build();
        Self {
            check,
            redis: Mutex::new(RedisState::Ok),
            read_only: AtomicBool::default(),
            shutting_down: AtomicBool::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostgresState {
    #[serde(rename = "ok")]
    Writable,
    /// It accepts writes, and does not end them: a synchronous standby is away. The replica stays
    /// ready, since reads work.
    Waiting,
    /// It is a standby, or read-only by configuration.
    ReadOnly,
    Away,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisState {
    /// It does what a lock does.
    Ok,
    Away,
    /// The reason names no address, user or key.
    Refused(String),
    /// The strategy has no lock in Redis, so it is not checked.
    NotNeeded,
}

#[derive(Debug, Clone)]
pub struct ComponentCheck {
    pub postgres: PostgresState,
    pub redis: RedisState,
}

impl Readiness {
    /// Takes the replica out of the balancers: it is no longer ready, and closes each connection
    /// after its next response.
    pub fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    /// Returns whether Postgres was read-only at the last check. Does not check, so that a page
    /// does not wait for Redis.
    pub fn was_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Returns a recent result: of the last check, of the check in progress, or of a new one. Takes
    /// at most [`CHECK_TIMEOUT`].
    pub async fn check(&self, shop: &Shop) -> ComponentCheck {
        let check = async {
            let check = check_components(shop).await;
            note(&mut self.redis.lock(), &check.redis);
            let is_read_only = check.postgres == PostgresState::ReadOnly;
            self.read_only.store(is_read_only, Ordering::Relaxed);
            check
        };
        self.check.get_with((), check).await
    }
}

impl RedisState {
    fn of(probe: Result<(), ProbeFailure>) -> Self {
        let Err(failure) = probe else { return Self::Ok };
        let Some(refusal) = failure.error().refusal() else { return Self::Away };
        Self::Refused(match failure {
            ProbeFailure::Locks(_) => refusal.to_string(),
            ProbeFailure::Messages(_) => {
                format!("{refusal}: locks work, but waiters are not notified")
            }
        })
    }
}

impl fmt::Display for RedisState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Away => f.write_str("away"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::NotNeeded => f.write_str("not needed"),
        }
    }
}

/// Records the state of Redis in its metric, and a change in the log.
fn note(before: &mut RedisState, now: &RedisState) {
    if *now == RedisState::NotNeeded {
        return;
    }

    let is_ok = *now == RedisState::Ok;
    metrics::gauge!(REDIS_OK).set(if is_ok { 1.0 } else { 0.0 });

    if std::mem::replace(before, now.clone()) == *now {
        return;
    }
    if is_ok {
        tracing::info!("Redis does what a lock needs again");
    } else {
        tracing::warn!(redis = %now, "Redis does not do what a lock needs");
    }
}

async fn check_components(shop: &Shop) -> ComponentCheck {
    let postgres = async {
        match shop.pool.is_writable().await {
            Ok(true) if shop.pool.do_commits_wait() => PostgresState::Waiting,
            // An exhausted pool does not mean that Postgres is unavailable.
            Ok(true) | Err((ErrorClass::NoConnection | ErrorClass::Cancelled, _)) => {
                PostgresState::Writable
            }
            Ok(false) => PostgresState::ReadOnly,
            Err(_) => PostgresState::Away,
        }
    };

    let redis = async {
        match shop.strategy.lock_in_redis() {
            Some(lock) => RedisState::of(shop.locks.probe(lock).await),
            None => RedisState::NotNeeded,
        }
    };

    let (postgres, redis) =
        futures_util::join!(timeout(CHECK_TIMEOUT, postgres), timeout(CHECK_TIMEOUT, redis));

    ComponentCheck {
        postgres: postgres.unwrap_or(PostgresState::Away),
        redis: redis.unwrap_or(RedisState::Away),
    }
}

//! The readiness of a replica: the check of Postgres, which must be writable, and of Redis, and
//! whether the replica is shutting down.
//!
//! Health endpoints have no rate limit, so they must be cheap. [`Readiness`] runs one check at a
//! time, with one connection and one ping, however many probes wait for it. A result is from a
//! check that ended at most [`RESULT_TTL`] ago, and takes at most [`CHECK_TIMEOUT`]: a component
//! that is unavailable is reported within two seconds, and its recovery by the next check.
//! Tests: `tests/it/readiness.rs`, `tests/it/shutdown.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::db::ErrorClass;
use crate::shop::Shop;

/// Timeout of a check; a component that has not responded by then is unavailable.
const CHECK_TIMEOUT: Duration = Duration::from_millis(1_800);
/// Lifetime of a result. Shorter than the interval of a probe, which is a second or more.
const RESULT_TTL: Duration = Duration::from_millis(250);

/// Readiness of this replica.
#[derive(Debug, Default)]
pub struct Readiness {
    last_check: Arc<Mutex<Option<ComponentCheck>>>,
    shutting_down: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresState {
    Writable,
    /// It is a standby, or read-only by configuration.
    ReadOnly,
    Away,
}

#[derive(Debug, Clone, Copy)]
pub struct ComponentCheck {
    at: Instant,
    pub postgres: PostgresState,
    pub redis: bool,
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

    /// Returns a recent result: of the last check, of the check in progress, or of a new one. Takes
    /// at most [`CHECK_TIMEOUT`].
    ///
    /// # Cancel safety
    /// Safe: the check continues for the other callers.
    pub async fn check(&self, shop: &Shop) -> ComponentCheck {
        let (last_check, owned_shop) = (self.last_check.clone(), shop.clone());
        // A task of its own: a cancelled caller must not abort the check for those that wait for
        // it.
        let task = shop.tasks.runtime.spawn(async move {
            let mut last_check = last_check.lock().await;
            match *last_check {
                Some(check) if check.at.elapsed() < RESULT_TTL => check,
                _ => *last_check.insert(check_components(&owned_shop).await),
            }
        });
        let postgres = PostgresState::Away;
        task.await.unwrap_or(ComponentCheck { at: Instant::now(), postgres, redis: false })
    }
}

async fn check_components(shop: &Shop) -> ComponentCheck {
    let postgres = async {
        match shop.pool.is_writable().await {
            // An exhausted pool does not mean that Postgres is unavailable.
            Ok(true) | Err((ErrorClass::Overloaded, _)) => PostgresState::Writable,
            Ok(false) => PostgresState::ReadOnly,
            Err(_) => PostgresState::Away,
        }
    };
    let redis = async { shop.locks.redis().ping().await.is_ok() };
    let (postgres, redis) =
        futures_util::join!(timeout(CHECK_TIMEOUT, postgres), timeout(CHECK_TIMEOUT, redis));
    let (postgres, redis) = (postgres.unwrap_or(PostgresState::Away), redis.unwrap_or(false));
    ComponentCheck { at: Instant::now(), postgres, redis }
}

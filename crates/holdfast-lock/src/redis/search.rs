//! Searches among several servers: for the primary, the slot map, or any that responds.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::RedisError;

use crate::time::Instant;

/// Time for which other callers get the error of a failed search.
const FAILURE_CACHE_TIME: Duration = Duration::from_millis(50);

/// Returns the first success, or else the last error; `error` if there are no requests.
pub(super) async fn first_ok<T, E>(
    requests: impl IntoIterator<Item = impl Future<Output = Result<T, E>>>,
    mut error: E,
) -> Result<T, E> {
    let mut responses: FuturesUnordered<_> = requests.into_iter().collect();
    while let Some(response) = responses.next().await {
        match response {
            Ok(found) => return Ok(found),
            Err(last) => error = last,
        }
    }
    Err(error)
}

/// Held during a search, so that concurrent callers share it. Stores the time and error of the last
/// one if it failed.
#[derive(Default)]
pub(super) struct SearchLock(tokio::sync::Mutex<Option<(Instant, RedisError)>>);

impl SearchLock {
    /// Searches, unless a concurrent search has just succeeded (`found`) or failed.
    pub(super) async fn search<T>(
        &self,
        found: impl Fn() -> Option<T>,
        search: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let mut failed = self.0.lock().await;
        if let Some(found) = found() {
            return Ok(found);
        }
        match &*failed {
            Some((when, error)) if when.elapsed() < FAILURE_CACHE_TIME => return Err(error.clone()),
            _ => {}
        }

        let result = search.await;
        *failed = result.as_ref().err().map(|error| (Instant::now(), error.clone()));
        result
    }
}

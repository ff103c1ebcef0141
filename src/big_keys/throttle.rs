//! Sends commands to Redis without urgency: retries, pauses and kinds of errors.

use std::fmt::Display;
use std::time::Duration;

use holdfast_lock::Redis;
use holdfast_lock::redis::Error as RedisError;
use redis::{Cmd, FromRedisValue, Pipeline};
use tokio::time::sleep;

use crate::backoff::Backoff;

/// Attempts per command if Redis does not respond: a failover, or another client's `DEL`, takes a
/// second or two. All commands of this module may be repeated: they read, or remove what is to be
/// removed.
const MAX_ATTEMPTS: u32 = 5;
/// Backoff between these attempts.
const RETRY_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// Upper bound of a pause, however long the step took.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Sends a command, with retries.
pub(super) async fn query<T>(redis: &Redis, command: &Cmd) -> Result<T, RedisError>
where
    T: FromRedisValue + Send + 'static,
{
    with_retries(|| redis.query(command.clone())).await
}

/// Sends several commands in one round trip, with retries.
pub(super) async fn query_all<T>(redis: &Redis, commands: &Pipeline) -> Result<T, RedisError>
where
    T: FromRedisValue + Send + 'static,
{
    with_retries(|| redis.query_pipeline(commands.clone())).await
}

async fn with_retries<T, F>(call: impl Fn() -> F) -> Result<T, RedisError>
where
    F: Future<Output = Result<T, RedisError>>,
{
    for attempt in 1..MAX_ATTEMPTS {
        match call().await {
            Err(error) if is_transient(&error) => sleep(RETRY_BACKOFF.after(attempt)).await,
            response => return response,
        }
    }
    call().await
}

fn is_transient(error: &RedisError) -> bool {
    error.is_unavailable()
        || matches!(error.code(), Some("LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN"))
}

/// Pauses for as long as the step took, up to [`MAX_PAUSE`], to leave time to other clients.
pub(super) async fn pause_after(taken: Duration) {
    sleep(taken.min(MAX_PAUSE)).await;
}

/// Returns whether an error with this code and text says that the server lacks the command, or
/// denies it to this user.
pub(super) fn is_unsupported(code: Option<&str>, error: &impl Display) -> bool {
    let text = error.to_string().to_ascii_lowercase();
    code == Some("NOPERM")
        || ["unknown command", "unknown subcommand", "not allowed", "not supported", "disabled"]
            .iter()
            .any(|refusal| text.contains(refusal))
}

/// Returns whether an error with this code says that the key is now of another type, or on another
/// node of the Cluster.
pub(super) fn is_gone(code: Option<&str>) -> bool {
    matches!(code, Some("WRONGTYPE" | "ASK" | "MOVED" | "TRYAGAIN"))
}

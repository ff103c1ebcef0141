//! How Redis is asked by somebody who is in no hurry.

use std::time::Duration;

use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, ServerErrorKind};
use tokio::time::sleep;

use crate::clock::Backoff;
use crate::lock::Redis;

/// A question is asked so often when nobody answers: a failover, or somebody else's `DEL`, takes a
/// second or two. All that is asked here may be asked again: it looks, or it removes what is to go.
const ATTEMPTS: u32 = 5;
/// Between those.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// No rest is longer, however long the step took.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// Asks, and asks again.
pub(super) async fn ask<T>(redis: &Redis, command: &Cmd) -> Result<T, RedisError>
where
    T: FromRedisValue + Send + 'static,
{
    for attempt in 1..ATTEMPTS {
        match redis.query(command.clone()).await {
            Err(error) if may_pass(&error) => sleep(PAUSES.after(attempt)).await,
            answer => return answer,
        }
    }
    redis.query(command.clone()).await
}

/// The same with several commands in one round trip.
pub(super) async fn ask_all<T>(redis: &Redis, commands: &Pipeline) -> Result<T, RedisError>
where
    T: FromRedisValue + Send + 'static,
{
    for attempt in 1..ATTEMPTS {
        match redis.pipe(commands.clone()).await {
            Err(error) if may_pass(&error) => sleep(PAUSES.after(attempt)).await,
            answer => return answer,
        }
    }
    redis.pipe(commands.clone()).await
}

fn may_pass(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, TryAgain};

    match error.kind() {
        ErrorKind::Io => true,
        ErrorKind::Server(kind) => {
            matches!(kind, BusyLoading | ClusterDown | MasterDown | TryAgain)
        }
        _ => error.is_timeout() || error.is_connection_dropped(),
    }
}

/// Leaves as much time to others as was just taken.
pub(super) async fn rest(taken: Duration) {
    sleep(taken.min(LONGEST_REST)).await;
}

/// Whether the server has no such command, or not for us.
pub(super) fn is_refused(error: &RedisError) -> bool {
    let words = error.detail().unwrap_or_default().to_ascii_lowercase();
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm))
        || ["unknown command", "unknown subcommand", "not allowed", "not supported", "disabled"]
            .iter()
            .any(|refusal| words.contains(refusal))
}

/// Whether the key is another node's, or on its way there.
pub(super) fn is_elsewhere(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};

    matches!(error.kind(), ErrorKind::Server(Ask | Moved | TryAgain))
}

/// Whether the key is no longer of the type that the command is for.
pub(super) fn is_another_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

//! Calls of the lock's five scripts in Redis. Each is safe to repeat with the same owner.
//! Tests: `tests/lock/differential.rs`.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Script, ScriptInvocation};

use super::timing::Timing;
use crate::clock::ms;
use crate::{Error, Redis};

/// Number of fences per grant; the same number is in the scripts.
pub(super) const FENCES_PER_GRANT: i64 = 64;

macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| {
            Script::new(concat!(include_str!("constants.lua"), $(include_str!($file)),+))
        })
    };
}

static ACQUIRE: LazyLock<Script> = script!("prelude.lua", "acquire.lua");
static CONFIRM: LazyLock<Script> = script!("prelude.lua", "confirm.lua");
static RELEASE: LazyLock<Script> = script!("handoff.lua", "prelude.lua", "release.lua");
static LEAVE: LazyLock<Script> = script!("prelude.lua", "leave.lua");
static RAISE_FENCE: LazyLock<Script> = script!("prelude.lua", "raise_fence.lua");

/// The lock's scripts on one Redis, with their parameters.
#[derive(Debug)]
pub(super) struct Protocol {
    pub redis: Redis,
    /// Start of the name of every process's channel.
    pub channels: String,
    grant_ms: u64,
    horizon_ms: u64,
}

/// A lease that Redis has granted or confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    /// The first fence of its block.
    pub fence: i64,
    /// True if other processes wait for the lock.
    pub remote_waiters: bool,
}

/// The response to an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireResponse {
    Granted(Grant),
    /// Another owner holds the lock.
    Busy {
        /// At most the holder's current fence.
        fence: i64,
        /// True if the call queued the owner, false if it had a place already or does not wait.
        queued: bool,
    },
}

impl Protocol {
    pub(super) fn new(redis: Redis, prefix: &str, timing: &Timing) -> Self {
        Self {
            redis,
            channels: format!("{prefix}process:"),
            grant_ms: ms(timing.grant_ttl),
            horizon_ms: ms(timing.poll_interval * 3),
        }
    }

    /// Tries to acquire the lock; if `waits`, queues the owner or keeps its place.
    pub(super) async fn acquire(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
        waits: bool,
    ) -> Result<AcquireResponse, Error> {
        let mut call = prepare(&ACQUIRE, key, owner);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        call.arg(u8::from(waits));
        let response: Vec<String> = self.redis.run_script(call).await?;
        Ok(parse_grant(&response).map_or_else(
            || AcquireResponse::Busy {
                fence: response.get(1).and_then(|fence| fence.parse().ok()).unwrap_or(0),
                queued: response.get(2).is_some_and(|queued| queued == "1"),
            },
            AcquireResponse::Granted,
        ))
    }

    /// Confirms a grant, or renews a lease. Returns `None` if it is lost.
    pub(super) async fn confirm(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&CONFIRM, key, owner);
        call.arg(ms(ttl));
        let response: Vec<String> = self.redis.run_script(call).await?;
        Ok(parse_grant(&response))
    }

    /// Releases the lock, and queues `next_owner` if there is one. Returns whether the lock was
    /// still held, and the response for the next owner. With `remote_waiters`, another process
    /// probably acquires the lock, so Redis serves its message before this caller.
    pub(super) async fn release(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
        next_owner: Option<&str>,
        remote_waiters: bool,
    ) -> Result<(bool, AcquireResponse), Error> {
        let mut call = prepare(&RELEASE, key, owner);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        call.arg(next_owner.unwrap_or(""));
        let (state, holder, fence): (String, String, i64) = if remote_waiters {
            self.redis.run_script_after_subscribers(call).await?
        } else {
            self.redis.run_script(call).await?
        };
        let next = match holder.as_str() {
            "next_owner" => AcquireResponse::Granted(Grant { fence, remote_waiters: false }),
            _ => AcquireResponse::Busy { fence, queued: true },
        };
        Ok((state == "held", next))
    }

    /// Leaves the queue, or releases the lock if it was granted already.
    pub(super) async fn leave(&self, key: &str, owner: &str) -> Result<(), Error> {
        let mut call = prepare(&LEAVE, key, owner);
        call.arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        let () = self.redis.run_script(call).await?;
        Ok(())
    }

    /// Raises the key's counter to `floor` and takes a new block of fences. Returns `None` if the
    /// lock is lost.
    pub(super) async fn raise_fence(
        &self,
        key: &str,
        owner: &str,
        floor: i64,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&RAISE_FENCE, key, owner);
        call.arg(floor);
        let response: Vec<String> = self.redis.run_script(call).await?;
        Ok(parse_grant(&response))
    }
}

fn prepare(script: &'static Script, key: &str, owner: &str) -> ScriptInvocation<'static> {
    let mut call = script.prepare_invoke();
    call.key(key)
        .key(format!("{key}:queue"))
        .key(format!("{key}:seen"))
        .key(format!("{key}:fence"));
    call.arg(owner);
    call
}

fn parse_grant(response: &[String]) -> Option<Grant> {
    match response {
        [word, fence, remote_waiters] if word == "held" => {
            Some(Grant { fence: fence.parse().ok()?, remote_waiters: remote_waiters != "0" })
        }
        _ => None,
    }
}

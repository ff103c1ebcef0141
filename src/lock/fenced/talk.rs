//! The conversation with Redis: five scripts, each safe to repeat with the same owner.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Script, ScriptInvocation};

use super::Times;
use crate::lock::{Error, Redis};

/// How many fences a grant brings; the scripts say the same.
pub(super) const BLOCK: i64 = 64;

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| Script::new(concat!(include_str!("prelude.lua"), include_str!($file))))
    };
}

static ACQUIRE: LazyLock<Script> = script!("acquire.lua");
static CONFIRM: LazyLock<Script> = script!("confirm.lua");
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    let (handoff, rest) = (include_str!("handoff.lua"), include_str!("release.lua"));
    Script::new(&[handoff, include_str!("prelude.lua"), rest].concat())
});
static LEAVE: LazyLock<Script> = script!("leave.lua");
static REFENCE: LazyLock<Script> = script!("refence.lua");

/// How to speak of locks to one Redis.
#[derive(Debug)]
pub(super) struct Talk {
    pub redis: Redis,
    /// What the name of every process's channel begins with.
    pub channels: String,
    grant_ms: u64,
    horizon_ms: u64,
}

/// A lock that is held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    /// The first fence of its block.
    pub fence: i64,
    /// Whether other processes wait for it.
    pub rivals: bool,
}

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Granted(Grant),
    /// Somebody else has it, with a fence of at least so much.
    Taken {
        fence: i64,
    },
}

/// What came of giving a lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenBack {
    /// Whether it was still held.
    pub was_held: bool,
    /// How the owner stands that was put in line.
    pub again: Asked,
}

impl Talk {
    pub(super) fn new(redis: Redis, prefix: &str, times: &Times) -> Self {
        Self {
            redis,
            channels: format!("{prefix}process:"),
            grant_ms: ms(times.grant),
            horizon_ms: ms(times.poll * 3),
        }
    }

    /// Asks for the lock; keeps the place in line if `waits`.
    pub(super) async fn acquire(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
        waits: bool,
    ) -> Result<Asked, Error> {
        let mut call = prepare(&ACQUIRE, key, owner);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        call.arg(u8::from(waits));
        let answer: Vec<String> = self.redis.invoke(call).await?;
        Ok(match (grant(&answer), answer.get(1)) {
            (Some(grant), _) => Asked::Granted(grant),
            (None, fence) => {
                Asked::Taken { fence: fence.and_then(|fence| fence.parse().ok()).unwrap_or(0) }
            }
        })
    }

    /// Confirms a grant, or renews a lease. `None` when it is lost.
    pub(super) async fn confirm(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&CONFIRM, key, owner);
        call.arg(ms(ttl));
        let answer: Vec<String> = self.redis.invoke(call).await?;
        Ok(grant(&answer))
    }

    /// Gives the lock back, and gets in line again as `again`, if that is somebody. With `rivals`
    /// another process is likely to get it.
    pub(super) async fn release(
        &self,
        key: &str,
        owner: &str,
        ttl: Duration,
        again: Option<&str>,
        rivals: bool,
    ) -> Result<GivenBack, Error> {
        let mut call = prepare(&RELEASE, key, owner);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        call.arg(again.unwrap_or(""));
        let (was, whose, fence): (String, String, i64) = if rivals {
            self.redis.invoke_hearers_first(call).await?
        } else {
            self.redis.invoke(call).await?
        };
        let again = match whose.as_str() {
            "again" => Asked::Granted(Grant { fence, rivals: false }),
            _ => Asked::Taken { fence },
        };
        Ok(GivenBack { was_held: was == "held", again })
    }

    /// Gives the place in line up, or the lock, if it was granted meanwhile.
    pub(super) async fn leave(&self, key: &str, owner: &str) -> Result<(), Error> {
        let mut call = prepare(&LEAVE, key, owner);
        call.arg(self.grant_ms).arg(self.horizon_ms).arg(&self.channels);
        let () = self.redis.invoke(call).await?;
        Ok(())
    }

    /// Raises the key's counter to `floor` and takes a new block. `None` when the lock is lost.
    pub(super) async fn refence(
        &self,
        key: &str,
        owner: &str,
        floor: i64,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&REFENCE, key, owner);
        call.arg(floor);
        let answer: Vec<String> = self.redis.invoke(call).await?;
        Ok(grant(&answer))
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

fn grant(answer: &[String]) -> Option<Grant> {
    match answer {
        [word, fence, rivals] if word == "held" => {
            Some(Grant { fence: fence.parse().ok()?, rivals: rivals != "0" })
        }
        _ => None,
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

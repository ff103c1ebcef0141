//! Calls of the lock's five scripts in Redis. Each is safe to repeat with the same id.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Script, ScriptInvocation};

use crate::clock::ms;
use crate::{Error, ProbeFailure, Redis};

/// Timing of the fenced lock. Made by [`Timing::default`] and the methods, or by assigning the
/// fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Timing {
    /// Duration of a lease between renewals, 10 ms to 24 h. It is renewed every third of it.
    pub ttl: Duration,
    /// Time within which a process must confirm a grant, before it expires.
    pub grant_ttl: Duration,
    /// Interval at which a waiting process polls, in case a message was lost: 1 ms to 10 s, and
    /// with a round trip less than half of `grant_ttl`. A process that does not poll for three
    /// intervals is skipped.
    pub poll_interval: Duration,
    /// Time for which a process continues local handoffs after it learns that another process
    /// waits: at most eight, and only to waiters that joined before that.
    pub local_handoff_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(3),
            grant_ttl: Duration::from_millis(600),
            poll_interval: Duration::from_millis(200),
            local_handoff_period: Duration::from_millis(100),
        }
    }
}

impl Timing {
    /// Replaces [`Timing::ttl`].
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Replaces [`Timing::grant_ttl`].
    #[must_use]
    pub fn with_grant_ttl(mut self, grant_ttl: Duration) -> Self {
        self.grant_ttl = grant_ttl;
        self
    }

    /// Replaces [`Timing::poll_interval`].
    #[must_use]
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Replaces [`Timing::local_handoff_period`].
    #[must_use]
    pub fn with_local_handoff_period(mut self, period: Duration) -> Self {
        self.local_handoff_period = period;
        self
    }
}

/// Number of fences per grant, as in `constants.lua`: the holder uses those from
/// [`Holder::fence`](crate::Holder::fence) on.
#[doc(hidden)]
pub const FENCES_PER_GRANT: i64 = 64;
/// Number of polls after which a waiter that did not send them counts as dead.
const MAX_MISSED_POLLS: u32 = 3;

macro_rules! text {
    ($($file:literal),+) => {
        concat!(
            include_str!("constants.lua"),
            include_str!("publish.lua"),
            $(include_str!($file)),+
        )
    };
}

macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Script::new(text!($($file),+)))
    };
}

static ACQUIRE: LazyLock<Script> = script!("prelude.lua", "acquire.lua");
static CONFIRM: LazyLock<Script> = script!("prelude.lua", "confirm.lua");
static RELEASE: LazyLock<Script> = script!("handoff.lua", "prelude.lua", "release.lua");
static PROBE: LazyLock<Script> = script!("prelude.lua", "probe.lua");
static RAISE_FENCE: LazyLock<Script> = script!("prelude.lua", "raise_fence.lua");
/// Sent as text, because it follows calls that timed out. A Redis that stalled executes those when
/// it is back; if it did not know this script by its hash, it would say so to a caller that no
/// longer waits, and the lock would stay held for a lease.
const LEAVE: &str = text!("prelude.lua", "leave.lua");

/// Returns the name of a script, by its hash or its text.
#[cfg(test)]
pub(crate) fn script_of(sent: &str) -> &'static str {
    let by_hash = [
        (&ACQUIRE, "acquire"),
        (&CONFIRM, "confirm"),
        (&RELEASE, "release"),
        (&RAISE_FENCE, "raise_fence"),
    ];
    let found = by_hash.into_iter().find(|(script, _)| script.get_hash() == sent);
    match found {
        Some((_, name)) => name,
        None if sent == LEAVE => "leave",
        None => panic!("an unknown script: {sent}"),
    }
}

#[derive(Debug)]
pub(super) struct Protocol {
    pub redis: Redis,
    /// Start of the name of every process's channel.
    pub channels: String,
    grant_ms: u64,
    waiter_timeout_ms: u64,
}

/// A lease that Redis has granted or confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    /// The first of its fences.
    pub fence: i64,
    /// True if other processes wait for the lock.
    pub remote_waiters: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireResponse {
    Granted(Grant),
    /// Another process holds the lock.
    Busy {
        /// At most the holder's current fence.
        fence: i64,
        /// True if the call queued the id, false if it had a place already or does not wait.
        queued: bool,
    },
}

impl Protocol {
    pub(super) fn new(redis: Redis, prefix: &str, timing: &Timing) -> Self {
        Self {
            redis,
            channels: format!("{prefix}process:"),
            grant_ms: ms(timing.grant_ttl),
            waiter_timeout_ms: ms(timing.poll_interval * MAX_MISSED_POLLS),
        }
    }

    pub(super) async fn acquire(
        &self,
        key: &str,
        id: &str,
        ttl: Duration,
        waits: bool,
    ) -> Result<AcquireResponse, Error> {
        let mut call = prepare(&ACQUIRE, key, id);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.waiter_timeout_ms).arg(&self.channels);
        call.arg(u8::from(waits)).arg(self.publishing());

        let response: Vec<String> = self.redis.send_script(call).await?;
        Ok(parse_grant("acquired", &response).map_or_else(
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
        id: &str,
        ttl: Duration,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&CONFIRM, key, id);
        call.arg(ms(ttl));
        let response: Vec<String> = self.redis.send_script(call).await?;
        Ok(parse_grant("held", &response))
    }

    /// Releases the lock, and queues `next_id` if there is one. Returns whether the lock was still
    /// held, and the response for the next id. With `remote_waiters`, another process probably
    /// acquires the lock, so Redis serves its message before this caller.
    pub(super) async fn release(
        &self,
        key: &str,
        id: &str,
        ttl: Duration,
        next_id: Option<&str>,
        remote_waiters: bool,
    ) -> Result<(bool, AcquireResponse), Error> {
        let mut call = prepare(&RELEASE, key, id);
        call.arg(ms(ttl)).arg(self.grant_ms).arg(self.waiter_timeout_ms).arg(&self.channels);
        call.arg(next_id.unwrap_or("")).arg(self.publishing());

        let (state, holder, fence): (String, String, i64) = if remote_waiters {
            self.redis.run_script_after_subscribers(call).await?
        } else {
            self.redis.send_script(call).await?
        };

        let next = match holder.as_str() {
            "next" => AcquireResponse::Granted(Grant { fence, remote_waiters: false }),
            _ => AcquireResponse::Busy { fence, queued: true },
        };
        Ok((state == "held", next))
    }

    /// The last argument of a script that publishes: see `publish.lua`.
    fn publishing(&self) -> &'static str {
        if self.redis.is_cluster() { "sharded" } else { "plain" }
    }

    /// Does what the locks do on `key`, and deletes it.
    pub(super) async fn probe(&self, key: &str, id: &str) -> Result<(), ProbeFailure> {
        let mut call = prepare(&PROBE, key, id);
        call.arg(self.grant_ms).arg(self.waiter_timeout_ms).arg(&self.channels);
        let not_sent: String = self
            .redis
            .send_script(call)
            .await
            .map_err(|error| ProbeFailure::Locks(error.into()))?;
        if not_sent.is_empty() {
            return Ok(());
        }
        Err(ProbeFailure::Messages(crate::redis::Error::of_script(&not_sent).into()))
    }

    /// Leaves the queue, or releases the lock if it was granted already.
    pub(super) async fn leave(&self, key: &str, id: &str) -> Result<(), Error> {
        let keys = redis_keys(key);
        let mut command = redis::cmd("EVAL");
        command.arg(LEAVE).arg(keys.len()).arg(&keys).arg(id);
        command.arg(self.grant_ms).arg(self.waiter_timeout_ms).arg(&self.channels);
        command.arg(self.publishing());
        let () = self.redis.for_release().send(command).await?;
        Ok(())
    }

    /// Raises the key's counter to `floor` and takes the fences of a new grant. Returns `None` if
    /// the lock is lost.
    pub(super) async fn raise_fence(
        &self,
        key: &str,
        id: &str,
        floor: i64,
    ) -> Result<Option<Grant>, Error> {
        let mut call = prepare(&RAISE_FENCE, key, id);
        call.arg(floor);
        let response: Vec<String> = self.redis.send_script(call).await?;
        Ok(parse_grant("held", &response))
    }
}

fn prepare(script: &'static Script, key: &str, id: &str) -> ScriptInvocation<'static> {
    let mut call = script.prepare_invoke();
    for key in redis_keys(key) {
        call.key(key);
    }
    call.arg(id);
    call
}

/// Returns the keys of a lock, in the scripts' order.
fn redis_keys(key: &str) -> [String; 4] {
    ["", ":queue", ":seen", ":fence"].map(|suffix| format!("{key}{suffix}"))
}

/// Returns the grant in a response that begins with `success`.
fn parse_grant(success: &str, response: &[String]) -> Option<Grant> {
    match response {
        [word, fence, remote_waiters] if word == success => {
            Some(Grant { fence: fence.parse().ok()?, remote_waiters: remote_waiters != "0" })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::FENCES_PER_GRANT;

    #[test]
    fn scripts_have_the_same_fences_per_grant() {
        let line = format!("local FENCES_PER_GRANT = {FENCES_PER_GRANT} ");
        assert!(include_str!("constants.lua").contains(&line));
    }
}

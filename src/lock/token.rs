//! The lock on a client's token: one request per token at a time, told apart at once.
//!
//! It is short and renewed while the work runs, so nobody waits more than a few seconds for a
//! replica that died. Its value carries the fingerprint of the request, so that a second request
//! with the same token and *another* payload is told so before anything is locked.
//!
//! Does not guarantee that a token is used once: that is Postgres's part, and holds when Redis
//! forgets. This lock only answers sooner.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Error, Locks, Redis};

/// How long a dead replica can keep a token busy.
pub(super) const TTL: Duration = Duration::from_secs(3);
/// Two renewals may fail before the lock is gone.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(1);

/// What came of asking for a token.
#[derive(Debug)]
pub enum TokenOutcome {
    /// Nobody else works on it.
    Acquired(TokenGuard),
    /// The same request is being worked on.
    InFlight,
    /// Another request with the same token is being worked on.
    Mismatch,
}

/// A token that is being worked on. Renewed until dropped or released.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once locks nothing"]
pub struct TokenGuard {
    redis: Redis,
    key: String,
    value: String,
    renewal: Option<JoinHandle<()>>,
}

impl Locks {
    /// Takes the lock of a token. `name` is what follows `holdfast:token:`, `fingerprint` what the
    /// request is (no `/` in it).
    ///
    /// It does not wait, and does not promise that the work was not done before: that is looked up
    /// in Postgres.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis did not answer. What may have been taken is being given
    /// back.
    ///
    /// # Cancel safety
    /// Safe, as for [`Locks::acquire`].
    pub async fn acquire_token(
        &self,
        name: &str,
        fingerprint: &str,
    ) -> Result<TokenOutcome, Error> {
        let mut guard = TokenGuard {
            redis: self.redis.clone(),
            key: format!("{}token:{name}", self.settings.prefix),
            value: format!("{fingerprint}/{}", self.process.new_owner()),
            renewal: None,
        };
        let ttl_ms = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX);
        let commands = ::redis::pipe()
            .cmd("SET")
            .arg(&guard.key)
            .arg(&guard.value)
            .arg("NX")
            .arg("PX")
            .arg(ttl_ms)
            .get(&guard.key)
            .to_owned();
        let (taken, current): (Option<String>, Option<String>) = self.redis.pipe(commands).await?;
        if taken.is_some() {
            guard.renewal = Some(self.redis.runtime().spawn(renew(
                self.redis.clone(),
                guard.key.clone(),
                guard.value.clone(),
            )));
            return Ok(TokenOutcome::Acquired(guard));
        }
        guard.value.clear();
        match current {
            Some(value) if value.split('/').next() != Some(fingerprint) => {
                Ok(TokenOutcome::Mismatch)
            }
            // Gone between the two commands counts as in flight: the caller looks again.
            _ => Ok(TokenOutcome::InFlight),
        }
    }
}

impl TokenGuard {
    /// Gives the token back, if it is still ours. It does not fail: a Redis that does not answer is
    /// asked once more in the background, and the token ends within three seconds anyway.
    ///
    /// # Cancel safety
    /// Safe: what is dropped is handed over.
    pub async fn release(mut self) {
        self.stop_renewal();
        if self.redis.delete_if(&self.key, &self.value).await.is_ok() {
            self.value.clear();
        }
    }

    fn stop_renewal(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }
}

impl Drop for TokenGuard {
    fn drop(&mut self) {
        self.stop_renewal();
        if self.value.is_empty() {
            return;
        }
        let (redis, key, value) =
            (self.redis.clone(), std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        self.redis.runtime().spawn(async move { redis.delete_if(&key, &value).await });
    }
}

/// Ends when the token is somebody else's; a Redis that does not answer is asked again.
async fn renew(redis: Redis, key: String, value: String) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if matches!(redis.renew_if(&key, &value, TTL).await, Ok(false)) {
            return;
        }
    }
}

//! The locks on the tokens of a whole batch, taken and given back in one round trip.
//!
//! Each is the lock of [`super::token`], and means the same. In a Cluster, where tokens lie on
//! several nodes, it is one call per token, all at once.

use std::sync::LazyLock;

use futures_util::future::{join_all, try_join_all};
use redis::Script;
use tokio::task::JoinHandle;

use super::token::{RENEW_EVERY, TTL};
use super::{Error, Locks, Redis};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tokens.lua")));

/// What came of asking for one token of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTaken {
    /// Nobody else works on it.
    Taken,
    /// The same request is being worked on.
    InFlight,
    /// Another request with the same token is being worked on.
    Mismatch,
}

/// Tokens that are being worked on. Renewed until dropped or released.
#[derive(Debug, Default)]
#[must_use = "tokens that are dropped at once lock nothing"]
pub struct Tokens {
    /// Each with its value.
    held: Vec<(String, String)>,
    home: Option<Redis>,
    renewal: Option<JoinHandle<()>>,
}

impl Locks {
    /// Takes the locks of many tokens: each by what follows `holdfast:token:` and the fingerprint of
    /// its request (no `@` in it). Gives `done` back on the way. What came of each, in their order.
    ///
    /// It does not wait, and does not promise that the work was not done before: that is looked up
    /// in Postgres.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis did not answer. What may have been taken is being given
    /// back, and so is what was to be.
    ///
    /// # Cancel safety
    /// Safe, as for [`Locks::acquire`].
    pub async fn acquire_tokens(
        &self,
        wanted: &[(String, String)],
        mut done: Tokens,
    ) -> Result<(Tokens, Vec<TokenTaken>), Error> {
        let held = wanted.iter().map(|(name, fingerprint)| {
            let key = format!("{}token:{name}", self.settings.prefix);
            (key, format!("{fingerprint}/{}", self.process.new_owner()))
        });
        let mut tokens =
            Tokens { held: held.collect(), home: Some(self.redis.clone()), renewal: None };
        let current = exchange(&self.redis, &done.held, &tokens.held).await?;
        done.forget();
        let taken: Vec<TokenTaken> = current
            .iter()
            .zip(wanted)
            .map(|(current, (_, fingerprint))| match current.split('/').next() {
                Some("") => TokenTaken::Taken,
                Some(theirs) if theirs != fingerprint => TokenTaken::Mismatch,
                _ => TokenTaken::InFlight,
            })
            .collect();
        let mut each = taken.iter();
        tokens.held.retain(|_| each.next() == Some(&TokenTaken::Taken));
        tokens.renewal =
            Some(self.redis.runtime().spawn(renew_all(self.redis.clone(), tokens.held.clone())));
        Ok((tokens, taken))
    }
}

impl Tokens {
    /// Gives all of them back that are still ours. It does not fail: a Redis that does not answer is
    /// asked once more in the background, and tokens end within three seconds anyway.
    ///
    /// # Cancel safety
    /// Safe: what is dropped is handed over.
    pub async fn release(mut self) {
        if let Some(redis) = self.home.clone()
            && !self.held.is_empty()
            && exchange(&redis, &self.held, &[]).await.is_ok()
        {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.held.clear();
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.forget();
        if let Some(redis) = self.home.take()
            && !held.is_empty()
        {
            let runtime = redis.runtime().clone();
            runtime.spawn(async move { exchange(&redis, &held, &[]).await });
        }
    }
}

/// Runs the script; of each token to take, whose it was before.
async fn exchange(
    redis: &Redis,
    back: &[(String, String)],
    take: &[(String, String)],
) -> Result<Vec<String>, Error> {
    let ttl_ms = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX);
    let call = |back: &[(String, String)], take: &[(String, String)]| {
        let mut call = SCRIPT.prepare_invoke();
        call.arg(ttl_ms).arg(back.len());
        for (key, value) in back.iter().chain(take) {
            call.key(key).arg(value);
        }
        redis.invoke::<Vec<String>>(call)
    };
    if back.is_empty() && take.is_empty() {
        return Ok(Vec::new());
    }
    if !redis.is_cluster() {
        return Ok(call(back, take).await?);
    }
    let given = join_all(back.iter().map(|one| call(std::slice::from_ref(one), &[])));
    let taken = try_join_all(take.iter().map(|one| call(&[], std::slice::from_ref(one))));
    let (given, taken) = futures_util::future::join(given, taken).await;
    for answer in given {
        answer?;
    }
    Ok(taken?.into_iter().flatten().collect())
}

/// Until it is dropped; a Redis that does not answer is asked again.
async fn renew_all(redis: Redis, held: Vec<(String, String)>) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        join_all(held.iter().map(|(key, value)| redis.renew_if(key, value, TTL))).await;
    }
}

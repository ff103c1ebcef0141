//! The locks on the tokens of a whole batch, taken and given back in one round trip.
//!
//! Each is the lock of [`super::token`], and means the same. In a Cluster, where tokens lie on
//! several nodes, it is one call per token, all at once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use futures_util::future::{join_all, try_join_all};
use redis::Script;
use tokio::task::JoinHandle;

use super::process::Process;
use super::token::{RENEW_EVERY, TTL};
use super::{Error, Locks, Redis};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tokens.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tokens_renew.lua")));

/// So many are renewed or given back in one call: it keeps Redis from all others meanwhile.
const MOST_AT_ONCE: usize = 512;

/// More is not given back late to a Redis that was away: it has ended by then.
const MOST_OWED: usize = 10_000;

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

/// The tokens that one worker of this process has. Renewed until they are given back or dropped.
#[derive(Debug)]
#[must_use = "tokens that are dropped at once lock nothing"]
pub struct Tokens {
    redis: Redis,
    /// What every key begins with.
    prefix: String,
    process: Process,
    held: Held,
    /// Held still, to be given back with the next call.
    done: Vec<(String, String)>,
    renewal: Option<JoinHandle<()>>,
}

/// Keys with their values.
type Held = Arc<Mutex<HashMap<String, String>>>;

impl Locks {
    /// No tokens yet.
    pub fn tokens(&self) -> Tokens {
        Tokens {
            redis: self.redis.clone(),
            prefix: format!("{}token:", self.settings.prefix),
            process: self.process.clone(),
            held: Held::default(),
            done: Vec::new(),
            renewal: None,
        }
    }
}

impl Tokens {
    /// Takes the locks of many tokens: each by what follows `holdfast:token:` and the fingerprint
    /// of its request (no `/` in it). What is done is given back on the way. What came of each, in
    /// their order.
    ///
    /// It does not wait, and does not promise that the work was not done before: that is looked up
    /// in Postgres.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when Redis did not answer. What may have been taken is given back by
    /// the next call, or when this is dropped.
    ///
    /// # Cancel safety
    /// As on an error.
    pub async fn take(&mut self, wanted: &[(String, String)]) -> Result<Vec<TokenTaken>, Error> {
        let take: Vec<(String, String)> = wanted
            .iter()
            .map(|(name, fingerprint)| {
                let value = format!("{fingerprint}/{}", self.process.new_owner());
                (format!("{}{name}", self.prefix), value)
            })
            .collect();
        let back = self.done.len();
        // Until we know better.
        self.done.extend(take.iter().cloned());
        let current = exchange(&self.redis, &self.done[..back], &take).await?;
        self.done.clear();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let taken =
            current.iter().zip(take).zip(wanted).map(|((current, ours), (_, asked))| match current
                .split('/')
                .next()
            {
                Some("") => {
                    held.insert(ours.0, ours.1);
                    TokenTaken::Taken
                }
                Some(theirs) if theirs != asked => TokenTaken::Mismatch,
                _ => TokenTaken::InFlight,
            });
        let taken = taken.collect();
        drop(held);
        self.renewal.get_or_insert_with(|| {
            self.redis.runtime().spawn(renew_all(self.redis.clone(), Arc::downgrade(&self.held)))
        });
        Ok(taken)
    }

    /// Nobody works on that token any more: it is given back with the next call.
    pub fn finish(&mut self, name: &str) {
        let key = format!("{}{name}", self.prefix);
        let value = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.done.extend(value.map(|value| (key, value)));
    }

    /// Gives back what is done. It does not fail: a Redis that does not answer is asked again, and
    /// tokens end within three seconds anyway.
    ///
    /// # Cancel safety
    /// Safe: what is not given back yet is so by the next call, or when this is dropped.
    pub async fn flush(&mut self) {
        let given_back = exchange(&self.redis, &self.done, &[]).await.is_ok();
        if given_back || self.done.len() > MOST_OWED {
            self.done.clear();
        }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        let mut rest = std::mem::take(&mut self.done);
        rest.extend(self.held.lock().unwrap_or_else(PoisonError::into_inner).drain());
        if !rest.is_empty() {
            let redis = self.redis.clone();
            self.redis.runtime().spawn(async move { exchange(&redis, &rest, &[]).await });
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
        let mut chunks = back.chunks(MOST_AT_ONCE);
        let last = chunks.next_back().unwrap_or_default();
        for earlier in chunks {
            call(earlier, &[]).await?;
        }
        return Ok(call(last, take).await?);
    }
    let given = join_all(back.iter().map(|one| call(std::slice::from_ref(one), &[])));
    let taken = try_join_all(take.iter().map(|one| call(&[], std::slice::from_ref(one))));
    let (given, taken) = futures_util::future::join(given, taken).await;
    for answer in given {
        answer?;
    }
    Ok(taken?.into_iter().flatten().collect())
}

/// Until they are dropped; a Redis that does not answer is asked again.
async fn renew_all(redis: Redis, held: Weak<Mutex<HashMap<String, String>>>) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(held) = held.upgrade() else { return };
        let held = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let held: Vec<(String, String)> = held.into_iter().collect();
        let most = if redis.is_cluster() { 1 } else { MOST_AT_ONCE };
        join_all(held.chunks(most).map(|some| renew(&redis, some))).await;
    }
}

async fn renew(redis: &Redis, some: &[(String, String)]) -> Result<(), redis::RedisError> {
    let mut call = RENEW.prepare_invoke();
    call.arg(u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX));
    for (key, value) in some {
        call.key(key).arg(value);
    }
    redis.invoke(call).await
}

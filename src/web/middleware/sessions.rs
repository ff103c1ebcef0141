//! One replica's cache of sessions.
//!
//! A replica queries Postgres for a session at most once in [`SESSION_CACHE_TTL`]; a sign-out at
//! one replica takes effect at the others within that time.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;

use holdfast_shop::sessions::{self, Caller};
use holdfast_shop::{Error, Shop, UserId};

/// Lifetime of a cached session. The contract allows 5 s.
const SESSION_CACHE_TTL: Duration = Duration::from_secs(4);
const MAX_CACHED_SESSIONS: u64 = 100_000;

#[derive(Debug, Clone)]
pub struct SessionCache(Cache<String, Arc<Caller>>);

impl Default for SessionCache {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(MAX_CACHED_SESSIONS)
            .time_to_live(SESSION_CACHE_TTL)
            .support_invalidation_closures()
            .build();
        Self(cache)
    }
}

impl SessionCache {
    /// Returns the user of a session; `None` if it is unknown or expired. Concurrent calls for the
    /// same session share one query.
    pub async fn find(&self, shop: &Shop, token: &str) -> Result<Option<Arc<Caller>>, Error> {
        let look_up =
            async { sessions::find(shop, token).await.map_err(Some)?.map(Arc::new).ok_or(None) };
        match self.0.try_get_with_by_ref(token, look_up).await {
            Ok(caller) => {
                let over = caller.expires_at <= time::OffsetDateTime::now_utc();
                Ok((!over).then_some(caller))
            }
            // An unknown token is not cached, so a session that begins later is accepted at once.
            Err(error) => (*error).clone().map_or(Ok(None), Err),
        }
    }

    pub async fn cached(&self, token: &str) -> Option<Arc<Caller>> {
        self.0.get(token).await
    }

    pub async fn invalidate(&self, token: &str) {
        self.0.invalidate(token).await;
    }

    pub fn invalidate_user(&self, user: UserId) -> Result<(), Error> {
        let removed = self.0.invalidate_entries_if(move |_, caller| caller.id == user);
        removed.map(drop).map_err(|error| Error::Bug(error.to_string()))
    }
}

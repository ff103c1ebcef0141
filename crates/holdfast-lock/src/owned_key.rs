//! A key in Redis with a value that says whose it is: the lock of `owner` and `watchdog`.

use crate::{Redis, Released};

/// A key in Redis, and the value under which it is ours.
#[derive(Debug, Clone)]
pub(crate) struct OwnedKey {
    pub redis: Redis,
    pub key: String,
    /// Unique per acquisition.
    pub owner: String,
}

impl OwnedKey {
    /// Deletes the key if it is still ours.
    pub(crate) async fn delete(&self) -> Released {
        match self.redis.delete_if(&self.key, &self.owner).await {
            Ok(true) => Released::Held,
            Ok(false) => Released::Lost,
            Err(_) => Released::Unknown,
        }
    }
}

//! The adapter of a lock for `holdfast judge`: put your own lock in place of this one.
//!
//! ```sh
//! cargo build --release
//! holdfast judge -- target/release/my-lock
//! ```

mod adapter;

use std::time::{Duration, Instant};

use adapter::{About, Init, serve};
use redis::aio::ConnectionManager;

const RELEASE: &str = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";

struct MyLock {
    redis: ConnectionManager,
    ttl: Duration,
}

impl adapter::Locks for MyLock {
    /// The key and its owner.
    type Lease = (String, String);

    fn about(&self) -> About {
        About { name: "my lock".to_owned(), fencing: false, renews: false }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<Self::Lease>> {
        let owner = uuid::Uuid::new_v4().to_string();
        let until = Instant::now() + wait;
        loop {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(&owner).arg("NX").arg("PX").arg(self.ttl.as_millis() as u64);
            if set.query_async::<Option<String>>(&mut self.redis.clone()).await?.is_some() {
                return Ok(Some((key.to_owned(), owner)));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn release(&self, (key, owner): Self::Lease) -> anyhow::Result<bool> {
        let script = redis::Script::new(RELEASE);
        let deleted: Option<i64> =
            script.key(key).arg(owner).invoke_async(&mut self.redis.clone()).await?;
        Ok(deleted == Some(1))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(async |init: Init| {
        let client = redis::Client::open(init.redis_url.as_str())?;
        Ok(MyLock { redis: client.get_connection_manager().await?, ttl: init.ttl() })
    })
    .await
}

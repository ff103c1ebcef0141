//! Two holders and a register that checks fences: `cargo run -p holdfast-lock --example register`.
//!
//! Two processes (here, two sets of locks) lock the same key on the Redis at `REDIS_URL`, else
//! redis://127.0.0.1:6379. Each passes its fence to the register, which rejects stale writes.

use std::time::Duration;

use holdfast_lock::{Error, LockKey, Locks, Redis, Settings};
use tokio::time::sleep;

/// A value and the highest fence of its writes.
#[derive(Default)]
struct Register {
    value: i64,
    fence: i64,
}

impl Register {
    fn write(&mut self, value: i64, fence: i64) -> Result<(), String> {
        if fence < self.fence {
            return Err(format!("stale write: fence {fence}, and {} has written", self.fence));
        }
        (self.value, self.fence) = (value, fence);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let settings = |name: &str| Settings::default().with_key_prefix("example:").with_name(name);
    let here = Locks::new(Redis::open(&url)?, settings("here"))?;
    let there = Locks::new(Redis::open(&url)?, settings("there"))?;
    let key = LockKey::new("{register}")?;
    let mut register = Register::default();

    let first = here.lock(&key).await?;
    let first_fence = first.fence();
    println!("the first holder has fence {first_fence}");

    // A caller that does not wait learns who holds the lock.
    if there.try_lock(&key).await?.is_none() {
        let holder = there.holder(&key).await?;
        println!("busy: held by {:?} with fence {:?}", holder.process, holder.fence);
    }

    // The release hands the lock off to the next waiter.
    let release = async {
        sleep(Duration::from_millis(20)).await;
        println!("the first holder releases it: {:?}", first.release().await);
    };
    let write = there.with_lock(&key, async |lease| {
        println!("the second holder has fence {}", lease.fence());
        register.write(2, lease.fence())
    });
    let (written, ()) = futures_util::join!(write, release);
    written??;

    // The first holder was paused, and still believes that it may write.
    println!("the first holder writes: {:?}", register.write(1, first_fence));
    println!("the value is {}", register.value);

    // A lease that is lost ends the work under it.
    let lost = here.with_lock(&key, async |_| {
        let _ = there.force_release(&key).await;
        sleep(Duration::from_secs(10)).await;
    });
    match lost.await {
        Err(Error::Lost) => println!("the lease was lost, and the work was dropped"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

//! The lock of this project, without the shop: `cargo run --example lock`.
//!
//! Two processes (two sets of locks, here) want the same key on a Redis of yours (`REDIS_URL`, else
//! redis://127.0.0.1:6379). Each shows its fence to the thing it protects, which is what makes a
//! holder that comes too late harmless.

use std::time::Duration;

use holdfast::lock::{Ask, Kind, LockKey, Locks, Outcome, Redis, Settings, Wait};
use tokio::time::{Instant, sleep};

/// What is protected: it remembers the highest fence that it has seen.
#[derive(Default)]
struct Register {
    value: i64,
    fence: i64,
}

impl Register {
    fn write(&mut self, value: i64, fence: i64) -> Result<(), String> {
        if fence < self.fence {
            return Err(format!("too late: fence {fence}, and {} has written", self.fence));
        }
        (self.value, self.fence) = (value, fence);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let settings = |name: &str| Settings {
        prefix: "example:".to_owned(),
        name: Some(name.to_owned()),
        ..Settings::default()
    };
    let here = Locks::new(Redis::open(&url)?, settings("here"));
    let there = Locks::new(Redis::open(&url)?, settings("there"));
    let key = [LockKey::new("{register}")?];
    let mut register = Register::default();

    let ask = |wait| Ask {
        kind: Kind::Fenced,
        wait,
        ttl: None,
        deadline: Instant::now() + Duration::from_secs(5),
        keys: &key,
    };

    let Outcome::Acquired(first) = here.acquire(ask(Wait::Notify)).await? else {
        return Err("somebody else holds it; try again".into());
    };
    let first_fence = first.fence(&key[0]).ok_or("a fenced lock has a fence")?;
    println!("the first holder has fence {first_fence}");

    // Who does not want to wait is told who is in the way.
    match there.acquire(ask(Wait::Try)).await? {
        Outcome::Busy(holder) => {
            println!("busy: held by {:?} under fence {:?}", holder.process, holder.fence);
        }
        other => println!("unexpected: {other:?}"),
    }

    // Who waits is handed the lock by the release itself.
    let waiting = async { there.acquire(ask(Wait::Notify)).await };
    let working = async {
        sleep(Duration::from_millis(20)).await;
        println!("the first holder gives it back: {:?}", first.release().await);
    };
    let (second, ()) = futures_util::join!(waiting, working);
    let Outcome::Acquired(second) = second? else { return Err("waited in vain".into()) };
    let second_fence = second.fence(&key[0]).ok_or("a fenced lock has a fence")?;
    println!("the second holder has fence {second_fence}");

    register.write(2, second_fence)?;
    // The first one was away for a while, and still believes that it may write.
    println!("the first holder writes after all: {:?}", register.write(1, first_fence));
    println!("the value is {}", register.value);
    second.release().await;
    Ok(())
}

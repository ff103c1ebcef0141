//! Level 3: only the owner deletes the key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::{redis, sleep, Reply, Result};

const RELEASE: &str =
    "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";

static NEXT: AtomicU64 = AtomicU64::new(0);

pub fn acquire(key: &str, wait: Duration, ttl_ms: u64) -> Result<Option<(String, Option<i64>)>> {
    let token = new_token()?;
    let end = Instant::now() + wait;
    while redis(&["SET", key, &token, "NX", "PX", &ttl_ms.to_string()])? == Reply::Nil {
        if Instant::now() > end {
            return Ok(None);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(Some((token, None)))
}

pub fn release(key: &str, token: &str) -> Result<bool> {
    Ok(redis(&["EVAL", RELEASE, "1", key, token])? == Reply::Integer(1))
}

/// Process, time and a counter: no other acquisition has the same.
fn new_token() -> Result<String> {
    let time = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{}-{time}-{number}", std::process::id()))
}

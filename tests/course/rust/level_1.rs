//! Level 1: one atomic command, without an expiry.

use std::time::{Duration, Instant};

use crate::{redis, sleep, Reply, Result};

pub fn acquire(key: &str, wait: Duration, _ttl_ms: u64) -> Result<Option<(String, Option<i64>)>> {
    let end = Instant::now() + wait;
    while redis(&["SET", key, "held", "NX"])? == Reply::Nil {
        if Instant::now() > end {
            return Ok(None);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(Some(("held".to_owned(), None)))
}

pub fn release(key: &str, _token: &str) -> Result<bool> {
    redis(&["DEL", key])?;
    Ok(true)
}

//! Your lock. `holdfast course check` judges it; README.md has the task.

#![allow(unused)] // until the functions are written

use std::time::Duration;

use crate::{redis, Reply, Result};

/// Returns a token of your choice once you hold the lock on `key`, or `None` after `wait`. From
/// level 5 on also a fence. `ttl_ms` is the lease to use.
pub fn acquire(key: &str, wait: Duration, ttl_ms: u64) -> Result<Option<(String, Option<i64>)>> {
    Ok(None)
}

/// Gives the lock back. Returns whether it was still yours.
pub fn release(key: &str, token: &str) -> Result<bool> {
    Ok(true)
}

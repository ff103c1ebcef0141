//! The settings of the lock.

use clap::Args;

use super::Switch;
use super::values::whole_number;

#[derive(Debug, Clone, Args)]
pub struct LockArgs {
    /// Strategy: none, local, setnx, setnx-expire, ttl, check-then-del, expire-only, owner,
    /// watchdog, redlock, early-release, wrong-key, fenced, row-lock, atomic, version,
    /// serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub strategy: String,
    /// Expiry of a lock that is not released, in milliseconds (`fenced` and `batched`: 3 s,
    /// renewed)
    #[arg(long, env = "HOLDFAST_LOCK_TTL_MS", default_value_t = 10_000, value_parser = whole_number::<u64>(1_000..=600_000))]
    pub lock_ttl_ms: u64,
    /// Pause between two attempts of a polling waiter, in milliseconds, with ± 50 % jitter
    #[arg(long, env = "HOLDFAST_LOCK_RETRY_MS", default_value_t = 50, value_parser = whole_number::<u64>(1..=10_000))]
    pub lock_retry_ms: u64,
    /// Timeout of a waiter, in milliseconds; 0: a single attempt
    #[arg(long, env = "HOLDFAST_LOCK_TIMEOUT_MS", default_value_t = 5_000, value_parser = whole_number::<u64>(0..=7_000))]
    pub lock_timeout_ms: u64,
    /// Allow an unsafe strategy on the shop's own items: one that can oversell without any failure
    /// (none, local, early-release, wrong-key, queue), or a lock of the lessons (setnx,
    /// setnx-expire, ttl, check-then-del, expire-only)
    #[arg(long, value_name = "SWITCH", env = "HOLDFAST_UNSAFE_LOCK", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on")]
    pub unsafe_lock: Switch,
    /// Change the lock that the database records to one that does not exclude it. Stop all other
    /// replicas first
    #[arg(long)]
    pub change_lock: bool,
}

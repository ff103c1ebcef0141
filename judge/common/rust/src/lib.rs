//! The protocol of `holdfast judge` (docs/JUDGE.md) for locks in Rust.
//!
//! Each request has a task of its own, which `cancel` drops. An error of the lock is answered as "error": a backend that
//! is away is not a lock that is busy.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;

/// The request `init`.
#[derive(Debug, Clone, Deserialize)]
pub struct Init {
    pub redis_url: String,
    pub database_url: String,
    pub ttl_ms: u64,
}

impl Init {
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// The answer to `init`.
#[derive(Debug, Clone)]
pub struct About {
    /// Name and version of the library.
    pub name: String,
    /// Its leases have a fence.
    pub fencing: bool,
    /// It renews a lease that is held.
    pub renews: bool,
}

/// A lock under judgement.
pub trait Locks: Send + Sync + 'static {
    type Lease: Send + Sync + 'static;

    fn about(&self) -> About;

    /// Returns `None` if another client held the lock for all of `wait`.
    fn acquire(
        &self,
        key: &str,
        wait: Duration,
    ) -> impl Future<Output = anyhow::Result<Option<Self::Lease>>> + Send;

    /// Returns `false` if the lock was lost.
    fn release(&self, lease: Self::Lease) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Returns the fence of the lease, if locks have fences.
    fn fence(&self, _lease: &Self::Lease) -> Option<i64> {
        None
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Init(Init),
    Acquire { key: String, wait_ms: u64 },
    Release { lease: String },
    Cancel { request: u64 },
}

#[derive(Debug, Deserialize)]
struct Request {
    id: u64,
    #[serde(flatten)]
    op: Op,
}

struct Server<L: Locks> {
    locks: L,
    leases: Mutex<HashMap<String, L::Lease>>,
    next_lease: AtomicU64,
    /// The requests under way, by id: a message cancels them, as an application drops a future.
    requests: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

/// Serves the judge's requests until the end of the input. `open` receives the first, `init`.
///
/// # Errors
/// If a request is not of the protocol, or `open` fails.
pub async fn serve<L: Locks>(
    open: impl AsyncFnOnce(Init) -> anyhow::Result<L>,
) -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let first = lines.next_line().await?.context("the input is empty")?;
    let Request { id, op: Op::Init(init) } = serde_json::from_str(&first)? else {
        anyhow::bail!("the first request is not init: {first}");
    };
    let locks = open(init).await?;
    let About { name, fencing, renews } = locks.about();
    write(
        id,
        json!({"ok": true, "name": name, "fencing": fencing, "renews": renews,
                     "cancels": true}),
    )?;
    let (leases, next_lease) = (Mutex::default(), AtomicU64::new(1));
    let server = Arc::new(Server { locks, leases, next_lease, requests: Mutex::default() });
    while let Some(line) = lines.next_line().await? {
        let Request { id, op } = serde_json::from_str(&line).context(line)?;
        if let Op::Cancel { request } = op {
            if let Some(cancel) = server.requests().remove(&request) {
                // One that was just answered.
                let _ = cancel.send(());
            }
            write(id, json!({"ok": true}))?;
            continue;
        }
        let (cancel, cancelled) = oneshot::channel();
        server.requests().insert(id, cancel);
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let answer = tokio::select! {
                biased;
                answer = server.answer(op) => answer.unwrap_or_else(
                    |error| json!({"ok": false, "reason": "error", "detail": format!("{error:#}")}),
                ),
                Ok(()) = cancelled => json!({"ok": false, "reason": "cancelled"}),
            };
            server.requests().remove(&id);
            if write(id, answer).is_err() {
                std::process::exit(1);
            }
        });
    }
    Ok(())
}

impl<L: Locks> Server<L> {
    async fn answer(&self, op: Op) -> anyhow::Result<Value> {
        Ok(match op {
            Op::Init(_) | Op::Cancel { .. } => anyhow::bail!("it is served elsewhere"),
            Op::Acquire { key, wait_ms } => {
                match self.locks.acquire(&key, Duration::from_millis(wait_ms)).await? {
                    Some(lease) => {
                        let fence = self.locks.fence(&lease);
                        let name = self.keep(lease);
                        match fence {
                            Some(fence) => json!({"ok": true, "lease": name, "fence": fence}),
                            None => json!({"ok": true, "lease": name}),
                        }
                    }
                    None if wait_ms == 0 => json!({"ok": false, "reason": "busy"}),
                    None => json!({"ok": false, "reason": "timeout"}),
                }
            }
            Op::Release { lease } => match self.locks.release(self.take(&lease)?).await? {
                true => json!({"ok": true}),
                false => json!({"ok": false, "reason": "lost"}),
            },
        })
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, lease: L::Lease) -> String {
        let number = self.next_lease.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.insert(name.clone(), lease);
        name
    }

    fn take(&self, name: &str) -> anyhow::Result<L::Lease> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.remove(name).context("unknown lease")
    }
}

fn write(id: u64, mut answer: Value) -> std::io::Result<()> {
    answer["id"] = id.into();
    let mut output = std::io::stdout().lock();
    writeln!(output, "{answer}")?;
    output.flush()
}

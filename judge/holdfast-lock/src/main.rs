//! holdfast-lock behind the judge: `fenced` (the default), `owner`, `watchdog`, `redlock`, whose
//! servers are in QUORUM_URLS, separated by commas, or `stored`, whose fences Postgres keeps.

mod stored;

use std::time::Duration;

use anyhow::Context;
use holdfast_lock::{AcquireOutcome, AcquireRequest, Guards, LockKey, LockKind, Locks};
use holdfast_lock::{Redis, Released, Settings, Wait};
use judge_adapter::{About, Init, serve};
use tokio::time::Instant;

struct HoldfastLock {
    locks: Locks,
    kind: LockKind,
    name: String,
}

impl HoldfastLock {
    fn open(init: &Init, kind: &str) -> anyhow::Result<Self> {
        let name = format!("holdfast-lock {} {kind}", env!("CARGO_PKG_VERSION"));
        let locks = open_locks(init)?;
        let (kind, locks) = match kind {
            "fenced" => (LockKind::Fenced, locks),
            "owner" => (LockKind::Owner, locks),
            "watchdog" => (LockKind::Watchdog, locks),
            "redlock" => {
                let urls = std::env::var("QUORUM_URLS")
                    .context("redlock needs the addresses of three servers in QUORUM_URLS")?;
                let nodes = urls.split(',').map(Redis::open).collect::<Result<_, _>>()?;
                (LockKind::Quorum, locks.with_quorum(nodes))
            }
            other => anyhow::bail!("unknown kind of lock: {other}"),
        };
        Ok(Self { locks, kind, name })
    }
}

impl judge_adapter::Locks for HoldfastLock {
    type Lease = (LockKey, Guards);

    fn about(&self) -> About {
        About {
            name: self.name.clone(),
            fencing: self.kind == LockKind::Fenced,
            renews: self.kind != LockKind::Owner,
        }
    }

    async fn acquire(&self, key: &str, wait: Duration) -> anyhow::Result<Option<Self::Lease>> {
        let key = LockKey::new(key)?;
        let keys = std::slice::from_ref(&key);
        let mut request = AcquireRequest::new(self.kind, keys).with_deadline(Instant::now() + wait);
        if wait.is_zero() {
            request.wait = Wait::Try;
        }
        match self.locks.acquire(request).await? {
            AcquireOutcome::Acquired(guards) => Ok(Some((key, guards))),
            _ => Ok(None),
        }
    }

    async fn release(&self, (_, guards): Self::Lease) -> anyhow::Result<bool> {
        match guards.release().await {
            Released::Held => Ok(true),
            Released::Lost => Ok(false),
            _ => anyhow::bail!("Redis does not respond"),
        }
    }

    fn fence(&self, (key, guards): &Self::Lease) -> Option<i64> {
        guards.fence(key)
    }
}

fn open_locks(init: &Init) -> anyhow::Result<Locks> {
    let mut settings = Settings::default().with_ttl(init.ttl());
    settings.fenced.ttl = init.ttl();
    // Each request says how long it waits.
    settings.acquire_timeout = Duration::from_hours(1);
    Ok(Locks::new(Redis::open(&init.redis_url)?, settings)?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_else(|| "fenced".to_owned());
    if kind == "stored" {
        return serve(async |init| stored::StoredFences::open(&init).await).await;
    }
    serve(async |init| HoldfastLock::open(&init, &kind)).await
}

//! The teaching locks: their common polling and release. The file of each states when it
//! breaks. Only an explicit release runs its `release`: a cancelled attempt or a dropped lease is
//! released by compare-and-delete, which never touches another owner's lock; under `expire-only`
//! nothing is deleted. Tests: `tests/it/strategy_failures.rs`.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use holdfast_lock::clock::jittered;
use holdfast_lock::redis::Error as RedisError;
use holdfast_lock::{Error, ForeignLease, Locks, Released, Wait};
use tokio::time::{Instant, sleep_until};

use super::commands::LockCommands;

/// A step of a lock on one key. Returns whether it acquired or released it.
type LockStep = for<'a> fn(&'a LockCommands) -> BoxFuture<'a, Result<bool, RedisError>>;

/// A lease in Redis with a common mistake.
#[derive(Debug, Clone, Copy)]
pub(super) struct TeachingLock {
    pub(super) acquire: LockStep,
    pub(super) release: LockStep,
    /// False if its key is only left to expire.
    pub(super) is_ever_deleted: bool,
}

#[derive(Debug)]
pub(super) struct TeachingLease {
    kind: TeachingLock,
    commands: LockCommands,
    release_on_drop: bool,
}

impl TeachingLease {
    /// Acquires the lock. With [`Wait::Try`] it makes one attempt, otherwise it polls until
    /// `until`. Returns `None` if the lock was held at the last attempt. Waiters are served in no
    /// particular order.
    ///
    /// # Cancel safety
    /// Safe: what an attempt acquired is released as on drop, also after an error.
    pub(super) async fn acquire(
        kind: TeachingLock,
        commands: LockCommands,
        locks: &Locks,
        wait: Wait,
        until: Instant,
    ) -> Result<Option<Self>, Error> {
        // The lease exists before a command is sent: dropping it releases what may have been
        // acquired.
        let mut lease = Self { kind, commands, release_on_drop: true };
        loop {
            // Its value contains the time of acquisition.
            lease.commands.owner = locks.new_owner();
            if (kind.acquire)(&lease.commands).await? {
                return Ok(Some(lease));
            }

            let next = Instant::now() + jittered(locks.settings().retry_interval);
            if wait == Wait::Try || next > until {
                // The key is another holder's: nothing of ours is there to delete.
                lease.release_on_drop = false;
                return Ok(None);
            }
            sleep_until(next).await;
        }
    }
}

impl ForeignLease for TeachingLease {
    /// Releases the lease by its commands and returns what they report: most delete without
    /// comparing the owner. Without a response it is released as on drop.
    fn release(mut self: Box<Self>) -> BoxFuture<'static, Released> {
        async move {
            let outcome = (self.kind.release)(&self.commands).await;
            self.release_on_drop = outcome.is_err();
            match outcome {
                Ok(true) => Released::Held,
                Ok(false) => Released::Lost,
                Err(_) => Released::Unknown,
            }
        }
        .boxed()
    }

    fn leave_to_expire(mut self: Box<Self>) {
        self.release_on_drop = false;
    }
}

impl Drop for TeachingLease {
    fn drop(&mut self) {
        if !self.release_on_drop || !self.kind.is_ever_deleted {
            return;
        }

        let redis = self.commands.redis.for_release();
        let key = std::mem::take(&mut self.commands.key);
        let owner = std::mem::take(&mut self.commands.owner);
        tokio::spawn(async move { redis.delete_if(&key, &owner).await });
    }
}

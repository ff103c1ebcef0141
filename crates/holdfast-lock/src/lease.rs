//! What a process knows of the leases that it holds: until when each lasts, which events an
//! observer receives, and what is released when the locks are closed. The fenced lock's actors
//! know their own.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::monotonic_us;
use crate::observer::{Event, Observer, Source};
use crate::{Error, LockKind, Redis, Released};

/// The deadline of a lock that does not expire.
pub(crate) const NEVER_US: u64 = u64::MAX;

/// The leases of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Leases(Arc<Internals>);

#[derive(Debug)]
struct Internals {
    observer: Option<Arc<dyn Observer>>,
    closing: CancellationToken,
    /// Releases in the background.
    releases: TaskTracker,
    /// By their owners' values.
    held: Mutex<HashMap<String, Arc<dyn Closable>>>,
}

/// A lease that can be released while its guard exists.
pub(crate) trait Closable: fmt::Debug + Send + Sync {
    fn close(&self) -> Pin<Box<dyn Future<Output = Released> + Send + '_>>;
}

impl Leases {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self(Arc::new(Internals {
            observer,
            closing: CancellationToken::new(),
            releases: TaskTracker::new(),
            held: Mutex::default(),
        }))
    }

    pub(crate) fn observe(&self, event: Event) {
        if let Some(observer) = &self.0.observer {
            observer.observe(event);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closing.is_cancelled()
    }

    /// Runs `acquiring`, which is cancel safe, until the locks are closed.
    pub(crate) async fn unless_closed<T>(
        &self,
        acquiring: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.0.closing.cancelled() => Err(Error::Closed),
            acquired = acquiring => acquired,
        }
    }

    /// Lets `close` release a lease; fails if the locks are closed by now.
    pub(crate) fn add(&self, owner: &str, lease: Arc<dyn Closable>) -> Result<(), Error> {
        // Under this lock, `close` is either before it, and seen, or after it, and finds the lease.
        let mut held = self.0.held.lock();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        held.insert(owner.to_owned(), lease);
        Ok(())
    }

    pub(crate) fn remove(&self, owner: &str) {
        let removed = self.0.held.lock().remove(owner);
        drop(removed);
    }

    /// Releases in the background; `close` waits for it.
    pub(crate) fn spawn_release<F>(&self, redis: &Redis, release: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        redis.spawn(self.0.releases.track_future(release))
    }

    /// Ends all acquisitions. None succeeds from now on.
    pub(crate) fn end_acquisitions(&self) {
        let _held = self.0.held.lock();
        self.0.closing.cancel();
    }

    /// Releases all leases, and waits for the releases in the background.
    pub(crate) async fn close(&self) -> Released {
        let held = std::mem::take(&mut *self.0.held.lock());
        let results = join_all(held.values().map(|lease| lease.close())).await;

        self.0.releases.close();
        self.0.releases.wait().await;
        all_of(results)
    }
}

/// Returns `Held` if all were, else the worst of the others.
pub(crate) fn all_of(results: impl IntoIterator<Item = Released>) -> Released {
    results.into_iter().fold(Released::Held, |all, next| match (all, next) {
        (Released::Unknown, _) | (_, Released::Unknown) => Released::Unknown,
        (Released::Lost, _) | (_, Released::Lost) => Released::Lost,
        _ => Released::Held,
    })
}

/// One acquisition without a fence: from when and until when, and whether its end was observed.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    kind: LockKind,
    acquired_us: u64,
    /// On the machine's monotonic clock; 0 after the lease was lost or given up.
    deadline_us: AtomicU64,
    ended: AtomicBool,
    leases: Leases,
}

impl LeaseRecord {
    /// Records an acquisition that was asked for at `asked_us`.
    pub(crate) fn new(leases: &Leases, kind: LockKind, asked_us: u64, deadline_us: u64) -> Self {
        let acquired_us = monotonic_us();
        let waited = Duration::from_micros(acquired_us.saturating_sub(asked_us));
        leases.observe(Event::Acquired { kind, source: Source::Free, waited });
        Self {
            kind,
            acquired_us,
            deadline_us: AtomicU64::new(deadline_us),
            ended: AtomicBool::new(false),
            leases: leases.clone(),
        }
    }

    /// Returns the time that is left, by this machine's clock; `None` if the lock does not expire.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self.deadline_us.load(Ordering::Acquire) {
            NEVER_US => None,
            end_us => Some(Duration::from_micros(end_us.saturating_sub(monotonic_us()))),
        }
    }

    pub(crate) fn record_renewal(&self, deadline_us: u64) {
        // The response may come after the release.
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        self.deadline_us.store(deadline_us, Ordering::Release);
        self.leases.observe(Event::Renewed { kind: self.kind });
    }

    pub(crate) fn record_loss(&self) {
        self.end(|kind, held| Event::Lost { kind, held });
    }

    pub(crate) fn record_release(&self, released: Released) {
        self.end(|kind, held| match released {
            Released::Lost => Event::Lost { kind, held },
            Released::Held => Event::Released { kind, held, confirmed: true },
            Released::Unknown => Event::Released { kind, held, confirmed: false },
        });
    }

    pub(crate) fn record_leaving(&self) {
        self.end(|kind, held| Event::LeftToExpire { kind, held });
    }

    fn end(&self, event: impl FnOnce(LockKind, Duration) -> Event) {
        self.deadline_us.store(0, Ordering::Release);
        if !self.ended.swap(true, Ordering::AcqRel) {
            let held = monotonic_us().saturating_sub(self.acquired_us);
            self.leases.observe(event(self.kind, Duration::from_micros(held)));
        }
    }
}

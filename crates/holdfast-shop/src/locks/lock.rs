//! The table of locks: each is one of `holdfast-lock`, a teaching lock, or the queue.

use futures_util::FutureExt as _;
use holdfast_lock::{LockKind, Wait};

use super::teaching_lock::TeachingLock;
use super::{check_then_del, expire_only, setnx, setnx_expire, ttl};

/// Which lock excludes other holders of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    Local,
    Setnx,
    SetnxExpire,
    Ttl,
    CheckThenDel,
    ExpireOnly,
    Owner,
    Watchdog,
    Redlock,
    Fenced,
    /// A bounded queue in this process with one consumer per key.
    Queue,
}

/// The code that acquires a lock.
pub(super) enum Provider {
    Library(LockKind),
    Teaching(TeachingLock),
    Queue,
}

macro_rules! teaching {
    ($module:ident) => {
        Provider::Teaching(TeachingLock {
            acquire: |lock| $module::acquire(lock).boxed(),
            release: |lock| $module::release(lock).boxed(),
            is_ever_deleted: true,
        })
    };
}

impl Lock {
    pub(super) fn provider(self) -> Provider {
        match self {
            Lock::Local => Provider::Library(LockKind::Local),
            Lock::Setnx => teaching!(setnx),
            Lock::SetnxExpire => teaching!(setnx_expire),
            Lock::Ttl => teaching!(ttl),
            Lock::CheckThenDel => teaching!(check_then_del),
            Lock::ExpireOnly => Provider::Teaching(TeachingLock {
                acquire: |lock| expire_only::acquire(lock).boxed(),
                release: |lock| expire_only::release(lock).boxed(),
                is_ever_deleted: false,
            }),
            Lock::Owner => Provider::Library(LockKind::Owner),
            Lock::Watchdog => Provider::Library(LockKind::Watchdog),
            Lock::Redlock => Provider::Library(LockKind::Quorum),
            Lock::Fenced => Provider::Library(LockKind::Fenced),
            Lock::Queue => Provider::Queue,
        }
    }

    pub fn is_teaching(self) -> bool {
        matches!(self.provider(), Provider::Teaching(_))
    }

    pub fn needs_redis(self) -> bool {
        match self.provider() {
            Provider::Library(kind) => kind.needs_redis(),
            Provider::Teaching(_) => true,
            Provider::Queue => false,
        }
    }

    /// Returns the wait modes of this lock; the first is its default.
    pub fn wait_modes(self) -> &'static [Wait] {
        match self.provider() {
            Provider::Library(kind) => kind.wait_modes(),
            // As their correct counterparts: a textbook lease polls, a lock in the process queues.
            Provider::Teaching(_) => LockKind::Owner.wait_modes(),
            Provider::Queue => LockKind::Local.wait_modes(),
        }
    }
}

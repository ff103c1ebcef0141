//! The audits of a replica: the books on every page, audits of items, and the whole audit.
//!
//! Guarantees: whatever the number of requests, a replica has one query of the books, one audit per
//! item, and one whole audit under way. Audits have pools of their own, so orders never wait for
//! their connections, nor the whole audit for those of items.
//! Fails with `overloaded` if the pool is in use, or an item's ledger takes longer than
//! [`ITEM_TIMEOUT`].
//! Tests: `tests/it/reports.rs`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::super::{Error, Sku};
use super::{
    AUDIT_TIMEOUT, AuditProgress, AuditReport, ItemAudit, StockConservation, check_all,
    check_item_within, conservation,
};
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::locks::ShopLocks;
use crate::tasks::Tasks;

/// Connections for the audits of items.
const ITEM_CONNECTIONS: u32 = 2;

/// Timeout of a statement that any visitor may cause: half of a request's time.
const ITEM_TIMEOUT: Duration = Duration::from_secs(4);

/// Time for which the result of an audit waits for the client that was told to ask again.
const RESULT_LIFETIME: Duration = Duration::from_mins(1);

/// The audits of one process, and their connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Audits {
    books: Coalescer<(), (), Arc<StockConservation>, Error>,
    items: Coalescer<Sku, (), Option<ItemAudit>, Error>,
    /// Has one connection, for the whole audit, which takes minutes.
    audit_pool: Pool,
    locks: ShopLocks,
    tasks: Tasks,
    /// The audit that runs, or whose result waits for its client.
    audit: Arc<Mutex<Option<watch::Receiver<AuditState>>>>,
}

/// The state of a whole audit.
#[derive(Debug, Clone)]
enum AuditState {
    Running(AuditProgress),
    /// It ended, at that time.
    Ended(Result<Arc<AuditReport>, Error>, Instant),
}

/// The whole audit, or its progress.
#[derive(Debug, Clone)]
pub enum AuditStatus {
    Running(AuditProgress),
    Done(Arc<AuditReport>),
}

impl Audits {
    /// Creates the audits of this process. Must be called on the main runtime.
    pub fn new(shop_pool: &Pool, locks: &ShopLocks, tasks: &Tasks) -> Self {
        let audit_pool = shop_pool.with_session_timeout(1, AUDIT_TIMEOUT);
        let items_pool = shop_pool.with_session_timeout(ITEM_CONNECTIONS, ITEM_TIMEOUT);
        let books_pool = shop_pool.clone();
        let books = Coalescer::new(tasks, move |(), requests: Vec<()>| {
            let pool = books_pool.clone();
            async move {
                let books = conservation::conservation(&pool).await?;
                let books = Arc::new(books);
                Ok(vec![books; requests.len()])
            }
        });
        let items = Coalescer::new(tasks, move |sku, requests: Vec<()>| {
            let pool = items_pool.clone();
            async move {
                let audit = check_item_within(&pool, &sku, ITEM_TIMEOUT).await?;
                Ok(vec![audit; requests.len()])
            }
        });
        let (locks, tasks) = (locks.clone(), tasks.clone());
        Self { books, items, audit_pool, locks, tasks, audit: Arc::default() }
    }

    /// Returns the figures of the whole shop.
    pub async fn books(&self) -> Result<Arc<StockConservation>, Error> {
        self.books.look_up((), ()).await
    }

    /// Audits one item; `None` if it does not exist.
    pub async fn item(&self, sku: Sku) -> Result<Option<ItemAudit>, Error> {
        self.items.look_up(sku, ()).await
    }

    /// Waits up to `wait` for the audit that runs, or for a new one. If it does not end, it goes
    /// on, and its result is that of a later call.
    pub async fn whole_audit(&self, wait: Duration) -> Result<AuditStatus, Error> {
        let mut audit = self.running_or_new();
        let is_over = |state: &AuditState| matches!(state, AuditState::Ended(..));
        let ended = timeout(wait, audit.wait_for(is_over)).await.map(|state| state.map(drop));
        let state = audit.borrow().clone();
        let result = match (ended, state) {
            (Err(_), AuditState::Running(progress)) => return Ok(AuditStatus::Running(progress)),
            (_, AuditState::Ended(result, _)) => result,
            (Ok(_), AuditState::Running(_)) => {
                Err(Error::Bug("the task of an audit panicked".to_owned()))
            }
        };
        let mut current = self.audit.lock();
        if current.as_ref().is_some_and(|other| other.same_channel(&audit)) {
            *current = None;
        }
        result.map(AuditStatus::Done)
    }

    fn running_or_new(&self) -> watch::Receiver<AuditState> {
        let mut current = self.audit.lock();
        let audit = current.as_ref().filter(|audit| match &*audit.borrow() {
            AuditState::Running(_) => true,
            AuditState::Ended(_, at) => at.elapsed() < RESULT_LIFETIME,
        });
        audit.cloned().unwrap_or_else(|| current.insert(self.start_audit()).clone())
    }

    fn start_audit(&self) -> watch::Receiver<AuditState> {
        let (state, audit) = watch::channel(AuditState::Running(AuditProgress::start()));
        let (pool, locks) = (self.audit_pool.clone(), self.locks.clone());
        // It only reads: a shutdown does not wait for it.
        self.tasks.runtime.spawn(async move {
            let report = |progress| {
                state.send_replace(AuditState::Running(progress));
            };
            let result = check_all(&pool, Some(&locks), report).await.map(Arc::new);
            state.send_replace(AuditState::Ended(result, Instant::now()));
        });
        audit
    }
}

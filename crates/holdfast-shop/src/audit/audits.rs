//! The audits of a replica: the books on every page, audits of items, and the whole audit.
//!
//! Guarantees: for any number of requests, a replica has one query of the books, one audit per
//! item, and one whole audit under way; orders never wait for their connections. Fails with
//! `overloaded` if they are in use, or an item's ledger takes longer than [`ITEM_TIMEOUT`].
//! Tests: `tests/it/reports.rs`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::{Error, Sku};
use super::{
    AUDIT_TIMEOUT, AuditProgress, AuditReport, ItemAudit, StockConservation, check_all,
    check_item_within, conservation,
};
use crate::coalesce::Coalescer;
use crate::db::Pool;
use crate::locks::ShopLocks;
use crate::strategy::data_path::DataPaths;
use crate::tasks::Tasks;

const ITEM_CONNECTIONS: u32 = 2;

/// Timeout of a statement that any visitor may cause: half of a request's time.
const ITEM_TIMEOUT: Duration = Duration::from_secs(4);

/// Time for which the result of an audit waits for the client, which was asked to come back.
const RESULT_LIFETIME: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub struct Audits {
    books: Coalescer<(), (), Arc<StockConservation>>,
    items: Coalescer<Sku, (), Option<ItemAudit>>,
    /// Has one connection, for the whole audit, which takes minutes.
    audit_pool: Pool,
    locks: ShopLocks,
    /// The audit that runs, or whose result waits for its client.
    audit: Arc<Mutex<Option<AuditReceiver>>>,
}

#[derive(Debug, Clone)]
pub enum AuditStatus {
    Running(AuditProgress),
    Done(Arc<AuditReport>),
}

/// Its sender is dropped once no client is expected to ask for the result.
type AuditReceiver = watch::Receiver<Result<AuditStatus, Error>>;

fn is_running(state: &Result<AuditStatus, Error>) -> bool {
    matches!(state, Ok(AuditStatus::Running(_)))
}

impl Audits {
    pub fn new(shop_pool: &Pool, locks: &ShopLocks, tasks: &Tasks, data_paths: &DataPaths) -> Self {
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

        let data_paths = data_paths.clone();
        let items = Coalescer::new(tasks, move |sku: Sku, requests: Vec<()>| {
            let (pool, data_paths) = (items_pool.clone(), data_paths.clone());
            async move {
                let mut audit = check_item_within(&pool, &sku, ITEM_TIMEOUT).await?;
                if let Some(of_rows) = audit {
                    audit = Some(data_paths.audit(&sku, of_rows).await);
                }
                Ok(vec![audit; requests.len()])
            }
        });

        Self { books, items, audit_pool, locks: locks.clone(), audit: Arc::default() }
    }

    pub async fn books(&self) -> Result<Arc<StockConservation>, Error> {
        self.books.look_up((), ()).await
    }

    pub async fn item(&self, sku: Sku) -> Result<Option<ItemAudit>, Error> {
        self.items.look_up(sku, ()).await
    }

    /// Waits up to `wait` for the audit that runs, or for a new one. If it does not end, it goes
    /// on, and its result is that of a later call.
    pub async fn whole_audit(&self, wait: Duration) -> Result<AuditStatus, Error> {
        let mut audit = self.running_or_new();
        let ended = timeout(wait, audit.wait_for(|state| !is_running(state))).await;
        if ended.is_ok_and(|state| state.is_err()) {
            return Err(Error::Bug("the task of an audit panicked".to_owned()));
        }

        let status = audit.borrow().clone();
        // Its result has a reader, so the next call starts a new one; unless that has begun
        // already.
        let mut current = self.audit.lock();
        if !is_running(&status) && current.as_ref().is_some_and(|other| other.same_channel(&audit))
        {
            *current = None;
        }

        status
    }

    fn running_or_new(&self) -> AuditReceiver {
        let mut current = self.audit.lock();
        let audit = current.as_ref().filter(|audit| audit.has_changed().is_ok());
        audit.cloned().unwrap_or_else(|| current.insert(self.start_audit()).clone())
    }

    fn start_audit(&self) -> AuditReceiver {
        let (state, audit) = watch::channel(Ok(AuditStatus::Running(AuditProgress::start())));
        let pool = self.audit_pool.clone();
        let locks = self.locks.clone();

        // It only reads: a shutdown does not wait for it.
        tokio::spawn(async move {
            let checking = check_all(&pool, Some(&locks), |progress| {
                let _ = state.send_replace(Ok(AuditStatus::Running(progress)));
            });
            let result = checking.await;
            let _ = state.send_replace(result.map(|report| AuditStatus::Done(Arc::new(report))));
            sleep(RESULT_LIFETIME).await;
        });
        audit
    }
}

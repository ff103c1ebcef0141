//! What the judge sees of the statements of a service, and what it does with their answers: it
//! delays them, and strikes the instance that waits for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use holdfast_lock::clock::monotonic_us;
use holdfast_services::{Exchange, Watcher};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use strum::IntoStaticStr;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::sql::{Access, access};
use super::steps::Steps;

/// How long an answer is delayed, in milliseconds.
const SLOW_MS: std::ops::RangeInclusive<u64> = 5..=20;
/// A transaction without a statement for so long is open no more: it is not seen that a connection
/// is closed.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// All links of a service.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The tables that have the stock, in lower case.
    tables: Mutex<Vec<String>>,
    seen: Mutex<Vec<Seen>>,
    last_us: AtomicU64,
    /// Chooses the delays, if there are any.
    delays: Mutex<Option<StdRng>>,
    armed: Mutex<Option<(Aim, oneshot::Sender<Strike>)>>,
    /// Passes the statements of two requests one at a time.
    pub(super) steps: Steps,
    /// Connections whose transaction has written the stock.
    writing: Mutex<HashSet<(usize, u64)>>,
}

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) instance: usize,
    pub(super) exchange: Exchange,
}

/// The answer at which an instance is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Aim {
    Read,
    Write,
    Commit,
}

impl Aim {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Commit];
}

/// An instance whose statement was answered. It does not know the answer yet.
#[derive(Debug)]
pub(super) struct Strike {
    pub(super) instance: usize,
    /// Lets the answer go on, or not.
    pub(super) go: oneshot::Sender<bool>,
}

impl Watch {
    pub(super) fn set_tables(&self, tables: Vec<String>) {
        *self.tables.lock() = tables;
    }

    fn note_time(&self) {
        self.last_us.store(monotonic_us(), Ordering::Relaxed);
    }

    /// Begins a run: forgets what was seen.
    pub(super) fn begin(&self, delay_seed: Option<u64>) {
        self.seen.lock().clear();
        self.writing.lock().clear();
        *self.delays.lock() = delay_seed.map(StdRng::seed_from_u64);
    }

    /// Strikes at the next such answer; that is told to the receiver.
    pub(super) fn arm(&self, aim: Aim) -> oneshot::Receiver<Strike> {
        let (sender, strike) = oneshot::channel();
        *self.armed.lock() = Some((aim, sender));
        strike
    }

    pub(super) fn disarm(&self) {
        *self.armed.lock() = None;
    }

    /// Returns what was seen since the run began, by the time of the answers.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Returns the time since the last statement or answer; none while a transaction is open that
    /// has written the stock. One that has only read may stay open for ever in a pool.
    pub(super) fn quiet_for(&self) -> Duration {
        let last = self.last_us.load(Ordering::Relaxed);
        let quiet = Duration::from_micros(monotonic_us().saturating_sub(last));
        let is_open = quiet < OPEN_TIMEOUT && !self.writing.lock().is_empty();
        if is_open { Duration::ZERO } else { quiet }
    }

    /// Returns what an exchange does with the stock: the strongest of its statements.
    fn access(&self, exchange: &Exchange) -> Option<Access> {
        let tables = self.tables.lock();
        let statements = exchange.statements.iter().filter(|it| it.error.is_none());
        statements.filter_map(|statement| access(&statement.text, &tables)).max()
    }

    /// Returns whom to tell of an answer, if it is the one that is aimed at.
    fn take_aim(&self, instance: usize, exchange: &Exchange) -> Option<oneshot::Sender<Strike>> {
        let access = self.access(exchange);
        let connection = (instance, exchange.connection);
        let mut writing = self.writing.lock();
        if access == Some(Access::Write) {
            writing.insert(connection);
        }
        let has_written = writing.contains(&connection);
        let is_commit = has_written && !exchange.in_transaction;
        if !exchange.in_transaction {
            writing.remove(&connection);
        }

        let mut armed = self.armed.lock();
        let is_aimed_at = match armed.as_ref()?.0 {
            Aim::Read => access == Some(Access::Read) && !has_written,
            Aim::Write => access == Some(Access::Write),
            Aim::Commit => is_commit,
        };
        armed.take_if(|_| is_aimed_at).map(|(_, strike)| strike)
    }
}

/// The link of an instance.
#[derive(Debug)]
pub(super) struct LinkWatch {
    pub(super) watch: Arc<Watch>,
    pub(super) instance: usize,
}

impl Watcher for LinkWatch {
    fn sent(&self, exchanges: Vec<Exchange>) -> BoxFuture<'_, bool> {
        self.watch.note_time();
        let held = self.watch.steps.hold(self.instance, &exchanges);
        Box::pin(async {
            if let Some(held) = held {
                // Without a word the schedule is over.
                let _ = held.await;
            }
            true
        })
    }

    fn answered(&self, exchange: Exchange) -> BoxFuture<'_, bool> {
        self.watch.note_time();
        let instance = self.instance;
        self.watch.steps.answered(instance, &exchange);
        let strike = self.watch.take_aim(instance, &exchange);
        let delay = self.watch.delays.lock().as_mut().map(|random| random.random_range(SLOW_MS));
        self.watch.seen.lock().push(Seen { instance, exchange });

        Box::pin(async move {
            if let Some(delay) = delay {
                sleep(Duration::from_millis(delay)).await;
            }
            let Some(strike) = strike else { return true };
            let (go, goes) = oneshot::channel();
            let goes_on = match strike.send(Strike { instance, go }) {
                // Without an answer the judge has ended.
                Ok(()) => goes.await.unwrap_or(true),
                Err(_) => true,
            };
            if !goes_on {
                // The instance was killed, and its transactions are over.
                self.watch.writing.lock().retain(|(other, _)| *other != instance);
            }
            goes_on
        })
    }
}

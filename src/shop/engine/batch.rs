//! The commands of a batch, the decisions on them, and the ways in which an attempt can end.

use std::sync::Arc;

use futures_util::future::join_all;
use holdfast_lock::LockKey;
use tokio::time::{Instant, timeout_at};
use tracing::Span;

use super::entry::{BatchEntry, EntryResult};
use super::locks::AcquiredLocks;
use super::session::DatabaseSession;
use crate::probe::{Point, Probe, ProbedValue};
use crate::shop::Shop;
use crate::shop::command::changes::Changes;
use crate::shop::command::state::ShopState;
use crate::shop::failure::{Error, Failure};
use crate::shop::store::{BatchWrite, CommandWrite};
use crate::shop::strategy::Strategy;

/// Commands that are executed together, under the same locks, with one read and one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) shop: &'a Shop,
    pub(super) strategy: &'static Strategy,
    pub(super) entries: &'a [BatchEntry<'a>],
}

#[derive(Debug)]
pub(super) struct BatchDecision {
    pub before: ShopState,
    pub after: ShopState,
    pub writes: Vec<CommandWrite>,
    pub results: Vec<EntryResult>,
}

impl BatchDecision {
    pub fn value_before(&self, position: usize, key: &LockKey) -> Option<i64> {
        if let Some(write) = self.writes.iter().find(|write| write.position == position) {
            return values(&write.changes, key).map(|(before, _)| before);
        }
        let mut items = self.before.items.iter();
        let item = items.find(|(sku, _)| sku.lock_key() == *key).map(|(_, item)| item.stock);
        let mut accounts = self.before.accounts.iter();
        let mut account = || accounts.find(|(user, _)| user.lock_key() == *key);
        item.or_else(|| account().map(|(_, account)| account.balance_cents))
    }
}

/// Returns the value of `key` before the first and after the last of a command's changes.
pub(super) fn values(changes: &Changes, key: &LockKey) -> Option<(i64, i64)> {
    let stock = changes.stock.iter().filter(|change| change.key.lock_key() == *key);
    let balance = changes.balance.iter().filter(|change| change.key.lock_key() == *key);
    let stock = stock.map(|change| (change.before, change.after()));
    let balance = balance.map(|change| (change.before, change.after()));
    stock.chain(balance).reduce(|(first, _), (_, last)| (first, last))
}

#[derive(Debug)]
pub(super) enum LockState {
    Held,
    /// Lost: another holder wrote.
    Lost,
    /// To be left to expire: Postgres is unavailable, and the write may still arrive and would undo
    /// that of the next holder. Queued commands are rejected.
    LeaveToExpire(Error),
    /// Held, but Postgres is unavailable: queued commands are rejected without another timeout.
    HeldInOutage(Error),
}

pub(super) enum AttemptError {
    /// Nothing was written; or rejected, by a rule that only the write could check.
    Failed(Failure),
    /// The rows with higher fences than their locks: their keys and fences.
    StaleFences(Vec<(LockKey, i64)>),
    /// The write was sent, and its result did not arrive. With the result of each command if the
    /// write is done.
    UnknownOutcome(Error, Arc<BatchWrite>, Vec<EntryResult>),
}

impl<E: Into<Failure>> From<E> for AttemptError {
    fn from(failure: E) -> Self {
        AttemptError::Failed(failure.into())
    }
}

impl AttemptError {
    /// Ends the session of a statement that failed before it changed anything.
    pub(super) async fn after(session: DatabaseSession, failure: Failure) -> Self {
        match &failure {
            Failure::Rejected(_) => session.end_without_commit().await,
            Failure::Error(error) => session.end_failed(error).await,
        }
        AttemptError::Failed(failure)
    }
}

impl<'a> Batch<'a> {
    pub(super) fn positions(&self) -> impl Iterator<Item = (usize, BatchEntry<'a>)> + use<'a> {
        self.entries.iter().copied().enumerate()
    }

    pub(super) fn written(
        &self,
        write: &BatchWrite,
    ) -> impl Iterator<Item = (usize, BatchEntry<'a>)> {
        write.commands.iter().map(|command| (command.position, self.entries[command.position]))
    }

    /// Returns whether it changes lab items. A batch has one key, so all of its commands do or
    /// none.
    pub(super) fn is_in_lab(&self) -> bool {
        self.entries.iter().any(|entry| entry.options.in_lab)
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = &'a Span> + use<'a> {
        self.entries.iter().map(|entry| entry.stage)
    }

    pub(super) fn fail_all(&self, failure: impl Into<Failure>) -> Vec<EntryResult> {
        let failure = failure.into();
        self.entries.iter().map(|_| Err(failure.clone())).collect()
    }

    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        timeout_at(self.deadline(), work).await.map_err(|_| Error::deadline_passed())
    }

    pub(super) fn deadline(&self) -> Instant {
        let deadlines = self.entries.iter().map(|entry| entry.options.deadline);
        deadlines.max().unwrap_or_else(Instant::now)
    }
}

pub(super) async fn pass_point<'e>(
    entries: impl Iterator<Item = (usize, BatchEntry<'e>)>,
    point: Point,
    locks: &AcquiredLocks,
    value: impl Fn(usize, &LockKey) -> Option<i64>,
) {
    let watched = entries.filter(|(_, entry)| matches!(entry.options.probe, Probe::Lab(_)));
    let passes = watched.map(|(at, entry)| {
        let keys = entry.command.reads().lock_keys().into_iter();
        let seen: Vec<ProbedValue> = keys
            .map(|key| ProbedValue {
                key: key.as_str().to_owned(),
                value: value(at, &key),
                fence: locks.guards.fence(&key),
            })
            .collect();
        async move { entry.options.probe.at(point, seen).await }
    });
    join_all(passes).await;
}

/// Begins a step of commands: a span below the stage of each, until the result is dropped.
pub(super) fn begin_step<'s>(
    stages: impl Iterator<Item = &'s Span>,
    span_below: impl Fn(&Span) -> Span,
) -> Vec<Span> {
    stages.map(span_below).filter(|span| !span.is_disabled()).collect()
}

//! The types of a batch: its entries, their results, and the ways in which an attempt can end.

use std::collections::HashMap;

use holdfast_lock::{Guards, LockKey};
use uuid::Uuid;

use super::session::DatabaseSession;
use crate::shop::RequestOptions;
use crate::shop::command::Command;
use crate::shop::command::changes::Changes;
use crate::shop::command::state::ShopState;
use crate::shop::failure::{Error, Execution, Failure, StoredResponse};
use crate::shop::idempotency::IdempotencyRequest;
use crate::shop::store::guard::{ChangedRows, GuardedRow, Protection};
use crate::shop::store::{BatchWrite, CommandWrite};
use crate::shop::strategy::Strategy;

/// One command of a batch, with its options.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchEntry<'a> {
    pub(super) command: &'a dyn Command,
    pub(super) options: &'a RequestOptions,
}

/// The result of one command.
pub(super) type EntryResult = Result<Execution, Failure>;

/// The state of the locks after a batch.
#[derive(Debug)]
pub(super) enum LockState {
    /// Held, as before.
    Held,
    /// Lost: another holder wrote.
    Lost,
    /// The write may still arrive, so the locks are left to expire.
    MayStillWrite,
    /// Held, but Postgres is unavailable: queued commands are rejected without another timeout.
    Unavailable(Error),
}

/// The reason why an attempt ended without results.
pub(super) enum AttemptError {
    /// Nothing was written.
    Failed(Error),
    /// The rows with higher fences than their locks: their keys and fences.
    StaleFences(Vec<(LockKey, i64)>),
    /// The write was sent, and its result did not arrive.
    UnknownOutcome(Error, Box<PendingWrite>),
}

impl<E: Into<Error>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        AttemptError::Failed(error.into())
    }
}

/// A write that was sent and whose result did not arrive.
pub(super) struct PendingWrite {
    pub row: Option<GuardedRow>,
    /// The result of each command if the write is done.
    pub results: Vec<EntryResult>,
    /// The positions of the commands in the write.
    pub written: Vec<usize>,
}

pub(super) fn collect_results(
    results: Vec<Option<EntryResult>>,
) -> Result<Vec<EntryResult>, AttemptError> {
    let missing =
        || AttemptError::Failed(Error::Bug("a command of a batch got no result".to_owned()));
    results.into_iter().map(|result| result.ok_or_else(missing)).collect()
}

/// Ends the session of a failed statement: rolls it back, so that its connection can be reused, or
/// closes it if Postgres is unavailable.
pub(super) async fn end_failed_session(session: DatabaseSession, error: &Error) {
    match error {
        Error::Unavailable { .. } => drop(session),
        _ => session.abandon().await,
    }
}

/// The decisions of a batch: the state before and after them, and the changes to write.
#[derive(Debug)]
pub(super) struct BatchDecision {
    pub before: ShopState,
    pub after: ShopState,
    /// Changes and responses by the position of their command.
    pub changes: HashMap<usize, (Changes, StoredResponse)>,
}

impl BatchDecision {
    pub fn value_before(&self, at: usize, key: &LockKey) -> Option<i64> {
        match self.changes.get(&at) {
            Some((changes, _)) => values(changes, key).map(|(before, _)| before),
            None => self.value_read(key),
        }
    }

    pub fn value_after(&self, at: usize, key: &LockKey) -> Option<i64> {
        values(&self.changes.get(&at)?.0, key).map(|(_, after)| after)
    }

    fn value_read(&self, key: &LockKey) -> Option<i64> {
        let mut items = self.before.items.iter();
        let item = items.find(|(sku, _)| sku.lock_key() == *key).map(|(_, item)| item.stock);
        let mut accounts = self.before.accounts.iter();
        let mut account = || accounts.find(|(user, _)| user.lock_key() == *key);
        item.or_else(|| account().map(|(_, account)| account.balance_cents))
    }

    /// Returns the positions of the commands with changes, in order.
    pub fn written_positions(&self) -> Vec<usize> {
        let mut written: Vec<usize> = self.changes.keys().copied().collect();
        written.sort_unstable();
        written
    }
}

/// A write that is ready to be sent, alone or in a group.
#[derive(Debug)]
pub(super) struct ReadyWrite {
    pub decision: BatchDecision,
    pub rows: ChangedRows,
    /// The commands with changes: position, idempotency key and request id.
    commands: Vec<(usize, IdempotencyRequest, Uuid)>,
}

impl ReadyWrite {
    /// Prepares a write; fails with [`Error::Bug`] if the locks do not cover a row.
    pub fn new(
        strategy: &'static Strategy,
        guards: &Guards,
        entries: &[BatchEntry<'_>],
        decision: BatchDecision,
    ) -> Result<Self, Error> {
        let exclusion = strategy.exclusion(guards);
        let protection = Protection::new(strategy, &exclusion);
        let rows = ChangedRows::between(&decision.before, &decision.after, protection)?;
        let command = |at: usize| {
            let BatchEntry { command, options } = entries[at];
            (at, command.idempotency().clone(), options.request_id)
        };
        let commands = decision.written_positions().into_iter().map(command).collect();
        Ok(Self { decision, rows, commands })
    }

    pub fn len(&self) -> usize {
        self.commands.len()
    }

    pub fn batch_write(&self) -> BatchWrite<'_> {
        let writes = self.commands.iter().filter_map(|(at, idempotency, request_id)| {
            let (changes, response) = self.decision.changes.get(at)?;
            Some(CommandWrite { idempotency, changes, response, request_id: *request_id })
        });
        BatchWrite { rows: &self.rows, now: self.decision.before.now, writes: writes.collect() }
    }
}

/// Returns the value of `key` before the first and after the last of a command's changes.
fn values(changes: &Changes, key: &LockKey) -> Option<(i64, i64)> {
    let stock = changes.stock.iter().filter(|change| change.sku.lock_key() == *key);
    let stock = stock.map(|change| (change.before, change.before + change.delta));
    let balance = changes.balance.iter().filter(|change| change.user.lock_key() == *key);
    let balance = balance.map(|change| (change.before, change.before + change.delta));
    stock.chain(balance).reduce(|(first, _), (_, last)| (first, last))
}

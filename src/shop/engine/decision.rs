//! The commands of a batch, and the decisions on them.

use holdfast_lock::LockKey;

use tracing::Span;

use crate::shop::RequestOptions;
use crate::shop::command::Command;
use crate::shop::command::changes::Changes;
use crate::shop::command::state::ShopState;
use crate::shop::failure::{Execution, Failure};
use crate::shop::store::CommandWrite;

/// One command of a batch, with its options.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchEntry<'a> {
    pub(super) command: &'a dyn Command,
    pub(super) options: &'a RequestOptions,
    /// The span of its stage.
    pub(super) stage: &'a Span,
}

/// The result of one command.
pub(super) type EntryResult = Result<Execution, Failure>;

/// The decisions of a batch: the state before and after them, and what is to be written.
#[derive(Debug)]
pub(super) struct BatchDecision {
    pub before: ShopState,
    pub after: ShopState,
    /// The commands with changes, in order.
    pub writes: Vec<CommandWrite>,
    /// The result of each command, once the writes are done.
    pub results: Vec<EntryResult>,
}

impl BatchDecision {
    /// Returns the value on which the command at `position` was decided.
    pub fn value_before(&self, position: usize, key: &LockKey) -> Option<i64> {
        match self.writes.iter().find(|write| write.position == position) {
            Some(write) => values(&write.changes, key).map(|(before, _)| before),
            None => self.value_read(key),
        }
    }

    fn value_read(&self, key: &LockKey) -> Option<i64> {
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

//! The decision on a batch: pure, from what was read to what is to be written.

use holdfast_lock::{Guards, LockKey};

use super::entry::{AttemptError, BatchEntry, EntryResult};
use crate::command::changes::Changes;
use crate::command::state::ShopState;
use crate::failure::{Error, Execution};
use crate::store::changed_rows::ChangedRows;
use crate::store::{BatchWrite, CommandWrite};
use crate::strategy::exclusion::Exclusion;
use crate::strategy::{ReadMethod, Strategy};

#[derive(Debug)]
pub struct Decision {
    pub before: ShopState,
    pub after: ShopState,
    /// `None` if no command changes anything.
    pub write: Option<BatchWrite>,
    /// One per command, true once the write is done.
    pub results: Vec<EntryResult>,
}

/// Decides the commands in order, each on the state that the previous ones left. A command whose
/// key has a record already is not decided: it gets the result in `replayed`.
pub fn decide(
    entries: &[BatchEntry<'_>],
    strategy: &Strategy,
    guards: &Guards,
    mut before: ShopState,
    replayed: Vec<Option<EntryResult>>,
) -> Result<Decision, AttemptError> {
    let exclusion = strategy.exclusion(guards);
    // First: under a lock that is lost, nothing is answered, not even a rejection or a replay. The
    // client sends the command again.
    let stale = stale_fences(&exclusion, &before);
    if !stale.is_empty() {
        return Err(AttemptError::StaleFences(stale));
    }

    // Numbered ahead: the response of such a command contains its ledger entry.
    if let (Some(next), Some(entry)) = (&mut before.next_entry, entries.first()) {
        let mut keys = entry.command.reads().lock_keys().into_iter();
        next.fence = keys.find_map(|key| exclusion.fence(&key));
        next.request_id = entry.context.request_id;
    }

    // Both are kept: the rows to write are those that differ between them.
    let mut after = before.clone();
    let mut commands = Vec::new();
    let mut results = Vec::with_capacity(entries.len());
    for ((position, entry), replayed) in entries.iter().enumerate().zip(replayed) {
        if let Some(replayed) = replayed {
            results.push(replayed);
            continue;
        }
        let changes = match entry.command.decide(&mut after) {
            Ok(changes) => changes,
            Err(rejection) => {
                results.push(Err(rejection.into()));
                continue;
            }
        };

        // Stored with the changes, so that a duplicate gets the same bytes.
        let response = changes.stored_response()?;
        results.push(Ok(Execution::now(response.clone())));
        if !changes.is_empty() {
            commands.push(CommandWrite {
                position,
                idempotency: entry.command.idempotency().clone(),
                changes,
                response,
                request_id: entry.context.request_id,
            });
        }
    }
    if commands.is_empty() {
        return Ok(Decision { before, after, write: None, results });
    }

    let updates = strategy.read == ReadMethod::ConditionalUpdate
        && entries.first().is_some_and(|entry| entry.command.conditional_update().is_some());
    if updates && !all_updated(&before, &after) {
        // The conditional update found too little; the read after it found enough.
        return Err(Error::Conflict("the row changed since the update".to_owned()).into());
    }
    let rows = ChangedRows::between(&before, &after, strategy.guard, &exclusion)?;
    let write = BatchWrite { rows, now: before.now, commands, is_unread: false };
    Ok(Decision { before, after, write: Some(write), results })
}

/// Returns the rows with a higher fence than their lock: either the lease is stale, or Redis lost
/// its counter.
fn stale_fences(exclusion: &Exclusion<'_>, state: &ShopState) -> Vec<(LockKey, i64)> {
    let items = state.items.iter().map(|(sku, item)| (sku.lock_key(), item.fence));
    let accounts = state.accounts.iter().map(|(user, account)| (user.lock_key(), account.fence));
    items
        .chain(accounts)
        .filter(|(key, floor)| exclusion.fence(key).is_some_and(|fence| fence < *floor))
        .collect()
}

fn all_updated(before: &ShopState, after: &ShopState) -> bool {
    let mut items = after.items.iter();
    let mut accounts = after.accounts.iter();
    items.all(|(sku, now)| {
        before.items.get(sku).is_none_or(|was| was.is_updated || was.stock == now.stock)
    }) && accounts.all(|(user, now)| {
        before
            .accounts
            .get(user)
            .is_none_or(|was| was.is_updated || was.balance_cents == now.balance_cents)
    })
}

impl Decision {
    /// Returns the value of `key` on which a command was decided.
    pub fn value_before(&self, position: usize, key: &LockKey) -> Option<i64> {
        let mut writes = self.write.iter().flat_map(|write| &write.commands);
        if let Some(write) = writes.find(|write| write.position == position) {
            return values(&write.changes, key).map(|(before, _)| before);
        }

        let mut items = self.before.items.iter();
        if let Some((_, item)) = items.find(|(sku, _)| sku.lock_key() == *key) {
            return Some(item.stock);
        }
        let mut accounts = self.before.accounts.iter();
        let account = accounts.find(|(user, _)| user.lock_key() == *key);
        account.map(|(_, account)| account.balance_cents)
    }
}

/// Returns the value of `key` before the first and after the last of a command's changes.
pub fn values(changes: &Changes, key: &LockKey) -> Option<(i64, i64)> {
    let stock = changes.stock.iter().filter(|change| change.key.lock_key() == *key);
    let balance = changes.balance.iter().filter(|change| change.key.lock_key() == *key);
    let stock = stock.map(|change| (change.before, change.after()));
    let balance = balance.map(|change| (change.before, change.after()));
    stock.chain(balance).reduce(|(first, _), (_, last)| (first, last))
}

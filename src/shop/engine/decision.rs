//! The decisions of one batch: each command on what the ones before it left.

use std::collections::HashMap;

use super::batch::{Entry, EntryResult, Stop};
use super::locks::AcquiredLocks;
use super::session::Session;
use crate::lock::LockKey;
use crate::shop::command::changes::Changes;
use crate::shop::command::state::{BalanceSnapshot, State};
use crate::shop::failure::{Error, Executed, Failure, StoredResponse};
use crate::shop::store::read;
use crate::shop::strategy::{Read, Strategy};
use crate::shop::{Sku, UserId};

/// What a batch will write.
pub(super) struct Decided {
    pub before: State,
    pub after: State,
    /// By the position of the command.
    pub changes: HashMap<usize, (Changes, StoredResponse)>,
}

impl Decided {
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

    /// The positions of the commands that are written, in order.
    pub fn written(&self) -> Vec<usize> {
        let mut written: Vec<usize> = self.changes.keys().copied().collect();
        written.sort_unstable();
        written
    }
}

/// The first value and the last one of a command's changes of `key`.
fn values(changes: &Changes, key: &LockKey) -> Option<(i64, i64)> {
    let stock = changes.stock.iter().filter(|change| change.sku.lock_key() == *key);
    let stock = stock.map(|change| (change.before, change.before + change.delta));
    let balance = changes.balance.iter().filter(|change| change.user.lock_key() == *key);
    let balance = balance.map(|change| (change.before, change.before + change.delta));
    stock.chain(balance).reduce(|(first, _), (_, last)| (first, last))
}

/// Lets each command decide on what the ones before it left.
pub(super) async fn decide(
    session: &mut Session,
    strategy: &'static Strategy,
    locks: &AcquiredLocks,
    entries: &[Entry<'_>],
    mut before: State,
    results: &mut [Option<EntryResult>],
) -> Result<Decided, Stop> {
    check_fences(strategy, locks, &before)?;
    if strategy.locks_row_at_read() && !strategy.counts_with_read() {
        before.purchased = purchases(session, entries, &before).await?;
    }
    if let (Some(next), Some(entry)) = (&mut before.next_entry, entries.first()) {
        let mut keys = entry.command.reads().lock_keys().into_iter();
        next.fence = keys.find_map(|key| strategy.exclusion(&locks.guards).fence(&key));
        next.request_id = entry.options.request_id;
    }
    let mut after = before.clone();
    let mut changes = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if results[at].is_some() {
            continue;
        }
        match entry.command.decide(&mut after) {
            Ok(decided) => {
                let response = decided.response.stored()?;
                if decided.is_empty() {
                    results[at] = Some(Ok(Executed::now(response)));
                } else {
                    changes.insert(at, (decided, response));
                }
            }
            Err(rejection) => results[at] = Some(Err(rejection.into())),
        }
    }
    let reserves = strategy.read == Read::Reserve
        && entries.first().is_some_and(|entry| entry.command.reservation().is_some());
    if reserves && !changes.is_empty() && !all_reserved(&before, &after) {
        // There was too little, and by the decision there is enough.
        return Err(Error::Conflict("the row moved since the reservation".to_owned()).into());
    }
    Ok(Decided { before, after, changes })
}

/// Whether each row that changes was reserved.
fn all_reserved(before: &State, after: &State) -> bool {
    let mut items = after.items.iter();
    let mut accounts = after.accounts.iter();
    items.all(|(sku, now)| {
        before.items.get(sku).is_none_or(|was| was.reserved || was.stock == now.stock)
    }) && accounts.all(|(user, now)| {
        let same = |was: &BalanceSnapshot| was.balance_cents == now.balance_cents;
        before.accounts.get(user).is_none_or(|was| was.reserved || same(was))
    })
}

/// Rows that a holder with a higher fence has written: ours are stale, or Redis lost its counters.
fn check_fences(
    strategy: &'static Strategy,
    locks: &AcquiredLocks,
    state: &State,
) -> Result<(), Stop> {
    let exclusion = strategy.exclusion(&locks.guards);
    let items = state.items.iter().map(|(sku, item)| (sku.lock_key(), item.fence));
    let accounts = state.accounts.iter().map(|(user, account)| (user.lock_key(), account.fence));
    let is_stale =
        |(key, floor): &(LockKey, i64)| exclusion.fence(key).is_some_and(|fence| fence < *floor);
    let stale: Vec<(LockKey, i64)> = items.chain(accounts).filter(is_stale).collect();
    if stale.is_empty() { Ok(()) } else { Err(Stop::StaleFences(stale)) }
}

/// What each buyer has of the limited items, counted now.
async fn purchases(
    session: &mut Session,
    entries: &[Entry<'_>],
    state: &State,
) -> Result<HashMap<(Sku, UserId), i64>, Error> {
    let limited = state.items.iter().filter(|(_, item)| item.limit_per_user.is_some());
    let skus: Vec<&Sku> = limited.map(|(sku, _)| sku).collect();
    let buyers = entries.iter().filter_map(|entry| entry.command.reads().buyer);
    let asked: Vec<(Sku, UserId)> =
        buyers.flat_map(|user| skus.iter().map(move |sku| ((*sku).clone(), user))).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(read::count_purchases(session, &asked).await?)
}

/// Decides again, with what each buyer has: the rows are written, and so locked, by now. What was
/// just written is counted already.
pub(super) async fn over_limit(
    session: &mut Session,
    entries: &[Entry<'_>],
    decided: &Decided,
) -> Result<Option<Failure>, Error> {
    let mut purchased = purchases(session, entries, &decided.before).await?;
    if purchased.is_empty() {
        return Ok(None);
    }
    for (changes, _) in decided.changes.values() {
        let Some(order) = &changes.order else { continue };
        for line in &order.lines {
            if let Some(count) = purchased.get_mut(&(line.sku.clone(), order.user)) {
                *count -= line.quantity;
            }
        }
    }
    let mut state = State { purchased, ..decided.before.clone() };
    let mut again = entries.iter().map(|entry| entry.command.decide(&mut state));
    Ok(again.find_map(Result::err).map(Failure::from))
}

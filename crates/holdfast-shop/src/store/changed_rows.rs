//! The rows that a write changes, with their guards.

use holdfast_lock::LockKey;
use sqlx::PgConnection;

use crate::command::state::ShopState;
use crate::failure::Error;
use crate::strategy::WriteGuard;
use crate::strategy::exclusion::Exclusion;
use crate::{Sku, UserId};

#[derive(Debug, Default)]
pub struct ChangedRows {
    pub(super) items: Vec<GuardedRow<Sku>>,
    pub(super) accounts: Vec<GuardedRow<UserId>>,
}

impl ChangedRows {
    /// Returns the rows that differ between two states, sorted. The value of a row is that of
    /// `after`; its guard is the version of `before`. Fails with [`Error::Bug`] if the locks do not
    /// cover a row.
    pub fn between(
        before: &ShopState,
        after: &ShopState,
        guard: WriteGuard,
        exclusion: &Exclusion<'_>,
    ) -> Result<Self, Error> {
        // By the version and not by the value: a new price changes no stock, and must still make a
        // concurrent order read again.
        let mut items = Vec::new();
        for (sku, now) in after.items.iter().filter(|_| exclusion.writes_items()) {
            let was = before.items.get(sku).filter(|was| was.version != now.version);
            let Some(was) = was else { continue };
            items.push(GuardedRow {
                key: sku.clone(),
                version: (guard != WriteGuard::None).then_some(was.version),
                fence: fence(&sku.lock_key(), guard, exclusion)?,
                value: (!was.is_updated).then_some(now.stock),
                increment: now.version - was.version,
            });
        }

        let mut accounts = Vec::new();
        for (user, now) in &after.accounts {
            let was = before.accounts.get(user).filter(|was| was.version != now.version);
            let Some(was) = was else { continue };
            accounts.push(GuardedRow {
                key: *user,
                version: (guard != WriteGuard::None).then_some(was.version),
                fence: fence(&user.lock_key(), guard, exclusion)?,
                value: (!was.is_updated).then_some(now.balance_cents),
                increment: now.version - was.version,
            });
        }

        Ok(Self { items, accounts })
    }

    pub fn require_versions(&self) -> bool {
        let mut items = self.items.iter();
        items.all(|row| row.version.is_some())
            && self.accounts.iter().all(|row| row.version.is_some())
    }

    /// Raises the version of one of the rows, so that a write that arrives later matches no row.
    /// Waits for a write or a transaction that has locked the row.
    pub async fn invalidate(&self, db: &mut PgConnection) -> Result<(), Error> {
        // One row is enough: a statement writes all of its rows, or none if one does not match.
        if let Some(item) = self.items.first() {
            sqlx::query!(
                "update items set version = version + 1 where sku = $1",
                item.key.as_str()
            )
            .execute(db)
            .await?;
        } else if let Some(account) = self.accounts.first() {
            let user = account.key.0;
            sqlx::query!("update accounts set version = version + 1 where user_id = $1", user)
                .execute(db)
                .await?;
        } else {
            // Nothing could keep a late write from matching: its outcome stays unknown.
            return Err(Error::Bug("a write changed no row".to_owned()));
        }

        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct GuardedRow<K> {
    pub key: K,
    /// The version that the row must have; `None` without a condition.
    pub version: Option<i64>,
    /// The fence of the write, which must not be lower than the row's; `None` without a condition.
    pub fence: Option<i64>,
    /// The new value; `None` if the row was updated before the decision.
    pub value: Option<i64>,
    pub increment: i64,
}

pub(super) fn fence_of<K: PartialEq>(rows: &[GuardedRow<K>], key: &K) -> Option<i64> {
    rows.iter().find(|row| row.key == *key)?.fence
}

/// Returns the fence that the write of a row requires. Fails if the locks do not cover the row.
fn fence(
    lock: &LockKey,
    guard: WriteGuard,
    exclusion: &Exclusion<'_>,
) -> Result<Option<i64>, Error> {
    // Here at the latest: a write behind another row's lock would look like any other.
    exclusion.check(lock)?;

    match (guard, exclusion.fence(lock)) {
        (WriteGuard::VersionAndFence, None) => {
            Err(Error::Bug("a fenced write has no fence".to_owned()))
        }
        (WriteGuard::VersionAndFence, fence) => Ok(fence),
        (WriteGuard::None | WriteGuard::Version, _) => Ok(None),
    }
}

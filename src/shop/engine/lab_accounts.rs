//! Opens the lab account of a user who pays in the lab for the first time.
//!
//! Accounts that were opened once are remembered, up to [`MAX_KNOWN`]: none is ever deleted.
//! Tests: `tests/it/lab_accounts.rs`.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::db::Pool;
use crate::shop::UserId;
use crate::shop::failure::Error;
use crate::shop::store::accounts::{LAB_CENTS, open_lab_account};

/// Size at which the set is emptied.
const MAX_KNOWN: usize = 10_000;

/// The users whose lab accounts are known to be open. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LabAccounts {
    pool: Pool,
    known: Arc<Mutex<HashSet<UserId>>>,
}

impl LabAccounts {
    pub(super) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), known: Arc::default() }
    }

    /// Returns the user's lab account, which is open then.
    pub(super) async fn of(&self, owner: UserId) -> Result<UserId, Error> {
        if !self.known.lock().contains(&owner) {
            open_lab_account(&self.pool, owner, LAB_CENTS).await?;
            let mut known = self.known.lock();
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(owner);
        }
        Ok(owner.lab_account())
    }
}

//! A number of permits, of which one owner gets a part: the others find some left.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

#[derive(Debug, Clone)]
pub struct Budget<Owner = Uuid> {
    all: Arc<Semaphore>,
    max_per_owner: usize,
    owners: Arc<Mutex<HashMap<Owner, Weak<Semaphore>>>>,
}

#[derive(Debug)]
pub struct BudgetPermit {
    _of_owner: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl<Owner: Eq + Hash> Budget<Owner> {
    pub fn new(total: usize, max_per_owner: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(total)), max_per_owner, owners: Arc::default() }
    }

    /// Returns a permit for `owner`; `None` if all are in use, or as many as one owner may have.
    pub fn try_acquire(&self, owner: Owner) -> Option<BudgetPermit> {
        let of_owner = self.of(owner).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(BudgetPermit { _of_owner: of_owner, _of_all: of_all })
    }

    /// Waits for a permit for `owner`; an owner that has as many as it may delays no other.
    pub async fn acquire(&self, owner: Owner) -> Option<BudgetPermit> {
        let of_owner = self.of(owner).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(BudgetPermit { _of_owner: of_owner, _of_all: of_all })
    }

    fn of(&self, owner: Owner) -> Arc<Semaphore> {
        let mut owners = self.owners.lock();
        if let Some(known) = owners.get(&owner).and_then(Weak::upgrade) {
            return known;
        }
        owners.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(self.max_per_owner));
        owners.insert(owner, Arc::downgrade(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_gets_only_a_part() {
        let budget = Budget::new(3, 2);
        let [one, other] = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let first = budget.try_acquire(one).expect("it is the first");
        let _second = budget.try_acquire(one).expect("two are one owner's");
        assert!(budget.try_acquire(one).is_none(), "two are all");
        let _third = budget.try_acquire(other).expect("one is left for others");
        assert!(budget.try_acquire(other).is_none(), "three are in use");

        drop(first);
        assert!(budget.try_acquire(one).is_some(), "one was returned");
    }
}

//! Groups orders that expire in one transaction: orders of the same items.
//!
//! Orders wait while their items are busy, so the busier an item is, the larger its groups. An item
//! with many orders gets a transaction of its own: a transaction locks all its items together, so
//! with a busy item it would keep the other items from other replicas while it waits for that lock.
//! For the same reason items of the lab, which a user may lock for seconds, share no transaction
//! with the shop's own.
//!
//! Guarantees: items that are not busy take turns, and of the same items the longest waiting order
//! is first; sizes are bounded (except of groups that the lab watches, and their remainders). Does
//! not detect duplicate orders: the worker does.

use std::collections::{BTreeSet, VecDeque};

use crate::shop::command::place_order::MAX_LINES;
use crate::shop::{OrderId, RequestOptions, Sku};

/// Upper bound of the lines of one transaction, which locks their items: about 0.1 s in a debug
/// build. Many orders per turn of the item's lock let them expire as fast as they are placed.
const MAX_LINES_PER_TRANSACTION: usize = 500;
/// Upper bound of the orders of a transaction for several groups, which locks many items.
const MAX_MERGED_ORDERS: usize = 32;
/// Number of orders from which a group has a transaction of its own; smaller groups share one.
const MIN_UNMERGED_ORDERS: usize = 8;
/// Upper bound of the waiting orders of the same items: four transactions, which keep an item busy
/// until postponed orders return. While an item is locked for longer, orders of other
/// items overtake.
const MAX_WAITING_PER_GROUP: usize = 2_000;
/// Upper bound of all waiting orders. Their claims are renewed three times per visibility timeout,
/// which takes Redis some milliseconds each time; the other orders are free for other replicas.
const MAX_WAITING: usize = 8_000;
/// Upper bound of the waiting groups: those of one claim, if each order has items of its own.
const MAX_GROUPS: usize = 500;
/// Upper bound of the waiting groups that share an item with a new group.
const MAX_OVERLAPPING_GROUPS: usize = 8;

/// A due order and its units, sorted by item.
pub(super) type DueOrder = (OrderId, Vec<(Sku, i64)>);

#[derive(Debug)]
pub(super) struct ExpiryGroup {
    pub(super) orders: VecDeque<DueOrder>,
    pub(super) skus: BTreeSet<Sku>,
    /// The lab's options for this group, which no other order may join.
    pub(super) watched: Option<RequestOptions>,
}

impl ExpiryGroup {
    /// Returns whether it changes items of the lab, whose locks a user may hold for long.
    pub(super) fn is_in_lab(&self) -> bool {
        self.skus.iter().any(Sku::is_throw_away)
    }
}

/// The groups that wait for execution; the remainder of a group that is too large goes to the end.
#[derive(Debug, Default)]
pub(super) struct PendingGroups(VecDeque<ExpiryGroup>);

impl PendingGroups {
    /// Returns whether as many orders wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.0.iter().map(|group| group.orders.len()).sum::<usize>() >= MAX_WAITING
    }

    /// Adds an order to the group of its items; returns `false` if there is no room.
    pub(super) fn join(&mut self, due: DueOrder) -> bool {
        if self.is_full() {
            return false;
        }
        let skus = skus(&due);
        if let Some(group) = self.unwatched(&skus) {
            let room = group.orders.len() < MAX_WAITING_PER_GROUP;
            if room {
                group.orders.push_back(due);
            }
            return room;
        }
        let in_common = self.0.iter().filter(|group| !group.skus.is_disjoint(&skus)).count();
        let room = self.0.len() < MAX_GROUPS && in_common < MAX_OVERLAPPING_GROUPS;
        if room {
            self.0.push_back(ExpiryGroup { orders: [due].into(), skus, watched: None });
        }
        room
    }

    /// Adds the first order, and those of the same items, as a group with the lab's options;
    /// returns the other orders.
    pub(super) fn join_watched(
        &mut self,
        due: Vec<DueOrder>,
        options: RequestOptions,
    ) -> Vec<DueOrder> {
        let Some(skus) = due.first().map(skus) else { return due };
        let (same, others): (Vec<DueOrder>, Vec<DueOrder>) =
            due.into_iter().partition(|due| self::skus(due) == skus);
        self.0.push_back(ExpiryGroup { orders: same.into(), skus, watched: Some(options) });
        others
    }

    /// Removes and returns the next group whose items are not busy; one of the lab only if
    /// `admits_lab`.
    pub(super) fn next(&mut self, busy: &BTreeSet<Sku>, admits_lab: bool) -> Option<ExpiryGroup> {
        let is_admitted = |group: &ExpiryGroup| {
            group.skus.is_disjoint(busy) && (admits_lab || !group.is_in_lab())
        };
        let mut at = self.0.iter().position(is_admitted)?;
        let mut group = self.0.remove(at)?;
        let max_orders = (MAX_LINES_PER_TRANSACTION / group.skus.len().max(1)).max(1);
        if group.orders.len() > max_orders {
            let orders = group.orders.split_off(max_orders);
            self.put_back(orders, &group.skus);
        }
        if group.watched.is_some() || group.orders.len() >= MIN_UNMERGED_ORDERS {
            return Some(group);
        }
        while let Some(other) = self.0.get(at) {
            let fits = other.watched.is_none()
                && other.is_in_lab() == group.is_in_lab()
                && other.orders.len() < MIN_UNMERGED_ORDERS
                && other.skus.is_disjoint(busy)
                && group.orders.len() + other.orders.len() <= MAX_MERGED_ORDERS
                && group.skus.union(&other.skus).count() <= MAX_LINES;
            if !fits {
                at += 1;
            } else if let Some(other) = self.0.remove(at) {
                group.skus.extend(other.skus);
                group.orders.extend(other.orders);
            }
        }
        Some(group)
    }

    /// Removes all orders and returns their ids.
    pub(super) fn drain(&mut self) -> Vec<OrderId> {
        self.0.drain(..).flat_map(|group| group.orders).map(|(order, _)| order).collect()
    }

    /// Adds the remainder of a group to the group of the same items, or as a group of its own.
    fn put_back(&mut self, orders: VecDeque<DueOrder>, skus: &BTreeSet<Sku>) {
        match self.unwatched(skus) {
            Some(group) => group.orders.extend(orders),
            None => self.0.push_back(ExpiryGroup { orders, skus: skus.clone(), watched: None }),
        }
    }

    /// Returns the group of exactly these items that other orders may join.
    fn unwatched(&mut self, skus: &BTreeSet<Sku>) -> Option<&mut ExpiryGroup> {
        self.0.iter_mut().find(|group| group.watched.is_none() && group.skus == *skus)
    }
}

fn skus((_, units): &DueOrder) -> BTreeSet<Sku> {
    units.iter().map(|(sku, _)| sku.clone()).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn sku(name: &str) -> Sku {
        Sku::try_from(name.to_owned()).unwrap_or_else(|_| unreachable!())
    }

    fn pending(orders: &[&[&str]]) -> PendingGroups {
        let mut pending = PendingGroups::default();
        for skus in orders {
            let units = skus.iter().map(|name| (sku(name), 1)).collect();
            assert!(pending.join((OrderId(Uuid::now_v7()), units)));
        }
        pending
    }

    /// Returns the items and the number of orders of each group, if no item is busy.
    fn all(mut pending: PendingGroups) -> Vec<(String, usize)> {
        let groups = std::iter::from_fn(|| pending.next(&BTreeSet::new(), true));
        groups
            .map(|group| {
                let skus: Vec<&str> = group.skus.iter().map(Sku::as_str).collect();
                (skus.join(" "), group.orders.len())
            })
            .collect()
    }

    fn expected(groups: &[(&str, usize)]) -> Vec<(String, usize)> {
        groups.iter().map(|(skus, count)| ((*skus).to_owned(), *count)).collect()
    }

    #[test]
    fn orders_of_one_item_share_bounded_groups() {
        let groups = all(pending(&[&["tea"][..]; 1_100]));
        assert_eq!(groups, expected(&[("tea", 500), ("tea", 500), ("tea", 100)]));
        let groups = all(pending(&[&["salt", "tea"][..]; 300]));
        assert_eq!(groups, expected(&[("salt tea", 250), ("salt tea", 50)]));
    }

    #[test]
    fn hot_item_does_not_delay_other_items() {
        let mut orders = vec![&["tea"][..]; MIN_UNMERGED_ORDERS];
        orders.extend([&["salt"][..], &["pepper"], &["tea", "salt"], &["pepper"]]);
        assert_eq!(
            all(pending(&orders)),
            expected(&[("tea", MIN_UNMERGED_ORDERS), ("pepper salt tea", 4)])
        );
        orders.rotate_left(MIN_UNMERGED_ORDERS);
        assert_eq!(
            all(pending(&orders)),
            expected(&[("pepper salt tea", 4), ("tea", MIN_UNMERGED_ORDERS)])
        );
    }

    #[test]
    fn busy_items_wait_while_others_proceed() {
        let mut pending = pending(&[&["tea"], &["tea", "salt"], &["pepper"], &["salt"]]);
        let busy = BTreeSet::from([sku("tea")]);
        let next = pending.next(&busy, true).map(|group| group.skus);
        assert_eq!(next, Some(BTreeSet::from([sku("pepper"), sku("salt")])));
        assert!(pending.next(&busy, true).is_none());
        assert_eq!(all(pending), expected(&[("salt tea", 2)]));
    }

    #[test]
    fn lab_items_never_delay_shop_items() {
        let lab = Sku::throw_away();
        let mut pending = pending(&[&[lab.as_str()], &["tea"], &["salt"]]);
        let next = pending.next(&BTreeSet::new(), false).map(|group| group.skus);
        assert_eq!(next, Some(BTreeSet::from([sku("salt"), sku("tea")])));
        assert!(pending.next(&BTreeSet::new(), false).is_none());
        let next = pending.next(&BTreeSet::new(), true).map(|group| group.skus);
        assert_eq!(next, Some(BTreeSet::from([lab])));
    }

    #[test]
    fn returned_orders_join_group_of_same_items() {
        let mut pending = pending(&[&["salt"][..]]);
        let left =
            |count: usize| (0..count).map(|_| (OrderId(Uuid::now_v7()), Vec::new())).collect();
        pending.put_back(left(3), &BTreeSet::from([sku("tea")]));
        pending.put_back(left(MIN_UNMERGED_ORDERS), &BTreeSet::from([sku("salt")]));
        assert_eq!(all(pending), expected(&[("salt", MIN_UNMERGED_ORDERS + 1), ("tea", 3)]));
    }

    #[test]
    fn released_orders_are_no_longer_pending() {
        let mut pending = pending(&[&["tea"], &["tea"], &["salt"]]);
        let orders: BTreeSet<OrderId> = pending.drain().into_iter().collect();
        assert_eq!(orders.len(), 3);
        assert!(pending.next(&BTreeSet::new(), true).is_none());
    }

    #[test]
    fn pending_orders_are_bounded() {
        let mut full = pending(&[&["tea"][..]; MAX_WAITING_PER_GROUP]);
        assert!(!full.join((OrderId(Uuid::now_v7()), vec![(sku("tea"), 1)])));
        assert!(full.join((OrderId(Uuid::now_v7()), vec![(sku("salt"), 1)])));
        for n in 0..MAX_OVERLAPPING_GROUPS - 1 {
            let units = vec![(sku(&format!("item-{n}")), 1), (sku("tea"), 1)];
            assert!(full.join((OrderId(Uuid::now_v7()), units)));
        }
        assert!(!full.join((OrderId(Uuid::now_v7()), vec![(sku("item"), 1), (sku("tea"), 1)])));
        for n in 0..MAX_WAITING - MAX_WAITING_PER_GROUP - MAX_OVERLAPPING_GROUPS {
            let units = vec![(sku(["pepper", "salt", "mint", "sage"][n % 4]), 1)];
            assert!(full.join((OrderId(Uuid::now_v7()), units)));
        }
        assert!(!full.join((OrderId(Uuid::now_v7()), vec![(sku("dill"), 1)])));
    }

    #[test]
    fn group_has_at_most_max_lines_items() {
        let names: Vec<String> = (0..120).map(|n| format!("item-{n}")).collect();
        let each: Vec<Vec<&str>> =
            names.chunks(3).map(|some| some.iter().map(String::as_str).collect()).collect();
        let each: Vec<&[&str]> = each.iter().map(Vec::as_slice).collect();
        let groups = all(pending(&each));
        let items = |skus: &str| skus.split(' ').count();
        assert!(groups.iter().all(|(skus, _)| items(skus) <= MAX_LINES), "{groups:?}");
        assert_eq!(groups.iter().map(|(_, orders)| orders).sum::<usize>(), 40);
    }
}

//! Which orders go back together: those of the same items, in one transaction.
//!
//! Orders gather here while somebody is at their items, so the busier an item is, the more of its
//! orders go back at once. An item of which there are many has a transaction to itself: the items
//! of one transaction are locked together, so whoever has a busy one among them keeps all of them
//! from the other replica, and waits with all of them for the busy one.
//!
//! Guarantees: items that are not busy have their turn one after the other, and of the same items
//! the longest waiting order is first; nothing is larger than its bound (what the lab watches, and
//! what is left of that, comes on top). Does not see that an order comes once: that is the
//! worker's.

use std::collections::{BTreeSet, VecDeque};

use crate::shop::command::place_order::MAX_LINES;
use crate::shop::{OrderId, RequestOptions, Sku};

/// So many go back in one transaction, whose items are locked meanwhile: some 20 ms.
const MOST_TOGETHER: usize = 32;
/// From so many on, orders of one item go back by themselves; fewer are not worth a transaction.
const MANY: usize = 8;
/// So many orders of the same items wait: a quarter of a second's work, which keeps an item busy
/// until those come back that were put off. If somebody has it for longer, others go past.
const MOST_BEHIND: usize = 256;
/// So many different sets of items wait …
const MOST_WAITING: usize = 64;
/// … and so many with an item in common.
const MOST_IN_COMMON: usize = 8;

/// An order that is due, and its units, sorted.
pub(super) type Due = (OrderId, Vec<(Sku, i64)>);

#[derive(Debug)]
pub(super) struct Group {
    pub(super) orders: VecDeque<Due>,
    pub(super) skus: BTreeSet<Sku>,
    /// What the lab wants of it; then it is nobody else's.
    pub(super) watched: Option<RequestOptions>,
}

/// Those that wait for a turn, each with others of the same items; what is left of a group that is
/// too large has its next turn last.
#[derive(Debug, Default)]
pub(super) struct Pending(VecDeque<Group>);

impl Pending {
    /// Joins those that wait; `false` when there is no room.
    pub(super) fn join(&mut self, due: Due) -> bool {
        let skus = skus(&due);
        if let Some(group) = self.unwatched(&skus) {
            let room = group.orders.len() < MOST_BEHIND;
            if room {
                group.orders.push_back(due);
            }
            return room;
        }
        let in_common = self.0.iter().filter(|group| !group.skus.is_disjoint(&skus)).count();
        let room = self.0.len() < MOST_WAITING && in_common < MOST_IN_COMMON;
        if room {
            self.0.push_back(Group { orders: [due].into(), skus, watched: None });
        }
        room
    }

    /// Joins those of the same items with what the lab wants of the first; the others are returned.
    pub(super) fn join_watched(&mut self, due: Vec<Due>, conditions: RequestOptions) -> Vec<Due> {
        let Some(skus) = due.first().map(skus) else { return due };
        let (same, others): (Vec<Due>, Vec<Due>) =
            due.into_iter().partition(|due| self::skus(due) == skus);
        self.0.push_back(Group { orders: same.into(), skus, watched: Some(conditions) });
        others
    }

    /// Takes out the next ones, of items that nobody is at.
    pub(super) fn next(&mut self, busy: &BTreeSet<Sku>) -> Option<Group> {
        let mut at = self.0.iter().position(|group| group.skus.is_disjoint(busy))?;
        let mut group = self.0.remove(at)?;
        if group.orders.len() > MOST_TOGETHER {
            let orders = group.orders.split_off(MOST_TOGETHER);
            self.put_back(orders, &group.skus);
        }
        if group.watched.is_some() || group.orders.len() >= MANY {
            return Some(group);
        }
        while let Some(other) = self.0.get(at) {
            let fits = other.watched.is_none()
                && other.orders.len() < MANY
                && other.skus.is_disjoint(busy)
                && group.orders.len() + other.orders.len() <= MOST_TOGETHER
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

    /// Forgets all of them. Which ones those were.
    pub(super) fn let_go(&mut self) -> Vec<OrderId> {
        self.0.drain(..).flat_map(|group| group.orders).map(|(order, _)| order).collect()
    }

    /// Has what is left of a group wait with those of the same items, or by itself.
    fn put_back(&mut self, orders: VecDeque<Due>, skus: &BTreeSet<Sku>) {
        match self.unwatched(skus) {
            Some(group) => group.orders.extend(orders),
            None => self.0.push_back(Group { orders, skus: skus.clone(), watched: None }),
        }
    }

    /// The one group of just these items that others may join.
    fn unwatched(&mut self, skus: &BTreeSet<Sku>) -> Option<&mut Group> {
        self.0.iter_mut().find(|group| group.watched.is_none() && group.skus == *skus)
    }
}

fn skus((_, units): &Due) -> BTreeSet<Sku> {
    units.iter().map(|(sku, _)| sku.clone()).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn sku(name: &str) -> Sku {
        Sku::try_from(name.to_owned()).unwrap_or_else(|_| unreachable!())
    }

    fn pending(orders: &[&[&str]]) -> Pending {
        let mut pending = Pending::default();
        for skus in orders {
            let units = skus.iter().map(|name| (sku(name), 1)).collect();
            assert!(pending.join((OrderId(Uuid::now_v7()), units)));
        }
        pending
    }

    /// The items of each group and how many orders it has, while nobody is at any item.
    fn all(mut pending: Pending) -> Vec<(String, usize)> {
        let groups = std::iter::from_fn(|| pending.next(&BTreeSet::new()));
        groups
            .map(|group| {
                let skus: Vec<&str> = group.skus.iter().map(Sku::as_str).collect();
                (skus.join(" "), group.orders.len())
            })
            .collect()
    }

    fn said(groups: &[(&str, usize)]) -> Vec<(String, usize)> {
        groups.iter().map(|(skus, many)| ((*skus).to_owned(), *many)).collect()
    }

    #[test]
    fn orders_of_one_item_go_back_together_and_never_too_many() {
        let groups = all(pending(&[&["tea"][..]; 70]));
        assert_eq!(groups, said(&[("tea", 32), ("tea", 32), ("tea", 6)]));
    }

    #[test]
    fn an_item_of_many_keeps_no_others_with_it() {
        let mut orders = vec![&["tea"][..]; MANY];
        orders.extend([&["salt"][..], &["pepper"], &["tea", "salt"], &["pepper"]]);
        assert_eq!(all(pending(&orders)), said(&[("tea", MANY), ("pepper salt tea", 4)]));
        orders.rotate_left(MANY);
        assert_eq!(all(pending(&orders)), said(&[("pepper salt tea", 4), ("tea", MANY)]));
    }

    #[test]
    fn items_that_somebody_is_at_wait_and_others_go_past() {
        let mut pending = pending(&[&["tea"], &["tea", "salt"], &["pepper"], &["salt"]]);
        let busy = BTreeSet::from([sku("tea")]);
        let next = pending.next(&busy).map(|group| group.skus);
        assert_eq!(next, Some(BTreeSet::from([sku("pepper"), sku("salt")])));
        assert!(pending.next(&busy).is_none());
        assert_eq!(all(pending), said(&[("salt tea", 2)]));
    }

    #[test]
    fn what_is_left_of_a_group_joins_those_of_the_same_items() {
        let mut pending = pending(&[&["salt"][..]]);
        let left = |many: usize| (0..many).map(|_| (OrderId(Uuid::now_v7()), Vec::new())).collect();
        pending.put_back(left(3), &BTreeSet::from([sku("tea")]));
        pending.put_back(left(MANY), &BTreeSet::from([sku("salt")]));
        assert_eq!(all(pending), said(&[("salt", MANY + 1), ("tea", 3)]));
    }

    #[test]
    fn what_is_let_go_of_waits_no_longer() {
        let mut pending = pending(&[&["tea"], &["tea"], &["salt"]]);
        let orders: BTreeSet<OrderId> = pending.let_go().into_iter().collect();
        assert_eq!(orders.len(), 3);
        assert!(pending.next(&BTreeSet::new()).is_none());
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut full = pending(&[&["tea"][..]; MOST_BEHIND]);
        assert!(!full.join((OrderId(Uuid::now_v7()), vec![(sku("tea"), 1)])));
        assert!(full.join((OrderId(Uuid::now_v7()), vec![(sku("salt"), 1)])));
        for n in 0..MOST_IN_COMMON - 1 {
            let units = vec![(sku(&format!("item-{n}")), 1), (sku("tea"), 1)];
            assert!(full.join((OrderId(Uuid::now_v7()), units)));
        }
        assert!(!full.join((OrderId(Uuid::now_v7()), vec![(sku("item"), 1), (sku("tea"), 1)])));
    }

    #[test]
    fn no_transaction_locks_more_items_than_an_order_may_have() {
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

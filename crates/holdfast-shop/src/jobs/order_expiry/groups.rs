//! Groups due orders that expire in one transaction: orders of the same items. A transaction locks
//! all its items together, so items that a user of the lab or a fault may keep locked share none
//! with others: the *slow* ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::due::DueOrder;
use crate::Sku;
use crate::command::place_order::MAX_LINES;

/// Upper bound of the lines of one transaction. Many orders per turn of the item's lock let them
/// expire as fast as they are placed.
const MAX_LINES_PER_TRANSACTION: usize = 500;
/// Upper bound of the orders of a transaction for several groups, which locks many items.
const MAX_MERGED_ORDERS: usize = 32;
/// Number of orders from which a group has a transaction of its own; smaller groups share one.
const MIN_UNMERGED_ORDERS: usize = 8;

#[derive(Debug)]
pub(super) struct ExpiryGroup {
    pub(super) orders: VecDeque<DueOrder>,
    pub(super) skus: BTreeSet<Sku>,
    pub(super) is_slow: bool,
}

impl ExpiryGroup {
    /// Returns whether its orders are of different items.
    pub(super) fn is_merged(&self) -> bool {
        self.orders.front().is_some_and(|order| order.units.len() < self.skus.len())
    }
}

/// The groups that wait for execution, the one with the longest due order first.
#[derive(Debug, Default)]
pub(super) struct PendingGroups(VecDeque<ExpiryGroup>);

impl PendingGroups {
    /// Groups orders by their items; those of the lab, and `failed` ones, are slow.
    pub(super) fn new(due: Vec<DueOrder>, failed: &BTreeSet<Sku>) -> Self {
        let mut groups: VecDeque<ExpiryGroup> = VecDeque::new();
        let mut positions = BTreeMap::new();
        for order in due {
            let skus: BTreeSet<Sku> = order.units.iter().map(|(sku, _)| sku.clone()).collect();

            let position = *positions.entry(skus.clone()).or_insert(groups.len());
            match groups.get_mut(position) {
                Some(group) => group.orders.push_back(order),
                None => {
                    let is_slow =
                        skus.iter().any(|sku| sku.is_throw_away() || failed.contains(sku));
                    groups.push_back(ExpiryGroup { orders: [order].into(), skus, is_slow });
                }
            }
        }
        Self(groups)
    }

    /// Removes and returns the next group whose items are not busy; a slow one only if
    /// `admits_slow`. The remainder of a group that is too large goes to the end.
    pub(super) fn next(&mut self, busy: &BTreeSet<Sku>, admits_slow: bool) -> Option<ExpiryGroup> {
        let position = self
            .0
            .iter()
            .position(|group| group.skus.is_disjoint(busy) && (admits_slow || !group.is_slow))?;
        let mut group = self.0.remove(position)?;

        let max_orders = (MAX_LINES_PER_TRANSACTION / group.skus.len().max(1)).max(1);
        if group.orders.len() > max_orders {
            // Behind the others: one item with very many orders must not delay all of them.
            let orders = group.orders.split_off(max_orders);
            self.0.push_back(ExpiryGroup { orders, skus: group.skus.clone(), ..group });
        }

        // A transaction costs far more than an order, and many items may have one due order each.
        if !group.is_slow && group.orders.len() < MIN_UNMERGED_ORDERS {
            self.merge_small(&mut group, position, busy);
        }
        Some(group)
    }

    /// Adds small groups from `position` on to `group`.
    fn merge_small(&mut self, group: &mut ExpiryGroup, mut position: usize, busy: &BTreeSet<Sku>) {
        while let Some(other) = self.0.get(position) {
            let fits = !other.is_slow
                && other.orders.len() < MIN_UNMERGED_ORDERS
                && other.skus.is_disjoint(busy)
                && group.orders.len() + other.orders.len() <= MAX_MERGED_ORDERS
                && group.skus.union(&other.skus).count() <= MAX_LINES;

            if !fits {
                position += 1;
            } else if let Some(other) = self.0.remove(position) {
                group.skus.extend(other.skus);
                group.orders.extend(other.orders);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::OrderId;

    fn sku(name: &str) -> Sku {
        Sku::try_from(name.to_owned()).unwrap_or_else(|_| unreachable!())
    }

    fn pending(orders: &[&[&str]]) -> PendingGroups {
        pending_after_failure(orders, "")
    }

    fn pending_after_failure(orders: &[&[&str]], failed: &str) -> PendingGroups {
        let due = orders.iter().map(|skus| {
            let mut units: Vec<_> = skus.iter().map(|name| (sku(name), 1)).collect();
            units.sort();
            DueOrder {
                id: OrderId(Uuid::now_v7()),
                expires_at: OffsetDateTime::UNIX_EPOCH,
                due_at: Instant::now(),
                units,
            }
        });
        let failed = if failed.is_empty() { BTreeSet::new() } else { [sku(failed)].into() };
        PendingGroups::new(due.collect(), &failed)
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
    fn slow_items_never_delay_the_others() {
        let lab = Sku::throw_away();
        let orders: [&[&str]; 4] = [&[lab.as_str()], &["stuck"], &["tea"], &["salt"]];
        let mut pending = pending_after_failure(&orders, "stuck");
        let next = pending.next(&BTreeSet::new(), false).map(|group| group.skus);
        assert_eq!(next, Some(BTreeSet::from([sku("salt"), sku("tea")])));
        assert!(pending.next(&BTreeSet::new(), false).is_none());
        assert_eq!(all(pending), expected(&[(lab.as_str(), 1), ("stuck", 1)]));
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

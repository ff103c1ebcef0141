//! Which orders go back together: those of the same items, in one transaction.

use std::collections::BTreeSet;

use crate::shop::orders::MOST_LINES;
use crate::shop::{OrderId, Sku};

/// So many go back in one transaction, whose items are locked meanwhile: some 20 ms.
const MOST_TOGETHER: usize = 32;

/// An order that is due, and its units, sorted.
pub(super) type Due = (OrderId, Vec<(Sku, i64)>);

/// Orders that go back together.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) orders: Vec<Due>,
    /// All their items.
    pub(super) skus: BTreeSet<Sku>,
}

/// Those of the same items together, at most so many, of at most so many items.
pub(super) fn groups(mut due: Vec<Due>) -> Vec<Group> {
    due.sort_by(|(_, a), (_, b)| a.iter().map(|(sku, _)| sku).cmp(b.iter().map(|(sku, _)| sku)));
    let mut groups: Vec<Group> = Vec::new();
    for (order, units) in due {
        let own = || units.iter().map(|(sku, _)| sku.clone());
        let fits = |group: &&mut Group| {
            let more = own().filter(|sku| !group.skus.contains(sku)).count();
            group.orders.len() < MOST_TOGETHER && group.skus.len() + more <= MOST_LINES
        };
        match groups.last_mut().filter(fits) {
            Some(group) => {
                group.skus.extend(own());
                group.orders.push((order, units));
            }
            None => groups.push(Group { skus: own().collect(), orders: vec![(order, units)] }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn due(orders: &[&[&str]]) -> Vec<Due> {
        let sku =
            |name: &&str| (Sku::try_from((*name).to_owned()).unwrap_or_else(|_| unreachable!()), 1);
        let order = |skus: &&[&str]| (OrderId(Uuid::now_v7()), skus.iter().map(sku).collect());
        orders.iter().map(order).collect()
    }

    #[test]
    fn orders_of_one_item_go_back_together_and_never_too_many() {
        let groups = groups(due(&[&["tea"][..]; 70]));
        assert_eq!(groups.iter().map(|group| group.orders.len()).collect::<Vec<_>>(), [32, 32, 6]);
    }

    #[test]
    fn no_transaction_locks_more_items_than_an_order_may_have() {
        let names: Vec<String> = (0..120).map(|n| format!("item-{n}")).collect();
        let each: Vec<Vec<&str>> =
            names.chunks(3).map(|some| some.iter().map(String::as_str).collect()).collect();
        let each: Vec<&[&str]> = each.iter().map(Vec::as_slice).collect();
        let groups = groups(due(&each));
        assert!(groups.iter().all(|group| group.skus.len() <= MOST_LINES), "{groups:?}");
        assert_eq!(groups.iter().map(|group| group.orders.len()).sum::<usize>(), 40);
    }
}

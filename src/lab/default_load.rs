//! The default load of a lesson, which the visitor's settings override.

use super::arm_spec::ArmSpec;
use super::scenario::Scenario;

/// A default load; the visitor's settings replace its numbers.
#[derive(Debug, Clone, Copy)]
pub struct DefaultLoad {
    pub stock: i64,
    /// Concurrent buyers.
    pub buyers: u32,
    /// Orders in total.
    pub orders: u32,
    /// Extra work between read and write, in ms.
    pub work_ms: u64,
    /// True if one of its strategies has a lease that the visitor may change.
    pub lease: bool,
}

impl DefaultLoad {
    /// Returns an arm per strategy, all with the same load.
    pub(super) fn under(self, lab: &Scenario, strategies: &[&str]) -> Vec<ArmSpec> {
        let mut request = lab.request.clone();
        request.strategies = strategies.iter().map(|name| (*name).to_owned()).collect();
        request.stock = request.stock.or(Some(self.stock));
        request.buyers = request.buyers.or(Some(self.buyers));
        request.orders = request.orders.or(Some(self.orders));
        request.work_ms = request.work_ms.or(Some(self.work_ms));
        request.arm_specs(lab.replica_count())
    }
}

/// Returns why, by the numbers alone, no two orders can overlap between read and write; `None` if
/// they can.
pub(super) fn no_overlap(spec: &ArmSpec) -> Option<String> {
    match spec {
        ArmSpec { stock: 0, .. } => Some("there are 0 units, and nobody can have one".to_owned()),
        // Before `buyers: 1`: there are never more buyers than orders.
        ArmSpec { orders: 1, .. } => Some("there is 1 order, which meets no other".to_owned()),
        ArmSpec { buyers: 1, .. } => Some("there is 1 buyer, who orders in turn".to_owned()),
        _ => None,
    }
}

/// Returns why the load cannot oversell; `None` if it can.
pub(super) fn no_shortage(spec: &ArmSpec) -> Option<String> {
    let enough = i64::try_from(spec.orders).is_ok_and(|orders| orders <= spec.stock);
    let (orders, stock) = (spec.orders, spec.stock);
    no_overlap(spec).or_else(|| {
        enough.then(|| format!("there are {stock} units for {orders} orders: enough for everybody"))
    })
}

/// Returns why the load has no overlap or too little stock; `None` if it has overlap and enough
/// stock.
pub(super) fn stock_shortage(spec: &ArmSpec) -> Option<String> {
    let short = i64::try_from(spec.orders).is_ok_and(|orders| orders > spec.stock);
    let (orders, stock) = (spec.orders, spec.stock);
    no_overlap(spec).or_else(|| {
        short.then(|| format!("there are {stock} units for {orders} orders: not all can be served"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::run::RunRequest;

    fn spec(stock: i64, buyers: u32, orders: u32) -> ArmSpec {
        let request = RunRequest {
            strategies: vec!["none".to_owned()],
            stock: Some(stock),
            buyers: Some(buyers),
            orders: Some(orders),
            ..RunRequest::default()
        };
        request.arm_specs(2).remove(0)
    }

    #[test]
    fn parameters_without_contention_are_explained() {
        for (alone, word) in
            [(spec(0, 16, 400), "0 units"), (spec(5, 16, 1), "1 order"), (spec(5, 1, 9), "1 buyer")]
        {
            for why in [no_overlap(&alone), no_shortage(&alone), stock_shortage(&alone)] {
                assert!(why.as_deref().is_some_and(|why| why.contains(word)), "{why:?}");
            }
        }
        assert_eq!(no_overlap(&spec(5, 2, 2)), None);
        let (scarce, plenty) = (spec(9, 2, 10), spec(10, 2, 10));
        assert!(no_shortage(&scarce).is_none() && no_shortage(&plenty).is_some());
        assert!(stock_shortage(&scarce).is_some() && stock_shortage(&plenty).is_none());
    }
}

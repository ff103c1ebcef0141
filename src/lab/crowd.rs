//! The default load of a lesson, which the visitor's settings override.

use super::arm::Spec;
use super::stage::Stage;

/// A default load; the visitor's settings replace its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
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

impl Crowd {
    /// Returns an arm per strategy, all with the same load.
    pub(super) fn under(self, stage: &Stage, strategies: &[&str]) -> Vec<Spec> {
        let mut wanted = stage.wanted.clone();
        wanted.strategies = strategies.iter().map(|name| (*name).to_owned()).collect();
        wanted.stock = wanted.stock.or(Some(self.stock));
        wanted.buyers = wanted.buyers.or(Some(self.buyers));
        wanted.orders = wanted.orders.or(Some(self.orders));
        wanted.work_ms = wanted.work_ms.or(Some(self.work_ms));
        wanted.specs(stage.replicas())
    }
}

/// Returns why, by the numbers alone, no two orders can overlap between read and write; `None` if
/// they can.
pub(super) fn nobody_meets(spec: &Spec) -> Option<String> {
    match spec {
        Spec { stock: 0, .. } => Some("there are 0 units, and nobody can have one".to_owned()),
        // Before `buyers: 1`: there are never more buyers than orders.
        Spec { orders: 1, .. } => Some("there is 1 order, which meets no other".to_owned()),
        Spec { buyers: 1, .. } => Some("there is 1 buyer, who orders in turn".to_owned()),
        _ => None,
    }
}

/// Returns why the load cannot oversell; `None` if it can.
pub(super) fn nothing_runs_out(spec: &Spec) -> Option<String> {
    let enough = i64::try_from(spec.orders).is_ok_and(|orders| orders <= spec.stock);
    let (orders, stock) = (spec.orders, spec.stock);
    nobody_meets(spec).or_else(|| {
        enough.then(|| format!("there are {stock} units for {orders} orders: enough for everybody"))
    })
}

/// Returns why the load has no overlap or too little stock; `None` if it has overlap and enough
/// stock.
pub(super) fn something_runs_out(spec: &Spec) -> Option<String> {
    let short = i64::try_from(spec.orders).is_ok_and(|orders| orders > spec.stock);
    let (orders, stock) = (spec.orders, spec.stock);
    nobody_meets(spec).or_else(|| {
        short.then(|| format!("there are {stock} units for {orders} orders: not all can be served"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::run::Wanted;

    fn spec(stock: i64, buyers: u32, orders: u32) -> Spec {
        let wanted = Wanted {
            strategies: vec!["none".to_owned()],
            stock: Some(stock),
            buyers: Some(buyers),
            orders: Some(orders),
            ..Wanted::default()
        };
        wanted.specs(2).remove(0)
    }

    #[test]
    fn parameters_without_contention_are_explained() {
        for (alone, word) in
            [(spec(0, 16, 400), "0 units"), (spec(5, 16, 1), "1 order"), (spec(5, 1, 9), "1 buyer")]
        {
            for why in [nobody_meets(&alone), nothing_runs_out(&alone), something_runs_out(&alone)]
            {
                assert!(why.as_deref().is_some_and(|why| why.contains(word)), "{why:?}");
            }
        }
        assert_eq!(nobody_meets(&spec(5, 2, 2)), None);
        let (scarce, plenty) = (spec(9, 2, 10), spec(10, 2, 10));
        assert!(nothing_runs_out(&scarce).is_none() && nothing_runs_out(&plenty).is_some());
        assert!(something_runs_out(&scarce).is_some() && something_runs_out(&plenty).is_none());
    }
}

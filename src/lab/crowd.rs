//! The crowds of a lesson: what it usually needs, where the visitor wishes nothing else.

use super::arm::Spec;
use super::stage::Stage;

/// So many buyers and orders, and so much work, unless the visitor turned a knob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) stock: i64,
    pub(super) buyers: u32,
    pub(super) orders: u32,
    pub(super) work_ms: u64,
}

impl Crowd {
    /// One arm per strategy, all with the same load.
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

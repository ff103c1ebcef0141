//! The load of one arm: the request for the run, with the defaults of a lesson or of a custom load.

use super::headers::{LabHeaders, TTL_MS, WAIT, WORK_MS};
use super::run::{Fault, Journey, RunRequest};
use super::scenario::Scenario;
use crate::messages::{Message, message};

#[derive(Debug, Clone)]
pub(super) struct ArmSpec {
    pub(super) strategy: String,
    pub(super) journey: Journey,
    pub(super) stock: i64,
    pub(super) buyers: usize,
    pub(super) orders: usize,
    pub(super) work_ms: u64,
    pub(super) ttl_ms: Option<u64>,
    pub(super) wait: Option<String>,
    pub(super) seed: u64,
    pub(super) replicas: usize,
    pub(super) fault: Option<Fault>,
}

impl ArmSpec {
    pub(super) fn headers(&self) -> LabHeaders {
        let work_ms = Some(self.work_ms).filter(|work_ms| *work_ms > 0);
        let headers = LabHeaders::under(&self.strategy).with_some(WAIT, self.wait.as_ref());
        headers.with_some(WORK_MS, work_ms).with_some(TTL_MS, self.ttl_ms)
    }

    /// Returns why, by the numbers alone, no two orders can overlap between read and write; `None`
    /// if they can.
    pub(super) fn no_overlap(&self) -> Option<Message> {
        match self {
            ArmSpec { stock: 0, .. } => Some(message!("run-no-units")),
            // Before `buyers: 1`: there are never more buyers than orders.
            ArmSpec { orders: 1, .. } => Some(message!("run-one-order")),
            ArmSpec { buyers: 1, .. } => Some(message!("run-one-buyer")),
            _ => None,
        }
    }

    /// Returns why the load cannot oversell; `None` if it can.
    pub(super) fn no_shortage(&self) -> Option<Message> {
        let (orders, stock) = (self.orders, self.stock);
        let enough = || message!("run-enough-units", stock, orders);
        self.no_overlap().or_else(|| (!self.is_short()).then(enough))
    }

    /// Returns why the load has no overlap or too little stock; `None` if it has overlap and enough
    /// stock.
    pub(super) fn shortage(&self) -> Option<Message> {
        let (orders, stock) = (self.orders, self.stock);
        let short = || message!("run-few-units", stock, orders);
        self.no_overlap().or_else(|| self.is_short().then(short))
    }

    fn is_short(&self) -> bool {
        i64::try_from(self.orders).is_ok_and(|orders| orders > self.stock)
    }
}

/// The default load of a lesson; the visitor's settings replace its numbers.
#[derive(Debug, Clone, Copy)]
pub struct DefaultLoad {
    pub stock: i64,
    pub buyers: u32,
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

impl RunRequest {
    /// Returns the arms, with defaults filled in. [`RunRequest::invalid_field`] must have
    /// returned `None`.
    pub(super) fn arm_specs(&self, replicas: usize) -> Vec<ArmSpec> {
        let orders = self.orders.unwrap_or(200) as usize;
        let spec = |strategy: &String| ArmSpec {
            strategy: strategy.clone(),
            journey: self.journey.unwrap_or_default(),
            stock: self.stock.unwrap_or(100),
            buyers: (self.buyers.unwrap_or(16) as usize).min(orders),
            orders,
            work_ms: self.work_ms.unwrap_or(0),
            ttl_ms: self.ttl_ms,
            wait: self.wait.clone(),
            seed: self.seed.unwrap_or(1),
            replicas: self.replicas.unwrap_or(replicas).clamp(1, replicas),
            fault: self.fault.clone(),
        };
        self.strategies.iter().map(spec).collect()
    }
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
            for why in [alone.no_overlap(), alone.no_shortage(), alone.shortage()] {
                assert!(why.as_ref().is_some_and(|why| why.english().contains(word)), "{why:?}");
            }
        }
        assert_eq!(spec(5, 2, 2).no_overlap(), None);
        let (scarce, plenty) = (spec(9, 2, 10), spec(10, 2, 10));
        assert!(scarce.no_shortage().is_none() && plenty.no_shortage().is_some());
        assert!(scarce.shortage().is_some() && plenty.shortage().is_none());
    }
}

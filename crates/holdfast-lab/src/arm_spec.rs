//! The load of one arm: the request for the run, with the defaults of a lesson or of a custom load.

use super::headers::{LabHeaders, RETRY_MS, TTL_MS, WAIT, WORK_MS};
use super::run::{Journey, RunFault, RunRequest};
use super::scenario::Scenario;
use holdfast_base::messages::{Message, message};
use holdfast_base::output::grouped;
use holdfast_story::Value;

/// The stock that a claim needs, besides orders that overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    Any,
    Short,
    Ample,
}

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
    pub(super) retry_ms: Option<u64>,
    pub(super) seed: u64,
    pub(super) replicas: usize,
    pub(super) fault: Option<RunFault>,
}

impl ArmSpec {
    pub(super) fn headers(&self) -> LabHeaders {
        let mut headers = LabHeaders::under(&self.strategy).with(WORK_MS, self.work_ms);
        if let Some(wait) = &self.wait {
            headers = headers.with(WAIT, wait);
        }
        if let Some(retry_ms) = self.retry_ms {
            headers = headers.with(RETRY_MS, retry_ms);
        }
        if let Some(ttl_ms) = self.ttl_ms {
            headers = headers.with(TTL_MS, ttl_ms);
        }
        headers
    }

    /// Returns how many of the orders are a buyer's.
    pub(super) fn orders_of(&self, buyer: usize) -> usize {
        self.orders / self.buyers + usize::from(buyer < self.orders % self.buyers)
    }

    /// Returns why, by the numbers alone, the load cannot show a claim: no two orders overlap, or
    /// the stock is another one.
    pub(super) fn hindrance(&self, needed: Supply) -> Option<Message> {
        let ArmSpec { stock, buyers, orders, .. } = self;

        let is_short = i64::try_from(*orders).is_ok_and(|orders| orders > *stock);
        let is_supplied = match needed {
            Supply::Any => true,
            Supply::Short => is_short,
            Supply::Ample => !is_short,
        };

        // There are never more buyers than orders.
        let is_suitable = *stock > 0 && *buyers > 1 && is_supplied;
        let (stock, orders) = (Value::Units(*stock), grouped(*orders as u64));
        (!is_suitable).then(|| message!("run-unsuitable-load", stock, buyers, orders))
    }
}

/// The default load of a lesson; the visitor's settings replace its numbers.
#[derive(Debug, Clone, Copy)]
pub struct DefaultLoad {
    pub stock: i64,
    pub buyers: u32,
    pub orders: u32,
    pub work_ms: u64,
    /// True if the visitor may change the lease.
    pub lease: bool,
}

impl DefaultLoad {
    pub(super) fn under(self, lab: &Scenario, strategies: &[&str]) -> Vec<ArmSpec> {
        let of_visitor = &lab.request;
        let request = RunRequest {
            strategies: strategies.iter().map(|name| (*name).to_owned()).collect(),
            stock: of_visitor.stock.or(Some(self.stock)),
            buyers: of_visitor.buyers.or(Some(self.buyers)),
            orders: of_visitor.orders.or(Some(self.orders)),
            work_ms: of_visitor.work_ms.or(Some(self.work_ms)),
            ttl_ms: of_visitor.ttl_ms.filter(|_| self.lease),
            retry_ms: of_visitor.retry_ms,
            seed: of_visitor.seed,
            ..RunRequest::default()
        };
        request.arm_specs(lab.replica_count())
    }
}

impl RunRequest {
    /// Returns the arms of a valid request, with defaults filled in.
    pub(super) fn arm_specs(&self, replicas: usize) -> Vec<ArmSpec> {
        self.strategies.iter().map(|strategy| self.arm_spec(strategy, replicas)).collect()
    }

    fn arm_spec(&self, strategy: &str, replicas: usize) -> ArmSpec {
        let orders = self.orders.unwrap_or(200) as usize;
        ArmSpec {
            strategy: strategy.to_owned(),
            journey: self.journey.unwrap_or_default(),
            stock: self.stock.unwrap_or(100),
            buyers: (self.buyers.unwrap_or(16) as usize).min(orders),
            orders,
            work_ms: self.work_ms.unwrap_or(0),
            ttl_ms: self.ttl_ms,
            wait: self.wait.clone(),
            retry_ms: self.retry_ms,
            seed: self.seed.unwrap_or(1),
            replicas,
            fault: self.fault.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunRequest;

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
    fn unsuitable_loads_are_found() {
        for alone in [spec(0, 16, 400), spec(5, 16, 1), spec(5, 1, 9)] {
            assert!(alone.hindrance(Supply::Any).is_some(), "{alone:?}");
        }
        assert_eq!(spec(5, 2, 2).hindrance(Supply::Any), None);
        let (scarce, plenty) = (spec(9, 2, 10), spec(10, 2, 10));
        for (needed, suitable, other) in
            [(Supply::Short, &scarce, &plenty), (Supply::Ample, &plenty, &scarce)]
        {
            assert!(suitable.hindrance(needed).is_none() && other.hindrance(needed).is_some());
        }
    }
}

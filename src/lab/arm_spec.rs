//! The load of one arm: the request for the run, with defaults filled in.

use super::headers::{LabHeaders, TTL_MS, WAIT, WORK_MS, under};
use super::run::{Fault, Journey, RunRequest};

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
        let headers = under(&self.strategy).with_some(WAIT, self.wait.as_ref());
        headers.with_some(WORK_MS, work_ms).with_some(TTL_MS, self.ttl_ms)
    }
}

impl RunRequest {
    /// Returns the arms, with defaults filled in. [`RunRequest::wrong`] must have returned `None`.
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

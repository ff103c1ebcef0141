//! The smallest example of a fork: the two requests that took the least time.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::run::{ArmResult, ForkedVersion, LabRun, Lane};
use holdfast_story::EventKind;

#[derive(Debug)]
pub struct ForkPair<'a> {
    pub arm: &'a ArmResult,
    pub fork: &'a ForkedVersion,
    pub lanes: [&'a Lane; 2],
    /// Time from the first read to the last event.
    pub span_us: u64,
}

impl LabRun {
    pub fn lanes(&self) -> BTreeMap<Uuid, &Lane> {
        self.outcome.lanes.iter().map(|lane| (lane.request_id, lane)).collect()
    }

    /// Returns, of the first two traced requests of each fork, those that took the least time.
    pub fn shortest_fork(&self) -> Option<ForkPair<'_>> {
        let lanes = self.lanes();
        let arms = self.outcome.arms.iter();
        let forks = arms.flat_map(|arm| arm.forked.iter().map(move |fork| (arm, fork)));

        let pairs = forks.filter_map(|(arm, fork)| {
            let [one, other, ..] = fork.lanes(&lanes)[..] else { return None };
            let begin_us = one.read_us()?.min(other.read_us()?);
            let end_us = one.events.last()?.at_us.max(other.events.last()?.at_us);
            let span_us = end_us.saturating_sub(begin_us);
            Some(ForkPair { arm, fork, lanes: [one, other], span_us })
        });
        pairs.min_by_key(|pair| pair.span_us)
    }
}

impl ForkedVersion {
    /// Returns its traced requests, in the order of the ledger.
    pub fn lanes<'a>(&self, lanes: &BTreeMap<Uuid, &'a Lane>) -> Vec<&'a Lane> {
        self.entries.iter().filter_map(|entry| lanes.get(&entry.request_id).copied()).collect()
    }
}

impl Lane {
    pub fn read_us(&self) -> Option<u64> {
        self.events.iter().find(|event| event.kind == EventKind::Read).map(|event| event.at_us)
    }
}

//! Results of a benchmark as written to JSON: the source of table and picture.

use std::collections::BTreeMap;

use serde::Serialize;

use super::goals::{self, Goal};
use super::machine::Machine;
use super::measurements::{Measurements, Spread};
use super::runs::{AuditSummary, BASELINE, BenchRun, Round};
use crate::shop::Strategy;
use crate::shop::strategy::STRATEGIES;

#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) method: Method,
    /// Each strategy on one hot item.
    pub(super) arms: Vec<StrategyResult>,
    /// Responses per second of the same path without the work.
    pub(super) noop_per_s: Option<Spread>,
    pub(super) figures: Vec<Goal>,
    pub(super) runs: Vec<RunRecord>,
}

/// One strategy on one hot item. It has figures only if every round was sound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StrategyResult {
    pub(super) name: &'static str,
    pub(super) pool_size: u32,
    pub(super) sound: bool,
    /// Audit of the worst round.
    pub(super) audit: AuditSummary,
    pub(super) orders_per_s: Option<Spread>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// Ratio of the throughput to that of `owner`, over the rounds.
    pub(super) ratio_to_owner: Option<Spread>,
    pub(super) jain_clients: Option<f64>,
    pub(super) jain_replicas: Option<f64>,
    pub(super) redis_reads_per_order: Option<f64>,
    /// Responses other than an order, by status, over all rounds.
    pub(super) refused: BTreeMap<u16, u64>,
    /// Requests without a response, over all rounds.
    pub(super) lost: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Method {
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) warm_up_seconds: f64,
    pub(super) connections: usize,
    pub(super) replicas: usize,
    pub(super) pool_sizes: Vec<u32>,
}

/// All rounds of one run, or only their audits if one was not sound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RunRecord {
    #[serde(flatten)]
    run: BenchRun,
    rounds: Option<Vec<Round>>,
    audits: Vec<AuditSummary>,
}

impl Results {
    pub(super) fn new(
        machine: Machine,
        method: Method,
        data: &Measurements,
        pools: &BTreeMap<BenchRun, u32>,
    ) -> Self {
        let clients = method.connections;
        let arm = |strategy: &'static Strategy| {
            let run = BenchRun::hot(strategy.name, clients);
            let baseline = BenchRun::hot(BASELINE, clients);
            let ratio = data.ratio(run, baseline, |round| Some(round.per_second));
            let rounds = data.0.get(&run)?;
            Some(StrategyResult::new(strategy.name, *pools.get(&run)?, rounds, ratio.ok()))
        };
        let record = |(run, rounds): (&BenchRun, &Vec<Round>)| RunRecord {
            run: *run,
            rounds: data.sound(*run).ok().map(<[Round]>::to_vec),
            audits: rounds.iter().map(|round| round.audit.clone()).collect(),
        };
        Self {
            machine,
            arms: STRATEGIES.iter().filter_map(arm).collect(),
            noop_per_s: data.each(BenchRun::no_op(clients), |round| Some(round.per_second)).ok(),
            figures: goals::all(data, clients),
            runs: data.0.iter().map(record).collect(),
            method,
        }
    }
}

impl StrategyResult {
    fn new(
        name: &'static str,
        pool_size: u32,
        rounds: &[Round],
        ratio_to_owner: Option<Spread>,
    ) -> Self {
        let sound = rounds.iter().all(|round| round.audit.ok);
        let spread = |of: fn(&Round) -> Option<f64>| {
            if sound { Spread::of(rounds.iter().filter_map(of)) } else { None }
        };
        let median = |of| spread(of).map(|spread| spread.median);
        let mut refused = BTreeMap::new();
        for (status, count) in rounds.iter().flat_map(|round| &round.refused) {
            *refused.entry(*status).or_default() += count;
        }
        let worst = |round: &&Round| (!round.audit.ok, round.audit.oversold, round.audit.forks);
        Self {
            name,
            pool_size,
            sound,
            audit: rounds.iter().max_by_key(worst).map(|r| r.audit.clone()).unwrap_or_default(),
            orders_per_s: spread(|round| Some(round.per_second)),
            p50_ms: median(|round| round.p50_ms),
            p99_ms: median(|round| round.p99_ms),
            ratio_to_owner,
            jain_clients: median(|round| Some(round.jain_clients)),
            jain_replicas: median(|round| Some(round.jain_replicas)),
            redis_reads_per_order: median(|round| Some(round.redis_reads)),
            refused,
            lost: rounds.iter().map(|round| round.lost).sum(),
        }
    }
}

//! Results of a benchmark as written to JSON: the source of table and picture.

use std::collections::BTreeMap;

use serde::Serialize;

use super::goals::{self, Goal};
use super::machine::Machine;
use super::measurements::{LockBench, Measurements, Method, Spread};
use super::runs::{AuditSummary, BASELINE, BenchRun, NO_STRATEGY, Round, Task};
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
    /// Strategies that could not run, with the reason.
    pub(super) skipped: BTreeMap<&'static str, String>,
    pub(super) figures: Vec<Goal>,
    pub(super) lock: Option<LockBench>,
    pub(super) runs: Vec<RunRecord>,
}

/// One strategy on one hot item. It has figures only if every round was sound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StrategyResult {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Connections to Postgres per replica.
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

/// All rounds of one run, or only their verdicts if one was not sound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RunRecord {
    pub(super) strategy: &'static str,
    pub(super) task: &'static str,
    pub(super) clients: usize,
    pub(super) rounds: Option<Vec<Round>>,
    pub(super) audits: Vec<AuditSummary>,
}

impl Results {
    pub(super) fn new(
        machine: Machine,
        data: Measurements,
        pools: &BTreeMap<BenchRun, u32>,
    ) -> Self {
        let clients = data.method.connections;
        let hot = |strategy| BenchRun { strategy, task: Task::Hot(clients) };
        let arm = |strategy: &'static Strategy| {
            let run = hot(strategy.name);
            let ratio = data.ratio(run, hot(BASELINE), |round| Some(round.per_second));
            let rounds = data.rounds.get(&run)?;
            Some(StrategyResult::new(strategy, *pools.get(&run)?, rounds, ratio.ok()))
        };
        let noop = BenchRun { strategy: NO_STRATEGY, task: Task::Noop(clients) };
        let noop = data.rounds.get(&noop);
        Self {
            arms: STRATEGIES.iter().filter_map(arm).collect(),
            noop_per_s: noop
                .and_then(|rounds| Spread::of(rounds.iter().map(|round| round.per_second))),
            figures: goals::all(&data),
            runs: data.rounds.iter().map(|(run, rounds)| RunRecord::new(*run, rounds)).collect(),
            machine,
            method: data.method,
            skipped: data.skipped,
            lock: data.lock,
        }
    }
}

impl StrategyResult {
    fn new(
        strategy: &'static Strategy,
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
            name: strategy.name,
            about: strategy.about,
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

impl RunRecord {
    fn new(BenchRun { strategy, task }: BenchRun, rounds: &[Round]) -> Self {
        let sound = rounds.iter().all(|round| round.audit.ok);
        Self {
            strategy,
            task: task.name(),
            clients: task.clients(),
            rounds: sound.then(|| rounds.to_vec()),
            audits: rounds.iter().map(|round| round.audit.clone()).collect(),
        }
    }
}

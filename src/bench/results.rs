//! Results of a benchmark as written to JSON: the source of table and picture.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{self, Figure, LockBench};
use super::machine::Machine;
use super::runs::{Round, Run, Task, Verdict};
use super::{HERO, MEASURE};
use crate::shop::Strategy;
use crate::shop::strategy::STRATEGIES;

#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) method: Method,
    /// Each strategy on one hot item.
    pub(super) arms: Vec<Arm>,
    /// Responses per second of the same path without the work.
    pub(super) noop_per_s: Option<Spread>,
    /// Strategies that could not run, with the reason.
    pub(super) skipped: BTreeMap<&'static str, String>,
    pub(super) figures: Vec<Figure>,
    pub(super) lock: Option<LockBench>,
    pub(super) runs: Vec<Measured>,
    #[serde(skip)]
    rounds: BTreeMap<Run, Vec<Round>>,
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

/// Median and range over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

/// One strategy on one hot item. It has figures only if every round was sound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Connections to Postgres per replica.
    pub(super) pool_size: u32,
    pub(super) sound: bool,
    /// Verdict of the worst round.
    pub(super) audit: Verdict,
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
pub(super) struct Measured {
    pub(super) strategy: &'static str,
    pub(super) task: &'static str,
    pub(super) clients: usize,
    pub(super) rounds: Option<Vec<Round>>,
    pub(super) audits: Vec<Verdict>,
}

impl Results {
    pub(super) fn new(
        machine: Machine,
        method: Method,
        skipped: BTreeMap<&'static str, String>,
        pools: &BTreeMap<Run, u32>,
        rounds: &BTreeMap<Run, Vec<Round>>,
    ) -> Self {
        let hot = |strategy| Run { strategy, task: Task::Hot(method.connections) };
        let measure = rounds.get(&hot(MEASURE)).map(Vec::as_slice);
        let arm = |strategy: &'static Strategy| {
            let rounds = rounds.get(&hot(strategy.name))?;
            Some(Arm::new(strategy, *pools.get(&hot(strategy.name))?, rounds, measure))
        };
        let noop = Run { strategy: super::runs::ANY, task: Task::Noop(method.connections) };
        Self {
            arms: STRATEGIES.iter().filter_map(arm).collect(),
            noop_per_s: rounds
                .get(&noop)
                .and_then(|rounds| Spread::of(rounds.iter().map(|round| round.per_second))),
            skipped,
            figures: Vec::new(),
            lock: None,
            runs: rounds.iter().map(|(run, rounds)| Measured::new(*run, rounds)).collect(),
            rounds: rounds.clone(),
            machine,
            method,
        }
    }

    /// Computes the figures of the goals.
    pub(super) fn add_figures(&mut self, lock: Option<LockBench>) {
        self.lock = lock;
        self.figures = figures::all(self);
    }

    /// Returns the rounds of a run if all were sound; otherwise the reason.
    pub(super) fn sound(&self, run: Run) -> Result<&[Round], String> {
        let name = run.strategy;
        match self.rounds.get(&run) {
            Some(rounds) if rounds.iter().all(|round| round.audit.ok) => Ok(rounds),
            Some(_) => Err(format!("{name} is not sound")),
            None => Err(match self.skipped.get(name) {
                Some(why) => format!("{name}: {why}"),
                None if Strategy::named(name).is_none() && name == HERO => {
                    format!("there is no {name} yet")
                }
                None => format!("{name} was not run"),
            }),
        }
    }
}

impl Arm {
    fn new(
        strategy: &'static Strategy,
        pool_size: u32,
        rounds: &[Round],
        measure: Option<&[Round]>,
    ) -> Self {
        let sound = rounds.iter().all(|round| round.audit.ok);
        let spread = |of: fn(&Round) -> Option<f64>| {
            if sound { Spread::of(rounds.iter().filter_map(of)) } else { None }
        };
        let median = |of| spread(of).map(|spread| spread.median);
        let measure = measure.filter(|measure| sound && measure.iter().all(|round| round.audit.ok));
        let ratio_to_owner = measure.and_then(|measure| {
            let pairs = rounds.iter().zip(measure).filter(|(_, owner)| owner.per_second > 0.0);
            Spread::of(pairs.map(|(round, owner)| round.per_second / owner.per_second))
        });
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

impl Measured {
    fn new(Run { strategy, task }: Run, rounds: &[Round]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_minimum_and_maximum() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(spread(&[4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }
}

//! Goals and their figures. `docs/PERFORMANCE.md` explains the choice and the source of each.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::results::{Results, Spread};
use super::runs::{BenchRun, MANY_CLIENTS, NO_STRATEGY, Round, Task};
use super::{BASELINE, BATCHED, ROW_LOCK};

#[derive(Debug, Clone, Serialize)]
pub(super) struct Goal {
    /// Number of the goal, e.g. `P1`; `fair` for fairness.
    pub(super) id: &'static str,
    pub(super) what: String,
    /// Unit, e.g. `×` or `µs`.
    pub(super) unit: &'static str,
    pub(super) less_is_better: bool,
    pub(super) at_least: f64,
    pub(super) reach_for: f64,
    pub(super) value: Option<Spread>,
    pub(super) met: GoalStatus,
    /// Reason for a missing value.
    pub(super) missing: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GoalStatus {
    /// At least as good as `reach_for`.
    Reached,
    /// At least as good as `at_least`, but not as `reach_for`.
    AtLeast,
    No,
    Unknown,
}

/// Output of `benches/lock.rs`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LockBench {
    /// Medians, by lock.
    pub(super) arms: BTreeMap<String, LockFigures>,
}

/// Figures of one lock, without a shop; `None` without enough samples.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LockFigures {
    pub(super) held_share: Option<f64>,
    pub(super) p99_wait_ms: Option<f64>,
    pub(super) p99_to_ideal: Option<f64>,
    pub(super) same_process_p50_us: Option<f64>,
    pub(super) between_p50_us: Option<f64>,
    /// A bare message between processes, sent as rarely as the lock changes process.
    pub(super) trip_p50_us: Option<f64>,
    /// `between_p50_us` / `trip_p50_us`: the median of the rounds' ratios.
    pub(super) between_trips: Option<f64>,
    pub(super) jain: Option<f64>,
    pub(super) commands: Option<f64>,
}

pub(super) fn read_lock(path: &Path) -> anyhow::Result<LockBench> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("can't read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what benches/lock.rs writes", path.display()))
}

type Measurement = Result<Spread, String>;

pub(super) fn all(results: &Results) -> Vec<Goal> {
    let mut all = throughput_goals(results);
    all.extend(fenced_goals(results));
    all.extend(lock_goals(results));
    all.extend(cost_goals(results));
    all
}

/// P1 to P7.
fn throughput_goals(results: &Results) -> Vec<Goal> {
    let n = results.method.connections;
    let run = |strategy, task| BenchRun { strategy, task };
    let hot = |strategy| run(strategy, Task::Hot(n));
    let one = |strategy| run(strategy, Task::Hot(1));
    let spread = |strategy| run(strategy, Task::Spread(n));
    let over = |upper, lower| ratio(results, upper, lower, RATE);
    let tokens = over(run(BATCHED, Task::Hot(MANY_CLIENTS)), hot(BATCHED));
    let crowd_noop = over(run(BATCHED, Task::Hot(MANY_CLIENTS)), no_op(MANY_CLIENTS));
    let waits = ratio(results, one(BATCHED), one(ROW_LOCK), |round| round.p50_ms);
    let hero = |than: &str| format!("one hot item: {BATCHED} / {than}");
    let (atomic, noop) = (over(hot(BATCHED), hot("atomic")), over(hot(BATCHED), no_op(n)));
    vec![
        Goal::new("P1", hero(BASELINE), "×", [17.0, 28.0], over(hot(BATCHED), hot(BASELINE))),
        Goal::new("P2", hero(ROW_LOCK), "×", [11.0, 18.0], over(hot(BATCHED), hot(ROW_LOCK))),
        Goal::new("P3", hero("atomic"), "×", [8.0, 12.0], atomic),
        Goal::new("P4", format!("{BATCHED} / no-op"), "×", [0.17, 0.22], noop),
        Goal::new(
            "P4b",
            format!("the same, {MANY_CLIENTS} clients"),
            "×",
            [0.26, 0.33],
            crowd_noop,
        ),
        Goal::new(
            "P5",
            format!("{BATCHED}: {MANY_CLIENTS} clients / {n}"),
            "×",
            [1.3, 1.6],
            tokens,
        ),
        Goal::new(
            "P6",
            format!("one client: p50 {BATCHED} / p50 {ROW_LOCK}"),
            "×",
            [0.8, 0.6],
            waits,
        ),
        Goal::new(
            "P7",
            format!("1,000 items evenly: {BATCHED} / {ROW_LOCK}"),
            "×",
            [1.2, 1.5],
            over(spread(BATCHED), spread(ROW_LOCK)),
        ),
    ]
}

/// P8: the lock of this project compared with the textbook's, without batching.
fn fenced_goals(results: &Results) -> Vec<Goal> {
    let hot = |strategy| BenchRun { strategy, task: Task::Hot(results.method.connections) };
    let waits = ratio(results, hot(BASELINE), hot("fenced"), |round| round.p99_ms);
    let rate = ratio(results, hot("fenced"), hot(BASELINE), RATE);
    let what = |what: String| format!("one hot item: {what}");
    vec![
        Goal::new("P8", what(format!("p99 {BASELINE} / p99 fenced")), "×", [8.0, 15.0], waits),
        Goal::new("P8", what(format!("fenced / {BASELINE}")), "×", [2.0, 3.0], rate),
    ]
}

/// P12 to P14, and fairness.
fn cost_goals(results: &Results) -> Vec<Goal> {
    let n = results.method.connections;
    let run = |strategy, task| BenchRun { strategy, task };
    let hot = run(BATCHED, Task::Hot(n));
    let over = |upper, lower| ratio(results, upper, lower, RATE);
    let reads = each(results, hot, |round| Some(round.redis_reads));
    let writes = each(results, hot, |round| Some(round.writes));
    let sold_out = over(run(BATCHED, Task::SoldOut(n)), no_op(n));
    let pay = over(run(BATCHED, Task::Pay(n)), run(ROW_LOCK, Task::Pay(n)));
    let what = |what: &str| format!("{BATCHED}: {what}");
    let pays = format!("payments, {n} users: {BATCHED} / {ROW_LOCK}");
    let clients = each(results, hot, |round| Some(round.jain_clients));
    let replicas = each(results, hot, |round| Some(round.jain_replicas));
    vec![
        Goal::new("P12", what("Redis' reads per order"), "", [0.07, 0.05], reads),
        Goal::new("P12", what("Postgres' writing transactions"), "", [0.04, 0.03], writes),
        Goal::new("P13", what("sold-out answers / no-op"), "×", [0.4, 0.6], sold_out),
        Goal::new("P14", pays, "×", [1.1, 1.3], pay),
        Goal::new("fair", what("Jain over clients"), "", [0.95, 0.95], clients),
        Goal::new("fair", what("Jain over replicas"), "", [0.95, 0.95], replicas),
    ]
}

fn no_op(clients: usize) -> BenchRun {
    BenchRun { strategy: NO_STRATEGY, task: Task::Noop(clients) }
}

/// P9 to P11, from the benchmark of the lock alone.
fn lock_goals(results: &Results) -> Vec<Goal> {
    let value = |of: fn(&LockFigures) -> Option<f64>| -> Measurement {
        let lock = results.lock.as_ref();
        let lock = lock.ok_or("cargo bench --bench lock; script/bench runs it")?;
        let arm = lock.arms.get("fenced").ok_or("the lock's benchmark lacks fenced")?;
        Spread::of(of(arm)).ok_or_else(|| "it happened too seldom".to_owned())
    };
    let what = |what: &str| format!("lock alone, fenced: {what}");
    let held = value(|arm| Some(100.0 * arm.held_share?));
    let waits = value(|arm| arm.p99_to_ideal);
    let inside = value(|arm| arm.same_process_p50_us);
    let between = value(|arm| arm.between_trips);
    vec![
        Goal::new("P9", what("share of time held"), "%", [97.0, 99.0], held),
        Goal::new("P10", what("p99 wait / ideal"), "×", [1.2, 1.1], waits),
        Goal::new("P11", what("hand-off in a process"), "µs", [10.0, 5.0], inside),
        Goal::new("P11", what("between processes / PUBLISH"), "×", [2.2, 1.7], between),
    ]
}

impl Goal {
    /// Infers from the goals whether less is better.
    fn new(
        id: &'static str,
        what: String,
        unit: &'static str,
        [at_least, reach_for]: [f64; 2],
        value: Measurement,
    ) -> Self {
        let less_is_better = reach_for < at_least;
        let (value, missing) = match value {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        let reaches = |goal: f64| {
            value.map(|v| if less_is_better { v.median <= goal } else { v.median >= goal })
        };
        let met = match (reaches(reach_for), reaches(at_least)) {
            (Some(true), _) => GoalStatus::Reached,
            (_, Some(true)) => GoalStatus::AtLeast,
            (_, Some(false)) => GoalStatus::No,
            _ => GoalStatus::Unknown,
        };
        Self { id, what, unit, less_is_better, at_least, reach_for, value, met, missing }
    }
}

type Metric = fn(&Round) -> Option<f64>;

const RATE: Metric = |round| Some(round.per_second);

/// Returns the ratio of a metric of two runs, over the rounds.
fn ratio(results: &Results, upper: BenchRun, lower: BenchRun, of: Metric) -> Measurement {
    let (upper, lower) = (results.sound(upper)?, results.sound(lower)?);
    let ratios = upper.iter().zip(lower).filter_map(|(upper, lower)| {
        let lower = of(lower).filter(|lower| *lower > 0.0)?;
        Some(of(upper)? / lower)
    });
    Spread::of(ratios).ok_or_else(|| "nothing was counted".to_owned())
}

fn each(results: &Results, run: BenchRun, of: Metric) -> Measurement {
    let values = results.sound(run)?.iter().filter_map(of);
    Spread::of(values).ok_or_else(|| "nothing was counted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_from_its_own_side() {
        let met = |less_is_better, value: f64| {
            let value = Spread::of([value]).ok_or_else(String::new);
            let goals = if less_is_better { [1.3, 1.0] } else { [10.0, 15.0] };
            Goal::new("P", String::new(), "×", goals, value).met
        };
        assert_eq!(
            [9.0, 10.0, 16.0].map(|v| met(false, v)),
            [GoalStatus::No, GoalStatus::AtLeast, GoalStatus::Reached]
        );
        assert_eq!(
            [1.4, 1.2, 0.9].map(|v| met(true, v)),
            [GoalStatus::No, GoalStatus::AtLeast, GoalStatus::Reached]
        );
        let none = Goal::new("P", String::new(), "×", [1.0, 2.0], Err("why".to_owned()));
        assert_eq!((none.met, none.missing.as_deref()), (GoalStatus::Unknown, Some("why")));
    }
}

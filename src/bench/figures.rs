//! Goals and their figures. `docs/PERFORMANCE.md` explains the choice and the source of each.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::results::{Results, Spread};
use super::runs::{ANY, CROWD, Round, Run, Task};
use super::{HERO, MEASURE, RIVAL};

#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    /// Number of the goal, e.g. `P1`; `fair` for fairness.
    pub(super) id: &'static str,
    pub(super) what: String,
    /// Unit, e.g. `×` or `µs`.
    pub(super) unit: &'static str,
    pub(super) less_is_better: bool,
    pub(super) at_least: f64,
    pub(super) reach_for: f64,
    pub(super) value: Option<Spread>,
    pub(super) met: Met,
    /// Reason for a missing value.
    pub(super) missing: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Met {
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
    pub(super) arms: BTreeMap<String, LockArm>,
}

/// Figures of one lock, without a shop; `None` without enough samples.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct LockArm {
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

type Value = Result<Spread, String>;

pub(super) fn all(results: &Results) -> Vec<Figure> {
    let mut all = of_throughput(results);
    all.extend(of_fenced(results));
    all.extend(of_locks(results));
    all.extend(of_cost(results));
    all
}

/// P1 to P7.
fn of_throughput(results: &Results) -> Vec<Figure> {
    let n = results.method.connections;
    let run = |strategy, task| Run { strategy, task };
    let hot = |strategy| run(strategy, Task::Hot(n));
    let one = |strategy| run(strategy, Task::Hot(1));
    let spread = |strategy| run(strategy, Task::Spread(n));
    let over = |upper, lower| ratio(results, upper, lower, RATE);
    let crowd = over(run(HERO, Task::Hot(CROWD)), hot(HERO));
    let crowd_noop = over(run(HERO, Task::Hot(CROWD)), no_op(CROWD));
    let waits = ratio(results, one(HERO), one(RIVAL), |round| round.p50_ms);
    let hero = |than: &str| format!("one hot item: {HERO} / {than}");
    let (atomic, noop) = (over(hot(HERO), hot("atomic")), over(hot(HERO), no_op(n)));
    vec![
        Figure::new("P1", hero(MEASURE), "×", [17.0, 28.0], over(hot(HERO), hot(MEASURE))),
        Figure::new("P2", hero(RIVAL), "×", [11.0, 18.0], over(hot(HERO), hot(RIVAL))),
        Figure::new("P3", hero("atomic"), "×", [8.0, 12.0], atomic),
        Figure::new("P4", format!("{HERO} / no-op"), "×", [0.17, 0.22], noop),
        Figure::new("P4b", format!("the same, {CROWD} clients"), "×", [0.26, 0.33], crowd_noop),
        Figure::new("P5", format!("{HERO}: {CROWD} clients / {n}"), "×", [1.3, 1.6], crowd),
        Figure::new("P6", format!("one client: p50 {HERO} / p50 {RIVAL}"), "×", [0.8, 0.6], waits),
        Figure::new(
            "P7",
            format!("1,000 items evenly: {HERO} / {RIVAL}"),
            "×",
            [1.2, 1.5],
            over(spread(HERO), spread(RIVAL)),
        ),
    ]
}

/// P8: the lock of this project compared with the textbook's, without batching.
fn of_fenced(results: &Results) -> Vec<Figure> {
    let hot = |strategy| Run { strategy, task: Task::Hot(results.method.connections) };
    let waits = ratio(results, hot(MEASURE), hot("fenced"), |round| round.p99_ms);
    let rate = ratio(results, hot("fenced"), hot(MEASURE), RATE);
    let what = |what: String| format!("one hot item: {what}");
    vec![
        Figure::new("P8", what(format!("p99 {MEASURE} / p99 fenced")), "×", [8.0, 15.0], waits),
        Figure::new("P8", what(format!("fenced / {MEASURE}")), "×", [2.0, 3.0], rate),
    ]
}

/// P12 to P14, and fairness.
fn of_cost(results: &Results) -> Vec<Figure> {
    let n = results.method.connections;
    let run = |strategy, task| Run { strategy, task };
    let hot = run(HERO, Task::Hot(n));
    let over = |upper, lower| ratio(results, upper, lower, RATE);
    let reads = each(results, hot, |round| Some(round.redis_reads));
    let writes = each(results, hot, |round| Some(round.writes));
    let sold_out = over(run(HERO, Task::SoldOut(n)), no_op(n));
    let pay = over(run(HERO, Task::Pay(n)), run(RIVAL, Task::Pay(n)));
    let what = |what: &str| format!("{HERO}: {what}");
    let pays = format!("payments, {n} users: {HERO} / {RIVAL}");
    let clients = each(results, hot, |round| Some(round.jain_clients));
    let replicas = each(results, hot, |round| Some(round.jain_replicas));
    vec![
        Figure::new("P12", what("Redis' reads per order"), "", [0.07, 0.05], reads),
        Figure::new("P12", what("Postgres' writing transactions"), "", [0.04, 0.03], writes),
        Figure::new("P13", what("sold-out answers / no-op"), "×", [0.4, 0.6], sold_out),
        Figure::new("P14", pays, "×", [1.1, 1.3], pay),
        Figure::new("fair", what("Jain over clients"), "", [0.95, 0.95], clients),
        Figure::new("fair", what("Jain over replicas"), "", [0.95, 0.95], replicas),
    ]
}

fn no_op(clients: usize) -> Run {
    Run { strategy: ANY, task: Task::Noop(clients) }
}

/// P9 to P11, from the benchmark of the lock alone.
fn of_locks(results: &Results) -> Vec<Figure> {
    let value = |of: fn(&LockArm) -> Option<f64>| -> Value {
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
        Figure::new("P9", what("share of time held"), "%", [97.0, 99.0], held),
        Figure::new("P10", what("p99 wait / ideal"), "×", [1.2, 1.1], waits),
        Figure::new("P11", what("hand-off in a process"), "µs", [10.0, 5.0], inside),
        Figure::new("P11", what("between processes / PUBLISH"), "×", [2.2, 1.7], between),
    ]
}

impl Figure {
    /// Infers from the goals whether less is better.
    fn new(
        id: &'static str,
        what: String,
        unit: &'static str,
        [at_least, reach_for]: [f64; 2],
        value: Value,
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
            (Some(true), _) => Met::Reached,
            (_, Some(true)) => Met::AtLeast,
            (_, Some(false)) => Met::No,
            _ => Met::Unknown,
        };
        Self { id, what, unit, less_is_better, at_least, reach_for, value, met, missing }
    }
}

type Metric = fn(&Round) -> Option<f64>;

const RATE: Metric = |round| Some(round.per_second);

/// Returns the ratio of a metric of two runs, over the rounds.
fn ratio(results: &Results, upper: Run, lower: Run, of: Metric) -> Value {
    let (upper, lower) = (results.sound(upper)?, results.sound(lower)?);
    let ratios = upper.iter().zip(lower).filter_map(|(upper, lower)| {
        let lower = of(lower).filter(|lower| *lower > 0.0)?;
        Some(of(upper)? / lower)
    });
    Spread::of(ratios).ok_or_else(|| "nothing was counted".to_owned())
}

fn each(results: &Results, run: Run, of: Metric) -> Value {
    let values = results.sound(run)?.iter().filter_map(of);
    Spread::of(values).ok_or_else(|| "nothing was counted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_direction_decides_if_met() {
        let met = |less_is_better, value: f64| {
            let value = Spread::of([value]).ok_or_else(String::new);
            let goals = if less_is_better { [1.3, 1.0] } else { [10.0, 15.0] };
            Figure::new("P", String::new(), "×", goals, value).met
        };
        assert_eq!([9.0, 10.0, 16.0].map(|v| met(false, v)), [Met::No, Met::AtLeast, Met::Reached]);
        assert_eq!([1.4, 1.2, 0.9].map(|v| met(true, v)), [Met::No, Met::AtLeast, Met::Reached]);
        let none = Figure::new("P", String::new(), "×", [1.0, 2.0], Err("why".to_owned()));
        assert_eq!((none.met, none.missing.as_deref()), (Met::Unknown, Some("why")));
    }
}

//! Runs (one strategy at one task), their rounds, and the figures over the rounds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use holdfast_base::output::grouped;
use holdfast_base::stats::jain;
use holdfast_services::CpuTime;
use holdfast_services::load::LoadReport;
use holdfast_shop::audit::ItemAudit;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct BenchRun {
    pub(super) strategy: &'static str,
    pub(super) task: Task,
    /// Of [`Task::Floor`]: the orders of a statement.
    pub(super) clients: usize,
    /// Number of replicas among which the clients are divided; the others are idle.
    pub(super) replicas: usize,
}

/// Baseline of the ratios: the textbook's lock.
pub(super) const BASELINE: &str = "owner";
pub(super) const BATCHED: &str = "batched";
/// Compared with [`BATCHED`] in the goals that need only one other strategy.
pub(super) const ROW_LOCK: &str = "row-lock";
/// Compared with [`ROW_LOCK`]: one row for each unit of the hot item.
pub(super) const UNITS: &str = "units";
pub(super) const NO_STRATEGY: &str = "-";
pub(super) const SPREAD_ITEMS: usize = 1_000;
pub(super) const MANY_CLIENTS: usize = 256;
/// Of all runs but those of [`OTHER_REPLICAS`].
pub(super) const REPLICAS: usize = 2;
pub(super) const OTHER_REPLICAS: [usize; 2] = [1, 4];
pub(super) const MOST_REPLICAS: u16 = 4;
/// Of the mixed load, at most.
const MIXED_REPLICAS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    Hot,
    /// The same requests, received, checked and answered, without an order.
    NoOp,
    /// The write statement alone, in a loop.
    Floor,
    /// The clients order [`SPREAD_ITEMS`] items in turn.
    Spread,
    /// The clients order an item that is sold out.
    SoldOut,
    /// Each client pays for a fixed number of orders, placed beforehand.
    Payments,
    /// The hot item, among commands that need its lease on each replica.
    Mixed,
    /// The same, each client by turns on all replicas.
    MixedRoundRobin,
    /// The same, two in three clients on the first replica.
    MixedUneven,
}

impl BenchRun {
    pub(super) fn hot(strategy: &'static str, clients: usize) -> Self {
        Self { strategy, task: Task::Hot, clients, replicas: REPLICAS }
    }

    pub(super) fn no_op(clients: usize) -> Self {
        Self::hot(NO_STRATEGY, clients).with(Task::NoOp)
    }

    pub(super) fn floor() -> Self {
        Self::hot(NO_STRATEGY, MANY_CLIENTS).with(Task::Floor)
    }

    pub(super) fn with(self, task: Task) -> Self {
        Self { task, ..self }
    }

    pub(super) fn over(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// Describes how the clients are divided among replicas.
    pub(super) fn division(self) -> String {
        let how = match self.task {
            Task::MixedRoundRobin => ", by turns",
            Task::MixedUneven => ", unevenly",
            _ => "",
        };
        let replicas = if self.replicas == 1 { "replica" } else { "replicas" };
        format!("{} {replicas}{how}", self.replicas)
    }
}

impl Task {
    pub(super) fn expected(self) -> fn(u16) -> bool {
        match self {
            Task::SoldOut => |status| status == 409,
            _ if self.is_mixed() => |status| status == 201,
            _ => is_success,
        }
    }

    pub(super) fn is_mixed(self) -> bool {
        matches!(self, Task::Mixed | Task::MixedRoundRobin | Task::MixedUneven)
    }
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

impl fmt::Display for BenchRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { strategy, task, clients, replicas } = self;
        write!(f, "{strategy}, {task:?}, {clients} clients")?;
        if *replicas == REPLICAS { Ok(()) } else { write!(f, ", of {replicas} replicas") }
    }
}

/// Returns all runs of a round: each strategy on the hot item, the no-op, and, `for_goals`, the
/// other runs that the goals need of [`BATCHED`] and [`ROW_LOCK`], if they are among `strategies`.
pub(super) fn schedule(
    strategies: &[&'static str],
    clients: usize,
    for_goals: bool,
) -> Vec<BenchRun> {
    let mut all = vec![BenchRun::no_op(clients)];
    all.extend(strategies.iter().map(|strategy| BenchRun::hot(strategy, clients)));
    if !for_goals {
        return all;
    }

    for strategy in [BATCHED, ROW_LOCK].into_iter().filter(|name| strategies.contains(name)) {
        let usual = BenchRun::hot(strategy, clients);
        all.push(BenchRun::hot(strategy, 1));
        all.extend([Task::Spread, Task::Payments].map(|task| usual.with(task)));
        if strategy == BATCHED {
            all.push(BenchRun::hot(strategy, MANY_CLIENTS));
            all.push(usual.with(Task::SoldOut));
            all.extend([BenchRun::no_op(MANY_CLIENTS), BenchRun::floor()]);
            all.extend(mixed(clients));
            for replicas in OTHER_REPLICAS {
                all.extend(
                    [clients, MANY_CLIENTS].map(|n| BenchRun::hot(strategy, n).over(replicas)),
                );
            }
        }
    }

    // The number of the usual clients may be one of the others.
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the runs of the mixed load.
pub(super) fn mixed(clients: usize) -> Vec<BenchRun> {
    let usual = BenchRun::hot(BATCHED, clients).with(Task::Mixed);
    let mut all: Vec<BenchRun> = (1..=MIXED_REPLICAS).map(|n| usual.over(n)).collect();
    let divided = [Task::MixedRoundRobin, Task::MixedUneven];
    all.extend(divided.map(|task| usual.with(task).over(MIXED_REPLICAS)));
    all
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    pub(super) per_second: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) jain_clients: f64,
    pub(super) jain_replicas: f64,
    /// Per expected response.
    #[serde(flatten)]
    pub(super) costs: Option<Costs>,
    /// Other responses, by status; 0 for a request without one.
    pub(super) refused: BTreeMap<u16, u64>,
    pub(super) audit: AuditSummary,
}

/// Counters of servers that do nothing else.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Costs {
    /// Reads from clients' sockets that Redis processed.
    pub(super) redis_reads: f64,
    /// Postgres transactions that wrote.
    pub(super) writes: f64,
    /// Commands that a replica forwarded to another one, and those that came back unexecuted.
    pub(super) forwarded: f64,
    pub(super) returned: f64,
    /// Processor time; `None` where the system does not tell.
    pub(super) cpu: Option<CpuMicros>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CpuMicros {
    pub(super) postgres: f64,
    pub(super) replicas: f64,
    pub(super) redis: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct AuditSummary {
    pub(super) ok: bool,
    /// Units that were sold but not taken from stock, or that never existed.
    pub(super) oversold: i64,
    /// Row versions from which two or more entries were computed.
    pub(super) forks: usize,
    pub(super) failed: Vec<String>,
    #[serde(skip)]
    pub(super) least_stock: Option<i64>,
}

impl AuditSummary {
    pub(super) fn add(&mut self, item: &ItemAudit) {
        self.ok &= item.ok && item.forks.is_empty() && item.unaccounted() == 0;
        self.oversold += (-item.unaccounted()).max(item.oversold).max(0);
        self.forks += item.forks.len();
        self.least_stock = Some(self.least_stock.map_or(item.stock, |least| least.min(item.stock)));
    }
}

impl Costs {
    /// Returns the costs of a response: what was counted since `earlier`, divided by `responses`.
    fn since(self, earlier: Self, responses: f64) -> Self {
        let cpu = self.cpu.zip(earlier.cpu);
        Self {
            redis_reads: (self.redis_reads - earlier.redis_reads) / responses,
            writes: (self.writes - earlier.writes) / responses,
            forwarded: (self.forwarded - earlier.forwarded) / responses,
            returned: (self.returned - earlier.returned) / responses,
            cpu: cpu.map(|(now, earlier)| now.since(earlier, responses)),
        }
    }
}

impl CpuMicros {
    fn since(self, earlier: Self, responses: f64) -> Self {
        Self {
            postgres: (self.postgres - earlier.postgres) / responses,
            replicas: (self.replicas - earlier.replicas) / responses,
            redis: (self.redis - earlier.redis) / responses,
        }
    }
}

impl From<CpuTime> for CpuMicros {
    fn from(CpuTime { postgres, replicas, redis }: CpuTime) -> Self {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Self { postgres: us(postgres), replicas: us(replicas), redis: us(redis) }
    }
}

impl Round {
    /// `counters` are those before and after the run.
    pub(super) fn new(
        report: &LoadReport,
        task: Task,
        counters: Option<(Costs, Costs)>,
        audit: AuditSummary,
    ) -> Self {
        let expected = task.expected();
        let mut refused = report.statuses.clone();
        // A cancel of the mixed load is neither an order nor refused.
        let is_cancel = |status: u16| task.is_mixed() && status == 200;
        refused.retain(|status, _| !expected(*status) && !is_cancel(*status));
        if report.lost > 0 {
            refused.insert(0, report.lost);
        }

        let responses = report.expected_total.max(1) as f64;
        Self {
            per_second: report.per_second(),
            p50_ms: report.latency_ms(0.5),
            p99_ms: report.latency_ms(0.99),
            jain_clients: jain(report.by_client.iter().copied()).unwrap_or(1.0),
            jain_replicas: jain(report.by_target.values().copied()).unwrap_or(1.0),
            costs: counters.map(|(before, after)| after.since(before, responses)),
            refused,
            audit,
        }
    }

    pub(super) fn cpu_us(&self) -> Option<f64> {
        let CpuMicros { postgres, replicas, redis } = self.costs?.cpu?;
        Some(postgres + replicas + redis)
    }

    /// Returns the share of the forwarded commands that came back unexecuted.
    pub(super) fn returned(&self) -> Option<f64> {
        let Costs { forwarded, returned, .. } = self.costs?;
        (forwarded > 0.0).then_some(returned / forwarded)
    }
}

impl fmt::Display for AuditSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ok {
            return write!(f, "sound");
        }
        if self.oversold == 0 && self.forks == 0 {
            write!(f, "not sound")?;
        } else {
            let oversold = grouped(self.oversold.unsigned_abs());
            write!(f, "oversold by {oversold} ({} forks)", grouped(self.forks as u64))?;
        }
        self.failed.iter().try_for_each(|failed| write!(f, "; {failed}"))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, {}", self.per_second, self.audit)?;
        self.refused.iter().try_for_each(|(status, count)| write!(f, ", {count} × {status}"))
    }
}

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
        let last = values.len().checked_sub(1)?;
        let median = f64::midpoint(values[last / 2], values[values.len() / 2]);
        Some(Self { median, min: values[0], max: values[last] })
    }
}

#[derive(Debug, Default)]
pub(super) struct Measurements(pub(super) BTreeMap<BenchRun, Vec<Round>>);

pub(super) type Metric = fn(&Round) -> Option<f64>;

impl Measurements {
    /// Returns the rounds of a run, if all were sound.
    fn sound(&self, run: BenchRun) -> Option<&[Round]> {
        let rounds = self.0.get(&run)?;
        rounds.iter().all(|round| round.audit.ok).then_some(rounds)
    }

    /// Returns the ratio of a metric of two runs, over the rounds.
    pub(super) fn ratio(&self, upper: BenchRun, lower: BenchRun, metric: Metric) -> Option<Spread> {
        let rounds = self.sound(upper)?.iter().zip(self.sound(lower)?);
        Spread::of(rounds.filter_map(|(upper, lower)| {
            let lower = metric(lower).filter(|lower| *lower > 0.0)?;
            Some(metric(upper)? / lower)
        }))
    }

    pub(super) fn rate(&self, upper: BenchRun, lower: BenchRun) -> Option<Spread> {
        self.ratio(upper, lower, |round| Some(round.per_second))
    }

    pub(super) fn each(&self, run: BenchRun, metric: Metric) -> Option<Spread> {
        Spread::of(self.sound(run)?.iter().filter_map(metric))
    }

    /// Returns the figures of all runs: of the strategies in their order, of the no-op last.
    pub(super) fn results(&self, strategies: &[&'static str]) -> Vec<BenchRunResult> {
        let mut results: Vec<BenchRunResult> =
            self.0.iter().map(|(run, rounds)| BenchRunResult::new(self, *run, rounds)).collect();
        results.sort_by_key(|result| {
            let place = strategies.iter().position(|name| *name == result.run.strategy);
            place.unwrap_or(usize::MAX)
        });
        results
    }
}

/// A run over all rounds. It has figures only if every round was sound.
#[derive(Debug, Serialize)]
pub(super) struct BenchRunResult {
    #[serde(flatten)]
    pub(super) run: BenchRun,
    /// Audit of the worst round.
    pub(super) audit: AuditSummary,
    /// Number of other responses than the expected one, of all rounds.
    pub(super) refused: u64,
    pub(super) per_second: Option<Spread>,
    pub(super) p50_ms: Option<Spread>,
    pub(super) p99_ms: Option<Spread>,
    pub(super) jain_clients: Option<Spread>,
    pub(super) redis_reads: Option<Spread>,
    /// Processor time of an order in Postgres, replicas and Redis, in µs.
    pub(super) cpu_us: Option<Spread>,
    /// Ratio of the throughput to that of `owner` at the same task.
    pub(super) ratio_to_owner: Option<Spread>,
    /// The same, to that over one replica.
    pub(super) ratio_to_one_replica: Option<Spread>,
    /// Share of the forwarded commands that came back unexecuted.
    pub(super) returned: Option<Spread>,
    rounds: Option<Vec<Round>>,
}

impl BenchRunResult {
    fn new(data: &Measurements, run: BenchRun, rounds: &[Round]) -> Self {
        let audits = rounds.iter().map(|round| &round.audit);
        let worst = audits.max_by_key(|audit| (!audit.ok, audit.oversold, audit.forks));
        let baseline = BenchRun { strategy: BASELINE, ..run };
        let alone = if run.task.is_mixed() { run.with(Task::Mixed) } else { run };

        Self {
            run,
            audit: worst.cloned().unwrap_or_default(),
            refused: rounds.iter().flat_map(|round| round.refused.values()).sum(),
            per_second: data.each(run, |round| Some(round.per_second)),
            p50_ms: data.each(run, |round| round.p50_ms),
            p99_ms: data.each(run, |round| round.p99_ms),
            jain_clients: data.each(run, |round| Some(round.jain_clients)),
            redis_reads: data.each(run, |round| Some(round.costs?.redis_reads)),
            cpu_us: data.each(run, Round::cpu_us),
            ratio_to_owner: data.rate(run, baseline),
            ratio_to_one_replica: data.rate(run, alone.over(1)),
            returned: data.each(run, Round::returned),
            rounds: data.sound(run).map(<[Round]>::to_vec),
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

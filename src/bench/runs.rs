//! Runs (one strategy at one task) and the results of one round.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::load::LoadReport;
use crate::output::grouped;
use crate::shop::audit::ItemAudit;
use crate::stats::jain;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct BenchRun {
    /// Name of the strategy; [`NO_STRATEGY`] for a task that needs none.
    pub(super) strategy: &'static str,
    pub(super) task: Task,
    pub(super) clients: usize,
}

/// Baseline of the ratios: the textbook's lock.
pub(super) const BASELINE: &str = "owner";
/// The strategy that this project claims is the fastest.
pub(super) const BATCHED: &str = "batched";
/// Compared with [`BATCHED`] in the goals that need only one other strategy.
pub(super) const ROW_LOCK: &str = "row-lock";
/// Placeholder for the strategy of a task that needs none.
pub(super) const NO_STRATEGY: &str = "-";
/// Number of items of [`Task::Spread`].
pub(super) const SPREAD_ITEMS: usize = 1_000;
pub(super) const MANY_CLIENTS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    Hot,
    /// The same requests, received, checked and answered, without an order.
    NoOp,
    /// The clients order [`SPREAD_ITEMS`] items in turn.
    Spread,
    /// The clients order an item that is sold out.
    SoldOut,
    /// Each client pays for a fixed number of orders, placed beforehand.
    Payments,
}

impl BenchRun {
    pub(super) fn hot(strategy: &'static str, clients: usize) -> Self {
        Self { strategy, task: Task::Hot, clients }
    }

    pub(super) fn no_op(clients: usize) -> Self {
        Self { strategy: NO_STRATEGY, task: Task::NoOp, clients }
    }

    /// Returns the run that calibrates the pool size of this one: many items and payments use
    /// several connections at once, the hot item uses one.
    pub(super) fn calibration(self, clients: usize) -> Self {
        match self.task {
            Task::Spread | Task::Payments => self,
            Task::Hot | Task::NoOp | Task::SoldOut => Self::hot(self.strategy, clients),
        }
    }
}

impl Task {
    pub(super) fn expected(self) -> fn(u16) -> bool {
        match self {
            Task::SoldOut => |status| status == 409,
            _ => |status| (200..300).contains(&status),
        }
    }
}

impl fmt::Display for BenchRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { strategy, task, clients } = self;
        let task = match task {
            Task::Hot => "one item",
            Task::NoOp => "no-op",
            Task::Spread => "many items",
            Task::SoldOut => "sold out",
            Task::Payments => "payments",
        };
        write!(f, "{strategy}, {task}, {clients} clients")
    }
}

/// Returns all runs of a round: each strategy on the hot item, the no-op, and the other runs that
/// the figures need of [`BATCHED`] and [`ROW_LOCK`], if they are among `strategies`.
pub(super) fn schedule(strategies: &[&'static str], clients: usize) -> Vec<BenchRun> {
    let mut all = vec![BenchRun::no_op(clients)];
    all.extend(strategies.iter().map(|strategy| BenchRun::hot(strategy, clients)));
    for strategy in [BATCHED, ROW_LOCK].into_iter().filter(|name| strategies.contains(name)) {
        all.push(BenchRun::hot(strategy, 1));
        all.extend([Task::Spread, Task::Payments].map(|task| BenchRun { strategy, task, clients }));
        if strategy == BATCHED {
            all.push(BenchRun::hot(strategy, MANY_CLIENTS));
            all.push(BenchRun { strategy, task: Task::SoldOut, clients });
            all.push(BenchRun::no_op(MANY_CLIENTS));
        }
    }
    let mut scheduled = BTreeSet::new();
    all.retain(|run| scheduled.insert(*run));
    all
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerCounters {
    /// Reads from clients' sockets that Redis processed.
    pub(super) redis_reads: f64,
    /// Postgres transactions that wrote.
    pub(super) writes: f64,
}

impl ServerCounters {
    /// Returns the increase since `before`, at least 0.
    pub(super) fn since(self, before: ServerCounters) -> ServerCounters {
        let redis_reads = (self.redis_reads - before.redis_reads).max(0.0);
        ServerCounters { redis_reads, writes: (self.writes - before.writes).max(0.0) }
    }

    pub(super) fn times(self, factor: f64) -> ServerCounters {
        ServerCounters { redis_reads: self.redis_reads * factor, writes: self.writes * factor }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    pub(super) per_second: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) jain_clients: f64,
    pub(super) jain_replicas: f64,
    /// Reads from clients' sockets that Redis processed, per expected response.
    pub(super) redis_reads: f64,
    /// Postgres transactions that wrote, per expected response.
    pub(super) writes: f64,
    /// Other responses, by status.
    pub(super) refused: BTreeMap<u16, u64>,
    pub(super) lost: u64,
    pub(super) audit: AuditSummary,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct AuditSummary {
    pub(super) ok: bool,
    /// Units that were sold but not taken from stock, or that never existed.
    pub(super) oversold: i64,
    /// Row versions from which two or more entries were computed.
    pub(super) forks: usize,
    /// Entries that do not continue the previous one, or do not add up.
    pub(super) breaks: i64,
    /// Failed checks of the whole shop.
    pub(super) failed: Vec<String>,
}

impl AuditSummary {
    pub(super) fn add(&mut self, item: &ItemAudit) {
        self.ok &= item.ok && item.forks.is_empty() && item.unaccounted() == 0;
        self.oversold += (-item.unaccounted()).max(item.oversold).max(0);
        self.forks += item.forks.len();
        self.breaks += item.breaks;
    }
}

impl Round {
    pub(super) fn new(
        report: &LoadReport,
        task: Task,
        used: ServerCounters,
        audit: AuditSummary,
    ) -> Self {
        let expected = task.expected();
        let refused = report.statuses.iter().filter(|(status, _)| !expected(**status));
        let used = used.times(1.0 / report.expected_total.max(1) as f64);
        Self {
            per_second: report.per_second(),
            p50_ms: report.latency_ms(0.5),
            p99_ms: report.latency_ms(0.99),
            jain_clients: jain(report.by_client.iter().copied()).unwrap_or(1.0),
            jain_replicas: jain(report.by_target.iter().copied()).unwrap_or(1.0),
            redis_reads: used.redis_reads,
            writes: used.writes,
            refused: refused.map(|(status, count)| (*status, *count)).collect(),
            lost: report.lost,
            audit,
        }
    }
}

impl fmt::Display for AuditSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, oversold, forks, breaks, failed } = self;
        match (ok, oversold) {
            (true, _) => write!(f, "sound"),
            (false, 0) if failed.is_empty() => {
                write!(f, "not sound: {breaks} breaks, {forks} forks")
            }
            (false, 0) => write!(f, "not sound: {}", failed.join("; ")),
            (false, oversold) => {
                let oversold = grouped(oversold.unsigned_abs());
                write!(f, "oversold by {oversold} ({} forks)", grouped(*forks as u64))
            }
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, {}", self.per_second, self.audit)?;
        for (status, count) in &self.refused {
            write!(f, ", {count} × {status}")?;
        }
        Ok(())
    }
}

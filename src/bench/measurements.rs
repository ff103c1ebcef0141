//! What was measured: the rounds of every run, and the benchmark of the lock alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::runs::{BenchRun, Round};

#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) rounds: BTreeMap<BenchRun, Vec<Round>>,
    pub(super) lock: Option<LockBench>,
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
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

/// Output of `benches/lock.rs`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LockBench {
    /// Medians by lock and name, without a shop; `None` without enough samples.
    arms: BTreeMap<String, BTreeMap<String, Option<f64>>>,
}

impl LockBench {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("can't read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not an output of benches/lock.rs", path.display()))
    }
}

/// A value, or the reason why there is none.
pub(super) type Measurement = Result<Spread, String>;

pub(super) type Metric = fn(&Round) -> Option<f64>;

impl Measurements {
    /// Returns the rounds of a run if all were sound; otherwise the reason.
    pub(super) fn sound(&self, run: BenchRun) -> Result<&[Round], String> {
        match self.rounds.get(&run) {
            Some(rounds) if rounds.iter().all(|round| round.audit.ok) => Ok(rounds),
            Some(_) => Err(format!("{} is not sound", run.strategy)),
            None => Err(format!("{} was not run", run.strategy)),
        }
    }

    /// Returns the ratio of a metric of two runs, over the rounds.
    pub(super) fn ratio(&self, upper: BenchRun, lower: BenchRun, metric: Metric) -> Measurement {
        let (upper, lower) = (self.sound(upper)?, self.sound(lower)?);
        let ratios = upper.iter().zip(lower).filter_map(|(upper, lower)| {
            let lower = metric(lower).filter(|lower| *lower > 0.0)?;
            Some(metric(upper)? / lower)
        });
        Spread::of(ratios).ok_or_else(|| "no samples".to_owned())
    }

    pub(super) fn each(&self, run: BenchRun, metric: Metric) -> Measurement {
        let values = self.sound(run)?.iter().filter_map(metric);
        Spread::of(values).ok_or_else(|| "no samples".to_owned())
    }

    /// Returns a figure of `fenced` from the benchmark of the lock alone, times `factor`.
    pub(super) fn of_lock(&self, figure: &str, factor: f64) -> Measurement {
        let lock = self.lock.as_ref().ok_or("cargo bench --bench lock; script/bench runs it")?;
        let fenced = lock.arms.get("fenced").ok_or("the lock's benchmark lacks fenced")?;
        let value = fenced.get(figure).copied().flatten();
        Spread::of(value.map(|value| factor * value)).ok_or_else(|| "too few samples".to_owned())
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

//! What was measured: the rounds of every run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::runs::{BenchRun, Round};

#[derive(Debug, Default)]
pub(super) struct Measurements(pub(super) BTreeMap<BenchRun, Vec<Round>>);

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

/// A value, or the reason why there is none.
pub(super) type Measurement = Result<Spread, String>;

pub(super) type Metric = fn(&Round) -> Option<f64>;

impl Measurements {
    /// Returns the rounds of a run if all were sound; otherwise the reason.
    pub(super) fn sound(&self, run: BenchRun) -> Result<&[Round], String> {
        match self.0.get(&run) {
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

//! The arms of a run, formatted for tables.

use crate::lab::run::{ArmResult, LatencyBucket, Sample};
use crate::shop::Cents;
use crate::web::pages::format::format_count;

/// Upper bounds: rows of a table of samples, points of a curve.
const MAX_TABLE_ROWS: usize = 40;
const MAX_CURVE_POINTS: usize = 300;

#[derive(Debug)]
pub struct ArmView {
    pub strategy: String,
    /// True if money is counted, not units.
    pub money: bool,
    pub statuses: Vec<(String, u64)>,
    /// Histogram of the waits: upper bound, count, and length of the bar (0 to 200).
    pub waits: Vec<(String, u64, u64)>,
    /// The curve, as JSON for the script: times, stock, sold, oversold.
    pub curve: String,
    /// The curve as a table.
    pub samples: Vec<SampleRow>,
}

#[derive(Debug)]
pub struct SampleRow {
    /// Time since the first order.
    pub at: String,
    /// Stock, sold, oversold, answered, waiting.
    pub counts: [String; 5],
    /// p50 and p99.
    pub waits: [String; 2],
}

/// Returns the figures of the arms side by side; `true` if a figure does not add up.
pub fn figures(arms: &[ArmResult]) -> Vec<(&'static str, Vec<(String, bool)>)> {
    type FigureRow = (&'static str, fn(&ArmResult) -> (String, bool));
    const FIGURES: [FigureRow; 12] = [
        ("opening", |arm| (counted(arm, arm.stock_opening), false)),
        ("sold", |arm| (counted(arm, arm.sold), false)),
        ("on the shelf", |arm| (counted(arm, arm.stock), false)),
        ("oversold", |arm| (counted(arm, arm.oversold), arm.oversold > 0)),
        ("undersold", |arm| (counted(arm, arm.undersold), false)),
        ("drift", |arm| (counted(arm, arm.drift), arm.drift != 0)),
        ("breaks", |arm| (format_count(arm.breaks), arm.breaks > 0)),
        ("forks", |arm| (format_count(arm.forks), arm.forks > 0)),
        ("orders/s", |arm| (format!("{:.1}", arm.orders_per_s), false)),
        ("wait p50", |arm| (ms(arm.wait_p50_ms), false)),
        ("wait p99", |arm| (ms(arm.wait_p99_ms), false)),
        ("sound?", |arm| (if is_sound(arm) { "✓ yes" } else { "✗ no" }.into(), !is_sound(arm))),
    ];
    let money = !arms.is_empty() && arms.iter().all(|arm| arm.sku.is_none());
    let called = |name| match name {
        "sold" if money => "paid",
        "on the shelf" if money => "on the account",
        "oversold" if money => "overspent",
        "undersold" if money => "not spent",
        "orders/s" if money => "payments/s",
        name => name,
    };
    let row = |(name, figure): &FigureRow| (called(*name), arms.iter().map(figure).collect());
    FIGURES.iter().map(row).collect()
}

pub fn arm(arm: &ArmResult) -> ArmView {
    let money = arm.sku.is_none();
    ArmView {
        strategy: arm.name(),
        money,
        statuses: arm.statuses.iter().map(|(status, count)| (status.clone(), *count)).collect(),
        waits: waits(arm),
        curve: curve(&arm.samples, money),
        samples: sample_evenly(&arm.samples, MAX_TABLE_ROWS)
            .map(|sample| sample_row(sample, money))
            .collect(),
    }
}

fn counted(arm: &ArmResult, number: i64) -> String {
    amount(number, arm.sku.is_none())
}

pub fn is_sound(arm: &ArmResult) -> bool {
    arm.ok && arm.oversold <= 0 && arm.drift == 0 && arm.breaks == 0
}

/// Formats units, or cents as money.
pub fn amount(number: i64, money: bool) -> String {
    if money { Cents(number).to_string() } else { format_count(number) }
}

pub fn ms(ms: f64) -> String {
    if ms >= 100.0 { format!("{ms:.0} ms") } else { format!("{ms:.1} ms") }
}

fn waits(arm: &ArmResult) -> Vec<(String, u64, u64)> {
    let most = arm.waits.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let some = |bucket: &LatencyBucket| bucket.count > 0;
    let from = arm.waits.iter().position(some).unwrap_or(0);
    let to = arm.waits.iter().rposition(some).map_or(0, |last| last + 1);
    let bar = |count: u64| (count as f64 / most as f64 * 200.0).ceil() as u64;
    arm.waits
        .get(from..to)
        .unwrap_or_default()
        .iter()
        .map(|bucket| (format!("{} ms", bucket.up_to_ms), bucket.count, bar(bucket.count)))
        .collect()
}

/// Returns at most `most` evenly spaced samples, and always the last one.
fn sample_evenly(samples: &[Sample], most: usize) -> impl Iterator<Item = &Sample> {
    let stride = samples.len().div_ceil(most).max(1);
    let last = samples.len().saturating_sub(1);
    samples
        .iter()
        .enumerate()
        .filter(move |(at, _)| at % stride == 0 || *at == last)
        .map(|(_, sample)| sample)
}

/// Returns the curve as JSON; it has numbers only, so an attribute needs no escaping.
fn curve(samples: &[Sample], money: bool) -> String {
    let unit = if money { 100.0 } else { 1.0 };
    let column = |value: fn(&Sample) -> f64, by: f64| -> Vec<f64> {
        sample_evenly(samples, MAX_CURVE_POINTS).map(|sample| value(sample) / by).collect()
    };
    let columns = [
        column(|sample| sample.t_ms as f64, 1_000.0),
        column(|sample| sample.stock as f64, unit),
        column(|sample| sample.sold as f64, unit),
        column(|sample| sample.oversold as f64, unit),
    ];
    serde_json::to_string(&columns).unwrap_or_default()
}

fn sample_row(sample: &Sample, money: bool) -> SampleRow {
    let count = |number: u64| format_count(i64::try_from(number).unwrap_or(i64::MAX));
    SampleRow {
        at: format!("{:.1} s", sample.t_ms as f64 / 1_000.0),
        counts: [
            amount(sample.stock, money),
            amount(sample.sold, money),
            amount(sample.oversold, money),
            count(sample.answered),
            count(sample.waiting),
        ],
        waits: [ms(sample.p50_ms), ms(sample.p99_ms)],
    }
}

//! The arms of a run, formatted for tables.

use crate::lab::run::{ArmResult, LatencyBucket, Sample};
use crate::shop::Cents;
use crate::web::pages::format::format_count;

/// Upper bounds: rows of a table of samples, points of a curve.
const MAX_TABLE_ROWS: usize = 40;
const MAX_CURVE_POINTS: usize = 300;

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
    let money = !arms.is_empty() && arms.iter().all(ArmResult::is_money);
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

fn counted(arm: &ArmResult, number: i64) -> String {
    amount(number, arm.is_money())
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

/// Returns the histogram of the waits: upper bound, count, and length of the bar (0 to 200).
pub fn waits(arm: &ArmResult) -> Vec<(String, u64, u64)> {
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

/// Returns the curve of an arm as JSON, for the script: times, stock, sold, oversold. It has
/// numbers only, so an attribute needs no escaping.
pub fn curve(arm: &ArmResult) -> String {
    let unit = if arm.is_money() { 100.0 } else { 1.0 };
    let column = |value: fn(&Sample) -> f64, by: f64| -> Vec<f64> {
        sample_evenly(&arm.samples, MAX_CURVE_POINTS).map(|sample| value(sample) / by).collect()
    };
    let columns = [
        column(|sample| sample.t_ms as f64, 1_000.0),
        column(|sample| sample.stock as f64, unit),
        column(|sample| sample.sold as f64, unit),
        column(|sample| sample.oversold as f64, unit),
    ];
    serde_json::to_string(&columns).unwrap_or_default()
}

/// Returns the curve of an arm as a table: the time since the first order, then stock, sold,
/// oversold, answered, waiting, p50 and p99.
pub fn samples(arm: &ArmResult) -> Vec<(String, [String; 7])> {
    let count = |number: u64| format_count(i64::try_from(number).unwrap_or(i64::MAX));
    let row = |sample: &Sample| {
        let figures = [
            counted(arm, sample.stock),
            counted(arm, sample.sold),
            counted(arm, sample.oversold),
            count(sample.answered),
            count(sample.waiting),
            ms(sample.p50_ms),
            ms(sample.p99_ms),
        ];
        (format!("{:.1} s", sample.t_ms as f64 / 1_000.0), figures)
    };
    sample_evenly(&arm.samples, MAX_TABLE_ROWS).map(row).collect()
}

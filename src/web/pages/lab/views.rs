//! The arms of a run, formatted for tables.

use crate::lab::run::{ArmResult, LatencyBucket, Sample};
use crate::messages::Language;
pub use crate::output::grouped as count;
use crate::shop::Cents;
use crate::web::pages::format::format_count;

/// Upper bounds: rows of a table of samples, points of a curve.
const MAX_TABLE_ROWS: usize = 40;
const MAX_CURVE_POINTS: usize = 300;

/// A figure in the table of the arms: its formatted value, and whether it does not add up.
type Figure = (String, bool);

/// Returns the figures of the arms side by side, by the name of the figure.
pub fn figures(arms: &[ArmResult], language: Language) -> Vec<(String, Vec<Figure>)> {
    type FigureRow = (&'static str, fn(&ArmResult) -> Figure);
    const FIGURES: [FigureRow; 11] = [
        ("opening", |arm| (counted(arm, arm.stock_opening), false)),
        ("sold", |arm| (counted(arm, arm.sold), false)),
        ("left", |arm| (counted(arm, arm.stock), false)),
        ("oversold", |arm| (counted(arm, arm.oversold), arm.oversold > 0)),
        ("undersold", |arm| (counted(arm, arm.undersold), false)),
        ("drift", |arm| (counted(arm, arm.drift), arm.drift != 0)),
        ("breaks", |arm| (format_count(arm.breaks), arm.breaks > 0)),
        ("forks", |arm| (format_count(arm.forks), arm.forks > 0)),
        ("rate", |arm| (format!("{:.1}", arm.orders_per_s), false)),
        ("p50", |arm| (ms(arm.wait_p50_ms), false)),
        ("p99", |arm| (ms(arm.wait_p99_ms), false)),
    ];
    let money = !arms.is_empty() && arms.iter().all(ArmResult::is_money);
    let row = |(name, figure): &FigureRow| {
        (figure_name(name, money, language), arms.iter().map(figure).collect())
    };
    FIGURES.iter().map(row).collect()
}

/// Returns the name of a figure: of units, or of money.
pub fn figure_name(name: &str, money: bool, language: Language) -> String {
    let has_money_name = matches!(name, "sold" | "left" | "oversold" | "undersold" | "rate");
    let name = if money && has_money_name { format!("money-{name}") } else { name.to_owned() };
    language.text(&format!("lab-figure-{name}"))
}

/// Returns the successful orders per second of an arm.
pub fn rate(arm: &ArmResult) -> String {
    format_count(arm.orders_per_s.round() as i64)
}

/// Returns the length of the bar of an arm's rate beside the others: 0 to 200.
pub fn rate_length(arm: &ArmResult, arms: &[ArmResult]) -> u64 {
    let most = arms.iter().map(|arm| arm.orders_per_s).fold(1e-9, f64::max);
    (arm.orders_per_s / most * 200.0).ceil() as u64
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
    if ms >= 100.0 { format!("{} ms", count(ms.round() as u64)) } else { format!("{ms:.1} ms") }
}

/// Returns the histogram of the waits: upper bound, count, and length of the bar (0 to 200).
pub fn waits(arm: &ArmResult) -> Vec<(String, u64, u64)> {
    let most = arm.waits.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let some = |bucket: &LatencyBucket| bucket.count > 0;
    let from = arm.waits.iter().position(some).unwrap_or(0);
    let to = arm.waits.iter().rposition(some).map_or(0, |last| last + 1);
    let row = |bucket: &LatencyBucket| {
        let length = (bucket.count as f64 / most as f64 * 200.0).ceil() as u64;
        (format!("{} ms", format_count(bucket.up_to_ms as i64)), bucket.count, length)
    };
    arm.waits.get(from..to).unwrap_or_default().iter().map(row).collect()
}

/// Returns at most `most` evenly spaced samples, and always the last one.
fn sample_evenly(samples: &[Sample], most: usize) -> impl Iterator<Item = &Sample> {
    let stride = samples.len().div_ceil(most).max(1);
    samples.iter().rev().step_by(stride).rev()
}

/// The least duration of a load, in ms, of which a curve shows anything.
const MIN_CURVE_MS: u64 = 200;

/// Returns the curves of the arms as JSON, for the script: for each its name, whether its books are
/// broken, the times in seconds, and what was sold by then. `None` if no load took long enough.
pub fn curves(arms: &[ArmResult], language: Language) -> Option<String> {
    let curve = |arm: &ArmResult| {
        let unit = if arm.is_money() { 100.0 } else { 1.0 };
        let samples: Vec<&Sample> = sample_evenly(&arm.samples, MAX_CURVE_POINTS).collect();
        let times: Vec<f64> = samples.iter().map(|sample| sample.t_ms as f64 / 1_000.0).collect();
        let sold: Vec<f64> = samples.iter().map(|sample| sample.sold as f64 / unit).collect();
        serde_json::json!({ "name": arm.name(language), "broken": !is_sound(arm), "t": times, "sold": sold })
    };
    let is_long = |arm: &&ArmResult| {
        arm.samples.len() > 2 && arm.samples.last().is_some_and(|last| last.t_ms >= MIN_CURVE_MS)
    };
    let curves: Vec<_> = arms.iter().filter(is_long).map(curve).collect();
    (!curves.is_empty()).then(|| serde_json::Value::from(curves).to_string())
}

/// Returns the curve of an arm as a table: the time since the first order, then stock, sold,
/// oversold, answered, waiting, p50 and p99.
pub fn samples(arm: &ArmResult) -> Vec<(String, [String; 7])> {
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

//! The verdict of a run, which is one number and what it counts, and the figures of its arms for
//! tables.

use crate::web::pages::format::format_count;
use crate::web::pages::glossary;
use holdfast_base::glossary::GlossaryEntry;
use holdfast_base::messages::{Language, Text};
pub use holdfast_base::output::{grouped as count, rate};
use holdfast_lab::lessons::Lesson;
use holdfast_lab::run::{ArmResult, LabRun, LabRunState, LatencyBucket, Sample};
use holdfast_lab::source::about_strategy;
use holdfast_shop::{Cents, Strategy};

/// Upper bounds: rows of a table of samples, points of a curve.
const MAX_TABLE_ROWS: usize = 40;
const MAX_CURVE_POINTS: usize = 300;

/// A figure in the table of the arms: its formatted value, and whether it does not add up.
type ArmFigure = (String, bool);

/// Returns the figures of the arms side by side, by the name of the figure.
pub fn figures(arms: &[ArmResult], language: Language) -> Vec<(String, Vec<ArmFigure>)> {
    type FigureRow = (&'static str, fn(&ArmResult) -> ArmFigure);
    const FIGURES: [FigureRow; 11] = [
        ("opening", |arm| (counted(arm, arm.stock_opening), false)),
        ("sold", |arm| (counted(arm, arm.sold), false)),
        ("left", |arm| (counted(arm, arm.stock), false)),
        ("oversold", |arm| (counted(arm, arm.oversold), arm.oversold > 0)),
        ("undersold", |arm| (counted(arm, arm.undersold), false)),
        ("drift", |arm| (counted(arm, arm.drift), arm.drift != 0)),
        ("breaks", |arm| (format_count(arm.breaks), arm.breaks > 0)),
        ("forks", |arm| (format_count(arm.forks), arm.forks > 0)),
        ("rate", |arm| (rate(arm.orders_per_s), false)),
        ("p50", |arm| (ms(arm.wait_p50_ms), false)),
        ("p99", |arm| (ms(arm.wait_p99_ms), false)),
    ];

    let money = !arms.is_empty() && arms.iter().all(ArmResult::is_money);
    let row = |(name, figure): &FigureRow| {
        (figure_name(name, money, language), ranked(arms).into_iter().map(figure).collect())
    };
    FIGURES.iter().map(row).collect()
}

pub fn figure_name(name: &str, money: bool, language: Language) -> String {
    let has_money_name = matches!(name, "sold" | "left" | "oversold" | "undersold" | "rate");
    let name = if money && has_money_name { format!("money-{name}") } else { name.to_owned() };
    language.text(&format!("lab-figure-{name}"))
}

/// Returns the strategies of the arms, with what each is.
pub fn strategies(arms: &[ArmResult], language: Language) -> Vec<(&'static str, String)> {
    let mut strategies: Vec<&Strategy> =
        arms.iter().filter_map(|arm| Strategy::named(&arm.strategy)).collect();
    strategies.sort_by_key(|strategy| strategy.name);
    strategies.dedup_by_key(|strategy| strategy.name);
    let about = |it: &Strategy| (it.name, about_strategy(it, language));
    strategies.into_iter().map(about).collect()
}

/// Returns the arms as they are compared: the fastest first, if that is all in which they differ.
pub fn ranked(arms: &[ArmResult]) -> Vec<&ArmResult> {
    let mut ranked: Vec<&ArmResult> = arms.iter().collect();
    if differ_by_rate_only(arms) {
        ranked.sort_by(|a, b| b.orders_per_s.total_cmp(&a.orders_per_s));
    }
    ranked
}

/// Returns the slowest and the fastest arm, if that is all in which they differ.
pub fn slowest_and_fastest(arms: &[ArmResult]) -> Option<(&ArmResult, &ArmResult)> {
    let ranked = ranked(arms);
    differ_by_rate_only(arms).then_some((*ranked.last()?, *ranked.first()?))
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

const MIN_CURVE_MS: u64 = 200;

/// Returns what was sold over time, as JSON for the script. `None` if no load took long enough.
pub fn curves(arms: &[ArmResult], language: Language) -> Option<String> {
    let curve = |arm: &&ArmResult| {
        let unit = if arm.is_money() { 100.0 } else { 1.0 };
        let samples: Vec<&Sample> = sample_evenly(&arm.samples, MAX_CURVE_POINTS).collect();
        let times: Vec<f64> = samples.iter().map(|sample| sample.t_ms as f64 / 1_000.0).collect();
        let sold: Vec<f64> = samples.iter().map(|sample| sample.sold as f64 / unit).collect();
        let (name, is_broken) = (arm.name(language), !is_sound(arm));
        serde_json::json!({ "name": name, "broken": is_broken, "t": times, "sold": sold })
    };

    // Beside one that takes long, a fast one is a steep line, which is what the chart shows.
    let is_long = |arm: &ArmResult| {
        arm.samples.len() > 2 && arm.samples.last().is_some_and(|last| last.t_ms >= MIN_CURVE_MS)
    };
    let ranked = ranked(arms);
    let drawn = ranked.iter().filter(|arm| arm.samples.len() > 1);
    let curves: Vec<_> = drawn.map(curve).collect();
    arms.iter().any(is_long).then(|| serde_json::Value::from(curves).to_string())
}

/// Returns the curve of an arm as a table: the time since the first order, and the figures.
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

/// Upper bound of a measurement that is shown as the one number, in characters.
const MAX_NUMBER_LENGTH: usize = 12;

#[derive(Debug)]
pub struct Verdict {
    /// Empty if the run has no number that says it.
    pub number: String,
    pub label: String,
    /// `None` if the run left no books to check.
    pub is_sound: Option<bool>,
}

/// Returns the first measurement of a lesson that asks about a scene. Otherwise how the rates
/// compare if all strategies sold the same; else the verdict of the one with the greatest loss;
/// without a loss the first measurement, or the verdict of the last strategy.
pub fn of_run(run: &LabRun, language: Language) -> Verdict {
    if run.state == LabRunState::Failed {
        let label = language.text("lab-verdict-failed");
        return Verdict { number: String::new(), label, is_sound: None };
    }

    let arms = &run.outcome.arms;
    let lesson = run.request.lesson.as_deref().and_then(holdfast_lab::lessons::named);
    if lesson.is_some_and(|lesson| !lesson.asks_about_load)
        && let Some(verdict) = of_evidence(run, language)
    {
        return verdict;
    }
    if let Some(verdict) = of_rates(arms, language) {
        return verdict;
    }
    let broken = arms.iter().filter(|arm| !is_sound(arm));
    if let Some(arm) = broken.max_by_key(|arm| (arm.oversold, arm.forks)) {
        return of_arm(arm, language);
    }
    of_evidence(run, language).or(arms.last().map(|arm| of_arm(arm, language))).unwrap_or_else(
        || {
            let label = language.text("lab-verdict-title");
            Verdict { number: String::new(), label, is_sound: None }
        },
    )
}

/// Returns the first measurement that is a number.
fn of_evidence(run: &LabRun, language: Language) -> Option<Verdict> {
    let is_number = |text: &str| {
        let is_short = text.chars().count() <= MAX_NUMBER_LENGTH && !text.contains(", ");
        is_short && text.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut evidence = run.outcome.evidence.iter();
    let found = evidence.find(|evidence| is_number(&evidence.value.english()))?;
    let (number, label) = (found.value.text(language), counted_name(&found.name, language));
    let arms = &run.outcome.arms;
    let is_sound = (!arms.is_empty()).then(|| arms.iter().all(is_sound));
    Some(Verdict { number, label, is_sound })
}

/// Returns the name of a measurement as it follows its number; in a table it stands alone.
fn counted_name(name: &Text, language: Language) -> String {
    after_number(name, language).unwrap_or_else(|| name.text(language))
}

/// Returns the verdict's sentence, without the oversold units that the number above it counts.
pub fn sentence(run: &LabRun, language: Language) -> Option<String> {
    let verdict = run.outcome.verdict.as_ref()?;
    let counts_oversold = run.outcome.arms.iter().any(|arm| arm.oversold > 0);
    let rest = if counts_oversold { after_number(verdict, language) } else { None };
    Some(rest.unwrap_or_else(|| verdict.text(language)))
}

/// Returns the entries of the words that the texts of a run use, for paper, where no word opens.
pub fn used_words(run: &LabRun, lesson: Option<&Lesson>, language: Language) -> Vec<GlossaryEntry> {
    let told = run.outcome.scenes.iter().map(|scene| scene.sentence.text(language));
    let mut texts: Vec<String> = sentence(run, language).into_iter().chain(told).collect();
    if let Some(lesson) = lesson {
        texts.push(lesson.claim(language));
        texts.extend(lesson.takeaways(language));
    }
    glossary::used(&texts, language)
}

/// Returns the text that is to follow a number, if the catalogue has one.
fn after_number(text: &Text, language: Language) -> Option<String> {
    let Text::Message(message) = text else { return None };
    let id = message.id();
    message.with_id(&format!("counted-{id}")).format(language)
}

pub fn beside(arm: &ArmResult, arms: &[ArmResult], language: Language) -> Verdict {
    if differ_by_rate_only(arms) {
        let number = rate(arm.orders_per_s);
        let label = figure_name("rate", arm.is_money(), language);
        return Verdict { number, label, is_sound: Some(true) };
    }
    of_arm(arm, language)
}

/// Returns whether only the time differs: no strategy is a broken one, whose books may balance by
/// luck, and all sold the same.
fn differ_by_rate_only(arms: &[ArmResult]) -> bool {
    let sold = |arm: &ArmResult| (arm.stock_opening, arm.sold);
    let is_comparable = |arm: &ArmResult| {
        let is_right = Strategy::named(&arm.strategy).is_some_and(|it| !it.is_broken());
        is_right && is_sound(arm) && arm.orders_per_s > 0.0 && sold(arm) == sold(&arms[0])
    };
    arms.len() > 1 && arms.iter().all(is_comparable)
}

/// Compares the fastest strategy with the slowest one, if that is all in which they differ.
fn of_rates(arms: &[ArmResult], language: Language) -> Option<Verdict> {
    let (slowest, fastest) = slowest_and_fastest(arms)?;
    let variables =
        [("fastest", fastest.name(language).into()), ("slowest", slowest.name(language).into())];
    let ratio = format!("{:.1}", fastest.orders_per_s / slowest.orders_per_s);
    let number = language.text_with("lab-verdict-times", &[("ratio", ratio.into())]);
    let label = language.text_with("lab-verdict-fastest", &variables);
    Some(Verdict { number, label, is_sound: Some(true) })
}

fn of_arm(arm: &ArmResult, language: Language) -> Verdict {
    let money = arm.is_money();
    let number = |number: i64| amount(number, money);

    let (number, label) = if arm.oversold > 0 && money {
        (number(arm.oversold), language.text("lab-verdict-overspent"))
    } else if arm.oversold > 0 {
        let units = [("units", arm.oversold.into())];
        (number(arm.oversold), language.text_with("lab-verdict-oversold", &units))
    } else if arm.forks > 0 {
        let forks = [("forks", arm.forks.into())];
        (format_count(arm.forks), language.text_with("lab-verdict-forks", &forks))
    } else if !is_sound(arm) {
        (number(arm.drift.saturating_abs()), language.text("lab-verdict-drift"))
    } else {
        let id = if money { "lab-verdict-paid" } else { "lab-verdict-sold" };
        let opening = [("opening", number(arm.stock_opening).into())];
        (number(arm.sold), language.text_with(id, &opening))
    };

    Verdict { number, label, is_sound: Some(is_sound(arm)) }
}

#[cfg(test)]
mod tests {
    use holdfast_base::messages::Message;

    use super::*;

    fn arm(strategy: &str, sold: i64, orders_per_s: f64) -> ArmResult {
        let (strategy, stock_opening) = (strategy.to_owned(), 100);
        let stock = stock_opening - sold;
        ArmResult {
            strategy,
            stock_opening,
            sold,
            stock,
            orders_per_s,
            ok: true,
            ..ArmResult::default()
        }
    }

    #[test]
    fn only_right_strategies_are_compared_by_rate() {
        let number = |arms: &[ArmResult]| of_rates(arms, Language::English).map(|it| it.number);
        let arms = [arm("owner", 100, 40.0), arm("batched", 100, 300.0)];
        assert_eq!(number(&arms).as_deref(), Some("7.5 ×"));
        assert_eq!(of_rates(&arms, Language::Chinese).unwrap().number, "7.5 倍");
        assert_eq!(beside(&arms[0], &arms, Language::English).number, "40.0");
        assert_eq!(
            ranked(&arms).iter().map(|arm| &arm.strategy).collect::<Vec<_>>(),
            ["batched", "owner"]
        );
        let unlike = [arm("owner", 99, 40.0), arm("batched", 100, 2_226.4)];
        assert_eq!(ranked(&unlike)[0].strategy, "owner");
        assert_eq!(rate(unlike[1].orders_per_s), "2,226");
        assert_eq!(number(&arms[..1]), None);
        assert_eq!(number(&[arm("owner", 99, 40.0), arm("batched", 100, 300.0)]), None);
        assert_eq!(number(&[arm("owner", 0, 0.0), arm("batched", 0, 0.0)]), None);
        // Its books balance by luck.
        assert_eq!(number(&[arm("none", 100, 400.0), arm("batched", 100, 300.0)]), None);
    }

    #[test]
    fn question_about_a_scene_is_answered_by_its_measurement() {
        let verdict = |lesson: &str| {
            let run = serde_json::json!({
                "id": uuid::Uuid::nil(), "state": "done", "wanted": { "lesson": lesson },
                "progress": {}, "created_at": "2026-01-01T00:00:00Z", "lanes": [],
                "evidence": [{ "name": "left waiting", "value": "2", "ok": true }],
                "arms": [{ "strategy": "queue", "sku": "tea", "oversold": 60, "ok": false }],
            });
            of_run(&serde_json::from_value(run).unwrap(), Language::English)
        };
        let (of_scene, of_load) = (verdict("queue"), verdict("one-replica"));
        assert_eq!((of_scene.number.as_str(), of_load.number.as_str()), ("2", "60"));
        assert_eq!((of_scene.is_sound, of_load.is_sound), (Some(false), Some(false)));
    }

    #[test]
    fn measurement_has_a_name_after_its_number() {
        for (id, counted) in [
            ("run-fence-fact-1", "笔销售丢失（只检查栅栏令牌时）"),
            ("run-run-once-fact-2", "次执行（锁已释放时）"),
            ("run-reentrant-fact-1", "等待自己的时间"),
        ] {
            assert_eq!(counted_name(&Message::new(id).into(), Language::Chinese), counted);
        }
        let orders = Message::new("run-double-submit-fact-3").with("requests", 6).into();
        let counted = counted_name(&orders, Language::English);
        assert_eq!(counted, "order for 6 requests with one key");
        assert_eq!(counted_name(&"longest stall".into(), Language::Chinese), "longest stall");
    }
}

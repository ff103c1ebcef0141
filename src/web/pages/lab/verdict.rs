//! The verdict of a run: one number, what it counts, and whether the books are broken.

use super::views::{amount, figure_name, is_sound};
use crate::lab::run::{ArmResult, LabRun, LabRunState};
use crate::messages::Language;
use crate::shop::Strategy;
use crate::web::pages::format::format_count;

/// Upper bound of a measurement that is shown as the one number, in characters.
const MAX_NUMBER_LENGTH: usize = 12;

#[derive(Debug)]
pub struct Verdict {
    /// Empty if the run has no number that says it.
    pub number: String,
    /// What the number counts.
    pub label: String,
    /// `None` if the run left no books to check.
    pub is_sound: Option<bool>,
}

/// Returns the verdict of a run that is over: how their rates compare if all strategies sold the
/// same; otherwise that of the strategy with the greatest loss, or of the last one; without
/// strategies the first measurement.
pub fn of_run(run: &LabRun, language: Language) -> Verdict {
    if run.state == LabRunState::Failed {
        let label = language.text("lab-verdict-failed");
        return Verdict { number: String::new(), label, is_sound: None };
    }

    let arms = &run.outcome.arms;
    if let Some(verdict) = of_rates(arms, language) {
        return verdict;
    }
    let broken = arms.iter().filter(|arm| !is_sound(arm));
    let worst = broken.max_by_key(|arm| (arm.oversold, arm.forks));
    if let Some(arm) = worst.or(arms.last()) {
        return of_arm(arm, language);
    }

    let evidence = run.outcome.evidence.iter();
    let is_number = |text: &str| {
        let is_short = text.chars().count() <= MAX_NUMBER_LENGTH && !text.contains(", ");
        is_short && text.starts_with(|c: char| c.is_ascii_digit())
    };
    let found = evidence.clone().find(|evidence| is_number(&evidence.value.english()));
    let (number, label) = match found {
        Some(evidence) => (evidence.value.text(language), evidence.name.text(language)),
        None => (String::new(), language.text("lab-verdict-title")),
    };
    Verdict { number, label, is_sound: None }
}

/// Returns the verdict of one of several strategies.
pub fn beside(arm: &ArmResult, arms: &[ArmResult], language: Language) -> Verdict {
    if differ_by_rate_only(arms) {
        let number = format!("{:.1}", arm.orders_per_s);
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
    if !differ_by_rate_only(arms) {
        return None;
    }
    let by_rate = |a: &&ArmResult, b: &&ArmResult| a.orders_per_s.total_cmp(&b.orders_per_s);
    let (slowest, fastest) = (arms.iter().min_by(by_rate)?, arms.iter().max_by(by_rate)?);
    let variables =
        [("fastest", fastest.name(language).into()), ("slowest", slowest.name(language).into())];
    let number = format!("{:.1} ×", fastest.orders_per_s / slowest.orders_per_s);
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
        assert_eq!(beside(&arms[0], &arms, Language::English).number, "40.0");
        assert_eq!(number(&arms[..1]), None);
        assert_eq!(number(&[arm("owner", 99, 40.0), arm("batched", 100, 300.0)]), None);
        assert_eq!(number(&[arm("owner", 0, 0.0), arm("batched", 0, 0.0)]), None);
        // Its books balance by luck.
        assert_eq!(number(&[arm("none", 100, 400.0), arm("batched", 100, 300.0)]), None);
    }
}

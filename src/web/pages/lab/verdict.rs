//! The verdict of a run: one number, what it counts, and whether the books are broken.

use super::views::{amount, is_sound};
use crate::lab::run::{ArmResult, LabRun, LabRunState};
use crate::messages::Language;
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

/// The result of one strategy, beside the others.
#[derive(Debug)]
pub struct ArmVerdict {
    pub name: String,
    pub verdict: Verdict,
}

/// Returns the verdict of a run that is over: that of the strategy with the greatest loss, or of
/// the last one; without strategies the first measurement.
pub fn of_run(run: &LabRun, language: Language) -> Verdict {
    if run.state == LabRunState::Failed {
        let label = language.text("lab-verdict-failed");
        return Verdict { number: String::new(), label, is_sound: None };
    }
    let arms = &run.outcome.arms;
    let broken = arms.iter().filter(|arm| !is_sound(arm));
    let worst = broken.max_by_key(|arm| (arm.oversold, arm.forks));
    if let Some(arm) = worst.or(arms.last()) {
        return of_arm(arm, language);
    }
    let evidence = run.outcome.evidence.iter();
    let is_number = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().count() <= MAX_NUMBER_LENGTH
    };
    match evidence.clone().find(|evidence| is_number(&evidence.value)) {
        Some(evidence) => {
            let [number, label] = [&evidence.value, &evidence.name];
            let [number, label] = [number, label].map(|text| run.text(text, language));
            Verdict { number, label, is_sound: None }
        }
        None => Verdict {
            number: String::new(),
            label: language.text("lab-verdict-title"),
            is_sound: None,
        },
    }
}

/// Returns the verdicts of the strategies, if there are several.
pub fn of_arms(run: &LabRun, language: Language) -> Vec<ArmVerdict> {
    let arms = &run.outcome.arms;
    if arms.len() < 2 {
        return Vec::new();
    }
    let verdict =
        |arm: &ArmResult| ArmVerdict { name: arm.name(language), verdict: of_arm(arm, language) };
    arms.iter().map(verdict).collect()
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

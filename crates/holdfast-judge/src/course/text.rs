//! What the course prints.

use super::check::CheckResult;
use super::folder::{CourseProgress, quote};
use super::levels::{self, LAST_LEVEL, LevelFinding};
use super::tasks::{heading, task, task_text};
use crate::fault::Fault;
use crate::report::ViolationKind::LeftoverKey;
use crate::report::{Actor, Violation};
use holdfast_base::message;
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_story::TimelineEvent;

/// Hints of each level.
pub(super) const HINTS: usize = 2;
/// Above this number of rules, those that hold are only counted.
const MAX_RULES: usize = 24;

/// The beginning of the page of a check.
#[derive(Debug)]
pub struct CheckHead<'a> {
    pub title: String,
    pub verdict: String,
    pub passed: bool,
    pub rules: &'a [LevelFinding],
}

/// Returns a hint, and after the last one says so.
pub(super) fn hint(level: u32, number: usize, language: Language) -> String {
    let hint = language.text(&format!("course-{level}-hint-{number}"));
    let text = message!("course-hint", number, count = HINTS, hint).text(language) + "\n";
    if number < HINTS {
        return text;
    }
    text + &language.text("course-hint-last") + "\n"
}

pub(super) fn status(progress: &CourseProgress, language: Language) -> String {
    let mut text = language.text("course-title") + "\n\n";
    for level in 1..=LAST_LEVEL {
        let state = if level < progress.level {
            let passed = progress.checks.iter().rfind(|check| check.level == level && check.passed);
            let date = passed.map(|check| check.at.chars().take(10).collect::<String>());
            message!("course-status-passed", date = date.unwrap_or_default()).text(language)
        } else if level == progress.level {
            language.text("course-status-current")
        } else {
            language.text("course-status-open")
        };
        text += &format!("  {}  ({state})\n", heading(level, language));
    }

    let checks = message!("course-status-checks", checks = progress.checks.len());
    text += &format!("\n{}\n", checks.text(language));
    if progress.is_complete() {
        return text + &format!("\n{}\n", language.text("course-last"));
    }
    text + &format!("\n{}\n", task_text(progress.level, language))
}

/// Describes a check: each rule, and for the first one that does not hold what happened.
pub(super) fn describe(check: &CheckResult, language: Language) -> String {
    let level = check.level;
    let mut text = heading(level, language) + "\n\n";
    text += &table(&check.findings, language);

    let broken = check.findings.iter().find(|finding| !finding.holds);
    match broken {
        None => {
            text += &written(check, None, language);
            text += &passed(check, language);
        }
        Some(finding) => {
            text += &explain(check, finding, language);
            text += &written(check, Some(finding.fault), language);
            let picture = message!("course-picture", file = check.page.display()).text(language);
            text += &format!("\n{picture}\n\n{}\n", verdict(check, "course-failed", language));
            // What fails for an error of its own needs no hint.
            if levels::failed_calls(&check.judgement).is_none() {
                text += &format!("\n{}", next_hint(check, finding, language));
            }
        }
    }
    if check.is_chosen {
        text += &format!("{}\n", language.text("course-level-of-option"));
    }
    text
}

/// Returns the hint that is about this rule: of the learner's level the last one that was shown, of
/// an earlier one the first.
fn next_hint(check: &CheckResult, finding: &LevelFinding, language: Language) -> String {
    let level = finding.added_by().min(check.level);
    if level < check.level || check.is_chosen {
        return hint(level, 1, language);
    }
    let number = check.hints.clamp(1, HINTS);
    let mut text = hint(level, number, language);
    if number < HINTS {
        let offer = message!("course-hint-offer", folder = quote(&check.folder));
        text += &format!("{}\n", offer.text(language));
    }
    text
}

/// Returns what the lock wrote to stderr under a fault, or else under any; of a lock that passed,
/// what it wrote without a fault.
fn written(check: &CheckResult, fault: Option<Fault>, language: Language) -> String {
    let faults = &check.judgement.faults;
    let wrote = || faults.iter().filter(|report| !report.stderr.is_empty());
    let of = |fault: Fault| wrote().find(|report| report.fault() == Some(fault));
    let found = match fault {
        Some(fault) => of(fault).or_else(|| wrote().next()),
        None => of(Fault::Undisturbed),
    };
    let Some(found) = found else { return String::new() };

    let heading = message!("course-stderr", fault = found.name.as_str()).text(language);
    format!("\n{heading}\n  {}\n", found.stderr.join("\n  "))
}

/// Returns the head of the check's page.
pub fn head(check: &CheckResult, language: Language) -> CheckHead<'_> {
    let passed = check.passed();
    let verdict = language.text(if passed { "course-passed" } else { "course-failed" });
    CheckHead {
        title: heading(check.level, language),
        verdict: capitalized(&verdict),
        passed,
        rules: &check.findings,
    }
}

fn table(findings: &[LevelFinding], language: Language) -> String {
    let is_shown = |finding: &&LevelFinding| findings.len() <= MAX_RULES || !finding.holds;
    let shown = findings.iter().filter(is_shown);
    let rows: Vec<_> = shown.map(|it| (it, it.rule.text(language))).collect();
    let titles = ["judge-column-fault", "course-rules", "course-measured"];
    let [fault_title, rule_title, measured_title] = titles.map(|title| language.text(title));
    let fault_widths = rows.iter().map(|(finding, _)| finding.fault.name().len());
    let fault_width = fault_widths.max().unwrap_or(0).max(width(&fault_title));
    let rule_width = rows.iter().map(|(_, rule)| width(rule)).max().unwrap_or(0);
    let lines = rows.iter().map(|(finding, rule)| {
        let mark = if finding.holds { "✓" } else { "✗" };
        let space = " ".repeat(rule_width - width(rule));
        let (fault, measured) = (finding.fault.name(), finding.measured.text(language));
        format!("  {mark} {fault:fault_width$}  {rule}{space}  {measured}\n")
    });
    let fault_space = " ".repeat(fault_width - width(&fault_title));
    let rule_space = " ".repeat(rule_width.saturating_sub(width(&rule_title)));
    let mut text =
        format!("    {fault_title}{fault_space}  {rule_title}{rule_space}  {measured_title}\n");
    text.extend(lines);
    let hidden = findings.len() - rows.len();
    if hidden > 0 {
        let hold = message!("course-rules-hold", rules = hidden).text(language);
        text += &format!("  ✓ {hold}\n");
    }
    text
}

/// Returns the columns that a text takes in a terminal.
fn width(text: &str) -> usize {
    text.chars().map(|c| if holdfast_base::messages::is_chinese(c) { 2 } else { 1 }).sum()
}

fn passed(check: &CheckResult, language: Language) -> String {
    let level = check.level;
    let learned = language.text(&format!("course-{level}-learned"));
    let text = format!(
        "\n{}\n\n{}\n",
        verdict(check, "course-passed", language),
        message!("course-what-learned", learned).text(language),
    );
    if level == LAST_LEVEL {
        return text + &format!("\n{}\n", language.text("course-last"));
    }
    let next = message!("course-next", task = task(level + 1, language)).text(language);
    text + &format!("\n{next}\n")
}

/// Returns the message of this name with what was checked, and with which seed.
fn verdict(check: &CheckResult, name: &str, language: Language) -> String {
    let verdict = capitalized(&language.text(name));
    let seed = check.judgement.seed.to_string();
    message!("course-verdict", verdict, file = check.lock_file, seed).text(language)
}

/// Says why the rule does not hold: the two requests, and when each held the lock.
fn explain(check: &CheckResult, finding: &LevelFinding, language: Language) -> String {
    if let Some((calls, error)) = levels::failed_calls(&check.judgement) {
        let failed = message!("course-errors", calls = *calls, error = error.trim_end());
        return format!("\n{}\n", failed.text(language));
    }
    let why = match finding.rule.id() {
        "course-rule-redis" => Some("course-no-redis"),
        "course-rule-store" => Some("course-no-store"),
        "course-rule-held" => Some("course-sleeps"),
        "course-rule-burn" => Some("course-burns"),
        "course-rule-commands" => Some("course-commands"),
        _ => None,
    };
    if let Some(why) = why {
        return format!("\n{}\n", language.text(why));
    }
    let Some(violation) = levels::evidence(&check.judgement, finding) else {
        return String::new();
    };

    let mut text = format!("\n{}\n", describe_violation(violation, finding, language));
    // A lock whose key is never deleted is never free.
    if finding.rule.id() == "course-rule-blocked"
        && let Some(left) = levels::violation(&check.judgement, finding, &LeftoverKey)
    {
        text += &format!("{}\n", describe_violation(left, finding, language));
    }
    if !violation.story.is_empty() {
        text += &format!("\n{}\n", language.text("course-evidence"));
        for event in &violation.story {
            text += &format!("  {}\n", describe_event(event, language));
        }
    }
    text
}

fn describe_violation(violation: &Violation, finding: &LevelFinding, language: Language) -> String {
    let found = violation.text_in(language).unwrap_or_else(|| violation.text.clone());
    message!("course-violation", fault = finding.fault.name(), found).text(language)
}

fn describe_event(event: &TimelineEvent<Actor>, language: Language) -> String {
    // Not rounded, as in the sentence above.
    let ms = grouped(event.at_us / 1_000);
    format!("{ms:>8} ms  {}  {}", event.lane, event.text(language))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

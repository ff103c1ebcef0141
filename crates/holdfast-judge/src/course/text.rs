//! What the course prints.

use std::path::Path;

use super::check::CheckResult;
use super::folder::Progress;
use super::levels::{self, Finding, LAST_LEVEL};
use crate::report::{ClientId, Event, Violation};
use holdfast_base::message;
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;

/// Hints of each level.
pub(super) const HINTS: usize = 2;
/// Events of a violation that are listed.
const MAX_EVENTS: usize = 10;

/// Returns the heading of a level.
fn heading(level: u32, language: Language) -> String {
    let title = language.text(&format!("course-{level}-title"));
    message!("course-level", level, title).text(language)
}

pub(super) fn task(level: u32, language: Language) -> String {
    let task = language.text(&format!("course-{level}-task"));
    format!("{}\n\n{task}", heading(level, language))
}

pub(super) fn hint(level: u32, number: usize, language: Language) -> String {
    let hint = language.text(&format!("course-{level}-hint-{number}"));
    message!("course-hint", number, count = HINTS, hint).text(language) + "\n"
}

/// Quotes a path for a shell if it must be.
pub(super) fn quote(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

pub(super) fn status(progress: &Progress, language: Language) -> String {
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
    text + &format!("\n{}\n", language.text(&format!("course-{}-task", progress.level)))
}

/// Describes a check: each rule, and for the first one that does not hold what happened.
pub(super) fn describe(check: &CheckResult, language: Language) -> String {
    let level = check.level;
    let mut text = heading(level, language) + "\n\n";
    text += &table(&check.findings, language);

    let broken = check.findings.iter().find(|finding| !finding.holds);
    match broken {
        None => text += &passed(check, language),
        Some(finding) => {
            text += &explain(check, finding, language);
            text += &format!(
                "\n{}\n\n{} ({}, seed {}). ",
                message!("course-picture", file = check.page.display()).text(language),
                capitalized(&language.text("course-failed")),
                check.lock_file,
                check.judgement.seed
            );
            text += &hint(level, 1, language);
            text += &format!("{}\n", language.text("course-hint-offer"));
        }
    }
    if check.is_chosen {
        text += &format!("{}\n", language.text("course-level-of-option"));
    }
    text
}

fn table(findings: &[Finding], language: Language) -> String {
    let rows: Vec<_> = findings.iter().map(|it| (it, it.rule.text(language))).collect();
    let fault_width = findings.iter().map(|it| it.fault.len()).max().unwrap_or(0);
    let rule_width = rows.iter().map(|(_, rule)| width(rule)).max().unwrap_or(0);
    let lines = rows.iter().map(|(finding, rule)| {
        let mark = if finding.holds { "✓" } else { "✗" };
        let space = " ".repeat(rule_width - width(rule));
        let Finding { fault, measured, .. } = finding;
        format!("  {mark} {fault:fault_width$}  {rule}{space}  {measured}\n")
    });
    lines.collect()
}

/// Returns the columns that a text takes in a terminal.
fn width(text: &str) -> usize {
    text.chars().map(|c| if holdfast_base::messages::is_chinese(c) { 2 } else { 1 }).sum()
}

fn passed(check: &CheckResult, language: Language) -> String {
    let level = check.level;
    let mut text = format!(
        "\n{} ({}, seed {})\n\n{} {}\n",
        capitalized(&language.text("course-passed")),
        check.lock_file,
        check.judgement.seed,
        language.text("course-what-learned"),
        language.text(&format!("course-{level}-learned")),
    );
    if level == LAST_LEVEL {
        return text + &format!("\n{}\n", language.text("course-last"));
    }
    text += &format!("\n{} {}\n", language.text("course-next"), task(level + 1, language));
    text
}

/// Says why the rule does not hold: the two requests, and when each held the lock.
fn explain(check: &CheckResult, finding: &Finding, language: Language) -> String {
    match finding.rule.id() {
        "course-rule-redis" => return format!("\n{}\n", language.text("course-no-redis")),
        "course-rule-held" => return format!("\n{}\n", language.text("course-sleeps")),
        _ => {}
    }
    let Some(violation) = levels::evidence(&check.judgement, finding) else {
        return String::new();
    };

    let mut text = format!("\n{}: {}.\n", finding.fault, violation.text);
    let events = named_events(violation);
    if !events.is_empty() {
        text += &format!("\n{}\n", language.text("course-evidence"));
        for event in events {
            text += &format!("  {}\n", describe_event(event, language));
        }
    }
    text
}

/// Returns the first events of the clients that the violation's text names.
fn named_events(violation: &Violation) -> Vec<&Event> {
    let words = violation.text.replace([':', ',', '.'], " ") + " ";
    let is_named = |id: &ClientId| words.contains(&format!("{id} "));
    violation.events.iter().filter(|event| is_named(&event.id)).take(MAX_EVENTS).collect()
}

fn describe_event(event: &Event, language: Language) -> String {
    let what = language.text(&format!("course-event-{}", event.event));
    let value = event.value.map(|value| format!(" {}", grouped(value.unsigned_abs())));
    let fence = event.fence.map(|fence| format!(" (fence {fence})"));
    let who = match &event.server {
        Some(server) => server.clone(),
        None => event.id.to_string(),
    };
    format!(
        "{:>8} ms  {who}  {what}{}{}",
        grouped(event.t_ms.round() as u64),
        value.unwrap_or_default(),
        fence.unwrap_or_default()
    )
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

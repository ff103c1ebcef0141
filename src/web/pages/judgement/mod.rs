//! A judgement of a lock as a page: its verdict, the figures of each fault, and every violation
//! with its sentence and a swimlane.
//!
//! [`saved_page`] renders one HTML file without scripts and outside resources; the lab's pages
//! ([`super::lab::judged`]) have the same content. A judgement may come from the file of a visitor:
//! it is shown as text. Tests: `tests/pages/judged.rs`.

mod columns;
mod events;

use askama::Template;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use self::columns::FigureCell;
use super::format::FormatTime as _;
use super::respond::{hash_source, without_fonts};
use super::timeline::TimelineView;
use crate::judge::report::{Adapter, FaultReport, Judgement, UNDISTURBED, Violation};
use crate::messages::{FluentValue, Language, Message};

const STYLES: [&str; 3] = [
    include_str!("../../../../static/holdfast.css"),
    include_str!("../../../../static/swimlane.css"),
    include_str!("../../../../static/judged.css"),
];

/// A judgement in one language: the content of a page below its title.
#[derive(Debug, Template)]
#[template(path = "parts/judgement.html")]
pub struct JudgementView {
    pub language: Language,
    pub adapter: Adapter,
    ttl: String,
    seed: u64,
    started_at: String,
    /// The time of the judgement for people; as it stands if it is not a time.
    time: String,
    pub verdict: String,
    pub is_loss: bool,
    /// Sentences below the verdict.
    notes: Vec<String>,
    /// True if a fault has figures of writes that demand the fence.
    has_fence: bool,
    faults: Vec<FaultView>,
}

#[derive(Debug)]
struct FaultView {
    /// Anchor of its violations; its name may come from a file.
    id: String,
    name: String,
    about: String,
    why_not: Option<String>,
    /// The verdict in words.
    result: String,
    is_loss: bool,
    safety: Vec<FigureCell>,
    cost: Vec<FigureCell>,
    violations: Vec<ViolationView>,
}

#[derive(Debug)]
struct ViolationView {
    id: String,
    /// Its name for people.
    kind: String,
    is_loss: bool,
    text: String,
    timeline: TimelineView,
}

#[derive(Debug, Template)]
#[template(path = "saved_judgement.html")]
struct SavedJudgement {
    view: JudgementView,
    style: String,
    policy: String,
}

/// Renders a judgement as one HTML file, in the language of the terminal.
///
/// # Errors
/// Fails if the template does.
pub fn saved_page(judgement: &Judgement) -> askama::Result<String> {
    saved_page_in(judgement, Language::of_environment())
}

fn saved_page_in(judgement: &Judgement, language: Language) -> askama::Result<String> {
    let style = without_fonts(&STYLES.concat());
    let policy = format!("default-src 'none'; style-src {}", hash_source(&style));
    SavedJudgement { view: JudgementView::new(judgement, language), style, policy }.render()
}

/// Returns the sum of a figure over the faults that ran.
fn sum(judgement: &Judgement, figure: impl Fn(&FaultReport) -> u64) -> u64 {
    let ran = judgement.faults.iter().filter(|fault| fault.ran);
    ran.fold(0, |sum, fault| sum.saturating_add(figure(fault)))
}

/// Returns the verdict: `7 lost updates under 3 of 11 faults`.
fn verdict(judgement: &Judgement, language: Language) -> String {
    let is_lost = |fault: &&FaultReport| fault.lost_updates > 0;
    let lost = sum(judgement, |fault| fault.lost_updates);
    let variables = [
        ("faults", judgement.injected().count().into()),
        ("under", judgement.injected().filter(is_lost).count().into()),
        ("lost", lost.into()),
        ("count", columns::count(lost).into()),
    ];
    let undisturbed = judgement.faults.iter().find(|fault| fault.name == UNDISTURBED);
    match undisturbed.filter(|fault| fault.ran) {
        Some(fault) if is_lost(&fault) => {
            language.text_with("judge-verdict-lost-undisturbed", &variables[2..])
        }
        None if judgement.injected().next().is_none() => language.text("judge-verdict-nothing"),
        _ if lost == 0 => language.text_with("judge-verdict-safe", &variables[..1]),
        _ => language.text_with("judge-verdict-lost", &variables),
    }
}

/// Returns the time of a judgement for people; as it stands if it is not a time.
pub fn format_time(started_at: &str) -> String {
    let parsed = OffsetDateTime::parse(started_at, &Rfc3339);
    parsed.map_or_else(|_| started_at.to_owned(), |time| time.in_utc())
}

/// Returns the description of a fault; empty for an unknown one.
pub fn about_fault(name: &str, language: Language) -> String {
    Message::new(&format!("judge-fault-{name}")).format(language).unwrap_or_default()
}

impl JudgementView {
    pub fn new(judgement: &Judgement, language: Language) -> Self {
        let faults = &judgement.faults;
        let has_fence = faults.iter().any(|fault| fault.with_fence.is_some());
        Self {
            language,
            adapter: judgement.adapter.clone(),
            ttl: columns::count(judgement.ttl_ms),
            seed: judgement.seed,
            started_at: judgement.started_at.clone(),
            time: format_time(&judgement.started_at),
            verdict: verdict(judgement, language),
            is_loss: sum(judgement, |fault| fault.lost_updates) > 0,
            notes: notes(judgement, language),
            has_fence,
            faults: (1..)
                .zip(faults)
                .map(|(number, fault)| FaultView::new(number, fault, has_fence, language))
                .collect(),
        }
    }

    fn text(&self, id: &str) -> String {
        self.language.text(id)
    }

    fn text_with(&self, id: &str, variables: &[(&'static str, FluentValue<'_>)]) -> String {
        self.language.text_with(id, variables)
    }

    fn column(&self, name: &str) -> String {
        self.text(&format!("judge-column-{name}"))
    }

    fn about_column(&self, name: &str) -> String {
        self.text(&format!("judge-about-{name}"))
    }

    fn yes_or_no(&self, is: bool) -> String {
        self.text(if is { "judge-yes" } else { "judge-no" })
    }

    /// Returns the faults that ran.
    fn ran(&self) -> impl Iterator<Item = &FaultView> {
        self.faults.iter().filter(|fault| fault.why_not.is_none())
    }

    fn has_violations(&self) -> bool {
        self.faults.iter().any(|fault| !fault.violations.is_empty())
    }
}

/// Returns the sentences below the verdict: writes with the fence, other violations, and faults
/// that did not run.
fn notes(judgement: &Judgement, language: Language) -> Vec<String> {
    let ran: Vec<&FaultReport> = judgement.faults.iter().filter(|fault| fault.ran).collect();
    let mut notes = Vec::new();
    if ran.iter().any(|fault| fault.with_fence.is_some()) {
        let fenced =
            |fault: &FaultReport| fault.with_fence.as_ref().map_or(0, |it| it.lost_updates);
        let lost = sum(judgement, fenced);
        let variables = [("lost", lost.into()), ("count", columns::count(lost).into())];
        notes.push(match lost {
            0 => language.text("judge-fence-safe"),
            _ => language.text_with("judge-fence-lost", &variables),
        });
    }
    let others = columns::sums_of_others(&ran, language);
    if !others.is_empty() {
        let found = others.join(" · ");
        notes.push(language.text_with("judge-others", &[("found", found.into())]));
    }
    let missing = judgement.faults.len() - ran.len();
    if missing > 0 {
        notes.push(language.text_with("judge-missing", &[("faults", missing.into())]));
    }
    notes
}

impl FaultView {
    fn new(number: usize, fault: &FaultReport, has_fence: bool, language: Language) -> Self {
        let id = format!("fault-{number}");
        let without_reason = || language.text("judge-no-reason");
        let why_not = (!fault.ran).then(|| fault.why_not.clone().unwrap_or_else(without_reason));
        let is_loss = fault.ran && fault.lost_updates > 0;
        let result = match (fault.ran, is_loss) {
            (false, _) => "judge-result-not-run",
            (_, true) => "judge-result-lost",
            (_, false) => "judge-result-safe",
        };
        Self {
            name: fault.name.clone(),
            about: about_fault(&fault.name, language),
            why_not,
            result: language.text(result),
            is_loss,
            safety: columns::safety(fault, has_fence, language),
            cost: columns::cost(fault),
            violations: (1..)
                .zip(&fault.violations)
                .map(|(number, it)| ViolationView::new(format!("{id}-{number}"), it, language))
                .collect(),
            id,
        }
    }
}

impl ViolationView {
    fn new(id: String, violation: &Violation, language: Language) -> Self {
        let kind = violation.kind.as_str();
        let name = Message::new(&format!("judge-kind-{kind}")).format(language);
        let mut timeline = events::timeline(&violation.events);
        let overlaps = timeline.overlaps(kind == "overlap");
        timeline.put_involved_lanes_first(&overlaps);
        Self {
            kind: name.unwrap_or_else(|| kind.to_owned()),
            is_loss: kind == "lost-update" || kind == "lost-with-fence",
            text: violation.text.clone(),
            timeline: TimelineView::scrolled(timeline, overlaps, &id, language),
            id,
        }
    }
}

#[cfg(test)]
mod tests;

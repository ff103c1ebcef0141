//! A judgement of a lock as a page: its verdict, the figures of each fault, and every violation
//! with its sentence and a swimlane.
//!
//! [`saved_page`] renders one HTML file without scripts and outside resources; the lab's pages
//! ([`super::lab::judged`]) have the same content. A judgement may come from the file of a visitor:
//! it is shown as text. Tests: `tests/pages/judged.rs`.

mod columns;

use std::collections::BTreeSet;

use askama::Template;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::format::FormatTime as _;
use super::respond::{hash_source, without_fonts};
use super::timeline::TimelineView;
use crate::judge::report::{self, ClientId, FaultReport, Judgement, UNDISTURBED, Violation};
use crate::lab::timeline::{Detail, Event, EventKind, Timeline, TimelineLane, Value};
use crate::messages::{Language, Message};

const STYLES: [&str; 3] = [
    include_str!("../../../../static/holdfast.css"),
    include_str!("../../../../static/swimlane.css"),
    include_str!("../../../../static/judged.css"),
];

/// A judgement in one language: the content of a page below its title.
#[derive(Debug, Template)]
#[template(path = "parts/judgement.html")]
pub struct JudgementView<'a> {
    pub judgement: &'a Judgement,
    pub language: Language,
}

#[derive(Debug, Template)]
#[template(path = "saved_judgement.html")]
struct SavedJudgement<'a> {
    view: JudgementView<'a>,
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
    SavedJudgement { view: JudgementView { judgement, language }, style, policy }.render()
}

impl JudgementView<'_> {
    /// Returns the sum of a figure over the faults that ran.
    fn sum(&self, figure: impl Fn(&FaultReport) -> u64) -> u64 {
        let ran = self.judgement.faults.iter().filter(|fault| fault.ran);
        ran.fold(0, |sum, fault| sum.saturating_add(figure(fault)))
    }

    fn lost(&self) -> u64 {
        self.sum(|fault| fault.lost_updates)
    }

    /// Returns the verdict: `7 lost updates under 3 of 11 faults`.
    pub fn verdict(&self) -> String {
        let (judgement, language) = (self.judgement, self.language);
        let is_lost = |fault: &&FaultReport| fault.lost_updates > 0;
        let variables = [
            ("faults", judgement.injected().count().into()),
            ("under", judgement.injected().filter(is_lost).count().into()),
            ("lost", self.lost().into()),
            ("count", columns::count(self.lost()).into()),
        ];
        let undisturbed = judgement.faults.iter().find(|fault| fault.name == UNDISTURBED);
        match undisturbed.filter(|fault| fault.ran) {
            Some(fault) if is_lost(&fault) => {
                language.text_with("judge-verdict-lost-undisturbed", &variables[2..])
            }
            None if judgement.injected().next().is_none() => language.text("judge-verdict-nothing"),
            _ if self.lost() == 0 => language.text_with("judge-verdict-safe", &variables[..1]),
            _ => language.text_with("judge-verdict-lost", &variables),
        }
    }

    fn time(&self) -> String {
        let parsed = OffsetDateTime::parse(&self.judgement.started_at, &Rfc3339);
        parsed.map_or_else(|_| self.judgement.started_at.clone(), |time| time.in_utc())
    }

    fn has_fence(&self) -> bool {
        self.judgement.faults.iter().any(|fault| fault.with_fence.is_some())
    }

    /// Returns the sentence on writes that demand the fence.
    fn fence_note(&self) -> String {
        let fenced =
            |fault: &FaultReport| fault.with_fence.as_ref().map_or(0, |it| it.lost_updates);
        let lost = self.sum(fenced);
        let variables = [("lost", lost.into()), ("count", columns::count(lost).into())];
        match lost {
            0 => self.language.text("judge-fence-safe"),
            _ => self.language.text_with("judge-fence-lost", &variables),
        }
    }

    /// Returns the number of faults that did not run.
    fn missing(&self) -> usize {
        self.judgement.faults.iter().filter(|fault| !fault.ran).count()
    }

    fn column(&self, name: &str) -> String {
        self.language.text(&format!("judge-column-{name}"))
    }

    fn about_column(&self, name: &str) -> String {
        self.language.text(&format!("judge-about-{name}"))
    }

    fn yes_or_no(&self, is: bool) -> String {
        self.language.text(if is { "judge-yes" } else { "judge-no" })
    }

    fn why_not(&self, fault: &FaultReport) -> String {
        fault.why_not.clone().unwrap_or_else(|| self.language.text("judge-no-reason"))
    }

    fn about_fault(&self, fault: &FaultReport) -> String {
        about_fault(&fault.name, self.language)
    }

    fn has_violations(&self) -> bool {
        self.judgement.faults.iter().any(|fault| !fault.violations.is_empty())
    }

    /// Returns the kind of a violation in words; an unknown one as it stands.
    fn kind(&self, violation: &Violation) -> String {
        let name = Message::new(&format!("judge-kind-{}", violation.kind)).format(self.language);
        name.unwrap_or_else(|| violation.kind.clone())
    }

    fn is_loss(&self, violation: &Violation) -> bool {
        violation.kind.starts_with("lost-")
    }

    fn track(&self, violation: &Violation, id: &str) -> TimelineView {
        let mut timeline = timeline(&violation.events);
        let overlaps = timeline.overlaps(violation.kind == "overlap");
        timeline.put_involved_lanes_first(&overlaps);
        TimelineView::scrolled(timeline, overlaps, id, self.language)
    }
}

/// Returns the description of a fault; empty for an unknown one, whose name may come from a file.
pub fn about_fault(name: &str, language: Language) -> String {
    Message::new(&format!("judge-fault-{name}")).format(language).unwrap_or_default()
}

/// Returns events in order of time, with a lane per client, and with the writes marked that lost an
/// update.
fn timeline(events: &[report::Event]) -> Timeline {
    let clients: BTreeSet<ClientId> = events.iter().map(|event| event.id).collect();
    let clients: Vec<ClientId> = clients.into_iter().collect();
    let lane = |client: &ClientId| TimelineLane { name: client.to_string(), ..Default::default() };
    let event = |event: &report::Event| Event {
        lane: clients.partition_point(|client| *client < event.id),
        at_us: (event.t_ms * 1_000.0).round() as u64,
        kind: event_kind(&event.event),
        detail: Detail {
            value: event.value.map(Value::Units),
            fence: event.fence,
            ..Detail::default()
        },
    };
    let mut timeline = Timeline {
        lanes: clients.iter().map(lane).collect(),
        events: events.iter().map(event).collect(),
    };
    timeline.events.sort_by_key(|event| event.at_us);
    timeline.mark_stale_writes();
    timeline
}

fn event_kind(name: &str) -> EventKind {
    match name {
        "ask" => EventKind::Wait,
        "granted" => EventKind::Held,
        "read" => EventKind::Read,
        "write" => EventKind::Write,
        "refused" => EventKind::Refused,
        "released" => EventKind::Release,
        "lost" => EventKind::Lost,
        "paused" => EventKind::Paused,
        "continued" => EventKind::Resumed,
        "killed" => EventKind::Killed,
        other => EventKind::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests;

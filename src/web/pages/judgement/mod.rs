//! A judgement of a lock as a page: its verdict, the figures of each fault, and every violation
//! with its sentence and a swimlane.
//!
//! [`saved_page`] renders one HTML file that runs no script, needs nothing else, and has the
//! judgement as JSON, which the lab opens again. A judgement may come from the file of a visitor:
//! it is shown as text. Tests: `tests/pages/judged.rs`.

mod service;

use std::cell::Cell;

use askama::Template;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::format::FormatTime as _;
use super::respond::{saved_policy, script_json, without_fonts};
use super::timeline::TimelineView;
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_judge::columns::Column;
use holdfast_judge::course::{self, CheckHead, CheckResult};
use holdfast_judge::report::{FaultReport, Judgement, Violation, ViolationKind};
use holdfast_story::Drawing;

pub use self::service::{ServiceView, saved_service_page, shows_judged_mistake};

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
    /// A page with another verdict, of the course, does not show this one.
    has_verdict: bool,
    max_events: usize,
    /// Events of the violations that have been drawn so far.
    drawn: Cell<usize>,
}

#[derive(Debug, Template)]
#[template(path = "saved_judgement.html")]
struct SavedJudgement<'a> {
    view: JudgementView<'a>,
    /// Of a check of the course.
    check: Option<CheckHead<'a>>,
    style: String,
    json: String,
}

impl SavedJudgement<'_> {
    fn policy(&self) -> String {
        saved_policy(&self.style)
    }
}

/// Renders a judgement as one HTML file, in the language of the terminal.
///
/// # Errors
/// Fails if the template does.
pub fn saved_page(judgement: &Judgement) -> askama::Result<String> {
    save(judgement, None, Language::of_environment())
}

/// Renders a check of the course as one HTML file, in the language of the terminal.
///
/// # Errors
/// Fails if the template does.
pub fn saved_check(check: &CheckResult) -> askama::Result<String> {
    let language = Language::of_environment();
    save(&check.judgement, Some(course::head(check, language)), language)
}

fn save(
    judgement: &Judgement,
    check: Option<CheckHead<'_>>,
    language: Language,
) -> askama::Result<String> {
    let style = without_fonts(&STYLES.concat());
    // A file that its judge writes has all of its drawings.
    let has_verdict = check.is_none();
    let view = JudgementView { has_verdict, ..JudgementView::new(judgement, language, usize::MAX) };
    SavedJudgement { view, check, style, json: data_of(judgement) }.render()
}

/// Returns what a saved page has for the lab that opens it again.
fn data_of(judgement: &impl Serialize) -> String {
    script_json(&serde_json::to_value(judgement).unwrap_or_default())
}

impl<'a> JudgementView<'a> {
    /// Shows a judgement, with drawings of at most `max_events`.
    pub fn new(judgement: &'a Judgement, language: Language, max_events: usize) -> Self {
        Self { judgement, language, has_verdict: true, max_events, drawn: Cell::new(0) }
    }

    pub fn verdict(&self) -> String {
        self.judgement.verdict().text(self.language)
    }

    fn time(&self) -> String {
        time_of(&self.judgement.started_at)
    }

    /// Returns the sentence of what the lock leaves to its user, if a fault shows it.
    fn leaves(&self) -> Option<String> {
        let what = self.judgement.leaves(self.language)?;
        Some(self.language.text_with("judge-leaves", &[("what", what.into())]))
    }

    /// Returns the number of faults that did not run.
    fn missing(&self) -> usize {
        self.judgement.faults.iter().filter(|fault| !fault.ran).count()
    }

    fn safety(&self) -> Vec<Column> {
        Column::safety(self.judgement).collect()
    }

    fn columns(&self) -> Vec<Column> {
        self.safety().into_iter().chain(Column::COST.iter().copied()).collect()
    }

    fn column(&self, column: &Column) -> String {
        self.language.text(&format!("judge-column-{}", column.name()))
    }

    /// Returns the style of a figure whose violations were found.
    fn mark(&self, column: &Column, fault: &FaultReport) -> &'static str {
        let kind = column.violation();
        let found = fault.violations.iter().find(|found| Some(&found.kind) == kind.as_ref());
        found.map_or("", |found| if found.kind.is_loss() { "off" } else { "found" })
    }

    fn yes_or_no(&self, is: bool) -> String {
        self.language.text(if is { "judge-yes" } else { "judge-no" })
    }

    fn has_violations(&self) -> bool {
        self.judgement.faults.iter().any(|fault| !fault.violations.is_empty())
    }

    /// Returns the fault's name, if it is another one than that of the command line.
    fn translated(&self, fault: &FaultReport) -> Option<String> {
        Some(fault.title(self.language)).filter(|title| *title != fault.name)
    }

    /// Draws the events of a violation, unless the page has too many with them.
    fn track(&self, violation: &Violation, id: &str) -> Option<TimelineView> {
        let drawn = self.drawn.get() + violation.events.len();
        if drawn > self.max_events {
            return None;
        }
        self.drawn.set(drawn);
        Some(draw(violation, id, self.language))
    }

    fn not_drawn(&self) -> String {
        self.language
            .text_with("judge-not-drawn", &[("events", grouped(self.max_events as u64).into())])
    }
}

/// Draws the events of a violation, which the element of that id describes.
pub(super) fn draw(violation: &Violation, id: &str, language: Language) -> TimelineView {
    let mut timeline = violation.timeline();
    let overlaps = timeline.overlaps(violation.kind == ViolationKind::Overlap);
    timeline.put_involved_lanes_first(&overlaps);
    let drawing = Drawing::scrolled(timeline, overlaps, language);
    TimelineView::from(drawing).labelled_by(id)
}

/// Returns a time of a judgement as a page shows it.
fn time_of(started_at: &str) -> String {
    let parsed = OffsetDateTime::parse(started_at, &Rfc3339);
    parsed.map_or_else(|_| started_at.to_owned(), |time| time.in_utc())
}

/// Returns the description of a fault; none of an unknown one, whose name may come from a file.
pub fn about(fault: &FaultReport, language: Language) -> Option<String> {
    fault.fault().map(|fault| fault.about(language))
}

#[cfg(test)]
mod tests {
    use holdfast_base::message;
    use holdfast_base::messages::Message;
    use holdfast_judge::course::LevelFinding;
    use holdfast_judge::fault::Fault;
    use holdfast_judge::report::Repeats;
    use holdfast_story::EventKind;

    use super::*;

    const FIXTURE: &str = include_str!("../../../../tests/pages/judgement.json");

    fn judgement() -> Judgement {
        serde_json::from_str(FIXTURE).unwrap()
    }

    fn render(judgement: &Judgement, language: Language) -> String {
        shown_in(&save(judgement, None, language).unwrap())
    }

    /// Returns a saved page without the JSON that is in it.
    pub(super) fn shown_in(page: &str) -> String {
        let (before, data) = page.split_once("<script type=\"application/json\"").unwrap();
        let (_, after) = data.split_once("</script>").unwrap();
        format!("{before}{after}")
    }

    fn violation(kind: ViolationKind) -> Violation {
        let text = "found".to_owned();
        Violation { kind, text, message: None, events: Vec::new(), story: Vec::new() }
    }

    /// Returns the row of a fault in a table.
    fn row<'a>(page: &'a str, table: &str, fault: &str) -> &'a str {
        let table = page.split(&format!("<h2 id=\"{table}\">")).nth(1).unwrap();
        let table = table.split("</table>").next().unwrap();
        let row = table.split("<tr>").find(|row| row.contains(&format!(">{fault}<"))).unwrap();
        row.split("</tr>").next().unwrap()
    }

    #[test]
    fn verdict_counts_losses_and_faults() {
        let mut judgement = judgement();
        let page = render(&judgement, Language::English);
        for text in [
            "Loses updates under 3 of 9 faults",
            "With its fence, which the store checks: nothing lost, but fences went back under ",
            "Without a store that checks it: loses updates under 3 of 9 faults<",
            "2 faults did not run.",
            "fences (fencing tokens): yes",
            "2026-11-25 04:12:09 UTC",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(page.contains("class=\"saved-verdict half loss\""));
        let cost = row(&page, "cost-title", "redis-slow");
        let cells = [">3,205<", ">7,411<", ">99<", ">3.4<", ">0.98<", ">1.9<"];
        assert!(cells.iter().all(|cell| cost.contains(cell)), "{cost}");

        // A key that also remains without a fault is none that was left behind.
        let slow_commit =
            judgement.faults.iter_mut().find(|fault| fault.leftover_keys == 1).unwrap();
        assert!(!row(&page, "cost-title", &slow_commit.name).contains("found"));
        slow_commit.violations.push(violation(ViolationKind::LeftoverKey));
        let name = slow_commit.name.clone();
        let page = render(&judgement, Language::English);
        assert!(row(&page, "cost-title", &name).contains("found"));

        judgement.faults.retain(|fault| fault.violations.is_empty());
        let page = render(&judgement, Language::English);
        assert!(page.contains(" turns under 3 faults"), "{page}");
        assert!(page.contains("None was found.") && !page.contains("<svg"));
        assert!(!page.contains("half loss") && !page.contains("class=\"off\""));

        judgement.faults.truncate(1);
        let page = render(&judgement, Language::English);
        assert!(page.contains("No lost update in 1,904 turns without a fault"), "{page}");
        judgement.faults[0].lost_updates = 1;
        let page = render(&judgement, Language::English);
        assert!(page.contains("Loses updates even without a fault"), "{page}");

        judgement.faults.clear();
        assert!(render(&judgement, Language::English).contains("Nothing was judged"));
    }

    #[test]
    fn repeated_fault_shows_its_runs() {
        let mut judgement = judgement();
        let pause = judgement.faults.iter_mut().find(|fault| fault.name == "pause").unwrap();
        let repeats = Repeats { runs: 10, lost_in: 9, lost_in_with_fence: 0, run_seed: 12 };
        pause.repeats = Some(repeats);
        let page = render(&judgement, Language::English);
        let pause = row(&page, "safety-title", "pause");
        assert!(pause.contains(">9/10<") && pause.contains(">0/10<"), "{pause}");

        // The run that is shown lost an update with the fence only.
        let pause = judgement.faults.iter_mut().find(|fault| fault.name == "pause").unwrap();
        pause.lost_updates = 0;
        pause.repeats = Some(Repeats { lost_in_with_fence: 1, ..repeats });
        let page = render(&judgement, Language::English);
        assert!(page.contains("Loses updates under 3 of 9 faults"), "{page}");
        assert!(page.contains("updates are still lost under pause<"), "{page}");
    }

    #[test]
    fn page_of_a_check_has_its_verdict_and_rules() {
        let judgement = judgement();
        let rule = LevelFinding {
            holds: false,
            fault: Fault::Pause,
            rule: Message::new("course-rule-fences"),
            measured: "119".into(),
            kind: None,
        };
        let head = CheckHead {
            title: "Level 5 of 8: the fence".to_owned(),
            verdict: "Not passed".to_owned(),
            passed: false,
            rules: &[rule],
        };
        let page = save(&judgement, Some(head), Language::English).unwrap();
        for text in ["<h1>Level 5 of 8: the fence</h1>", "Not passed", "fences never go back"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(page.contains("saved-verdict loss"), "{page}");
        assert!(!page.contains("Loses updates under"), "{page}");
    }

    #[test]
    fn loss_with_fence_is_red() {
        let mut judgement = judgement();
        let fault = &mut judgement.faults[0];
        fault.with_fence.as_mut().unwrap().lost_updates = 2;
        fault.violations.push(violation(ViolationKind::LostWithFence));
        let page = render(&judgement, Language::English);
        assert!(page.contains("which the store checks: updates are still lost under none<"));
        let none = row(&page, "safety-title", "none");
        assert!(none.contains("off\">2<"), "{none}");

        judgement.faults[0].with_fence.as_mut().unwrap().lost_updates = 0;
        judgement.faults[0].fence_regressions = 4;
        let page = render(&judgement, Language::English);
        let verdict = "half loss\">With its fence, which the store checks: nothing lost, but ";
        assert!(page.contains(verdict), "{page}");
        assert!(row(&page, "safety-title", "none").contains(">fences go back<"), "{page}");

        judgement.adapter.fencing = false;
        judgement.faults.iter_mut().for_each(|fault| fault.with_fence = None);
        let page = render(&judgement, Language::English);
        assert!(!page.contains("which the store checks") && !page.contains("fences back<"));
    }

    #[test]
    fn faults_have_a_name_in_each_language() {
        let mut judgement = judgement();
        judgement.faults[0].name = "later".to_owned();
        let page = render(&judgement, Language::Chinese);
        assert!(row(&page, "safety-title", "later").contains("scope=\"row\">later</th>"), "{page}");
        let partition = row(&page, "cost-title", "网络分区");
        assert!(partition.contains("title=\"partition\""), "{partition}");
        assert!(page.contains("<dt>主从切换 <code>redis-failover</code></dt>"), "{page}");

        let fault = judgement.faults.iter().find(|fault| fault.why_not.is_some()).unwrap();
        let why_not = fault.why_not.as_ref().unwrap();
        let name = fault.title(Language::Chinese);
        let row = row(&page, "safety-title", &name);
        assert!(row.contains("lang=\"en\">") && row.contains(why_not.as_str()), "{row}");
    }

    /// The fixture is of an older version, and has no messages.
    #[test]
    fn sentences_are_in_the_language_of_the_page() {
        let mut judgement = judgement();
        let old = judgement.faults[1].violations[0].text.clone();
        let is_english = |judgement: &Judgement, text: &str| {
            let page = render(judgement, Language::Chinese);
            page.contains(&format!("<span lang=\"en\">{text}</span>"))
        };
        assert!(is_english(&judgement, &old));

        let violation = &mut judgement.faults[1].violations[0];
        violation.message = Some(Message::new("judge-found-of-a-later-version"));
        assert!(is_english(&judgement, &old));

        let violation = &mut judgement.faults[1].violations[0];
        violation.message = Some(message!("judge-found-units", units = "1,234"));
        let fault = judgement.faults.iter_mut().find(|fault| !fault.ran).unwrap();
        fault.why_not_message = Some(message!("judge-why-no-cancel"));
        let page = render(&judgement, Language::Chinese);
        for text in ["库存减少的件数多 1,234<", "\">适配器没有 <code>cancel</code><"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!is_english(&judgement, &old));
    }

    #[test]
    fn texts_of_file_are_escaped() {
        let mut judgement = judgement();
        let attack = "</style><script>alert(1)</script>\"'";
        judgement.adapter.name = attack.to_owned();
        judgement.started_at = attack.to_owned();
        for fault in &mut judgement.faults {
            fault.name = attack.to_owned();
            fault.why_not = fault.why_not.as_ref().map(|_| attack.to_owned());
            for violation in &mut fault.violations {
                violation.kind = ViolationKind::Other(attack.to_owned());
                attack.clone_into(&mut violation.text);
                let events = violation.events.iter_mut();
                events.for_each(|event| event.kind = EventKind::named(attack));
            }
        }
        let page = save(&judgement, None, Language::English).unwrap();
        assert_eq!(page.matches("<script").count(), 1, "the data");
        assert!(!page.contains("alert(1)</"), "{page}");
        assert_eq!(page.matches("</style>").count(), 1);
    }
}

//! A judgement of a service as a page: its verdict, the figures of each pass, and the two requests
//! of each finding side by side, in the order of time.
//!
//! Their statements are what there is to read, so they stand as text in a column for each request,
//! and not as marks in a swimlane.

#[cfg(test)]
mod tests;

use askama::Template;
use strum::VariantArray as _;

use super::{STYLES, data_of, time_of};
use crate::web::pages::respond::{saved_policy, without_fonts};
use holdfast_base::messages::Language;
use holdfast_base::output::grouped;
use holdfast_judge::Judged as _;
use holdfast_judge::service::report::{
    Imbalance, PassReport, ServiceEvidence, ServiceJudgement, StatementReport,
};
use holdfast_judge::service::{Pass, Pattern};
use holdfast_lab::lessons;
use holdfast_story::{Value, format_ms};

const OWN_STYLE: &str = include_str!("../../../../../static/service.css");

/// Messages about a lesson, and about a file.
const MISTAKE: &str = "service-lesson-mistake";
const CURE: &str = "service-lesson-cure";
const RECIPE: &str = "service-recipe";

/// A judgement of a service in one language: the content of a page below its title.
#[derive(Debug, Template)]
#[template(path = "parts/service_judgement.html")]
pub struct ServiceView<'a> {
    pub judgement: &'a ServiceJudgement,
    pub language: Language,
}

#[derive(Debug, Template)]
#[template(path = "saved_service.html")]
struct SavedService<'a> {
    view: ServiceView<'a>,
    style: String,
    json: String,
}

impl SavedService<'_> {
    fn policy(&self) -> String {
        saved_policy(&self.style)
    }
}

/// A row of the drawing: a statement is sent, or is answered after it has waited.
#[derive(Debug)]
struct StepRow {
    at: String,
    /// One of each request.
    cells: Vec<StepCell>,
}

#[derive(Debug, Default)]
struct StepCell {
    /// A statement is sent and not answered yet, or was until now.
    waits: bool,
    is_decisive: bool,
    /// Name of the request, if it is its step.
    request: Option<String>,
    sql: Option<String>,
    /// Its duration, or that it waits.
    note: String,
    result: Option<String>,
}

/// Renders the judgement of a service as one HTML file, in the language of the terminal.
///
/// # Errors
/// Fails if the template does.
pub fn saved_service_page(judgement: &ServiceJudgement) -> askama::Result<String> {
    save(judgement, Language::of_environment())
}

fn save(judgement: &ServiceJudgement, language: Language) -> askama::Result<String> {
    let style = without_fonts(&(STYLES.concat() + OWN_STYLE));
    let view = ServiceView { judgement, language };
    SavedService { view, style, json: data_of(judgement) }.render()
}

impl ServiceView<'_> {
    fn time(&self) -> String {
        time_of(&self.judgement.started_at)
    }

    fn facts(&self) -> String {
        let instances = self.judgement.service.instances.into();
        let seed = self.judgement.seed.to_string().into();
        self.language.text_with("service-facts", &[("instances", instances), ("seed", seed)])
    }

    pub fn verdict(&self) -> String {
        let found = self.found();
        if !found.is_empty() {
            let names = found.iter().map(|(imbalance, _)| self.column(imbalance.name()));
            let names = self.language.list(&names.collect::<Vec<_>>());
            return self.language.text_with("service-verdict-found", &[("found", names.into())]);
        }
        if self.judgement.undecided().is_some() {
            return self.language.text("service-verdict-undecided");
        }

        let ran = self.judgement.passes.iter().filter(|pass| pass.ran);
        let names = self.language.list(&ran.map(|pass| self.title(pass)).collect::<Vec<_>>());
        let orders = grouped(self.judgement.orders());
        let variables = [("orders", orders.into()), ("passes", names.into())];
        self.language.text_with("service-verdict-sound", &variables)
    }

    /// Returns what was found, each with the names of its passes.
    fn found(&self) -> Vec<(Imbalance, String)> {
        let mut found = Vec::new();
        for imbalance in Imbalance::VARIANTS {
            let passes = self.judgement.passes.iter();
            let passes = passes.filter(|pass| pass.figures.of(*imbalance) != 0);
            let names: Vec<String> = passes.map(|pass| self.title(pass)).collect();
            if !names.is_empty() {
                found.push((*imbalance, self.language.list(&names)));
            }
        }
        found
    }

    /// Returns whether the service passed, by the figures: a file may say anything.
    fn is_sound(&self) -> bool {
        self.found().is_empty() && self.judgement.undecided().is_none()
    }

    fn notes(&self) -> Vec<String> {
        if self.is_sound() {
            return vec![self.language.text("service-no-proof")];
        }
        let note = |(imbalance, passes): (Imbalance, String)| {
            let balance = self.column(imbalance.name());
            let variables = [("balance", balance.into()), ("passes", passes.into())];
            self.language.text_with("service-found-under", &variables)
        };
        self.found().into_iter().map(note).collect()
    }

    fn column(&self, name: &str) -> String {
        self.language.text(&format!("service-column-{name}"))
    }

    fn title(&self, pass: &PassReport) -> String {
        match pass.replay {
            true => self.language.text("service-pass-replay"),
            false => self.title_of(&pass.name),
        }
    }

    /// Returns the name of a pass, which may be one of a later version.
    fn title_of(&self, name: &str) -> String {
        let pass = name.parse::<Pass>();
        pass.map_or_else(|_| name.to_owned(), |pass| pass.title(self.language))
    }

    /// Returns whether a pass has another name than that of the command line.
    fn is_translated(&self, pass: &PassReport) -> bool {
        self.title(pass) != pass.name
    }

    fn about(&self, pass: &PassReport) -> Option<String> {
        match pass.replay {
            true => Some(self.language.text("service-happens-replay")),
            false => Some(pass.name.parse::<Pass>().ok()?.about(self.language)),
        }
    }

    fn why_not(&self, pass: &PassReport) -> Option<String> {
        pass.why_not_message.as_ref()?.format(self.language)
    }

    /// Returns which passes have answers that are neither *sold* nor *sold out*, or orders without
    /// any, each with one of these.
    fn neither(&self) -> Vec<(String, &str)> {
        let strange = self.judgement.passes.iter().filter(|pass| pass.has_strange_answers());
        let said = strange.filter_map(|pass| {
            let error = pass.figures.error.as_deref()?;
            let message = match pass.figures.errors {
                0 => "service-unanswered",
                _ => "service-neither",
            };
            let name = self.title(pass).into();
            Some((self.language.text_with(message, &[("pass", name)]), error))
        });
        said.collect()
    }

    /// Returns the sentence of the schedule that found something: a search ends with it.
    fn found_by_schedule(&self) -> Option<String> {
        let mut passes = self.judgement.passes.iter();
        let pass = passes.find(|pass| pass.has_schedules() && !pass.replay && pass.lost_in > 0)?;
        let variables = [("pass", self.title(pass).into()), ("number", pass.runs.into())];
        Some(self.language.text_with("service-found-by-schedule", &variables))
    }

    /// Returns the sentence of the schedules for which there was no time.
    fn untried(&self) -> Option<String> {
        let mut passes = self.judgement.passes.iter();
        let (pass, count) = passes.find_map(|pass| Some((pass, pass.untried?)))?;
        let variables = [("pass", self.title(pass).into()), ("count", count.get().into())];
        Some(self.language.text_with("service-untried", &variables))
    }

    /// Returns the sentence of the passes whose finding two requests alone did not show.
    fn not_shown(&self) -> Option<String> {
        let passes = self.judgement.not_shown();
        let names: Vec<String> = passes.into_iter().map(|pass| self.title(pass)).collect();
        let variables = [("passes", self.language.list(&names).into())];
        (!names.is_empty()).then(|| self.language.text_with("service-not-shown", &variables))
    }

    fn has_evidence(&self) -> bool {
        self.judgement.passes.iter().any(|pass| !pass.evidence.is_empty())
    }

    /// Returns the sentence of what happened, without the name of the mistake, which stands before
    /// it, and the language's tag.
    fn sentence(&self, evidence: &ServiceEvidence) -> (String, &'static str) {
        let own = evidence.message.as_ref().and_then(|message| message.format(self.language));
        let (sentence, language) = match own {
            Some(sentence) => (sentence, self.language),
            None => (evidence.summary.clone(), Language::English),
        };
        let begin = format!("{}{}", evidence.pattern.title(language), language.colon());
        let rest = sentence.strip_prefix(&begin).unwrap_or(&sentence);
        let full_stop = match language {
            Language::English => ".",
            Language::Chinese => "。",
        };
        (format!("{rest}{full_stop}"), language.tag())
    }

    /// Returns what has to be known of the two requests.
    fn how(&self, pass: &PassReport, evidence: &ServiceEvidence) -> Vec<String> {
        let under = self.title_of(&evidence.under);
        let under = (evidence.under != pass.name)
            .then(|| self.language.text_with("service-under", &[("pass", under.into())]));
        let is_held = evidence.under == Pass::Gate.name();
        let held = is_held.then(|| self.language.text("service-held"));
        under.into_iter().chain(held).collect()
    }

    fn request_names(&self, evidence: &ServiceEvidence) -> Vec<String> {
        requests(evidence).into_iter().map(|request| self.request_name(request)).collect()
    }

    fn request_name(&self, (buyer, instance): (u64, usize)) -> String {
        let variables = [("buyer", buyer.into()), ("instance", instance.into())];
        self.language.text_with("service-request", &variables)
    }

    /// Returns the rows of the drawing. An answer that came at once, with no other statement
    /// before it, stands with its own.
    fn steps(&self, evidence: &ServiceEvidence) -> Vec<StepRow> {
        let sent = evidence.statements.iter().map(|it| (it.sent_ms, it, false));
        let waited = evidence.statements.iter().filter(|it| evidence.waited_ms(it).is_some());
        let mut moments: Vec<_> = sent.chain(waited.map(|it| (it.answered_ms, it, true))).collect();
        moments.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));

        let columns = requests(evidence);
        let mut steps = Vec::new();
        for (at, statement, is_answer) in moments {
            let cells = columns.iter().map(|column| match *column == request_of(statement) {
                true => self.cell(evidence, statement, is_answer),
                false => {
                    StepCell { waits: is_waiting(evidence, *column, at), ..StepCell::default() }
                }
            });
            steps.push(StepRow { at: in_ms(at), cells: cells.collect() });
        }
        steps
    }

    fn cell(
        &self,
        evidence: &ServiceEvidence,
        statement: &StatementReport,
        is_answer: bool,
    ) -> StepCell {
        let waited = evidence.waited_ms(statement);
        let note = match (waited, is_answer) {
            (None, _) => in_ms(statement.answered_ms - statement.sent_ms) + " ms",
            (Some(_), false) => self.language.text("service-waits"),
            (Some(ms), true) => {
                self.language.text_with("service-answered-after", &[("ms", in_ms(ms).into())])
            }
        };
        let request = Some(self.request_name(request_of(statement)));
        let result = statement.result_in(self.language);
        if statement.sql.is_empty() {
            return StepCell { request, note: result, ..StepCell::default() };
        }
        StepCell {
            waits: waited.is_some(),
            is_decisive: statement.decisive && !is_answer,
            request,
            sql: (!is_answer).then(|| statement.sql.clone()),
            note,
            result: (is_answer || waited.is_none()).then_some(result),
        }
    }

    /// Returns where the mistake and its cure are shown: lessons and files.
    fn further(&self, evidence: &ServiceEvidence) -> Vec<String> {
        let said = |(message, name): &(&str, &str)| {
            let title = lessons::named(name).map(|lesson| lesson.title(self.language));
            let title = title.unwrap_or_default();
            let variables =
                [("title", title.into()), ("name", (*name).into()), ("file", (*name).into())];
            self.language.text_with(message, &variables)
        };
        further(evidence.pattern).iter().map(said).collect()
    }
}

/// Returns the names of the columns.
fn columns() -> Vec<&'static str> {
    let columns = PassReport::default().columns().into_iter();
    columns.map(|(name, _)| name).chain(["runs"]).collect()
}

/// Returns the cells of a pass, and whether each is a balance that must not be.
fn cells(pass: &PassReport) -> Vec<(String, bool)> {
    let figures = pass.columns().into_iter().enumerate().map(|(place, (_, figure))| {
        let is_off = place < Imbalance::VARIANTS.len() && figure != Some(0);
        (figure.map_or_else(|| "-".to_owned(), |it| Value::Units(it).to_string()), is_off)
    });
    figures.chain([(format!("{}/{}", pass.lost_in, pass.runs), false)]).collect()
}

/// Returns the requests, which are the columns of the drawing: each has its buyer and instance.
fn requests(evidence: &ServiceEvidence) -> Vec<(u64, usize)> {
    let mut requests: Vec<_> = evidence.statements.iter().map(request_of).collect();
    requests.sort_unstable();
    requests.dedup();
    requests
}

fn request_of(statement: &StatementReport) -> (u64, usize) {
    (statement.buyer, statement.instance)
}

fn in_ms(ms: f64) -> String {
    format_ms((ms * 1_000.0).round() as u64)
}

/// Returns whether a statement of a request waits at a time.
fn is_waiting(evidence: &ServiceEvidence, request: (u64, usize), at: f64) -> bool {
    let mut statements = evidence.statements.iter().filter(|it| request_of(it) == request);
    statements.any(|it| evidence.waited_ms(it).is_some() && it.sent_ms < at && at < it.answered_ms)
}

/// Returns the lessons that show a mistake and its cure, and the file with the statements that cure
/// it, if they are more than one: each with the message that says which.
fn further(pattern: Pattern) -> &'static [(&'static str, &'static str)] {
    match pattern {
        Pattern::NoCheck | Pattern::CheckThenInsert | Pattern::OrderWithoutUnit => {
            &[(CURE, "database")]
        }
        Pattern::ReadThenWrite => {
            &[(MISTAKE, "lost-update"), (CURE, "database"), (RECIPE, "docs/FENCES.md")]
        }
        Pattern::CheckThenDecrement | Pattern::CheckElsewhere => {
            &[(MISTAKE, "check-then-decrement"), (CURE, "database")]
        }
        Pattern::TwoTransactions => &[(MISTAKE, "pre-deduct"), (CURE, "double-submit")],
        Pattern::ReleasedBeforeCommit => &[(MISTAKE, "early-release"), (CURE, "database")],
        Pattern::LeaseOutlived => {
            &[(MISTAKE, "outlived"), (CURE, "fence"), (RECIPE, "docs/FENCES.md")]
        }
        Pattern::KeyNotUnique => &[(CURE, "double-submit")],
        Pattern::Unknown => &[],
    }
}

/// Returns whether a lesson shows a mistake that the judge names, or its cure.
pub fn shows_judged_mistake(lesson: &str) -> bool {
    let mut named = Pattern::VARIANTS.iter().flat_map(|pattern| further(*pattern));
    named.any(|(_, name)| *name == lesson)
}

//! A run: its place in the queue or its live figures, then the verdict and its evidence.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;

use super::forks::{self, ArmForks, ForkView};
use super::guesses::{self, GuessBar};
use super::presentation::Presentation;
use super::run_form;
use super::run_list::{self, RunStatusLabel};
use super::scenes::{Scene, scenes};
use super::verdict::{self, ArmVerdict, Verdict};
use super::views;
use crate::lab::lessons::{self, Lesson};
use crate::lab::run::{Journey, LabRun, LabRunState};
use crate::lab::store::MAX_QUEUED_RUNS;
use crate::messages::{Language, Text};
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::{LabReader, Query};
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::pages::timeline::TimelineView;
use crate::web::{HttpResult, State};

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    presentation: Presentation,
    is_known_file: bool,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    guess: Option<GuessOutcome>,
    /// The answers of all visitors; empty without a guess.
    bars: Vec<GuessBar>,
    verdict: Verdict,
    arms: Vec<ArmVerdict>,
    scenes: Vec<Scene>,
}

impl RunPage {
    fn title(&self) -> String {
        run_list::title(&self.run.request, self.layout.language)
    }

    fn is_over(&self) -> bool {
        self.run.state.is_over()
    }

    /// Returns the label of the state; a queued run has its place in line.
    fn status(&self) -> RunStatusLabel {
        let (state, language) = (self.run.state, self.layout.language);
        let status = run_list::status(state, self.run.outcome.claim_shown, language);
        match self.run.position {
            Some(position) => RunStatusLabel { word: queued(position, language), ..status },
            None => status,
        }
    }

    /// Returns the labels of the states for the script, as JSON: those of the queue by place, and
    /// that of a running run.
    fn state_labels(&self) -> String {
        let language = self.layout.language;
        let queue: Vec<String> = (1..=MAX_QUEUED_RUNS).map(|at| queued(at, language)).collect();
        let running = run_list::status(LabRunState::Running, None, language).word;
        serde_json::json!({ "queued": queue, "running": running }).to_string()
    }

    fn steps(&self) -> &[Text] {
        if self.is_over() { &self.run.outcome.steps } else { &self.run.progress.steps }
    }

    /// Returns whether there is a load: a run that is staged request by request has no live
    /// figures.
    fn has_load(&self) -> bool {
        !self.run.progress.samples.is_empty()
    }

    /// Returns the first scene that is small enough to be watched, if no fork is.
    fn first_scene(&self) -> Option<&TimelineView> {
        let small = self.scenes.iter().find(|scene| !scene.is_large);
        small.or(self.scenes.first()).map(|scene| &scene.track)
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let request = &self.run.request;
        let language = self.layout.language;
        let journey = request.journey.map(|journey| match journey {
            Journey::Order => language.text("lab-journey-order"),
            Journey::Pay => language.text("lab-journey-pay"),
        });
        let fault = request.fault.as_ref().map(|fault| {
            let times = [("at", fault.at_ms.into()), ("for", fault.for_ms.into())];
            let times = language.text_with("lab-fault-times", &times);
            format!("{} {times}", run_form::fault_name(fault.kind.name(), language))
        });
        let all = [
            ("journey", journey),
            ("stock", request.stock.map(|stock| stock.to_string())),
            ("buyers", request.buyers.map(|buyers| buyers.to_string())),
            ("orders", request.orders.map(|orders| orders.to_string())),
            ("work_ms", request.work_ms.map(|work| work.to_string())),
            ("ttl_ms", request.ttl_ms.map(|ttl| ttl.to_string())),
            ("wait", request.wait.clone()),
            ("seed", request.seed.map(|seed| seed.to_string())),
            ("fault", fault),
        ];
        let labelled = all
            .into_iter()
            .filter_map(|(name, value)| Some((run_form::label(name, language), value?)));
        labelled.collect()
    }

    /// Returns the newest sample: the name of each figure in the stream, its label and its value.
    fn live_figures(&self) -> [(&'static str, String, String); 7] {
        let money = self.run.request.journey == Some(Journey::Pay);
        let sample = self.run.progress.samples.last().copied().unwrap_or_default();
        let amount = |number| views::amount(number, money);
        let label = |name| views::figure_name(name, money, self.layout.language);
        [
            ("sold", label("sold"), amount(sample.sold)),
            ("stock", label("left"), amount(sample.stock)),
            ("oversold", label("oversold"), amount(sample.oversold)),
            ("answered", label("answered"), views::count(sample.answered)),
            ("waiting", label("waiting"), views::count(sample.waiting)),
            ("p50_ms", label("p50"), views::ms(sample.p50_ms)),
            ("p99_ms", label("p99"), views::ms(sample.p99_ms)),
        ]
    }
}

/// Formats a place in the queue: "Queued, 2nd in line".
fn queued(position: i64, language: Language) -> String {
    language.text_with("lab-queued-at", &[("position", position.into())])
}

#[derive(Debug)]
struct GuessOutcome {
    choice: String,
    /// `None` if the claim was not shown: then the guess is not judged.
    right: Option<bool>,
    answer: String,
}

#[derive(Debug, Deserialize)]
pub struct RunPageQuery {
    /// Set if a file was opened whose run was stored already.
    #[serde(default)]
    known: Option<String>,
}

pub async fn show(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
    query: Query<RunPageQuery>,
) -> HttpResult {
    let query = query.read()?;
    let run = find_run(&state, &id).await?;
    let layout = Layout::of(&request).await?;
    let language = layout.language;
    let lesson = run.request.lesson.as_deref().and_then(lessons::named);
    let own: Option<usize> = run.guess.as_deref().and_then(|guess| guess.parse().ok());
    let (mut guess, mut bars) = (None, Vec::new());
    if let (Some(lesson), Some(own), true) = (lesson, own, run.state.is_over()) {
        guess = guess_outcome(&run, lesson, own, language);
        bars = guesses::bars(&state, lesson, own, language).await?;
    }
    let page = RunPage {
        presentation: Presentation::of(&request),
        is_known_file: query.known.is_some(),
        lesson,
        guess,
        bars,
        verdict: verdict::of_run(&run, language),
        arms: verdict::of_arms(&run, language),
        scenes: scenes(&run, language),
        layout,
        run,
    };
    html(StatusCode::OK, &page)
}

fn guess_outcome(
    run: &LabRun,
    lesson: &Lesson,
    own: usize,
    language: Language,
) -> Option<GuessOutcome> {
    let guesses = lesson.guesses(language);
    let choice = guesses.get(own)?.clone();
    let right = (run.outcome.claim_shown == Some(true)).then_some(own == lesson.right);
    Some(GuessOutcome { choice, right, answer: guesses.get(lesson.right)?.clone() })
}

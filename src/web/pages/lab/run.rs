//! A run: live figures while it is in progress, then the verdict and its evidence.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;

use super::forks::{self, ArmForks, ForkView};
use super::run_list::{self, RunStatusLabel};
use super::scenes::{Scene, scenes};
use super::views;
use crate::lab::lessons::{self, Lesson};
use crate::lab::run::{Journey, LabRun};
use crate::messages::Language;
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::{LabAdmin, Query};
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, State};

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    notice: Option<&'static str>,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    guess: Option<GuessOutcome>,
    scenes: Vec<Scene>,
}

impl RunPage {
    fn title(&self) -> String {
        run_list::title(&self.run.request)
    }

    fn is_over(&self) -> bool {
        self.run.state.is_over()
    }

    fn status(&self) -> RunStatusLabel {
        run_list::status(self.run.state, self.run.outcome.claim_shown)
    }

    /// Returns whether units or money do not add up.
    fn is_unsound(&self) -> bool {
        self.run.outcome.arms.iter().any(|arm| !views::is_sound(arm))
    }

    fn steps(&self) -> &[String] {
        if self.is_over() { &self.run.outcome.steps } else { &self.run.progress.steps }
    }

    /// Returns whether there is a load: a run that is staged request by request has no live
    /// figures.
    fn has_load(&self) -> bool {
        !self.run.progress.samples.is_empty()
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let request = &self.run.request;
        let journey = request.journey.map(|journey| match journey {
            Journey::Order => "order",
            Journey::Pay => "pay",
        });
        let fault = request.fault.as_ref().map(|fault| {
            format!("{} after {} ms, for {} ms", fault.kind.about(), fault.at_ms, fault.for_ms)
        });
        let all = [
            ("journey", journey.map(str::to_owned)),
            ("stock", request.stock.map(|stock| stock.to_string())),
            ("buyers", request.buyers.map(|buyers| buyers.to_string())),
            ("orders", request.orders.map(|orders| orders.to_string())),
            ("work", request.work_ms.map(|work| format!("{work} ms"))),
            ("lease", request.ttl_ms.map(|ttl| format!("{ttl} ms"))),
            ("wait", request.wait.clone()),
            ("replicas", request.replicas.map(|replicas| replicas.to_string())),
            ("seed", request.seed.map(|seed| seed.to_string())),
            ("fault", fault),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns the newest sample: the name of each figure in the stream, its label and its value.
    fn live_figures(&self) -> [(&'static str, &'static str, String); 7] {
        let money = self.run.request.journey == Some(Journey::Pay);
        let sample = self.run.progress.samples.last().copied().unwrap_or_default();
        let amount = |number| views::amount(number, money);
        [
            ("sold", if money { "paid" } else { "sold" }, amount(sample.sold)),
            ("stock", if money { "on the account" } else { "on the shelf" }, amount(sample.stock)),
            ("oversold", if money { "overspent" } else { "oversold" }, amount(sample.oversold)),
            ("answered", "answered", sample.answered.to_string()),
            ("waiting", "waiting", sample.waiting.to_string()),
            ("p50_ms", "p50", views::ms(sample.p50_ms)),
            ("p99_ms", "p99", views::ms(sample.p99_ms)),
        ]
    }
}

#[derive(Debug)]
struct GuessOutcome {
    question: String,
    choice: String,
    /// `None` if the claim was not shown: then the guess is not judged.
    right: Option<bool>,
    answer: String,
}

#[derive(Debug, Deserialize)]
pub struct RunPageQuery {
    /// Set if another run was requested.
    #[serde(default)]
    instead: Option<String>,
    /// Set if a file was opened whose run was stored already.
    #[serde(default)]
    known: Option<String>,
}

pub async fn show(
    state: State,
    request: HttpRequest,
    _: LabAdmin,
    id: Path<String>,
    query: Query<RunPageQuery>,
) -> HttpResult {
    let query = query.read()?;
    let run = find_run(&state, &id).await?;
    let notice = match (&query.instead, &query.known) {
        (Some(_), _) if !run.state.is_over() => Some(
            "This run goes on, and there is one at a time: what you asked for was not begun. Ask \
             again when this one is over.",
        ),
        (Some(_), _) => Some(
            "While this run went on, what you asked for was not begun. It is over now: ask again.",
        ),
        (None, Some(_)) => Some("This run was here already; the file changed nothing."),
        (None, None) => None,
    };
    let layout = Layout::of(&request).await?;
    let lesson = run.request.lesson.as_deref().and_then(lessons::named);
    let guess = lesson.and_then(|lesson| guess(&run, lesson, layout.language));
    let scenes = scenes(&run);
    html(StatusCode::OK, &RunPage { layout, notice, run, lesson, guess, scenes })
}

/// Returns the guess, which is stored in the language in which it was made.
fn guess(run: &LabRun, lesson: &Lesson, language: Language) -> Option<GuessOutcome> {
    let choice = run.guess.clone().filter(|_| run.state.is_over())?;
    let is_right = |language: Language| lesson.guesses(language)[lesson.right] == choice;
    let right = run.outcome.claim_shown == Some(true);
    let right = right.then(|| Language::ALL.into_iter().any(is_right));
    let answer = lesson.guesses(language).swap_remove(lesson.right);
    Some(GuessOutcome { question: lesson.question(language), choice, right, answer })
}

//! A run: live figures while it is in progress, then the verdict and its evidence.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use askama::Template;
use serde::Deserialize;

use super::forks::{ForkPair, StrategyForks, shortest_pair, strategy_forks};
use super::run_list::{self, RunStatusLabel};
use super::scenes::{Scene, scenes};
use super::views::{self, ArmView};
use crate::lab::lessons::{self, Lesson};
use crate::lab::run::{Journey, LabRun};
use crate::web::api::lab_runs::find_run;
use crate::web::middleware::LabAdmin;
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{HttpResult, State};

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    /// A message at the top of the page.
    notice: Option<&'static str>,
    run: LabRun,
    is_over: bool,
    lesson: Option<&'static Lesson>,
    status: RunStatusLabel,
    parameters: Vec<(&'static str, String)>,
    live_figures: [(&'static str, &'static str, String); 7],
    /// True if units or money do not add up.
    is_unsound: bool,
    guess: Option<GuessOutcome>,
    arms: Vec<ArmView>,
    /// Each figure of every arm, side by side; `true` if it does not add up.
    figures: Vec<(&'static str, Vec<(String, bool)>)>,
    forks: Vec<StrategyForks>,
    pair: Option<ForkPair>,
    scenes: Vec<Scene>,
}

impl RunPage {
    fn title(&self) -> String {
        run_list::title(&self.run.wanted)
    }

    /// Returns the steps so far, as sentences.
    fn steps(&self) -> &[String] {
        if self.is_over { &self.run.outcome.said } else { &self.run.progress.said }
    }

    /// Returns whether there is a load: a run that is staged request by request has no live
    /// figures.
    fn has_load(&self) -> bool {
        !self.run.progress.samples.is_empty()
    }
}

#[derive(Debug)]
struct GuessOutcome {
    question: &'static str,
    said: String,
    /// `None` if the claim was not shown: then the guess is not judged.
    right: Option<bool>,
    answer: &'static str,
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
    html(StatusCode::OK, &page(Layout::of(&request).await?, run, notice))
}

fn page(layout: Layout, run: LabRun, notice: Option<&'static str>) -> RunPage {
    let lesson = run.wanted.lesson.as_deref().and_then(lessons::named);
    let arms = &run.outcome.arms;
    RunPage {
        layout,
        notice,
        is_over: run.state.is_over(),
        lesson,
        status: run_list::status(run.state, run.outcome.claim_shown),
        parameters: parameters(&run),
        live_figures: live_figures(&run),
        is_unsound: arms.iter().any(|arm| !views::is_sound(arm)),
        guess: lesson.and_then(|lesson| guess(&run, lesson)),
        arms: arms.iter().map(views::arm).collect(),
        figures: views::figures(arms),
        forks: strategy_forks(&run),
        pair: shortest_pair(&run),
        scenes: scenes(&run),
        run,
    }
}

/// Returns the parameters that were set, as text.
fn parameters(run: &LabRun) -> Vec<(&'static str, String)> {
    let request = &run.wanted;
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
fn live_figures(run: &LabRun) -> [(&'static str, &'static str, String); 7] {
    let money = run.wanted.journey == Some(Journey::Pay);
    let sample = run.progress.samples.last().copied().unwrap_or_default();
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

fn guess(run: &LabRun, lesson: &'static Lesson) -> Option<GuessOutcome> {
    let said = run.guess.clone().filter(|_| run.state.is_over())?;
    let answer = lesson.guesses[lesson.right];
    let right = (run.outcome.claim_shown == Some(true)).then(|| said == answer);
    Some(GuessOutcome { question: lesson.question, said, right, answer })
}

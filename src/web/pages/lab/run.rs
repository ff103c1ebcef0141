//! A run: live figures while it is in progress, then the verdict and its evidence.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use time::OffsetDateTime;

use super::forks::{ForkPair, StrategyForks, shortest_pair, strategy_forks};
use super::require_lab_admin;
use super::scenes::{Scene, scenes};
use super::views::{self, ArmView, RunStatusLabel};
use crate::lab::lessons::{self, Lesson};
use crate::lab::run::{Fact, Journey, LabRun, Sample};
use crate::web::api::lab_runs::find_run;
use crate::web::pages::assets;
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::html;
use crate::web::pages::layout::Layout;
use crate::web::{AppState, HttpResult};

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    /// A message at the top of the page.
    notice: Option<&'static str>,
    id: String,
    title: String,
    lesson: Option<&'static Lesson>,
    status: RunStatusLabel,
    is_over: bool,
    parameters: Vec<(&'static str, String)>,
    at: time::OffsetDateTime,
    said: Vec<String>,
    strategy: String,
    live_figures: [(&'static str, &'static str, String); 7],
    /// True if there is a load: a run that is staged request by request has no live figures.
    has_load: bool,
    verdict: String,
    /// True if units or money do not add up.
    is_unsound: bool,
    guess: Option<GuessOutcome>,
    from_file: bool,
    facts: Vec<Fact>,
    arms: Vec<ArmView>,
    /// Each figure of every arm, side by side; `true` if it does not add up.
    figures: Vec<(&'static str, Vec<(String, bool)>)>,
    forks: Vec<StrategyForks>,
    pair: Option<ForkPair>,
    scenes: Vec<Scene>,
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
    state: web::Data<AppState>,
    request: HttpRequest,
    id: web::Path<String>,
    why: web::Query<RunPageQuery>,
) -> HttpResult {
    require_lab_admin(&request).await?;
    let run = find_run(&state, &id).await?;
    let is_over = run.state.is_over();
    let notice = match (&why.instead, &why.known) {
        (Some(_), _) if !is_over => Some(
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
    let is_over = run.state.is_over();
    let lesson = run.wanted.lesson.as_deref().and_then(lessons::named);
    let money = run.wanted.journey == Some(Journey::Pay);
    let last = run.progress.samples.last().copied().unwrap_or_default();
    RunPage {
        layout,
        notice,
        id: run.id.to_string(),
        title: views::title(&run.wanted),
        status: views::status(run.state, run.outcome.claim_shown),
        is_over,
        parameters: parameters(&run),
        at: run.created_at,
        strategy: run.progress.strategy.clone(),
        live_figures: live_figures(&last, money),
        has_load: !run.progress.samples.is_empty(),
        is_unsound: run.outcome.arms.iter().any(|arm| !views::is_sound(arm)),
        guess: lesson.and_then(|lesson| guess(&run, lesson)),
        from_file: run.from_file,
        facts: run.outcome.facts.clone(),
        arms: run.outcome.arms.iter().map(views::arm).collect(),
        figures: views::figures(&run.outcome.arms),
        forks: strategy_forks(&run),
        pair: shortest_pair(&run),
        scenes: scenes(&run),
        said: if is_over { run.outcome.said } else { run.progress.said },
        verdict: run.outcome.verdict,
        lesson,
    }
}

impl RunPage {
    fn asset(&self, name: &str) -> &'static str {
        assets::address(name)
    }
}

/// Returns the parameters that were set, as text.
fn parameters(run: &LabRun) -> Vec<(&'static str, String)> {
    let wanted = &run.wanted;
    let mut parameters = Vec::new();
    let mut say = |name, value: Option<String>| parameters.extend(value.map(|value| (name, value)));
    say(
        "journey",
        wanted.journey.map(|journey| match journey {
            Journey::Order => "order".to_owned(),
            Journey::Pay => "pay".to_owned(),
        }),
    );
    say("stock", wanted.stock.map(|stock| stock.to_string()));
    say("buyers", wanted.buyers.map(|buyers| buyers.to_string()));
    say("orders", wanted.orders.map(|orders| orders.to_string()));
    say("work", wanted.work_ms.map(|work| format!("{work} ms")));
    say("lease", wanted.ttl_ms.map(|ttl| format!("{ttl} ms")));
    say("wait", wanted.wait.clone());
    say("replicas", wanted.replicas.map(|replicas| replicas.to_string()));
    say("seed", wanted.seed.map(|seed| seed.to_string()));
    say(
        "fault",
        wanted.fault.as_ref().map(|fault| {
            format!("{} after {} ms, for {} ms", fault.kind.about(), fault.at_ms, fault.for_ms)
        }),
    );
    parameters
}

fn live_figures(sample: &Sample, money: bool) -> [(&'static str, &'static str, String); 7] {
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

/// Returns whether a creation time is plausible: at most a day ahead, because clocks differ.
pub(super) fn is_plausible_time(at: OffsetDateTime) -> bool {
    at <= OffsetDateTime::now_utc() + time::Duration::days(1)
}

//! A run: its place in the queue or its live figures, then the verdict and its evidence.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;

use super::compare;
use super::hand_in::{self, HandIn};
use super::progress::{Guesses, Progress};
use super::run_form;
use super::traces::{
    self, DrawingBudget, DrawingPlayer, MAX_DRAWN_FORKS, Scene, first_scene, player, scenes,
};
use super::views;
use crate::web::api::lab_runs::{find_run, queue_run};
use crate::web::middleware::lab_access::{Action, RunAccess, run_access};
use crate::web::middleware::{FormFields, LabReader, csrf};
use crate::web::page_place::{PagePlace, render};
use crate::web::pages::format::{self, FormatTime as _};
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::timeline::TimelineView;
use crate::web::pages::visitor::visitor;
use crate::web::{AppState, HttpResult, Problem, ProblemType, State, see_other};
use holdfast_base::messages::{Language, Text, message};
use holdfast_lab::lessons::{self, Lesson};
use holdfast_lab::progress::{self, HandInResult};
use holdfast_lab::run::{Journey, LabRun, LabRunState, RunRequest};
use holdfast_lab::store::{MAX_QUEUED_RUNS, NewRun};
use holdfast_lab::what_if;
use holdfast_story::Handle;

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    run: LabRun,
    lesson: Option<&'static Lesson>,
    /// Of its lesson, once the run is over.
    guesses: Option<Guesses>,
    /// Of a run that goes on: its first scene, once it is over.
    first_scene: Option<TimelineView>,
    player: Option<DrawingPlayer>,
    /// The causes that can be dragged in the scene that plays.
    handles: Vec<Handle>,
    access: RunAccess,
    /// The other scenes of the lesson.
    scenes: Vec<Scene>,
    /// The requests of its loads.
    crowds: Vec<Scene>,
    budget: DrawingBudget,
    /// For a student of a class, once a run of a lesson is done.
    hand_in: Option<HandIn>,
}

impl RunPage {
    /// Draws the page, to be called off the workers; without drawings if it is too long with them.
    fn draw(mut self) -> Result<String, Problem> {
        let (run, language) = (&self.run, self.layout.language);
        if !run.state.is_over() {
            self.first_scene = first_scene(run, &self.budget, language);
            return render(&self);
        }

        self.handles = what_if::handles(run);
        self.player = compare::player(run, self.lesson, language)
            .or_else(|| player(run, self.lesson, &self.handles, &self.budget, language));
        (self.scenes, self.crowds) =
            scenes(run, self.lesson, self.player.as_ref(), &self.budget, language);
        match render(&self) {
            Err(problem) if problem.problem_type() == ProblemType::PayloadTooLarge => {
                self.budget.close();
                self.player = None;
                (self.scenes, self.crowds) = (Vec::new(), Vec::new());
                self.handles.clear();
                render(&self)
            }
            drawn => drawn,
        }
    }

    /// Returns the symbol and the label of the state; `None` if the verdict says enough.
    fn status(&self) -> Option<(&'static str, String)> {
        let (state, language) = (self.run.state, self.layout.language);
        let claim_shown = self.run.outcome.claim_shown;
        if state == LabRunState::Done && claim_shown != Some(false) {
            return None;
        }

        let (symbol, word) = status(state, claim_shown, language);
        Some((symbol, self.run.position.map_or(word, |position| queued(position, language))))
    }

    /// Returns the labels of the states for the script, those of the queue by place.
    fn state_labels(&self) -> String {
        let language = self.layout.language;
        let queue: Vec<String> = (1..=MAX_QUEUED_RUNS).map(|at| queued(at, language)).collect();
        let (_, running) = status(LabRunState::Running, None, language);
        serde_json::json!({ "queued": queue, "running": running }).to_string()
    }

    fn steps(&self) -> &[Text] {
        if self.run.state.is_over() { &self.run.outcome.steps } else { &self.run.progress.steps }
    }

    /// Returns the heading of what the lesson says, which is not what a run of other causes shows.
    fn claim_title(&self) -> String {
        let is_shown = self.run.outcome.claim_shown != Some(false);
        self.layout.language.text(if is_shown { "lab-claim-title" } else { "lab-claim-usual" })
    }

    /// Says what became of the orders of the scene whose causes can be dragged.
    fn outcome(&self) -> String {
        what_if::outcome(&self.run, &what_if::recorded(&self.run)).text(self.layout.language)
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
        // Only a dragged cause has these.
        let dragged =
            [("lab-handle-gap-ms", request.gap_ms), ("lab-handle-retry-ms", request.retry_ms)];
        let dragged = dragged
            .into_iter()
            .filter_map(|(name, ms)| Some((language.text(name), format!("{} ms", ms?))));
        labelled.chain(dragged).collect()
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

fn queued(position: i64, language: Language) -> String {
    language.text_with("lab-queued-at", &[("position", position.into())])
}

pub(crate) async fn show(
    state: State,
    request: HttpRequest,
    _: LabReader,
    id: Path<String>,
) -> HttpResult {
    let place = PagePlace::take(&request).await?;
    let run = find_run(&state, &request, &id).await?;
    page(&state, &request, place, run, None).await
}

/// Shows a run, with the form *Hand in* as it was rejected, if it was.
pub(super) async fn page(
    state: &State,
    request: &HttpRequest,
    place: PagePlace,
    run: LabRun,
    rejected: Option<(String, FormErrors)>,
) -> HttpResult {
    let layout = Layout::of(request).await?;
    layout.lead(request).await;
    let lesson = run.request.lesson.as_deref().and_then(lessons::named);

    let guesses = match lesson.filter(|_| run.state.is_over()) {
        Some(lesson) => watched(state, request, lesson, &run, &layout).await?,
        None => None,
    };

    let status = rejected.as_ref().map_or(StatusCode::OK, |(_, errors)| errors.status());
    let mut hand_in = HandIn::of(state, layout.caller.as_deref(), &run).await?;
    if let (Some(form), Some((note, errors))) = (&mut hand_in, rejected) {
        (form.note, form.errors) = (note, errors);
    }

    let page = RunPage {
        lesson,
        guesses,
        first_scene: None,
        player: None,
        handles: Vec::new(),
        access: run_access(request, Action::Lesson).await?,
        scenes: Vec::new(),
        crowds: Vec::new(),
        budget: DrawingBudget::default(),
        hand_in,
        layout,
        run,
    };
    place.page(status, move || page.draw()).await
}

/// Hands in the run, with a note.
pub(crate) async fn hand_in(
    state: State,
    request: HttpRequest,
    id: Path<String>,
    form: Form<FormFields>,
) -> HttpResult {
    state.require_class(&request)?;
    let user = csrf::check_form(&request, form.csrf()).await?;
    if !user.caller.is_student {
        return Err(Problem::new(ProblemType::Forbidden, message!("class-students-only")));
    }

    let place = PagePlace::take(&request).await?;
    let run = find_run(&state, &request, &id).await?;
    let of_lesson = || Problem::field("run", message!("problem-run-of-lesson"));
    let lesson = hand_in::lesson_of(&run).ok_or_else(of_lesson)?;
    let typed = form.text("note");
    let Some(note) = hand_in::clean_note(typed) else {
        let most = [("most", hand_in::MAX_NOTE.into())];
        let why = language_of(&request).text_with("hand-in-rule", &most);
        let shown = typed.chars().take(hand_in::MAX_NOTE).collect();
        let rejected = Some((shown, FormErrors::field("note", &why)));
        return page(&state, &request, place, run, rejected).await;
    };

    let visitor = hand_in::visitor(&user.caller);
    match progress::hand_in(&state.shop.pool, lesson.name, visitor, run.id, &note).await? {
        HandInResult::Stored => Ok(see_other(&format!("/lab/runs/{}#hand-in", run.id))),
        HandInResult::NoSuchRun => {
            Err(Problem::field("run", message!("problem-run-without-result")))
        }
        HandInResult::VisitorLeft => Err(Problem::session_over()),
    }
}

/// Records that the visitor sees the end of the run; returns the answers of all to show beside it:
/// to those who have answered, and to an audience.
async fn watched(
    state: &AppState,
    request: &HttpRequest,
    lesson: &Lesson,
    run: &LabRun,
    layout: &Layout,
) -> Result<Option<Guesses>, Problem> {
    let visitor = visitor(request).await?;
    let is_real = run.state == LabRunState::Done && !run.from_file;
    if let Some(visitor) = visitor.filter(|_| is_real) {
        progress::mark_done(&state.shop.pool, lesson.name, visitor, run.id).await?;
    }

    let own = Progress::of(request).await?.guess(lesson).filter(|_| !layout.is_presented);
    if own.is_none() && !layout.is_presented {
        return Ok(None);
    }
    Guesses::of(state, lesson, own, layout.language).await.map(Some)
}

pub(super) fn title(request: &RunRequest, language: Language) -> String {
    match &request.lesson {
        Some(name) => lessons::named(name).map_or_else(|| name.clone(), |l| l.title(language)),
        None => {
            let strategies = language.list(&request.strategies);
            language.text_with("lab-own-run", &[("strategies", strategies.into())])
        }
    }
}

/// Returns the symbol and the label of a state. Whether the run showed the claim has neutral
/// symbols: the claim may be that the books break.
pub(super) fn status(
    state: LabRunState,
    claim_shown: Option<bool>,
    language: Language,
) -> (&'static str, String) {
    let (name, symbol) = match (state, claim_shown) {
        (LabRunState::Queued, _) => ("queued", "◔"),
        (LabRunState::Running, _) => ("running", "◑"),
        (LabRunState::Failed, _) => ("failed", "▲"),
        (LabRunState::Done, Some(true)) => ("shown", "●"),
        (LabRunState::Done, Some(false)) => ("not-shown", "○"),
        (LabRunState::Done, None) => ("done", "●"),
    };
    (symbol, language.text(&format!("lab-state-{name}")))
}

pub(super) async fn start_run(state: &AppState, run: NewRun<'_>, query: &str) -> HttpResult {
    let id = queue_run(state, run).await?;
    Ok(see_other(&format!("/lab/runs/{id}{query}")))
}

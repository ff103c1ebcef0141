//! The lab: the lessons with their claims, a form for a custom load, the newest runs.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Form;
use askama::Template;

use super::run_form::{self, FieldError, NumberField};
use super::run_list::{self, start_run, stored_runs};
use crate::lab::lessons::{LESSONS, Lesson};
use crate::lab::run::FaultKind;
use crate::lab::store::RunSummary;
use crate::shop::Strategy;
use crate::shop::strategy::STRATEGIES;
use crate::web::middleware::{FormFields, LabAdmin, csrf};
use crate::web::pages::format::{FormatTime as _, sentence};
use crate::web::pages::layout::Layout;
use crate::web::pages::respond::html;
use crate::web::{AppState, HttpResult, State, app_state};

const MAX_LISTED_RUNS: usize = 15;
/// The strategies selected by default: no lock, and the shop's own default.
const DEFAULT_STRATEGIES: [&str; 2] = ["none", "batched"];

#[derive(Template)]
#[template(path = "lab.html")]
struct LabPage {
    layout: Layout,
    running: Option<RunSummary>,
    /// The lessons, each with its newest run that is over.
    lessons: Vec<(&'static Lesson, Option<RunSummary>)>,
    form: LoadForm,
    file_wrong: Option<String>,
    runs: Vec<RunSummary>,
}

pub(super) struct LoadForm {
    strategies: Vec<StrategyChoice>,
    load: Vec<NumberField>,
    fault: Vec<NumberField>,
    input: FormFields,
    wrong: Vec<FieldError>,
}

struct StrategyChoice {
    strategy: &'static Strategy,
    is_selected: bool,
    /// True if the lock it needs is configured.
    is_configured: bool,
}

impl LoadForm {
    pub fn default_of(state: &AppState) -> Self {
        let strategies = DEFAULT_STRATEGIES.map(|name| ("strategies".to_owned(), name.to_owned()));
        Self::new(state, FormFields(strategies.into()), Vec::new())
    }

    fn new(state: &AppState, input: FormFields, wrong: Vec<FieldError>) -> Self {
        let strategies = STRATEGIES.iter().map(|strategy| StrategyChoice {
            strategy,
            is_selected: input.all("strategies").any(|name| name == strategy.name),
            is_configured: is_configured(state, strategy),
        });
        let (load, fault) = run_form::fields(&input, &wrong);
        Self { strategies: strategies.collect(), load, fault, input, wrong }
    }

    fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns all errors: the field's name, its label, and the reason.
    fn all_errors(&self) -> Vec<(&'static str, &'static str, String)> {
        let formatted = |(field, why): &FieldError| (*field, run_form::label(field), sentence(why));
        self.wrong.iter().map(formatted).collect()
    }

    /// Returns the error of a field that is not a number.
    fn wrong_with(&self, field: &str) -> Option<String> {
        let wrong = self.wrong.iter().find(|(name, _)| *name == field);
        wrong.map(|(_, why)| sentence(why))
    }

    fn has(&self, name: &str, value: &str) -> bool {
        self.input.trimmed(name) == value
    }

    /// Returns whether a fault was selected, or one of its fields is wrong.
    fn shows_fault(&self) -> bool {
        !self.has("fault", "") || self.fault.iter().any(|field| field.wrong.is_some())
    }
}

fn is_configured(state: &AppState, strategy: &Strategy) -> bool {
    strategy.lock.is_none_or(|kind| state.shop.locks.is_configured(kind))
}

pub async fn show(state: State, request: HttpRequest, _: LabAdmin) -> HttpResult {
    page(&request, LoadForm::default_of(&state), None).await
}

pub async fn run_load(state: State, request: HttpRequest, form: Form<FormFields>) -> HttpResult {
    csrf::check_lab_form(&request, form.csrf()).await?;
    let (load, mut wrong) = run_form::load(&form);
    let unconfigured = |name: &&String| {
        Strategy::named(name).is_some_and(|strategy| !is_configured(&state, strategy))
    };
    if let Some(name) = load.strategies.iter().find(unconfigured) {
        let why = format!("{name} is not set up here; start the shop with --redlock 3");
        wrong.push(("strategies", why));
    }
    if !wrong.is_empty() {
        let form = LoadForm::new(&state, form.into_inner(), wrong);
        return page(&request, form, None).await;
    }
    start_run(&state, &load, None).await
}

/// Renders the page, with the form's input, or with what is wrong with a file.
pub(super) async fn page(
    request: &HttpRequest,
    form: LoadForm,
    file_wrong: Option<String>,
) -> HttpResult {
    let runs = stored_runs(app_state(request)?).await?;
    let last_of =
        |lesson: &Lesson| runs.iter().find(|run| run.is_of(lesson.name) && run.is_over()).cloned();
    let status = if form.is_right() && file_wrong.is_none() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let page = LabPage {
        layout: Layout::of(request).await?,
        running: runs.iter().find(|run| !run.is_over()).cloned(),
        lessons: LESSONS.iter().map(|lesson| (*lesson, last_of(lesson))).collect(),
        form,
        file_wrong,
        runs: runs.into_iter().take(MAX_LISTED_RUNS).collect(),
    };
    html(status, &page)
}

//! Runs: a form for a custom load, one that opens a saved run, and the newest of them.

use actix_web::HttpRequest;
use actix_web::web::Form;
use askama::Template;

use super::run::{self, start_run};
use super::run_form::{self, FAULT_NUMBERS, LOAD_NUMBERS, RunForm};
use crate::web::api::lab_runs::unconfigured_field;
use crate::web::middleware::lab_access::{Action, RunAccess, check_run_form, run_access};
use crate::web::middleware::{FormFields, LabReader};
use crate::web::pages::format::FormatTime as _;
use crate::web::pages::layout::{Layout, language_of};
use crate::web::pages::rejection::FormErrors;
use crate::web::pages::respond::html;
use crate::web::{AppState, HttpResult, State, app_state};
use holdfast_lab::run::FaultKind;
use holdfast_lab::store::{self, NewRun, RunSummary};
use holdfast_shop::Strategy;
use holdfast_shop::strategy::STRATEGIES;

const MAX_LISTED_RUNS: i64 = 15;
const DEFAULT_STRATEGIES: [&str; 2] = ["none", "batched"];

#[derive(Template)]
#[template(path = "lab_runs.html")]
struct RunsPage<'a> {
    layout: Layout,
    access: RunAccess,
    state: &'a AppState,
    form: RunForm,
    errors: FormErrors,
    runs: Vec<RunSummary>,
}

impl RunsPage<'_> {
    fn is_selected(&self, strategy: &Strategy) -> bool {
        self.form.input.all("strategies").any(|name| name == strategy.name)
    }

    fn shows_fault(&self) -> bool {
        let is_wrong = |(field, _): &(&str, &str)| self.errors.of(field).is_some();
        !self.form.value("fault").is_empty() || FAULT_NUMBERS.iter().any(is_wrong)
    }
}

fn is_configured(state: &AppState, strategy: &Strategy) -> bool {
    strategy.lock.is_none_or(|kind| state.shop.locks.is_configured(kind))
}

fn default_form() -> RunForm {
    let strategies = DEFAULT_STRATEGIES.map(|name| ("strategies".to_owned(), name.to_owned()));
    RunForm { input: FormFields(strategies.into()), ..RunForm::default() }
}

pub(crate) async fn show(request: HttpRequest, _: LabReader) -> HttpResult {
    page(&request, default_form(), FormErrors::default()).await
}

pub(super) async fn refuse_file(request: &HttpRequest, why: &str) -> HttpResult {
    let errors = FormErrors::field("file", &language_of(request).text(why));
    page(request, default_form(), errors).await
}

pub(crate) async fn run_load(
    state: State,
    request: HttpRequest,
    form: Form<FormFields>,
) -> HttpResult {
    let user = check_run_form(&request, form.csrf(), Action::Load).await?;
    let (load, mut form) = run_form::load(form.into_inner());
    form.wrong.extend(unconfigured_field(&state, &load));
    if !form.is_right() {
        let errors = form.errors(language_of(&request));
        return page(&request, form, errors).await;
    }
    start_run(&state, NewRun { request: &load, user, visitor: None }, "").await
}

async fn page(request: &HttpRequest, form: RunForm, errors: FormErrors) -> HttpResult {
    let state = app_state(request)?;
    let runs = store::newest(&state.shop.pool, None, None, MAX_LISTED_RUNS).await?;

    let page = RunsPage {
        layout: Layout::of(request).await?,
        access: run_access(request, Action::Load).await?,
        state,
        form,
        errors,
        runs,
    };
    html(page.errors.status(), &page)
}

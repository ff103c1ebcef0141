//! Custom loads: the form, and requesting a run.

use actix_web::{HttpRequest, web};

use super::run_form::{self, FieldError, FormFields, NumberField};
use super::{check_lab_form, index, views};
use crate::lab::run::{FaultKind, RunRequest};
use crate::shop::strategy::STRATEGIES;
use crate::web::api::lab_runs::queue_run;
use crate::web::middleware::auth::app_state;
use crate::web::pages::format::sentence;
use crate::web::pages::see_other;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

/// The strategies selected by default: no lock, and the shop's own default.
const DEFAULT_STRATEGIES: [&str; 2] = ["none", "batched"];

#[derive(Debug)]
pub struct LoadForm {
    pub strategies: Vec<StrategyChoice>,
    pub load: Vec<NumberField>,
    pub fault: Vec<NumberField>,
    /// The faults: name and description.
    pub faults: Vec<(&'static str, &'static str)>,
    input: FormFields,
    wrong: Vec<FieldError>,
}

#[derive(Debug)]
pub struct StrategyChoice {
    pub name: &'static str,
    pub about: &'static str,
    pub is_selected: bool,
    /// True if the lock it needs is configured.
    pub is_configured: bool,
}

impl LoadForm {
    pub fn default_of(request: &HttpRequest) -> Result<Self, Problem> {
        let strategies =
            DEFAULT_STRATEGIES.iter().map(|name| ("strategies".to_owned(), (*name).to_owned()));
        Ok(Self::new(app_state(request)?, strategies.collect(), Vec::new()))
    }

    fn new(state: &AppState, input: FormFields, wrong: Vec<FieldError>) -> Self {
        let selected = run_form::all_values(&input, "strategies");
        let strategies = STRATEGIES.iter().map(|strategy| StrategyChoice {
            name: strategy.name,
            about: strategy.about,
            is_selected: selected.iter().any(|name| name == strategy.name),
            is_configured: strategy.lock.is_none_or(|kind| state.shop.locks.is_configured(kind)),
        });
        let (load, fault) = run_form::fields(&input, &wrong);
        Self {
            strategies: strategies.collect(),
            load,
            fault,
            faults: FaultKind::ALL.iter().map(|(_, name, about)| (*name, *about)).collect(),
            input,
            wrong,
        }
    }

    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns all errors: the field's name, its label, and the reason.
    pub fn all_errors(&self) -> Vec<(&'static str, &'static str, String)> {
        let formatted = |(field, why): &FieldError| (*field, run_form::label(field), sentence(why));
        self.wrong.iter().map(formatted).collect()
    }

    /// Returns the error of a field that is not a number.
    pub fn wrong_with(&self, field: &str) -> Option<String> {
        let wrong = self.wrong.iter().find(|(name, _)| *name == field);
        wrong.map(|(_, why)| sentence(why))
    }

    pub fn has(&self, name: &str, value: &str) -> bool {
        run_form::first_value(&self.input, name) == value
    }

    /// Returns whether a fault was selected, or one of its fields is wrong.
    pub fn shows_fault(&self) -> bool {
        !self.has("fault", "") || self.fault.iter().any(|field| field.wrong.is_some())
    }
}

/// Requests a run of the load.
pub async fn ask(
    state: web::Data<AppState>,
    request: HttpRequest,
    form: web::Form<FormFields>,
) -> HttpResult {
    let input = form.into_inner();
    check_lab_form(&request, run_form::first_value(&input, "csrf")).await?;
    let (wanted, mut wrong) = run_form::load(&input);
    let without = |name: &&String| {
        let kind = crate::shop::Strategy::named(name).and_then(|strategy| strategy.lock);
        kind.is_some_and(|kind| !state.shop.locks.is_configured(kind))
    };
    if let Some(name) = wanted.strategies.iter().find(without) {
        let why = format!("{name} is not set up here; start the shop with --redlock 3");
        wrong.push(("strategies", why));
    }
    if !wrong.is_empty() {
        return index::page(&request, LoadForm::new(&state, input, wrong), None).await;
    }
    start_run(&state, &wanted, None).await
}

/// Queues a run and redirects to it, or to the run in progress, with a notice.
pub(super) async fn start_run(
    state: &AppState,
    wanted: &RunRequest,
    guess: Option<&str>,
) -> HttpResult {
    Ok(match queue_run(state, wanted, guess).await? {
        Ok(id) => see_other(&views::link(&id)),
        Err(other) => see_other(&format!("{}?instead=1", views::link(&other))),
    })
}

//! Custom loads: the form, and requesting a run.

use actix_web::{HttpRequest, web};

use super::run_form::{self, Field, Sent, Wrong};
use super::{index, posted, views};
use crate::lab::run::{FaultKind, Wanted};
use crate::shop::strategy::STRATEGIES;
use crate::web::api::lab_runs::queue;
use crate::web::middleware::auth::app_state;
use crate::web::pages::format::sentence;
use crate::web::pages::see_other;
use crate::web::problems::Problem;
use crate::web::{AppState, HttpResult};

/// The strategies selected by default: no lock, and the shop's own default.
const USUAL: [&str; 2] = ["none", "batched"];

#[derive(Debug)]
pub struct Form {
    pub strategies: Vec<Choice>,
    pub load: Vec<Field>,
    pub fault: Vec<Field>,
    /// The faults: name and description.
    pub faults: Vec<(&'static str, &'static str)>,
    sent: Sent,
    wrong: Vec<Wrong>,
}

#[derive(Debug)]
pub struct Choice {
    pub name: &'static str,
    pub about: &'static str,
    pub chosen: bool,
    /// True if the lock it needs is configured.
    pub there: bool,
}

impl Form {
    pub fn default_of(request: &HttpRequest) -> Result<Self, Problem> {
        let usual = USUAL.iter().map(|name| ("strategies".to_owned(), (*name).to_owned()));
        Ok(Self::new(app_state(request)?, usual.collect(), Vec::new()))
    }

    fn new(state: &AppState, sent: Sent, wrong: Vec<Wrong>) -> Self {
        let chosen = run_form::all(&sent, "strategies");
        let strategies = STRATEGIES.iter().map(|strategy| Choice {
            name: strategy.name,
            about: strategy.about,
            chosen: chosen.iter().any(|name| name == strategy.name),
            there: strategy.lock.is_none_or(|kind| state.shop.locks.has(kind)),
        });
        let (load, fault) = run_form::fields(&sent, &wrong);
        Self {
            strategies: strategies.collect(),
            load,
            fault,
            faults: FaultKind::ALL.iter().map(|(_, name, about)| (*name, *about)).collect(),
            sent,
            wrong,
        }
    }

    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns all errors: the field's name, its label, and the reason.
    pub fn wrongs(&self) -> Vec<(&'static str, &'static str, String)> {
        let told = |(field, why): &Wrong| (*field, run_form::label(field), sentence(why));
        self.wrong.iter().map(told).collect()
    }

    /// Returns the error of a field that is not a number.
    pub fn wrong_with(&self, field: &str) -> Option<String> {
        let wrong = self.wrong.iter().find(|(name, _)| *name == field);
        wrong.map(|(_, why)| sentence(why))
    }

    pub fn has(&self, name: &str, value: &str) -> bool {
        run_form::first(&self.sent, name) == value
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
    form: web::Form<Sent>,
) -> HttpResult {
    let sent = form.into_inner();
    posted(&request, run_form::first(&sent, "csrf")).await?;
    let (wanted, mut wrong) = run_form::load(&sent);
    let without = |name: &&String| {
        let kind = crate::shop::Strategy::named(name).and_then(|strategy| strategy.lock);
        kind.is_some_and(|kind| !state.shop.locks.has(kind))
    };
    if let Some(name) = wanted.strategies.iter().find(without) {
        let why = format!("{name} is not set up here; start the shop with --redlock 3");
        wrong.push(("strategies", why));
    }
    if !wrong.is_empty() {
        return index::page(&request, Form::new(&state, sent, wrong), None).await;
    }
    began(&state, &wanted, None).await
}

/// Queues a run and redirects to it, or to the run in progress, with a notice.
pub(super) async fn began(state: &AppState, wanted: &Wanted, guess: Option<&str>) -> HttpResult {
    Ok(match queue(state, wanted, guess).await? {
        Ok(id) => see_other(&views::link(&id)),
        Err(other) => see_other(&format!("{}?instead=1", views::link(&other))),
    })
}

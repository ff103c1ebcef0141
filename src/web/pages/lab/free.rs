//! A load of one's own: the form, and asking for it.

use actix_web::{HttpRequest, web};

use super::knobs::{self, Field, Sent, Wrong};
use super::{index, posted, views};
use crate::lab::run::{FaultKind, Wanted};
use crate::shop::strategy::STRATEGIES;
use crate::web::api::lab_runs::queue;
use crate::web::auth::site;
use crate::web::pages::see_other;
use crate::web::pages::words::full_sentence;
use crate::web::problems::Problem;
use crate::web::{HttpResult, Site};

/// What is chosen when nobody has chosen yet: the shop without a lock beside the shop as it is.
const USUAL: [&str; 2] = ["none", "batched"];

#[derive(Debug)]
pub struct Form {
    pub strategies: Vec<Choice>,
    pub load: Vec<Field>,
    pub fault: Vec<Field>,
    /// What can go wrong, in words.
    pub faults: Vec<(&'static str, &'static str)>,
    sent: Sent,
    wrong: Vec<Wrong>,
}

#[derive(Debug)]
pub struct Choice {
    pub name: &'static str,
    pub about: &'static str,
    pub chosen: bool,
    /// Whether what it needs is there.
    pub there: bool,
}

impl Form {
    pub fn default_of(request: &HttpRequest) -> Result<Self, Problem> {
        let usual = USUAL.iter().map(|name| ("strategies".to_owned(), (*name).to_owned()));
        Ok(Self::new(site(request)?, usual.collect(), Vec::new()))
    }

    fn new(site: &Site, sent: Sent, wrong: Vec<Wrong>) -> Self {
        let chosen = knobs::all(&sent, "strategies");
        let strategies = STRATEGIES.iter().map(|strategy| Choice {
            name: strategy.name,
            about: strategy.about,
            chosen: chosen.iter().any(|name| name == strategy.name),
            there: strategy.lock.is_none_or(|kind| site.shop.locks.has(kind)),
        });
        let (load, fault) = knobs::fields(&sent, &wrong);
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

    /// Everything that is wrong: the field's place on the page, what it is called there, and why.
    pub fn wrongs(&self) -> Vec<(&'static str, &'static str, String)> {
        let told = |(field, why): &Wrong| (*field, knobs::label(field), full_sentence(why));
        self.wrong.iter().map(told).collect()
    }

    /// What is wrong with a field that is no number.
    pub fn wrong_with(&self, field: &str) -> Option<String> {
        let wrong = self.wrong.iter().find(|(name, _)| *name == field);
        wrong.map(|(_, why)| full_sentence(why))
    }

    pub fn has(&self, name: &str, value: &str) -> bool {
        knobs::first(&self.sent, name) == value
    }

    /// Whether a fault was chosen, or something is wrong there.
    pub fn shows_fault(&self) -> bool {
        !self.has("fault", "") || self.fault.iter().any(|field| field.wrong.is_some())
    }
}

/// Asks for the load.
pub async fn ask(site: web::Data<Site>, request: HttpRequest, form: web::Form<Sent>) -> HttpResult {
    let sent = form.into_inner();
    posted(&request, knobs::first(&sent, "csrf")).await?;
    let (wanted, mut wrong) = knobs::load(&sent);
    let without = |name: &&String| {
        let kind = crate::shop::Strategy::named(name).and_then(|strategy| strategy.lock);
        kind.is_some_and(|kind| !site.shop.locks.has(kind))
    };
    if let Some(name) = wanted.strategies.iter().find(without) {
        let why = format!("{name} is not set up here; start the shop with --redlock 3");
        wrong.push(("strategies", why));
    }
    if !wrong.is_empty() {
        return index::page(&request, Form::new(&site, sent, wrong), None).await;
    }
    began(&site, &wanted, None).await
}

/// Queues a run and leads to it; or to the one that goes on, which says so.
pub(super) async fn began(site: &Site, wanted: &Wanted, guess: Option<&str>) -> HttpResult {
    Ok(match queue(site, wanted, guess).await? {
        Ok(id) => see_other(&views::link(&id)),
        Err(other) => see_other(&format!("{}?instead=1", views::link(&other))),
    })
}

//! A problem as a page shows it: what happened, the details, and what to do next.

use serde_json::Value;

use crate::messages::{FluentValue, Language};
use crate::shop::Cents;
use crate::shop::model::Item;
use crate::web::Problem;
use crate::web::pages::format::{FormatMoney as _, sentence};
use crate::web::problems::ProblemDefinition;

#[derive(Debug, Clone)]
pub enum RejectionNotice {
    Problem(Box<Problem>),
    /// The basket of a form has changed since. The problem that a program would receive is about
    /// an idempotency key, which a person does not see.
    BasketChanged {
        is_empty: bool,
    },
}

impl From<&Problem> for RejectionNotice {
    fn from(problem: &Problem) -> Self {
        Self::Problem(Box::new(problem.clone()))
    }
}

impl RejectionNotice {
    /// Names the item of the problem as a person knows it, in place of its sku.
    #[must_use]
    pub fn with_item_name(self, items: &[Item]) -> Self {
        let Self::Problem(problem) = &self else { return self };
        let sku = problem.member("sku").and_then(Value::as_str);
        let item = items.iter().find(|item| Some(item.sku.as_str()) == sku);
        item.map_or_else(
            || self.clone(),
            |item| Self::from(&problem.as_ref().clone().with("sku", item.name.as_str())),
        )
    }

    fn definition(&self) -> Option<ProblemDefinition> {
        match self {
            Self::Problem(problem) => Some(problem.problem_type().definition()),
            Self::BasketChanged { .. } => None,
        }
    }

    /// Returns the name of the problem type; `/problems/NAME` explains it.
    pub fn name(&self) -> Option<&'static str> {
        self.definition().map(|definition| definition.name)
    }

    pub fn title(&self, language: Language) -> String {
        let basket = || language.text("problem-basket-title");
        self.definition().map_or_else(basket, |definition| definition.title(language))
    }

    /// Returns whether the object may exist, as another user's.
    fn is_private(&self) -> bool {
        let Self::Problem(problem) = self else { return false };
        let private = ["problem-missing-order", "problem-missing-session"];
        problem.message().is_some_and(|message| private.contains(&message.id()))
    }

    /// Returns what the problem means; `None` if its details say all of it.
    pub fn meaning(&self, language: Language) -> Option<String> {
        let is_said = match self.name() {
            Some("forbidden" | "not-found") if !self.is_private() => {
                self.detail(language).is_some()
            }
            _ => false,
        };
        (!is_said).then(|| match self {
            Self::Problem(problem) => problem.problem_type().definition().meaning(language),
            Self::BasketChanged { is_empty: true } => language.text("problem-basket-empty"),
            Self::BasketChanged { is_empty: false } => language.text("problem-basket-other"),
        })
    }

    /// Returns the details of this occurrence, as a sentence. In another language than English,
    /// those that exist in English only are left out, as the meaning says it, except for an invalid
    /// request, where they name the field.
    pub fn detail(&self, language: Language) -> Option<String> {
        let is_needed = language == Language::English || self.name() == Some("invalid-request");
        (is_needed || self.is_detail_translated()).then(|| self.format_detail(language))
    }

    fn format_detail(&self, language: Language) -> String {
        let Self::Problem(problem) = self else { return language.text("problem-basket-detail") };
        let variable = |name: &'static str| {
            let value = problem.member(name)?;
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((name, FluentValue::from(value)))
        };
        let cents = |name: &'static str, member: &str| {
            let cents = problem.member(member)?.as_i64().map(Cents)?;
            Some((name, FluentValue::from(cents.money())))
        };
        let variables = [
            variable("sku"),
            variable("requested"),
            variable("available"),
            variable("limit"),
            variable("already"),
            cents("needed", "needed_cents"),
            cents("balance", "balance_cents"),
        ];
        let variables: Vec<_> = variables.into_iter().flatten().collect();
        let name = problem.problem_type().definition().name;
        if let Some(message) = problem.message() {
            sentence(&message.text(language))
        } else if self.is_detail_translated() {
            language.text_with(&format!("problem-{name}-detail"), &variables)
        } else {
            sentence(problem.detail())
        }
    }

    /// Returns whether the details are in the language of the page; otherwise they are those of
    /// the API, in English.
    pub fn is_detail_translated(&self) -> bool {
        let has_message = matches!(self, Self::Problem(problem) if problem.message().is_some());
        has_message
            || matches!(
                self.name(),
                None | Some("sold-out" | "limit-reached" | "insufficient-funds")
            )
    }

    /// Returns what a person does next.
    pub fn advice(&self, language: Language) -> String {
        match self {
            Self::Problem(problem) if problem.member("outcome").is_some() => {
                language.text("problem-unknown-outcome")
            }
            Self::Problem(problem) => problem.problem_type().definition().page_advice(language),
            Self::BasketChanged { is_empty: true } => language.text("problem-basket-empty-advice"),
            Self::BasketChanged { .. } => language.text("problem-basket-other-advice"),
        }
    }

    /// Returns whether the next step leads to the shop.
    pub fn leads_to_shop(&self) -> bool {
        self.definition().is_some_and(|definition| definition.link == Some("/shop"))
    }

    /// Returns a link for the next step: an address and its label.
    pub fn link(&self, language: Language) -> Option<(&'static str, String)> {
        match self {
            Self::Problem(problem) => problem.problem_type().definition().link(language),
            Self::BasketChanged { is_empty: true } => {
                Some(("/orders", language.text("problem-basket-link")))
            }
            Self::BasketChanged { .. } => None,
        }
    }
}

//! A problem in the words of a page: what happened, the details, and what to do next.

use super::format::{FormatMoney as _, capitalize};
use crate::messages::Language;
use crate::shop::Cents;
use crate::web::Problem;
use crate::web::problems::ProblemDefinition;

#[derive(Debug, Clone)]
pub struct RejectionNotice {
    /// The name of the problem type; `/problems/NAME` explains it.
    pub name: Option<&'static str>,
    pub title: &'static str,
    pub meaning: &'static str,
    pub detail: String,
    pub advice: &'static str,
    /// A link for the next step: an address and its label.
    pub link: Option<(&'static str, &'static str)>,
}

impl RejectionNotice {
    pub fn new(problem: &Problem, _language: Language) -> Self {
        let definition = problem.problem_type().definition();
        let outcome_unknown = problem.member("outcome").is_some();
        Self {
            name: Some(definition.name),
            title: definition.title,
            meaning: definition.meaning,
            detail: detail(problem),
            advice: page_advice(&definition, outcome_unknown),
            link: definition.link,
        }
    }

    pub fn leads_to_shop(&self) -> bool {
        self.link.is_some_and(|(address, _)| address == "/shop")
    }

    /// Creates the notice for a form whose basket has changed since. The problem that a program
    /// would receive is about an idempotency key, which a person does not see.
    pub fn basket_changed(is_empty: bool, _language: Language) -> Self {
        let (meaning, advice, link) = if is_empty {
            let link = ("/orders", "Look at your orders");
            ("It is empty now.", "If it was ordered, the order is there.", Some(link))
        } else {
            let advice = "Look at the basket as it is now, then order.";
            ("What is in it now is shown below.", advice, None)
        };
        Self {
            name: None,
            title: "The basket has changed",
            meaning,
            detail: "It is no longer what that page showed; nothing was ordered".to_owned(),
            advice,
            link,
        }
    }
}

/// Returns the problem's detail, with amounts formatted as money.
fn detail(problem: &Problem) -> String {
    let cents = |name: &str| problem.member(name).and_then(serde_json::Value::as_i64).map(Cents);
    match (cents("needed_cents"), cents("balance_cents")) {
        (Some(needed), Some(balance)) => {
            format!("{} is due, {} is on the account", needed.money(), balance.money())
        }
        _ => capitalize(problem.detail()),
    }
}

/// Returns what a person does next.
fn page_advice(definition: &ProblemDefinition, outcome_unknown: bool) -> &'static str {
    if outcome_unknown {
        "Look at your orders first: the change may have been made. Sending the same form again is \
         safe; it is done once."
    } else {
        definition.page_advice.unwrap_or(definition.advice)
    }
}

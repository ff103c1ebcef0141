//! A problem in the words of a page: what happened, the details, and what to do next.

use super::format;
use crate::shop::Cents;
use crate::web::problems::{Problem, ProblemType};

#[derive(Debug, Clone)]
pub struct RejectionNotice {
    /// The name of the problem type; `/problems/NAME` explains it.
    pub name: Option<&'static str>,
    pub title: &'static str,
    pub meaning: &'static str,
    pub detail: String,
    /// The next step, in pieces; `true` for code.
    pub advice: Vec<(bool, &'static str)>,
    /// A link for the next step: an address and its label.
    pub link: Option<(&'static str, &'static str)>,
}

impl From<&Problem> for RejectionNotice {
    fn from(problem: &Problem) -> Self {
        let kind = problem.problem_type();
        let unknown = problem.member("outcome").is_some();
        Self {
            name: Some(kind.name()),
            title: kind.title(),
            meaning: kind.meaning(),
            detail: detail(problem),
            advice: format::split_code(page_advice(kind, unknown)),
            link: next_link(kind),
        }
    }
}

impl RejectionNotice {
    /// Creates the notice for a form whose basket has changed since. The problem that a program
    /// would receive is about an idempotency key, which a person does not see.
    pub fn basket_changed(is_empty: bool) -> Self {
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
            advice: format::split_code(advice),
            link,
        }
    }
}

/// Returns the problem's detail, with amounts formatted as money.
fn detail(problem: &Problem) -> String {
    let cents = |name: &str| problem.member(name).and_then(serde_json::Value::as_i64).map(Cents);
    match (cents("needed_cents"), cents("balance_cents")) {
        (Some(needed), Some(balance)) => format!("{needed} is due, {balance} is on the account"),
        _ => format::capitalize(problem.detail()),
    }
}

/// Returns what a person does next; [`ProblemType::advice`] is for programs.
fn page_advice(kind: ProblemType, outcome_unknown: bool) -> &'static str {
    match kind {
        ProblemType::InvalidRequest => "Go back, correct that, then send it again.",
        ProblemType::Unauthenticated => "Sign in; you will come back here.",
        ProblemType::Forbidden => {
            "Go back, reload the page and try again; or sign in as somebody who may."
        }
        ProblemType::SoldOut => "Lower the quantity, or take the item out of the basket.",
        ProblemType::LimitReached => {
            "Lower the quantity or take the item out of the basket; or cancel an order that has it."
        }
        ProblemType::InsufficientFunds => "Top your account up, then pay again.",
        ProblemType::OrderState => "The order is shown below as it stands now.",
        ProblemType::IdempotencyKeyInFlight => {
            "Wait a moment and send the form again: you will get the same order, not a second one."
        }
        ProblemType::LockBusy => {
            "Wait a moment and try again. One person places one order at a time, so that a double \
             click makes one order."
        }
        ProblemType::LockTimeout
        | ProblemType::LockLost
        | ProblemType::Overloaded
        | ProblemType::TooManyRequests => "Wait a moment and try again.",
        ProblemType::Unavailable if outcome_unknown => {
            "Look at your orders first: the change may have been made. Sending the same form again \
             is safe; it is done once."
        }
        ProblemType::Unavailable => {
            "Wait a moment and try again. Sending the same form again is safe."
        }
        kind => kind.advice(),
    }
}

fn next_link(kind: ProblemType) -> Option<(&'static str, &'static str)> {
    match kind {
        ProblemType::LimitReached => Some(("/orders", "Look at your orders")),
        ProblemType::InsufficientFunds => Some(("/account", "Top up")),
        ProblemType::OrderExpired | ProblemType::NotFound => Some(("/", "Go to the shop")),
        ProblemType::Forbidden | ProblemType::Unauthenticated => Some(("/sign-in", "Sign in")),
        _ => None,
    }
}

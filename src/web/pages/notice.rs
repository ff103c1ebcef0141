//! A problem in the words of a page: what happened, the details, and what to do next.

use super::words;
use crate::shop::Cents;
use crate::web::problems::{Kind, Problem};

#[derive(Debug, Clone)]
pub struct Notice {
    /// The name of the problem type; `/problems/NAME` explains it.
    pub name: Option<&'static str>,
    pub title: &'static str,
    pub meaning: &'static str,
    pub detail: String,
    /// The next step, in pieces; `true` for code.
    pub advice: Vec<(bool, &'static str)>,
    /// A link for the next step: an address and its label.
    pub way: Option<(&'static str, &'static str)>,
}

impl From<&Problem> for Notice {
    fn from(problem: &Problem) -> Self {
        let kind = problem.kind();
        let unknown = problem.member("outcome").is_some();
        Self {
            name: Some(kind.name()),
            title: kind.title(),
            meaning: kind.meaning(),
            detail: detail(problem),
            advice: words::pieces(advice(kind, unknown)),
            way: way(kind),
        }
    }
}

impl Notice {
    /// Creates the notice for a form whose basket has changed since. The problem that a program
    /// would receive is about an idempotency key, which a person does not see.
    pub fn basket_changed(is_empty: bool) -> Self {
        let (meaning, advice, way) = if is_empty {
            let way = ("/orders", "Look at your orders");
            ("It is empty now.", "If it was ordered, the order is there.", Some(way))
        } else {
            let advice = "Look at the basket as it is now, then order.";
            ("What is in it now is shown below.", advice, None)
        };
        Self {
            name: None,
            title: "The basket has changed",
            meaning,
            detail: "It is no longer what that page showed; nothing was ordered".to_owned(),
            advice: words::pieces(advice),
            way,
        }
    }
}

/// Returns the problem's detail, with amounts formatted as money.
fn detail(problem: &Problem) -> String {
    let cents = |name: &str| problem.member(name).and_then(serde_json::Value::as_i64).map(Cents);
    match (cents("needed_cents"), cents("balance_cents")) {
        (Some(needed), Some(balance)) => format!("{needed} is due, {balance} is on the account"),
        _ => words::sentence(problem.detail()),
    }
}

/// Returns what a person does next; [`Kind::advice`] is for programs.
fn advice(kind: Kind, outcome_unknown: bool) -> &'static str {
    match kind {
        Kind::InvalidRequest => "Go back, correct that, then send it again.",
        Kind::Unauthenticated => "Sign in; you will come back here.",
        Kind::Forbidden => {
            "Go back, reload the page and try again; or sign in as somebody who may."
        }
        Kind::SoldOut => "Lower the quantity, or take the item out of the basket.",
        Kind::LimitReached => {
            "Lower the quantity or take the item out of the basket; or cancel an order that has it."
        }
        Kind::InsufficientFunds => "Top your account up, then pay again.",
        Kind::OrderState => "The order is shown below as it stands now.",
        Kind::IdempotencyKeyInFlight => {
            "Wait a moment and send the form again: you will get the same order, not a second one."
        }
        Kind::LockBusy => {
            "Wait a moment and try again. One person places one order at a time, so that a double \
             click makes one order."
        }
        Kind::LockTimeout | Kind::LockLost | Kind::Overloaded | Kind::TooManyRequests => {
            "Wait a moment and try again."
        }
        Kind::Unavailable if outcome_unknown => {
            "Look at your orders first: the change may have been made. Sending the same form again \
             is safe; it is done once."
        }
        Kind::Unavailable => "Wait a moment and try again. Sending the same form again is safe.",
        kind => kind.advice(),
    }
}

fn way(kind: Kind) -> Option<(&'static str, &'static str)> {
    match kind {
        Kind::LimitReached => Some(("/orders", "Look at your orders")),
        Kind::InsufficientFunds => Some(("/account", "Top up")),
        Kind::OrderExpired | Kind::NotFound => Some(("/", "Go to the shop")),
        Kind::Forbidden | Kind::Unauthenticated => Some(("/sign-in", "Sign in")),
        _ => None,
    }
}

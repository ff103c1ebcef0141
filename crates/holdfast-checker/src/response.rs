//! Parses a response of the JSON API as an [`ObservedOutcome`].

use serde::Deserialize;

use crate::{ObservedChange, ObservedOperation, ObservedOutcome};
use holdfast_shop::model::{Order, PaidOrder, ValueChange};
use holdfast_shop::{OrderId, UserId};

/// The fields of a problem that the outcome depends on.
#[derive(Deserialize)]
struct ParsedProblem {
    r#type: String,
    sku: Option<String>,
    requested: Option<i64>,
    available: Option<i64>,
    needed_cents: Option<i64>,
    balance_cents: Option<i64>,
    outcome: Option<String>,
}

impl ObservedOutcome {
    /// Parses a response: its status, whether it has `Idempotent-Replayed: true`, its body.
    ///
    /// A response that can't be parsed, or does not promise that nothing was written, is unknown.
    pub fn parse(
        user: UserId,
        operation: &ObservedOperation,
        status: u16,
        replayed: bool,
        body: &[u8],
    ) -> Self {
        match (operation, status) {
            (ObservedOperation::Place(_), 201) => serde_json::from_slice::<Order>(body).map_or(
                Self::Unknown,
                |Order { id, lines, .. }| {
                    let changes = lines
                        .iter()
                        .map(|line| observed_change(line.sku.to_string(), line.stock))
                        .collect();
                    Self::Done { order: id, changes, replayed }
                },
            ),
            (ObservedOperation::Pay(_), 200) => {
                serde_json::from_slice::<PaidOrder>(body).map_or(Self::Unknown, |paid| Self::Done {
                    order: paid.order.id,
                    changes: vec![observed_change(user.0.to_string(), paid.balance)],
                    replayed,
                })
            }
            _ => serde_json::from_slice::<ParsedProblem>(body)
                .map_or(Self::Unknown, |problem| problem.outcome(user)),
        }
    }

    pub fn order(&self) -> Option<OrderId> {
        match self {
            Self::Done { order, .. } => Some(*order),
            Self::Insufficient { .. } | Self::Rejected | Self::Unknown => None,
        }
    }
}

fn observed_change(key: String, change: ValueChange) -> ObservedChange {
    let ValueChange { before, delta, after } = change;
    ObservedChange { key, before, delta, after }
}

impl ParsedProblem {
    fn outcome(self, user: UserId) -> ObservedOutcome {
        let insufficient =
            |key, requested, available| ObservedOutcome::Insufficient { key, requested, available };
        match self.r#type.strip_prefix("/problems/").unwrap_or_default() {
            "sold-out" => match (self.sku, self.requested, self.available) {
                (Some(sku), Some(requested), Some(available)) => {
                    insufficient(sku, requested, available)
                }
                _ => ObservedOutcome::Rejected,
            },
            "insufficient-funds" => match (self.needed_cents, self.balance_cents) {
                (Some(needed), Some(balance)) => insufficient(user.0.to_string(), needed, balance),
                _ => ObservedOutcome::Rejected,
            },
            // May have been executed, at an unknown time and with unknown values.
            "idempotency-key-used" | "internal-error" | "" => ObservedOutcome::Unknown,
            "unavailable" if self.outcome.is_some() => ObservedOutcome::Unknown,
            _ => ObservedOutcome::Rejected,
        }
    }
}

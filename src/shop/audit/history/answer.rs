//! Parses a response of the JSON API as an [`Outcome`].

use serde::Deserialize;

use super::{Asked, Change, Outcome};
use crate::shop::model::{self, Order, Paid};
use crate::shop::{OrderId, UserId};

/// The fields of a problem that the outcome depends on.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    sku: Option<String>,
    requested: Option<i64>,
    available: Option<i64>,
    needed_cents: Option<i64>,
    balance_cents: Option<i64>,
    outcome: Option<String>,
}

impl Outcome {
    /// Parses a response: its status, whether it has `Idempotent-Replayed: true`, its body.
    ///
    /// A response that can't be parsed, or does not promise that nothing was written, is
    /// [`Outcome::Unknown`], which causes no false violation.
    pub fn read(user: UserId, asked: &Asked, status: u16, replayed: bool, body: &[u8]) -> Self {
        match (asked, status) {
            (Asked::Place(_), 201) => serde_json::from_slice::<Order>(body).map_or(
                Self::Unknown,
                |Order { id, lines, .. }| {
                    let changes = lines
                        .iter()
                        .map(|line| changed(line.sku.to_string(), line.stock))
                        .collect();
                    Self::Done { order: id, changes, replayed }
                },
            ),
            (Asked::Pay(_), 200) => {
                serde_json::from_slice::<Paid>(body).map_or(Self::Unknown, |paid| Self::Done {
                    order: paid.order.id,
                    changes: vec![changed(user.0.to_string(), paid.balance)],
                    replayed,
                })
            }
            _ => serde_json::from_slice::<Problem>(body)
                .map_or(Self::Unknown, |problem| problem.read(user)),
        }
    }

    /// Returns the order of an [`Outcome::Done`].
    pub fn order(&self) -> Option<OrderId> {
        match self {
            Self::Done { order, .. } => Some(*order),
            Self::Short { .. } | Self::Refused | Self::Unknown => None,
        }
    }
}

fn changed(key: String, change: model::Change) -> Change {
    let model::Change { before, delta, after } = change;
    Change { key, before, delta, after }
}

impl Problem {
    fn read(self, user: UserId) -> Outcome {
        let short = |key, requested, available| Outcome::Short { key, requested, available };
        match self.r#type.strip_prefix("/problems/").unwrap_or_default() {
            "sold-out" => match (self.sku, self.requested, self.available) {
                (Some(sku), Some(requested), Some(available)) => short(sku, requested, available),
                _ => Outcome::Refused,
            },
            "insufficient-funds" => match (self.needed_cents, self.balance_cents) {
                (Some(needed), Some(balance)) => short(user.0.to_string(), needed, balance),
                _ => Outcome::Refused,
            },
            // May have been executed, at an unknown time and with unknown values.
            "idempotency-key-used" | "internal-error" | "" => Outcome::Unknown,
            "unavailable" if self.outcome.is_some() => Outcome::Unknown,
            _ => Outcome::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn read(status: u16, body: &str) -> Outcome {
        let user = UserId(Uuid::nil());
        Outcome::read(user, &Asked::Place(vec![]), status, false, body.as_bytes())
    }

    #[test]
    fn response_is_classified_by_status_and_body() {
        let sold_out =
            r#"{"type":"/problems/sold-out","sku":"padlock","requested":2,"available":1}"#;
        let short = Outcome::Short { key: "padlock".to_owned(), requested: 2, available: 1 };
        assert_eq!(read(409, sold_out), short);
        for name in ["lock-busy", "lock-timeout", "lock-lost", "overloaded", "unavailable"] {
            let body = format!(r#"{{"type":"/problems/{name}"}}"#);
            assert_eq!(read(503, &body), Outcome::Refused, "{name}");
        }
        let unknown = r#"{"type":"/problems/unavailable","outcome":"unknown"}"#;
        assert_eq!(read(503, unknown), Outcome::Unknown);
        assert_eq!(read(500, r#"{"type":"/problems/internal-error"}"#), Outcome::Unknown);
        assert_eq!(read(502, "<html>"), Outcome::Unknown);
        assert_eq!(read(201, "cut o"), Outcome::Unknown);
    }
}

//! Changes an item's stock on behalf of an admin: adds units, or writes units off.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

use super::changes::{Changes, CommandResponse};
use super::state::ShopState;
use super::{Command, ConditionalUpdate, MAX_AMOUNT, ReadSet, is_line, line_rule};
use crate::failure::{InvalidField, Rejection};
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::locks::Priority;
use crate::{IdempotencyKey, Sku, UserId};
use holdfast_base::messages::{Language, message};

/// The reasons of the shop's own entries, of stock and of balances.
const RESERVED: [&str; 8] =
    ["opening", "order", "cancel", "refund", "expiry", "payment", "top-up", "welcome"];
/// The statuses of orders that are not the name of a reason.
const STATUSES: [&str; 3] = ["cancelled", "expired", "refunded"];

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestockRequest {
    /// Units added (or, below zero, removed).
    #[schema(schema_with = delta_schema)]
    pub delta: i64,
    /// Why: 1 to 64 characters on one line; not a reason of the shop's own entries (`order`, …). It
    /// is public: everybody can read the ledger.
    #[schema(
        example = "restock",
        max_length = 64,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    pub reason: String,
}

/// Any whole number of the range but 0.
fn delta_schema() -> Schema {
    let most = isize::try_from(MAX_AMOUNT).unwrap_or(isize::MAX);
    let parts = OneOfBuilder::new()
        .description(Some("Units added, or below zero: removed; not 0."))
        .item(integers(-most, -1))
        .item(integers(1, most));
    Schema::OneOf(parts.build())
}

fn integers(minimum: isize, maximum: isize) -> ObjectBuilder {
    let integers = ObjectBuilder::new().schema_type(Type::Integer);
    integers.minimum(Some(minimum)).maximum(Some(maximum))
}

#[derive(Debug, Clone)]
pub struct Restock {
    idempotency: IdempotencyRequest,
    sku: Sku,
    delta: i64,
    reason: String,
}

impl RestockRequest {
    /// Returns the fields that are invalid, each with the reason: a delta of 0 or out of range, a
    /// reason that is empty, too long or reserved.
    pub fn invalid(&self) -> Vec<InvalidField> {
        let mut invalid: Vec<InvalidField> = Vec::new();
        if self.delta == 0 || self.delta.unsigned_abs() > MAX_AMOUNT.unsigned_abs() {
            invalid.push(("delta".into(), message!("problem-delta", most = MAX_AMOUNT)));
        }

        let reason = self.reason.trim();
        if !is_line(reason, 64) {
            invalid.push(("reason".into(), line_rule(64)));
        } else if is_reserved(reason) {
            invalid.push(("reason".into(), message!("problem-reserved-reason", reason)));
        }
        invalid
    }
}

/// Returns whether a reader of the ledger would take it for a reason of the shop's own entries, by
/// its name or as the pages show it, in any language.
fn is_reserved(reason: &str) -> bool {
    let reason = letters_of(reason);
    let shown = |id: String| Language::ALL.map(|language| language.text(&id));
    let reasons = RESERVED.iter().map(|name| (name, shown(format!("shop-reason-{name}"))));
    let statuses = STATUSES.iter().map(|name| (name, shown(format!("shop-status-{name}"))));
    reasons.chain(statuses).any(|(name, shown)| {
        shown.iter().any(|text| letters_of(text) == reason) || letters_of(name) == reason
    })
}

/// Returns the letters and digits of a text, without their case.
fn letters_of(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

impl Restock {
    /// [`Rejection::Invalid`] if a field is invalid.
    pub fn new(
        admin: UserId,
        sku: Sku,
        what: &RestockRequest,
        key: IdempotencyKey,
    ) -> Result<Self, Rejection> {
        Rejection::first_of(what.invalid())?;
        let (delta, reason) = (what.delta, what.reason.trim());
        let operation = Operation::Restock(sku.clone());
        let content = format!("{delta} {reason}");
        let idempotency = IdempotencyRequest::new(admin, operation, Some(key), &content);
        Ok(Self { idempotency, sku, delta, reason: reason.to_owned() })
    }
}

impl Command for Restock {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        ReadSet { items: vec![self.sku.clone()], next_entry: true, ..ReadSet::default() }
    }

    /// High if it adds units: behind a queue of buyers, it would be too late for all of them.
    fn priority(&self) -> Priority {
        if self.delta > 0 { Priority::High } else { Priority::Normal }
    }

    fn conditional_update(&self) -> Option<ConditionalUpdate> {
        let stock = vec![(self.sku.clone(), self.delta)];
        Some(ConditionalUpdate { stock, restocks: true, balance: None })
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let delta = self.delta;
        let before = state.item(&self.sku)?.stock;
        let after = before + delta;
        // Refunds may have raised the stock above the maximum: only an addition is rejected.
        if delta > 0 && after > MAX_AMOUNT {
            let why = message!("problem-stock-above", stock = before, most = MAX_AMOUNT);
            return Err(Rejection::invalid("delta", why));
        }
        if after < 0 {
            let why = message!("problem-stock-below", stock = before);
            return Err(Rejection::invalid("delta", why));
        }

        let next = state.next_entry.ok_or_else(|| Rejection::no_item(&self.sku))?;
        let mut change = state.change_stock(&self.sku, delta, self.reason.clone(), None)?;
        let entry = next.number(&mut change, state.now);
        Ok(Changes { stock: vec![change], ..Changes::none(CommandResponse::Restocked(entry)) })
    }
}

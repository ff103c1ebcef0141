//! Changes the settings of an item on behalf of an admin: names, price, description, limit per
//! customer, and whether it is hidden.
//!
//! Changes no stock, but raises the row's version: an order that has read the old settings and not
//! yet written reads again. Earlier orders keep the price and the limit under which they were
//! placed.

use serde::de::{Deserializer, Error as _, Unexpected};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::changes::{Changes, CommandResponse};
use super::place_order::MAX_QUANTITY;
use super::state::ShopState;
use super::{Command, MAX_AMOUNT, ReadSet, is_line, line_rule, range};
use crate::failure::{InvalidField, Rejection};
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::model::{AdminAction, AdminEntry, Item};
use crate::{IdempotencyKey, Sku, UserId};
use holdfast_base::messages::message;

pub const MAX_LIMIT: i64 = MAX_QUANTITY;
pub const MAX_DESCRIPTION_LENGTH: usize = 2_000;

/// Settings of an item. An absent field is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ItemFields {
    /// 1 to 200 characters.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        max_length = 200,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    pub name: Option<String>,
    /// The name on Chinese pages, 1 to 200 characters; null removes it, as does a new `name`
    /// without one.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(
        value_type = Option<String>,
        max_length = 200,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
    )]
    pub name_zh: Option<Option<String>>,
    /// In cents: 0 to 10⁹.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 1_000_000_000)]
    pub price_cents: Option<i64>,
    /// Plain text with line breaks (`\n`): at most 2,000 characters.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2000, pattern = r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f]*$")]
    pub description: Option<String>,
    /// True to list and sell it no longer. Orders for it can still be paid, cancelled and refunded.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub hidden: Option<bool>,
    /// The most units one customer may have, 1 to 1,000; null removes the limit.
    #[serde(deserialize_with = "given_limit", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<Option<i64>>,
}

/// Deserializes a field that may be absent; null only if its type has one.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<Option<T>, D::Error> {
    T::deserialize(json).map(Some)
}

fn given_limit<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Option<i64>>, D::Error> {
    deserialize_limit(json).map(Some)
}

/// Parses a limit that may be null. `3.0` is a whole number too, as in JSON Schema.
pub fn deserialize_limit<'de, D: Deserializer<'de>>(json: D) -> Result<Option<i64>, D::Error> {
    match Option::<f64>::deserialize(json)? {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 => Ok(Some(number as i64)),
        Some(number) => Err(D::Error::invalid_type(Unexpected::Float(number), &"i64")),
    }
}

impl ItemFields {
    /// Returns all settings of an item.
    pub fn of(item: &Item) -> Self {
        Self {
            name: Some(item.name.clone()),
            name_zh: Some(item.name_zh.clone()),
            price_cents: Some(item.price_cents),
            description: Some(item.description.clone()),
            hidden: Some(item.hidden),
            limit_per_user: Some(item.limit_per_user),
        }
    }

    /// Returns the fields that are given and out of range, each with the reason.
    pub fn invalid(&self) -> Vec<InvalidField> {
        let mut invalid: Vec<InvalidField> = Vec::new();
        let names =
            [("name", self.name.as_ref()), ("name_zh", self.name_zh.iter().flatten().next())];
        for (field, name) in names {
            if name.is_some_and(|name| !is_line(name, 200)) {
                invalid.push((field.into(), line_rule(200)));
            }
        }

        if self.price_cents.is_some_and(|cents| !(0..=MAX_AMOUNT).contains(&cents)) {
            invalid.push(("price_cents".into(), range(0, MAX_AMOUNT)));
        }

        if let Some(description) = &self.description
            && (description.chars().count() > MAX_DESCRIPTION_LENGTH
                || description.chars().any(|c| c.is_control() && c != '\n'))
        {
            let why = message!("problem-description", most = MAX_DESCRIPTION_LENGTH);
            invalid.push(("description".into(), why));
        }

        invalid.extend(invalid_limit(self.limit_per_user.flatten()));
        invalid
    }

    /// Returns the item with these settings.
    #[must_use]
    pub fn applied_to(&self, item: &Item) -> Item {
        let Self { name, name_zh, price_cents, description, hidden, limit_per_user } = self;

        // A new name is of another thing: the Chinese name would be that of the old one.
        let is_renamed = name.as_ref().is_some_and(|name| *name != item.name);
        let kept_name_zh = if is_renamed { &None } else { &item.name_zh };

        Item {
            name: name.as_ref().unwrap_or(&item.name).clone(),
            name_zh: name_zh.as_ref().unwrap_or(kept_name_zh).clone(),
            price_cents: price_cents.unwrap_or(item.price_cents),
            description: description.as_ref().unwrap_or(&item.description).clone(),
            hidden: hidden.unwrap_or(item.hidden),
            limit_per_user: limit_per_user.unwrap_or(item.limit_per_user),
            ..item.clone()
        }
    }

    /// Returns the names and the values of all fields; `None` for one that is absent.
    pub fn values(&self) -> [(&'static str, Option<Value>); 6] {
        [
            ("name", self.name.as_deref().map(Value::from)),
            ("name_zh", self.name_zh.as_ref().map(|name| Value::from(name.as_deref()))),
            ("price_cents", self.price_cents.map(Value::from)),
            ("description", self.description.as_deref().map(Value::from)),
            ("hidden", self.hidden.map(Value::from)),
            ("limit_per_user", self.limit_per_user.map(Value::from)),
        ]
    }
}

fn invalid_limit(limit: Option<i64>) -> Option<InvalidField> {
    let is_invalid = limit.is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit));
    is_invalid.then(|| ("limit_per_user".into(), message!("problem-limit", most = MAX_LIMIT)))
}

#[derive(Debug, Clone)]
pub struct EditItem {
    idempotency: IdempotencyRequest,
    sku: Sku,
    set: ItemFields,
    /// The fields as the admin saw them: one that has another value now, and is to be changed, was
    /// changed by another admin.
    was: ItemFields,
}

impl EditItem {
    /// [`Rejection::Invalid`] if a field is out of range.
    pub fn new(
        admin: UserId,
        sku: Sku,
        set: ItemFields,
        was: ItemFields,
        key: IdempotencyKey,
    ) -> Result<Self, Rejection> {
        Rejection::first_of(set.invalid())?;
        let operation = Operation::EditItem(sku.clone());
        let content = format!("{set:?} {was:?}");
        let idempotency = IdempotencyRequest::new(admin, operation, Some(key), &content);
        Ok(Self { idempotency, sku, set, was })
    }

    /// Sets or removes the limit alone.
    pub fn limit(
        admin: UserId,
        sku: Sku,
        limit: Option<i64>,
        key: Option<IdempotencyKey>,
    ) -> Result<Self, Rejection> {
        Rejection::first_of(invalid_limit(limit))?;
        let operation = Operation::SetLimit(sku.clone());
        let content = format!("{limit:?}");
        let idempotency = IdempotencyRequest::new(admin, operation, key, &content);
        let set = ItemFields { limit_per_user: Some(limit), ..ItemFields::default() };
        Ok(Self { idempotency, sku, set, was: ItemFields::default() })
    }

    /// Returns what the admin log says of the change from `before` to `after`; `None` if no field
    /// differs, or for an item of the lab, of which no log is kept.
    fn entry(&self, before: &Item, after: &Item) -> Result<Option<AdminEntry>, Rejection> {
        let (mut were, mut are) = (Map::new(), Map::new());
        let fields =
            ItemFields::of(before).values().into_iter().zip(ItemFields::of(after).values());
        for (((field, now), (_, new)), (_, was)) in fields.zip(self.was.values()) {
            let (Some(now), Some(new)) = (now, new) else { continue };
            if now == new {
                continue;
            }
            if was.is_some_and(|was| was != now) {
                return Err(Rejection::invalid(field, message!("problem-changed-since", now)));
            }
            were.insert(field.to_owned(), now);
            are.insert(field.to_owned(), new);
        }

        let is_logged = !are.is_empty() && !self.sku.is_throw_away();
        Ok(is_logged.then(|| AdminEntry {
            action: AdminAction::EditItem,
            subject: self.sku.to_string(),
            before: were.into(),
            after: are.into(),
        }))
    }
}

impl Command for EditItem {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        ReadSet { items: vec![self.sku.clone()], descriptions: true, ..ReadSet::default() }
    }

    /// Also an edit that changes no value is written: its key must have one response.
    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let before = state.whole_item(&self.sku)?;
        let item = self.set.applied_to(&before);
        let entry = self.entry(&before, &item)?;

        state.edit_item(&item)?;
        Ok(Changes { edit: Some(item), entry, ..Changes::none(CommandResponse::Edited) })
    }
}

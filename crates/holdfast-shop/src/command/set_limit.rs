//! Sets or removes an item's limit per customer.
//!
//! Changes no stock, but raises the row's version: an order that has read the old limit and not yet
//! written reads again. A lower limit does not affect earlier orders; each line keeps the limit
//! under which it was sold.

use serde::de::{Deserialize as _, Deserializer, Error as _, Unexpected};

use super::changes::{Changes, CommandResponse};
use super::place_order::MAX_QUANTITY;
use super::state::ShopState;
use super::{Command, ReadSet};
use crate::failure::Rejection;
use crate::idempotency::IdempotencyRequest;
use crate::model::Item;
use crate::{IdempotencyKey, UserId};

pub const MAX_LIMIT: i64 = MAX_QUANTITY;

/// Parses a limit that may be null. `3.0` is a whole number too, as in JSON Schema.
pub fn deserialize_limit<'de, D: Deserializer<'de>>(json: D) -> Result<Option<i64>, D::Error> {
    match Option::<f64>::deserialize(json)? {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 => Ok(Some(number as i64)),
        Some(number) => Err(D::Error::invalid_type(Unexpected::Float(number), &"i64")),
    }
}

#[derive(Debug, Clone)]
pub struct SetLimit {
    idempotency: IdempotencyRequest,
    item: Item,
    limit: Option<i64>,
}

impl SetLimit {
    pub fn new(
        admin: UserId,
        item: Item,
        limit: Option<i64>,
        key: Option<IdempotencyKey>,
    ) -> Result<Self, Rejection> {
        check_limit(limit)?;
        let path = format!("/api/items/{}/limit", item.sku);
        let content = format!("{limit:?}");
        let idempotency = IdempotencyRequest::new(admin, "PUT", path, key, &content);
        Ok(Self { idempotency, item, limit })
    }
}

pub fn check_limit(limit: Option<i64>) -> Result<(), Rejection> {
    if limit.is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit)) {
        let why = format!("1 to {MAX_LIMIT}, or null");
        return Err(Rejection::Invalid("limit_per_user".into(), why));
    }
    Ok(())
}

impl Command for SetLimit {
    fn idempotency(&self) -> &IdempotencyRequest {
        &self.idempotency
    }

    fn reads(&self) -> ReadSet {
        ReadSet { items: vec![self.item.sku.clone()], ..ReadSet::default() }
    }

    fn decide(&self, state: &mut ShopState) -> Result<Changes, Rejection> {
        let sku = &self.item.sku;
        let item = state.items.get_mut(sku).ok_or_else(|| Rejection::no_item(sku))?;
        item.limit_per_user = self.limit;
        // Orders that have read the old limit conflict, and read again.
        item.version += 1;
        let response = CommandResponse::LimitSet(Item {
            stock: item.stock,
            limit_per_user: self.limit,
            ..self.item.clone()
        });
        Ok(Changes { limit: Some((sku.clone(), self.limit)), ..Changes::none(response) })
    }
}

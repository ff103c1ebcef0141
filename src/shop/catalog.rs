//! What is sold: reading the shelf, and opening an item.
//!
//! A new item's opening stock is the first entry of its ledger, written in the same transaction.

use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Answer, Conditions, Error, LARGEST, Outcome, Refusal, Shop, Sku, customer_limit};
use crate::db;

/// An item as the shop shows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Item {
    /// What it is called in orders.
    pub sku: Sku,
    /// What it is called by people.
    pub name: String,
    /// Its price, in cents.
    pub price_cents: i64,
    /// How many are on the shelf.
    pub stock: i64,
    /// How many of it one customer may have, in orders that are pending or paid; not there when
    /// there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit_per_user: Option<i64>,
}

/// For whom an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// Everybody.
    Shop,
    /// One run of the lab.
    Lab,
}

impl ItemKind {
    fn name(self) -> &'static str {
        match self {
            ItemKind::Shop => "shop",
            ItemKind::Lab => "lab",
        }
    }
}

/// An item as the database has it.
pub(super) struct ItemRow {
    pub(super) sku: String,
    pub(super) name: String,
    pub(super) price_cents: i64,
    pub(super) stock: i64,
    pub(super) limit_per_user: Option<i64>,
}

impl TryFrom<ItemRow> for Item {
    type Error = Error;

    fn try_from(row: ItemRow) -> Result<Self, Error> {
        let ItemRow { sku, name, price_cents, stock, limit_per_user } = row;
        Ok(Self { sku: known(sku)?, name, price_cents, stock, limit_per_user })
    }
}

/// The shop's items by sku, after `after`; lab items are not shown.
///
/// # Errors
/// Postgres's.
pub async fn items(shop: &Shop, after: Option<&Sku>, limit: i64) -> Result<Vec<Item>, Error> {
    let rows = sqlx::query_as!(
        ItemRow,
        "select sku, name, price_cents, stock, limit_per_user from items
          where kind = 'shop' and sku > $1 order by sku limit $2",
        after.map_or("", Sku::as_str),
        limit,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    rows.into_iter().map(Item::try_from).collect()
}

/// One item, of whatever kind.
///
/// # Errors
/// Postgres's.
pub async fn item(shop: &Shop, sku: &Sku) -> Result<Option<Item>, Error> {
    Ok(items_of(shop, std::slice::from_ref(sku)).await?.pop())
}

/// Those of `skus` that are there, of whatever kind, by sku.
///
/// # Errors
/// Postgres's.
pub async fn items_of(shop: &Shop, skus: &[Sku]) -> Result<Vec<Item>, Error> {
    let names: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let rows = sqlx::query_as!(
        ItemRow,
        "select sku, name, price_cents, stock, limit_per_user from items
          where sku = any($1) order by sku",
        &names,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    rows.into_iter().map(Item::try_from).collect()
}

/// Keeps conditions under which sales or money may be lost to lab items. A sku that is not there is
/// let through, to be refused as such.
pub(super) async fn admit_to_lab(
    shop: &Shop,
    conditions: &Conditions,
    skus: &[Sku],
) -> Result<Result<(), Refusal>, Error> {
    if !conditions.is_for_the_lab(shop) {
        return Ok(Ok(()));
    }
    match first_of_the_shop(shop, skus).await? {
        None => Ok(Ok(())),
        Some(sku) if !conditions.may_break(shop) => Ok(Err(Refusal::Forbidden(format!(
            "a Holdfast-Hold-Ms of more than {} is kept to lab items, and {sku} is the shop's own",
            shop.hold.as_millis()
        )))),
        Some(sku) => Ok(Err(Refusal::Forbidden(format!(
            "this is kept to lab items, and {sku} is the shop's own: under Holdfast-Lock: {} or with \
             a Holdfast-Ttl-Ms, beside others under {}, sales could be lost. The admin makes a lab \
             item with POST /api/lab/items",
            conditions.strategy.name, shop.strategy.name,
        )))),
    }
}

async fn first_of_the_shop(shop: &Shop, skus: &[Sku]) -> Result<Option<Sku>, Error> {
    let names: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let sku = sqlx::query_scalar!(
        "select sku from items where sku = any($1) and kind = 'shop' order by sku limit 1",
        &names,
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    sku.map(known).transpose()
}

/// Puts a new item on the shelf.
///
/// # Errors
/// Postgres's.
pub async fn create(
    shop: &Shop,
    item: Item,
    kind: ItemKind,
    request_id: Uuid,
) -> Result<Outcome, Error> {
    if let Some(refusal) = impossible(&item) {
        return Ok(Outcome::Refused(refusal));
    }
    let mut connection = shop.connection().await?;
    let mut tx = connection.begin().await?;
    if !open(&mut tx, &item, kind, request_id).await? {
        tx.rollback().await?;
        return Ok(Outcome::Refused(Refusal::Exists(format!("there is an item {}", item.sku))));
    }
    tx.commit().await?;
    Ok(Outcome::Done(Answer::json(201, &item)?))
}

/// Inserts the item and its opening entry; `false` when the sku is taken.
///
/// # Errors
/// Postgres's.
pub async fn open(
    tx: &mut PgConnection,
    item: &Item,
    kind: ItemKind,
    request_id: Uuid,
) -> Result<bool, Error> {
    let inserted = sqlx::query!(
        "insert into items (sku, name, price_cents, stock, kind, limit_per_user)
         values ($1::text, $2::text, $3::bigint, $4::bigint, $5::text, $6::bigint)",
        item.sku.as_str(),
        item.name,
        item.price_cents,
        item.stock,
        kind.name(),
        item.limit_per_user,
    )
    .execute(&mut *tx)
    .await;
    match inserted {
        Err(error) if db::violates(&error, "items_pkey") => return Ok(false),
        other => other?,
    };
    // Nothing was there to be read: version 0, before the row's first.
    sqlx::query!(
        "insert into stock_ledger (sku, before, delta, after, version, reason, request_id)
         values ($1, 0, $2::bigint, $2, 0, 'opening', $3)",
        item.sku.as_str(),
        item.stock,
        request_id,
    )
    .execute(tx)
    .await?;
    Ok(true)
}

fn impossible(item: &Item) -> Option<Refusal> {
    let length = item.name.chars().count();
    let blank = item.name.trim().is_empty();
    if blank || length > 200 || item.name.chars().any(char::is_control) {
        let why = "1 to 200 characters on one line".to_owned();
        return Some(Refusal::Invalid("name".into(), why));
    }
    let range = |value: i64| (0..=LARGEST).contains(&value);
    if !range(item.price_cents) {
        return Some(Refusal::Invalid("price_cents".into(), format!("0 to {LARGEST}")));
    }
    if !range(item.stock) {
        return Some(Refusal::Invalid("stock".into(), format!("0 to {LARGEST}")));
    }
    customer_limit::impossible(item.limit_per_user)
}

/// A sku as the database has it.
pub(super) fn known(sku: String) -> Result<Sku, Error> {
    Sku::try_from(sku).map_err(|error| Error::Bug(error.to_owned()))
}

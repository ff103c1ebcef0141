//! Queries of the catalogue.

use std::collections::HashMap;

use crate::shop::failure::Error;
use crate::shop::model::Item;
use crate::shop::store::read::count_purchases;
use crate::shop::{Shop, Sku, UserId};

/// A row of `items`.
struct CatalogRow {
    sku: String,
    name: String,
    price_cents: i64,
    stock: i64,
    limit_per_user: Option<i64>,
}

impl TryFrom<CatalogRow> for Item {
    type Error = Error;

    fn try_from(row: CatalogRow) -> Result<Self, Error> {
        let CatalogRow { sku, name, price_cents, stock, limit_per_user } = row;
        Ok(Self { sku: Sku::stored(sku)?, name, price_cents, stock, limit_per_user })
    }
}

/// Returns the shop's items by sku, after `after`, without lab items.
pub async fn items(shop: &Shop, after: Option<&Sku>, limit: i64) -> Result<Vec<Item>, Error> {
    let rows = sqlx::query_as!(
        CatalogRow,
        "select sku, name, price_cents, stock, limit_per_user from items
          where kind = 'shop' and sku > $1 order by sku limit $2",
        after.map_or("", Sku::as_str),
        limit,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    rows.into_iter().map(Item::try_from).collect()
}

/// Returns one item, of the shop or of the lab.
pub async fn item(shop: &Shop, sku: &Sku) -> Result<Option<Item>, Error> {
    Ok(items_by_sku(shop, std::slice::from_ref(sku)).await?.pop())
}

/// Returns the items among `skus` that exist, of the shop or of the lab, by sku.
pub async fn items_by_sku(shop: &Shop, skus: &[Sku]) -> Result<Vec<Item>, Error> {
    let names: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let rows = sqlx::query_as!(
        CatalogRow,
        "select sku, name, price_cents, stock, limit_per_user from items
          where sku = any($1) order by sku",
        &names,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    rows.into_iter().map(Item::try_from).collect()
}

/// Returns the first of `skus`, by sku, that is an item of the shop and not of the lab.
pub async fn first_shop_item(shop: &Shop, skus: &[Sku]) -> Result<Option<Sku>, Error> {
    let names: Vec<String> = skus.iter().map(Sku::to_string).collect();
    let sku = sqlx::query_scalar!(
        "select sku from items where sku = any($1) and kind = 'shop' order by sku limit 1",
        &names,
    )
    .fetch_optional(&mut *shop.connection().await?)
    .await?;
    sku.map(Sku::stored).transpose()
}

/// Counts the units of each limited item among `items` that a customer has now.
pub async fn purchased_by(
    shop: &Shop,
    user: UserId,
    items: &[Item],
) -> Result<HashMap<Sku, i64>, Error> {
    let limited = items.iter().filter(|item| item.limit_per_user.is_some());
    let limited: Vec<(Sku, UserId)> = limited.map(|item| (item.sku.clone(), user)).collect();
    if limited.is_empty() {
        return Ok(HashMap::new());
    }
    let counts = count_purchases(&mut *shop.connection().await?, &limited).await?;
    Ok(counts.into_iter().map(|((sku, _), count)| (sku, count)).collect())
}

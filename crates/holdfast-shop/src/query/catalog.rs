//! Queries of the catalogue.

use std::collections::HashMap;

use futures_util::FutureExt as _;

use super::text_search::containing;
use crate::failure::Error;
use crate::model::Item;
use crate::store::read::count_purchases;
use crate::{Shop, Sku, UserId};

/// Returns the items that the shop lists, by sku, after `after`: without hidden and lab items.
pub async fn items(shop: &Shop, after: Option<&Sku>, limit: i64) -> Result<Vec<Item>, Error> {
    let items = sqlx::query_as!(
        Item,
        r#"select sku as "sku: Sku", name, name_zh, price_cents, stock, limit_per_user, description,
                  hidden
             from items where kind = 'shop' and not hidden and sku > $1 order by sku limit $2"#,
        after.map_or("", Sku::as_str),
        limit,
    );
    Ok(items.fetch_all(&mut *shop.connection().await?).await?)
}

/// Like [`items`], with the hidden ones: for admins. Only those whose sku or name, in one of the
/// languages, contains `search`.
pub async fn all_items(
    shop: &Shop,
    search: &str,
    after: Option<&Sku>,
    limit: i64,
) -> Result<Vec<Item>, Error> {
    let Some(pattern) = containing(search) else { return Ok(Vec::new()) };
    let items = sqlx::query_as!(
        Item,
        r#"select sku as "sku: Sku", name, name_zh, price_cents, stock, limit_per_user, description,
                  hidden
             from items
            where kind = 'shop' and (sku ~ $1 or name ~ $1 or name_zh ~ $1) and sku > $2
            order by sku limit $3"#,
        pattern,
        after.map_or("", Sku::as_str),
        limit,
    );
    Ok(items.fetch_all(&mut *shop.connection().await?).await?)
}

/// Returns one item, of the shop or of the lab.
pub async fn item(shop: &Shop, sku: &Sku) -> Result<Option<Item>, Error> {
    Ok(items_by_sku(shop, std::slice::from_ref(sku)).await?.pop())
}

/// Returns the items among `skus` that exist, of the shop or of the lab, by sku.
pub async fn items_by_sku(shop: &Shop, skus: &[Sku]) -> Result<Vec<Item>, Error> {
    let skus = skus.to_vec();

    let read = shop.pool.read(move |db| {
        let skus = skus.clone();
        async move {
            let items = sqlx::query_as!(
                Item,
                r#"select sku as "sku: Sku", name, name_zh, price_cents,
                          coalesce(units.free, stock) as "stock!", limit_per_user, description,
                          hidden
                     from items i
                    cross join lateral (
                          select case when i.kind = 'lab' and exists (
                                          select from item_units u where u.sku = i.sku)
                                      then (select count(*) from item_units u
                                             where u.sku = i.sku and u.order_id is null)
                                 end as free) units
                    where sku = any($1) order by sku"#,
                &skus as &[Sku],
            );
            items.fetch_all(db).await
        }
        .boxed()
    });
    Ok(read.await?.0)
}

/// Returns the first of `skus`, by sku, that is an item of the shop and not of the lab.
pub async fn first_shop_item(shop: &Shop, skus: &[Sku]) -> Result<Option<Sku>, Error> {
    let sku = sqlx::query_scalar!(
        r#"select sku as "sku: Sku" from items
            where sku = any($1) and kind = 'shop' order by sku limit 1"#,
        skus as &[Sku],
    );
    Ok(sku.fetch_optional(&mut *shop.connection().await?).await?)
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

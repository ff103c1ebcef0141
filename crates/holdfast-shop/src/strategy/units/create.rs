//! Creates items in units.

use holdfast_base::messages::message;
use uuid::Uuid;

use super::statements::{MAX_UNITS, insert};
use crate::Shop;
use crate::failure::{Failure, Rejection, StoredResponse};
use crate::model::Item;
use crate::store::items;

/// Creates an item of the lab in units, one row for each. Rejects none or too many of them, and a
/// limit per customer: nothing locks the item while they are counted.
pub async fn create_in_units(
    shop: &Shop,
    item: Item,
    request_id: Uuid,
) -> Result<StoredResponse, Failure> {
    items::check(&item)?;
    let is_stock = (1..=MAX_UNITS).contains(&item.stock);
    let unit_count = || ("stock".into(), message!("problem-unit-count", most = MAX_UNITS));
    let stock = (!is_stock).then(unit_count);
    let no_limit = || ("limit_per_user".into(), message!("problem-no-limit-in-units"));
    let limit = item.limit_per_user.map(|_| no_limit());
    Rejection::first_of(stock.into_iter().chain(limit))?;

    let inserting = items::insert_in_lab(shop, item, request_id, async |tx, item| {
        Ok(insert(tx, &item.sku, item.stock).await?)
    });
    inserting.await
}

//! Creates items. The opening stock of an item is the first entry of its ledger, written in the
//! same transaction.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::Shop;
use crate::command::MAX_AMOUNT;
use crate::command::set_limit::check_limit;
use crate::db;
use crate::failure::{Error, Failure, Rejection, StoredResponse};
use crate::model::{Item, ItemKind};

pub async fn create(
    shop: &Shop,
    item: Item,
    kind: ItemKind,
    request_id: Uuid,
) -> Result<StoredResponse, Failure> {
    check(&item)?;

    let mut tx = shop.pool.begin().await?;
    if !insert(&mut tx, &item, kind, request_id).await? {
        tx.rollback().await?;
        return Err(Rejection::Exists(format!("there is an item {}", item.sku)).into());
    }
    tx.commit().await?;

    Ok(StoredResponse::json(201, &item)?)
}

/// Returns `false` if there is such an item; the transaction can only be rolled back then.
pub async fn insert(
    tx: &mut PgConnection,
    item: &Item,
    kind: ItemKind,
    request_id: Uuid,
) -> Result<bool, Error> {
    let inserted = sqlx::query!(
        "insert into items (sku, name, price_cents, stock, opening, kind, limit_per_user,
                            description)
         values ($1::text, $2::text, $3::bigint, $4::bigint, $4, $5::text, $6::bigint, $7::text)",
        item.sku.as_str(),
        item.name,
        item.price_cents,
        item.stock,
        kind as ItemKind,
        item.limit_per_user,
        item.description,
    )
    .execute(&mut *tx)
    .await;
    match inserted {
        Err(error) if db::violates(&error, "items_pkey") => return Ok(false),
        other => other?,
    };

    // Version 0, below that of any change: the row starts at version 1.
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

fn check(item: &Item) -> Result<(), Rejection> {
    let length = item.name.chars().count();
    let is_blank = item.name.trim().is_empty();
    if is_blank || length > 200 || item.name.chars().any(char::is_control) {
        let why = "1 to 200 characters on one line".to_owned();
        return Err(Rejection::Invalid("name".into(), why));
    }

    for (field, value) in [("price_cents", item.price_cents), ("stock", item.stock)] {
        if !(0..=MAX_AMOUNT).contains(&value) {
            return Err(Rejection::Invalid(field.into(), format!("0 to {MAX_AMOUNT}")));
        }
    }

    check_limit(item.limit_per_user)
}

//! Creates items, and finds them. The opening stock of an item is the first entry of its ledger,
//! written in the same transaction.

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::admin_changes::change_once;
use crate::command::edit_item::ItemFields;
use crate::command::{MAX_AMOUNT, range};
use crate::db;
use crate::failure::{Error, Execution, Failure, Rejection, StoredResponse};
use crate::idempotency::{IdempotencyRequest, Operation};
use crate::model::{AdminAction, AdminEntry, Item, ItemKind};
use crate::strategy::{Strategy, units};
use crate::{IdempotencyKey, Shop, Sku, UserId};
use holdfast_base::messages::message;

/// The properties of an item that never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownItem {
    pub kind: ItemKind,
    /// The strategy that it was made for: no other sells it.
    pub sold_under: Option<&'static Strategy>,
}

/// Returns those of the items that exist.
pub async fn find(db: &mut PgConnection, skus: &[Sku]) -> sqlx::Result<Vec<(Sku, KnownItem)>> {
    let found = sqlx::query!(
        r#"select sku as "sku: Sku", kind as "kind: ItemKind",
                  kind = 'lab' and exists (
                      select from item_units u where u.sku = i.sku) as "in_units!"
             from items i where sku = any($1)"#,
        skus as &[Sku],
    );
    let found = found.map(|row| {
        let sold_under = row.in_units.then_some(&units::STRATEGY);
        (row.sku, KnownItem { kind: row.kind, sold_under })
    });
    found.fetch_all(db).await
}

/// Returns the highest fence that wrote the item.
pub async fn item_fence(db: &mut PgConnection, sku: &Sku) -> Result<i64, Error> {
    let fence = sqlx::query_scalar!("select fence from items where sku = $1", sku.as_str());
    Ok(fence.fetch_one(db).await?)
}

/// Raises the version of an item, and its fence to at least `fence`, so that a write that was
/// decided before, or is executed under a lower fence, matches no row. Returns the row's fence.
pub async fn invalidate_item(db: &mut PgConnection, sku: &Sku, fence: i64) -> Result<i64, Error> {
    let fence = sqlx::query_scalar!(
        "update items set version = version + 1, fence = greatest(fence, $2)
          where sku = $1 returning fence",
        sku.as_str(),
        fence,
    );
    Ok(fence.fetch_one(db).await?)
}

/// Creates an item of the shop, at most once per idempotency key, with its entry in the admin log.
pub async fn create(
    shop: &Shop,
    admin: UserId,
    item: Item,
    key: Option<IdempotencyKey>,
    request_id: Uuid,
) -> Result<Execution, Failure> {
    let is_labs = item.sku.is_throw_away();
    Rejection::first_of(is_labs.then(|| ("sku".into(), message!("problem-sku-of-lab"))))?;
    check(&item)?;

    let content = format!("{item:?}");
    let request = IdempotencyRequest::new(admin, Operation::CreateItem, key, &content);
    let entry = AdminEntry {
        action: AdminAction::CreateItem,
        subject: item.sku.to_string(),
        before: json!({}),
        after: json!({
            "name": item.name,
            "name_zh": item.name_zh,
            "price_cents": item.price_cents,
            "stock": item.stock,
            "limit_per_user": item.limit_per_user,
            "description": item.description,
        }),
    };
    let creating = change_once(&shop.pool, &request, request_id, async |tx| {
        if !insert(tx, &item, ItemKind::Shop, request_id).await? {
            return Err(item_exists(&item.sku).into());
        }
        Ok((StoredResponse::json(201, &item)?, entry))
    });
    creating.await
}

/// Creates an item of the lab, of which no log is kept.
pub async fn create_in_lab(
    shop: &Shop,
    item: Item,
    request_id: Uuid,
) -> Result<StoredResponse, Failure> {
    check(&item)?;
    insert_in_lab(shop, item, request_id, async |_, _| Ok(())).await
}

/// Creates an item of the lab whose stock no constraint keeps from falling below zero.
pub async fn create_without_constraint(
    shop: &Shop,
    item: Item,
    request_id: Uuid,
) -> Result<StoredResponse, Failure> {
    check(&item)?;
    let inserting = insert_in_lab(shop, item, request_id, async |tx, item| {
        let sku = item.sku.as_str();
        sqlx::query!("update items set may_go_below_zero = true where sku = $1", sku)
            .execute(tx)
            .await?;
        Ok(())
    });
    inserting.await
}

fn item_exists(sku: &Sku) -> Rejection {
    Rejection::Exists(message!("problem-item-exists", sku))
}

/// Inserts an item, and with `more` what belongs to it.
pub(crate) async fn insert_in_lab(
    shop: &Shop,
    item: Item,
    request_id: Uuid,
    more: impl AsyncFnOnce(&mut PgConnection, &Item) -> Result<(), Error>,
) -> Result<StoredResponse, Failure> {
    let mut tx = shop.pool.begin().await?;
    if !insert(&mut tx, &item, ItemKind::Lab, request_id).await? {
        tx.rollback().await?;
        return Err(item_exists(&item.sku).into());
    }
    more(&mut tx, &item).await?;
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
    let inserted = sqlx::query_file!(
        "src/store/insert_item.sql",
        item.sku.as_str(),
        item.name,
        item.price_cents,
        item.stock,
        kind as ItemKind,
        item.limit_per_user,
        item.description,
        item.name_zh,
    )
    .execute(&mut *tx)
    .await;
    match inserted {
        Err(error) if db::violates(&error, "items_pkey") => return Ok(false),
        other => other?,
    };

    // Version 0, below that of any change: the row starts at version 1.
    sqlx::query_file!("src/store/open_ledger.sql", item.sku.as_str(), item.stock, request_id,)
        .execute(tx)
        .await?;

    Ok(true)
}

pub(crate) fn check(item: &Item) -> Result<(), Rejection> {
    let is_stock = (0..=MAX_AMOUNT).contains(&item.stock);
    let stock = (!is_stock).then(|| ("stock".into(), range(0, MAX_AMOUNT)));
    Rejection::first_of(stock.into_iter().chain(ItemFields::of(item).invalid()))
}

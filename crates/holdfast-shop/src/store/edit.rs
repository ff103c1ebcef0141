//! The statement that changes an item's settings, with their entry in the admin log and the key
//! record. It writes no stock.

use serde_json::Value;
use sqlx::PgConnection;

use super::{BatchWrite, CommandWrite, WriteResult, key_records};
use crate::failure::Error;
use crate::model::{AdminAction, Item};

/// Writes the edit of one command, all or nothing. Like [`super::transition`], it locks the row and
/// compares it with the guard first, and writes only if it matches.
pub async fn edit(
    db: &mut PgConnection,
    batch: &BatchWrite,
    write: &CommandWrite,
    item: &Item,
) -> Result<WriteResult, Error> {
    let entry = write.changes.entry.as_ref();
    let row = batch.rows.items.iter().find(|row| row.key == item.sku);
    let row = row.ok_or_else(|| Error::Bug("an edit changes no row".to_owned()))?;
    let request = &write.idempotency;

    let holds = sqlx::query_scalar!(
        r#"with locked_item as materialized (
             select sku from items
              where sku = $1 and ($2::bigint is null or version = $2)
                and ($3::bigint is null or fence <= $3)
              order by sku for no key update),
         guard as materialized (select exists (select from locked_item) as holds),

         updated_item as (
             update items i
                set name = $4::text, price_cents = $5::bigint, description = $6::text,
                    hidden = $7, limit_per_user = $8::bigint, name_zh = $22::text,
                    version = i.version + $9, fence = coalesce($3, i.fence)
               from guard where guard.holds and i.sku = $1),
         inserted_entry as (
             insert into admin_log (admin, action, subject, before, after, request_id)
             select $10, $11, $1, $12, $13, $14 from guard
              where guard.holds and $11::text is not null),
         inserted_key as (
             insert into idempotency (id, user_id, method, path, key, fingerprint, status, body)
             select $15, $10, $16, $17, $18::text, $19, $20, $21 from guard where guard.holds)

         select holds as "holds!" from guard"#,
        item.sku.as_str(),
        row.version,
        row.fence,
        item.name,
        item.price_cents,
        item.description,
        item.hidden,
        item.limit_per_user,
        row.increment,
        request.user.0,
        entry.map(|entry| entry.action) as Option<AdminAction>,
        entry.map_or(&Value::Null, |entry| &entry.before),
        entry.map_or(&Value::Null, |entry| &entry.after),
        write.request_id,
        request.id,
        request.operation.method(),
        &request.operation.path(),
        request.key.as_str(),
        request.fingerprint.as_slice(),
        i16::try_from(write.response.status).unwrap_or(200),
        write.response.body,
        item.name_zh,
    )
    .fetch_one(db)
    .await
    .map_err(key_records::duplicate_key_conflict)?;

    Ok(WriteResult::from_guard(holds))
}

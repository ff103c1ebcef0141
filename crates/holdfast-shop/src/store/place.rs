//! The statement that places orders: it writes orders and their lines, the rows of items, ledger
//! entries, and key records with their responses.

use sqlx::PgConnection;
use uuid::Uuid;

use super::changed_rows::fence_of;
use super::{BatchWrite, WriteResult, column};
use crate::command::changes::{NewOrder, StockChange};
use crate::failure::Error;
use crate::idempotency::ORDERS_PATH;
use crate::model::OrderLine;

struct PlacedLine<'a> {
    new: &'a NewOrder,
    line: &'a OrderLine,
    limit: Option<i64>,
    change: &'a StockChange,
    fence: Option<i64>,
    request_id: Uuid,
}

/// Writes orders in one statement, all or nothing.
/// Fails with [`Error::Conflict`] if a key record was inserted since the read. After
/// [`Error::Unavailable`] the outcome is unknown.
pub async fn place(db: &mut PgConnection, batches: &[&BatchWrite]) -> Result<WriteResult, Error> {
    let items = super::item_rows(batches);

    let mut orders = Vec::new();
    let mut lines = Vec::new();
    for batch in batches {
        for write in &batch.commands {
            let Some(new) = &write.changes.order else { continue };
            orders.push((write, new));

            let changes = new.order.lines.iter().zip(&new.limits).zip(&write.changes.stock);
            lines.extend(changes.map(|((line, limit), change)| PlacedLine {
                new,
                line,
                limit: *limit,
                change,
                fence: fence_of(&batch.rows.items, &line.sku),
                request_id: write.request_id,
            }));
        }
    }

    // As in `transition`, each part selects from what it waits for. Key records are inserted in
    // sorted order, or two statements with the same two keys would deadlock.
    //
    // Of orders and lines, only arrays of text and bytes are expanded: `unnest` keeps the values of
    // each once more, which costs more than to read the value at a place. Values that differ in
    // length are counted from the first on.
    let holds = sqlx::query_file_scalar!(
        "src/store/place.sql",
        super::row_lock_timeout(batches),
        &column(&items, |(_, row)| row.key.as_str()) as &[&str],
        &column(&items, |(_, row)| row.version) as &[Option<i64>],
        &column(&items, |(_, row)| row.fence) as &[Option<i64>],
        &column(&items, |(_, row)| row.value) as &[Option<i64>],
        &column(&items, |(_, row)| row.increment),
        &column(&items, |(batch, row)| batch.sold(&row.key)),
        &column(&orders, |(_, new)| new.order.id.0),
        &column(&orders, |(write, _)| write.idempotency.id),
        &column(&orders, |(_, new)| new.user.0),
        &column(&orders, |(_, new)| new.order.total_cents),
        &column(&orders, |(write, _)| write.idempotency.key.as_str()) as &[&str],
        &column(&orders, |(_, new)| new.order.created_at),
        &column(&orders, |(_, new)| new.order.expires_at),
        &column(&orders, |(write, _)| write.idempotency.fingerprint.as_slice()) as &[&[u8]],
        &column(&orders, |(write, _)| write.response.body.as_slice()) as &[&[u8]],
        &column(&lines, |line| line.new.order.id.0),
        &column(&lines, |line| line.new.user.0),
        &column(&lines, |line| line.line.sku.as_str()) as &[&str],
        &column(&lines, |line| line.line.quantity),
        &column(&lines, |line| line.line.unit_price_cents),
        &column(&lines, |line| line.limit) as &[Option<i64>],
        &column(&lines, |line| line.line.names.name.as_str()) as &[&str],
        &column(&lines, |line| line.line.names.name_zh.as_deref()) as &[Option<&str>],
        &column(&lines, |line| line.change.before),
        &column(&lines, |line| line.change.version),
        &column(&lines, |line| line.fence) as &[Option<i64>],
        &column(&lines, |line| line.request_id),
        ORDERS_PATH,
    )
    .fetch_one(db)
    .await
    .map_err(super::key_records::duplicate_key_conflict)?;

    Ok(WriteResult::from_guard(holds))
}

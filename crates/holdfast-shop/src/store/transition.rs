//! The statement that changes existing rows: the status of orders, items, accounts, their ledger
//! entries, and key records with their responses.
//!
//! Rows are locked in one order: orders (compare-and-set of their status, under every strategy),
//! items, accounts; each step waits for the previous one. Orders come first because a payment and a
//! cancellation of one order share no other row.

use std::borrow::Cow;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::changed_rows::{GuardedRow, fence_of};
use super::{BatchWrite, CommandWrite, WriteResult, column, key_records};
use crate::OrderId;
use crate::command::changes::{LedgerChange, StatusTransition};
use crate::db;
use crate::failure::{Failure, Rejection};
use crate::model::AdminAction;

struct Entry<'a, K> {
    change: &'a LedgerChange<K>,
    fence: Option<i64>,
    request_id: Uuid,
}

fn entries<'a, K: PartialEq + 'a, C: IntoIterator<Item = &'a LedgerChange<K>>>(
    batches: &[&'a BatchWrite],
    rows: impl Fn(&'a BatchWrite) -> &'a [GuardedRow<K>],
    changes: impl Fn(&'a CommandWrite) -> C,
) -> Vec<Entry<'a, K>> {
    let mut entries = Vec::new();
    for batch in batches {
        for write in &batch.commands {
            // Units have entries of their own (`strategy::units`).
            let changes = changes(write).into_iter().filter(|change| change.units.is_none());
            entries.extend(changes.map(|change| Entry {
                change,
                fence: fence_of(rows(batch), &change.key),
                request_id: write.request_id,
            }));
        }
    }
    entries
}

/// Writes changes in one statement, all or nothing. At most one command may have a top-up, an entry
/// of the admin log, or one whose number is in its response: those that have one are no batch's.
/// Rejects a top-up whose key was used and whose key record is purged.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub async fn transition(
    db: &mut PgConnection,
    batches: &[&BatchWrite],
) -> Result<WriteResult, Failure> {
    // An entry whose number is in its response has the time of the read; there is one at most.
    let now = batches.first().map(|batch| batch.now);

    let writes: Vec<&CommandWrite> = batches.iter().flat_map(|batch| &batch.commands).collect();
    let transitions: Vec<&StatusTransition> =
        writes.iter().flat_map(|write| &write.changes.transitions).collect();

    let items = super::item_rows(batches);
    let accounts: Vec<_> = batches.iter().flat_map(|batch| &batch.rows.accounts).collect();
    let stock = entries(batches, |batch| &batch.rows.items, |write| &write.changes.stock);
    let balance = entries(batches, |batch| &batch.rows.accounts, |write| &write.changes.balance);

    let top_up = writes.iter().find(|write| write.changes.top_up_cents.is_some());
    let logged = writes.iter().find_map(|write| Some((write, write.changes.entry.as_ref()?)));

    // Postgres executes the parts of a statement in no given order, so each part selects from what
    // it waits for and counts its rows: no item is locked unless all orders are, and nothing is
    // written unless all rows are (`guard`). A row without a value was updated at the read.
    let holds = sqlx::query_file_scalar!(
        "src/store/transition.sql",
        super::row_lock_timeout(batches),
        now,
        &column(&transitions, |transition| transition.order.0),
        &column(&transitions, |transition| transition.from.name()) as &[&str],
        &column(&transitions, |transition| transition.to.name()) as &[&str],
        &column(&transitions, |transition| transition.paid_at) as &[Option<OffsetDateTime>],
        &column(&items, |(_, row)| row.key.as_str()) as &[&str],
        &column(&items, |(_, row)| row.version) as &[Option<i64>],
        &column(&items, |(_, row)| row.fence) as &[Option<i64>],
        &column(&items, |(_, row)| row.value) as &[Option<i64>],
        &column(&items, |(_, row)| row.increment),
        &column(&items, |(batch, row)| batch.sold(&row.key)),
        &column(&items, |(batch, row)| batch.restocked(&row.key)),
        &column(&accounts, |row| row.key.0),
        &column(&accounts, |row| row.version) as &[Option<i64>],
        &column(&accounts, |row| row.fence) as &[Option<i64>],
        &column(&accounts, |row| row.value) as &[Option<i64>],
        &column(&accounts, |row| row.increment),
        &column(&stock, |entry| entry.change.seq) as &[Option<i64>],
        &column(&stock, |entry| entry.change.key.as_str()) as &[&str],
        &column(&stock, |entry| entry.change.before),
        &column(&stock, |entry| entry.change.delta),
        &column(&stock, |entry| entry.change.version),
        &column(&stock, |entry| entry.fence) as &[Option<i64>],
        &column(&stock, |entry| entry.change.reason.as_ref()) as &[&str],
        &column(&stock, |entry| entry.change.order) as &[Option<OrderId>],
        &column(&stock, |entry| entry.request_id),
        &column(&balance, |entry| entry.change.seq) as &[Option<i64>],
        &column(&balance, |entry| entry.change.key.0),
        &column(&balance, |entry| entry.change.before),
        &column(&balance, |entry| entry.change.delta),
        &column(&balance, |entry| entry.change.version),
        &column(&balance, |entry| entry.fence) as &[Option<i64>],
        &column(&balance, |entry| entry.change.reason.as_ref()) as &[&str],
        &column(&balance, |entry| entry.change.order) as &[Option<OrderId>],
        &column(&balance, |entry| entry.request_id),
        Uuid::now_v7(),
        top_up.map(|write| write.idempotency.user.0),
        top_up.map(|write| write.idempotency.key.as_str()),
        top_up.and_then(|write| write.changes.top_up_cents),
        logged.map(|(write, _)| write.idempotency.user.0),
        logged.map(|(_, entry)| entry.action) as Option<AdminAction>,
        logged.map(|(_, entry)| entry.subject.as_str()),
        logged.map(|(_, entry)| &entry.before),
        logged.map(|(_, entry)| &entry.after),
        logged.map(|(write, _)| write.request_id),
        &column(&writes, |write| write.idempotency.id),
        &column(&writes, |write| write.idempotency.user.0),
        &column(&writes, |write| write.idempotency.operation.method()) as &[&str],
        &column(&writes, |write| write.idempotency.operation.path()) as &[Cow<str>],
        &column(&writes, |write| write.idempotency.key.as_str()) as &[&str],
        &column(&writes, |write| write.idempotency.fingerprint.as_slice()) as &[&[u8]],
        &column(&writes, |write| i16::try_from(write.response.status).unwrap_or(200)),
        &column(&writes, |write| write.response.body.as_slice()) as &[&[u8]],
    )
    .fetch_one(db)
    .await
    .map_err(|error| {
        // Postgres rolled back the whole statement: none of the batch is written.
        if db::violates(&error, "top_ups_token_key") {
            Failure::Rejected(Rejection::KeyUsed { order_id: None })
        } else {
            key_records::duplicate_key_conflict(error).into()
        }
    })?;

    Ok(WriteResult::from_guard(holds))
}

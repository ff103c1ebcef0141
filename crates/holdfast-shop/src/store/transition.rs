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
    let holds = sqlx::query_scalar!(
        r#"with row_lock_timeout as materialized (
             select case when $46::text is not null
                         then set_config('lock_timeout', $46, true) end),
         locked_orders as materialized (
             select o.id
               from row_lock_timeout, unnest($1::uuid[], $2::text[]) as t (id, old_status)
               join orders o on o.id = t.id
              where o.status = t.old_status order by o.id for no key update of o),
         locked_items as materialized (
             select i.sku
               from unnest($5::text[], $6::bigint[], $7::bigint[]) as g (sku, version, fence)
               join items i on i.sku = g.sku
              where (select count(*) from locked_orders) = cardinality($1)
                and (g.version is null or i.version = g.version)
                and (g.fence is null or i.fence <= g.fence)
              order by i.sku for no key update of i),
         locked_accounts as materialized (
             select a.user_id
               from unnest($10::uuid[], $11::bigint[], $12::bigint[]) as g (id, version, fence)
               join accounts a on a.user_id = g.id
              where (select count(*) from locked_items) = cardinality($5)
                and (g.version is null or a.version = g.version)
                and (g.fence is null or a.fence <= g.fence)
              order by a.user_id for no key update of a),

         guard as materialized (
             select (select count(*) from locked_accounts) = cardinality($10)
                    and (select count(*) from locked_items) = cardinality($5)
                    and (select count(*) from locked_orders) = cardinality($1) as holds),

         updated_orders as (
             update orders o set status = t.new_status, paid_at = coalesce(t.paid_at, o.paid_at)
               from guard, unnest($1::uuid[], $3::text[], $4::timestamptz[])
                           as t (id, new_status, paid_at)
              where guard.holds and o.id = t.id),
         updated_items as (
             update items i
                set stock = coalesce(r.stock, i.stock), version = i.version + r.increment,
                    fence = coalesce(r.fence, i.fence), sold = i.sold + r.sold,
                    restocked = i.restocked + r.restocked
               from guard, unnest($5::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                                  $47::bigint[], $48::bigint[])
                           as r (sku, fence, stock, increment, sold, restocked)
              where guard.holds and i.sku = r.sku and r.stock is not null),
         updated_accounts as (
             update accounts a
                set balance_cents = r.cents, version = a.version + r.increment,
                    fence = coalesce(r.fence, a.fence)
               from guard, unnest($10::uuid[], $12::bigint[], $13::bigint[], $14::bigint[])
                           as r (id, fence, cents, increment)
              where guard.holds and a.user_id = r.id and r.cents is not null),

         -- Of orders of `pre-deduct` whose own entries are still to be written.
         returned_lines as (
             update unsettled_lines u set returned = true
               from guard, unnest($17::text[], $23::uuid[]) as e (sku, order_id)
              where guard.holds and u.sku = e.sku and u.order_id = e.order_id),

         inserted_stock_entries as (
             insert into stock_ledger (seq, sku, before, delta, after, version, fence, reason,
                                       order_id, request_id, at)
             select coalesce(e.seq, nextval('stock_ledger_seq_seq')), e.sku, e.before, e.delta,
                    e.before + e.delta, e.version, e.fence, e.reason, e.order_id, e.request_id,
                    case when e.seq is null then clock_timestamp() else $15 end
               from guard,
                    unnest($16::bigint[], $17::text[], $18::bigint[], $19::bigint[], $20::bigint[],
                           $21::bigint[], $22::text[], $23::uuid[], $24::uuid[]) with ordinality
                    as e (seq, sku, before, delta, version, fence, reason, order_id, request_id,
                          place)
              where guard.holds order by e.place),
         inserted_balance_entries as (
             insert into balance_ledger (seq, user_id, before, delta, after, version, fence,
                                         reason, order_id, request_id, at)
             select coalesce(e.seq, nextval('balance_ledger_seq_seq')), e.user_id, e.before,
                    e.delta, e.before + e.delta, e.version, e.fence, e.reason, e.order_id,
                    e.request_id, case when e.seq is null then clock_timestamp() else $15 end
               from guard,
                    unnest($25::bigint[], $26::uuid[], $27::bigint[], $28::bigint[], $29::bigint[],
                           $30::bigint[], $31::text[], $32::uuid[], $33::uuid[]) with ordinality
                    as e (seq, user_id, before, delta, version, fence, reason, order_id,
                          request_id, place)
              where guard.holds order by e.place),
         inserted_top_up as (
             insert into top_ups (id, user_id, token, amount_cents)
             select $34::uuid, $35::uuid, $36::text, $37::bigint from guard
              where guard.holds and $35 is not null),
         inserted_log_entry as (
             insert into admin_log (admin, action, subject, before, after, request_id)
             select $49::uuid, $50, $51::text, $52::jsonb, $53::jsonb, $54::uuid from guard
              where guard.holds and $50::text is not null),
         inserted_keys as (
             insert into idempotency (id, user_id, method, path, key, fingerprint, status, body)
             select k.* from guard,
                    unnest($38::uuid[], $39::uuid[], $40::text[], $41::text[], $42::text[],
                           $43::bytea[], $44::smallint[], $45::bytea[])
                    as k (id, user_id, method, path, key, fingerprint, status, body)
              where guard.holds order by k.id)

         select holds as "holds!" from guard"#,
        &column(&transitions, |transition| transition.order.0),
        &column(&transitions, |transition| transition.from.name()) as &[&str],
        &column(&transitions, |transition| transition.to.name()) as &[&str],
        &column(&transitions, |transition| transition.paid_at) as &[Option<OffsetDateTime>],
        &column(&items, |(_, row)| row.key.as_str()) as &[&str],
        &column(&items, |(_, row)| row.version) as &[Option<i64>],
        &column(&items, |(_, row)| row.fence) as &[Option<i64>],
        &column(&items, |(_, row)| row.value) as &[Option<i64>],
        &column(&items, |(_, row)| row.increment),
        &column(&accounts, |row| row.key.0),
        &column(&accounts, |row| row.version) as &[Option<i64>],
        &column(&accounts, |row| row.fence) as &[Option<i64>],
        &column(&accounts, |row| row.value) as &[Option<i64>],
        &column(&accounts, |row| row.increment),
        now,
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
        &column(&writes, |write| write.idempotency.id),
        &column(&writes, |write| write.idempotency.user.0),
        &column(&writes, |write| write.idempotency.operation.method()) as &[&str],
        &column(&writes, |write| write.idempotency.operation.path()) as &[Cow<str>],
        &column(&writes, |write| write.idempotency.key.as_str()) as &[&str],
        &column(&writes, |write| write.idempotency.fingerprint.as_slice()) as &[&[u8]],
        &column(&writes, |write| i16::try_from(write.response.status).unwrap_or(200)),
        &column(&writes, |write| write.response.body.as_slice()) as &[&[u8]],
        super::row_lock_timeout(batches),
        &column(&items, |(batch, row)| batch.sold(&row.key)),
        &column(&items, |(batch, row)| batch.restocked(&row.key)),
        logged.map(|(write, _)| write.idempotency.user.0),
        logged.map(|(_, entry)| entry.action) as Option<AdminAction>,
        logged.map(|(_, entry)| entry.subject.as_str()),
        logged.map(|(_, entry)| &entry.before),
        logged.map(|(_, entry)| &entry.after),
        logged.map(|(write, _)| write.request_id),
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

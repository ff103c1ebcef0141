//! The statement that changes existing rows: the status of orders, items, accounts, their ledger
//! entries, and key records with their responses.
//!
//! Rows are locked in one order: orders (compare-and-set of their status, under every strategy),
//! items, accounts; each step waits for the previous one. Orders come first because a payment and a
//! cancellation of one order share no other row.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::changed_rows::{ChangedRows, GuardedRows, SumIncrements};
use super::key_records::{self, KeyRecordColumns};
use super::{BatchWrite, CommandWrite, WriteResult};
use crate::db;
use crate::shop::command::changes::{LedgerChange, StatusTransition};
use crate::shop::failure::{Failure, Rejection};

/// Columns of transitions.
#[derive(Default)]
struct TransitionColumns {
    orders: Vec<Uuid>,
    from: Vec<&'static str>,
    to: Vec<&'static str>,
    paid_at: Vec<Option<OffsetDateTime>>,
}

impl TransitionColumns {
    fn push(&mut self, transition: &StatusTransition) {
        self.orders.push(transition.order.0);
        self.from.push(transition.from.name());
        self.to.push(transition.to.name());
        self.paid_at.push(transition.paid_at);
    }
}

/// Columns of ledger entries.
#[derive(Default)]
struct EntryColumns<'a, K> {
    keys: Vec<K>,
    seqs: Vec<Option<i64>>,
    befores: Vec<i64>,
    deltas: Vec<i64>,
    versions: Vec<i64>,
    fences: Vec<Option<i64>>,
    reasons: Vec<&'a str>,
    orders: Vec<Option<Uuid>>,
    requests: Vec<Uuid>,
}

impl<'a, K: Clone + PartialEq> EntryColumns<'a, K> {
    /// Adds the entry of a change of the row `key`, which is in `rows`.
    fn push<T>(
        &mut self,
        key: K,
        change: &'a LedgerChange<T>,
        rows: &GuardedRows<K>,
        request: Uuid,
    ) {
        self.fences.push(rows.fence(&key));
        self.keys.push(key);
        self.seqs.push(change.seq);
        self.befores.push(change.before);
        self.deltas.push(change.delta);
        self.versions.push(change.version);
        self.reasons.push(&change.reason);
        self.orders.push(change.order.map(|order| order.0));
        self.requests.push(request);
    }
}

/// All columns of the statement.
#[derive(Default)]
struct WriteColumns<'a> {
    transitions: TransitionColumns,
    items: GuardedRows<String>,
    sums: SumIncrements,
    accounts: GuardedRows<Uuid>,
    stock: EntryColumns<'a, String>,
    balance: EntryColumns<'a, Uuid>,
    limit: Option<(&'a str, Option<i64>)>,
    top_up: Option<(Uuid, &'a str, i64)>,
    keys: KeyRecordColumns<'a>,
}

impl<'a> WriteColumns<'a> {
    fn from_batches(batches: &[&'a BatchWrite]) -> Self {
        let mut columns = Self::default();
        for batch in batches {
            columns.items.extend(&batch.rows.items);
            columns.sums.extend(&batch.rows.items, batch.stock_changes());
            columns.accounts.extend(&batch.rows.accounts);
            batch.commands.iter().for_each(|write| columns.push(write, &batch.rows));
        }
        columns
    }

    fn push(&mut self, write: &'a CommandWrite, rows: &ChangedRows) {
        let CommandWrite { changes, idempotency, request_id, .. } = write;
        changes.transitions.iter().for_each(|transition| self.transitions.push(transition));
        for change in &changes.stock {
            self.stock.push(change.key.to_string(), change, &rows.items, *request_id);
        }
        if let Some(change) = &changes.balance {
            self.balance.push(change.key.0, change, &rows.accounts, *request_id);
        }
        if let Some((sku, limit)) = &changes.limit {
            self.limit = Some((sku.as_str(), *limit));
        }
        if let Some(cents) = changes.top_up_cents {
            self.top_up = Some((idempotency.user.0, idempotency.key.as_str(), cents));
        }
        self.keys.push(write);
    }
}

/// Writes changes in one statement, all or nothing. At most one command may have a top-up, a new
/// limit, or an entry whose number is in its response.
/// Rejects a top-up whose key was used and whose key record is purged.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub async fn transition(
    db: &mut PgConnection,
    batches: &[&BatchWrite],
) -> Result<WriteResult, Failure> {
    let now = batches.first().map(|batch| batch.now);
    let WriteColumns { transitions, items, sums, accounts, stock, balance, limit, top_up, keys } =
        WriteColumns::from_batches(batches);
    let (limit_sku, limit) = limit.unzip();
    let (payer, top_up_key, cents) = match top_up {
        Some((payer, key, cents)) => (Some(payer), Some(key), Some(cents)),
        None => (None, None, None),
    };
    let holds = sqlx::query_scalar!(
        r#"with row_lock_timeout as materialized (
             select case when $48::text is not null
                         then set_config('lock_timeout', $48, true) end),
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
               from unnest($12::uuid[], $13::bigint[], $14::bigint[]) as g (id, version, fence)
               join accounts a on a.user_id = g.id
              where (select count(*) from locked_items) = cardinality($5)
                and (g.version is null or a.version = g.version)
                and (g.fence is null or a.fence <= g.fence)
              order by a.user_id for no key update of a),
         guard as materialized (
             select (select count(*) from locked_accounts) = cardinality($12)
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
                    restocked = i.restocked + r.restocked,
                    limit_per_user = case when i.sku = $10 then $11::bigint
                                          else i.limit_per_user end
               from guard, unnest($5::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                                  $49::bigint[], $50::bigint[])
                           as r (sku, fence, stock, increment, sold, restocked)
              where guard.holds and i.sku = r.sku and (r.stock is not null or i.sku = $10)),
         updated_accounts as (
             update accounts a
                set balance_cents = r.cents, version = a.version + r.increment,
                    fence = coalesce(r.fence, a.fence)
               from guard, unnest($12::uuid[], $14::bigint[], $15::bigint[], $16::bigint[])
                           as r (id, fence, cents, increment)
              where guard.holds and a.user_id = r.id and r.cents is not null),
         inserted_stock_entries as (
             insert into stock_ledger (seq, sku, before, delta, after, version, fence, reason,
                                       order_id, request_id, at)
             select coalesce(e.seq, nextval('stock_ledger_seq_seq')), e.sku, e.before, e.delta,
                    e.before + e.delta, e.version, e.fence, e.reason, e.order_id, e.request_id,
                    case when e.seq is null then clock_timestamp() else $17 end
               from guard,
                    unnest($18::bigint[], $19::text[], $20::bigint[], $21::bigint[], $22::bigint[],
                           $23::bigint[], $24::text[], $25::uuid[], $26::uuid[]) with ordinality
                    as e (seq, sku, before, delta, version, fence, reason, order_id, request_id,
                          place)
              where guard.holds order by e.place),
         inserted_balance_entries as (
             insert into balance_ledger (seq, user_id, before, delta, after, version, fence,
                                         reason, order_id, request_id, at)
             select coalesce(e.seq, nextval('balance_ledger_seq_seq')), e.user_id, e.before,
                    e.delta, e.before + e.delta, e.version, e.fence, e.reason, e.order_id,
                    e.request_id, case when e.seq is null then clock_timestamp() else $17 end
               from guard,
                    unnest($27::bigint[], $28::uuid[], $29::bigint[], $30::bigint[], $31::bigint[],
                           $32::bigint[], $33::text[], $34::uuid[], $35::uuid[]) with ordinality
                    as e (seq, user_id, before, delta, version, fence, reason, order_id,
                          request_id, place)
              where guard.holds order by e.place),
         inserted_top_up as (
             insert into top_ups (id, user_id, token, amount_cents)
             select $36::uuid, $37::uuid, $38::text, $39::bigint from guard
              where guard.holds and $37 is not null),
         inserted_keys as (
             insert into idempotency (id, user_id, method, path, key, fingerprint, status, body)
             select k.* from guard,
                    unnest($40::uuid[], $41::uuid[], $42::text[], $43::text[], $44::text[],
                           $45::bytea[], $46::smallint[], $47::bytea[])
                    as k (id, user_id, method, path, key, fingerprint, status, body)
              where guard.holds order by k.id)
         select holds as "holds!" from guard"#,
        &transitions.orders,
        &transitions.from as &[&str],
        &transitions.to as &[&str],
        &transitions.paid_at as &[Option<OffsetDateTime>],
        &items.keys,
        &items.versions as &[Option<i64>],
        &items.fences as &[Option<i64>],
        &items.values as &[Option<i64>],
        &items.increments,
        limit_sku,
        limit.flatten(),
        &accounts.keys,
        &accounts.versions as &[Option<i64>],
        &accounts.fences as &[Option<i64>],
        &accounts.values as &[Option<i64>],
        &accounts.increments,
        now,
        &stock.seqs as &[Option<i64>],
        &stock.keys,
        &stock.befores,
        &stock.deltas,
        &stock.versions,
        &stock.fences as &[Option<i64>],
        &stock.reasons as &[&str],
        &stock.orders as &[Option<Uuid>],
        &stock.requests,
        &balance.seqs as &[Option<i64>],
        &balance.keys,
        &balance.befores,
        &balance.deltas,
        &balance.versions,
        &balance.fences as &[Option<i64>],
        &balance.reasons as &[&str],
        &balance.orders as &[Option<Uuid>],
        &balance.requests,
        Uuid::now_v7(),
        payer,
        top_up_key,
        cents,
        &keys.ids,
        &keys.users,
        &keys.methods as &[&str],
        &keys.paths as &[&str],
        &keys.keys as &[&str],
        &keys.fingerprints as &[&[u8]],
        &keys.statuses,
        &keys.bodies as &[&[u8]],
        super::row_lock_timeout(batches),
        &sums.sold,
        &sums.restocked,
    )
    .fetch_one(db)
    .await
    .map_err(|error| {
        if db::violates(&error, "top_ups_token_key") {
            Failure::Rejected(Rejection::KeyUsed { order_id: None })
        } else {
            key_records::duplicate_key_conflict(error).into()
        }
    })?;
    Ok(WriteResult::from_guard(holds))
}

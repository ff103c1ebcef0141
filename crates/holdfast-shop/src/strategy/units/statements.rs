//! The statements of items in units (strategy `units`): lock free units, sell them, and give them
//! back. The item's own row is not locked and not changed.
//!
//! Guarantees: of the rows of units a statement locks those that it changes, before the decision,
//! and compares the version of each again when it writes: a unit that was sold or returned since
//! matches no row. A write is complete or not done at all: it is in the transaction of its read.
//! A free unit is never waited for (`skip locked`), so no order of locking is needed.
//! Tests: `tests/it/units.rs`.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::command::changes::{StockChange, UnitSnapshot};
use crate::command::state::ShopState;
use crate::failure::{Error, Failure};
use crate::idempotency::ORDERS_PATH;
use crate::probe::Point;
use crate::store::key_records::duplicate_key_conflict;
use crate::store::transition::transition;
use crate::store::{BatchWrite, WriteResult, column};
use crate::{OrderId, Sku};

/// The statements for an item, at the points at which the lab shows them.
pub(super) const SENDS: &[(Point, &str)] = &[
    (
        Point::Read,
        "select unit, version from item_units\n where sku = $1 and order_id is null\n \
         limit 1 for update skip locked",
    ),
    (
        Point::Write,
        "update item_units set order_id = $2\n \
         where sku = $1 and unit = $3 and version = $4\n\
         -- same statement: unit_ledger, idempotency, orders",
    ),
];

/// The most units that an item may have: each is a row.
pub const MAX_UNITS: i64 = 100_000;

#[derive(Debug, Clone, Copy)]
struct UnitChange<'a> {
    change: &'a StockChange,
    /// As it was read.
    unit: &'a UnitSnapshot,
    request_id: Uuid,
}

fn unit_changes(batch: &BatchWrite) -> impl Iterator<Item = UnitChange<'_>> {
    batch.commands.iter().flat_map(|write| {
        let changes = write.changes.stock.iter();
        changes.flat_map(move |change| {
            let units = change.units.iter().flatten();
            units.map(move |unit| UnitChange { change, unit, request_id: write.request_id })
        })
    })
}

/// Inserts the units of a new item, all free.
pub(super) async fn insert(db: &mut PgConnection, sku: &Sku, count: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into item_units (sku, unit) select $1, generate_series(1, $2::bigint)",
        sku.as_str(),
        count,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Locks the units that a command may change, and adds them to `state`: of each item in `wanted` as
/// many free ones, if there are as many that are not locked, and those of the orders.
/// The stock of an item becomes the number of its locked free units.
pub(super) async fn lock(
    db: &mut PgConnection,
    wanted: &[(Sku, i64)],
    state: &mut ShopState,
) -> sqlx::Result<()> {
    state.units = state.items.keys().map(|sku| (sku.clone(), Vec::new())).collect();

    for (sku, count) in wanted {
        let free = lock_free(db, sku, *count).await?;
        state.units.insert(sku.clone(), free);
    }
    if !state.orders.is_empty() {
        let orders: Vec<OrderId> = state.orders.keys().copied().collect();
        for (sku, units) in lock_sold(db, &orders).await? {
            state.units.entry(sku).or_default().extend(units);
        }
    }

    for (sku, item) in &mut state.items {
        let units = state.units.get(sku).into_iter().flatten();
        let free = units.filter(|unit| unit.order.is_none()).count();
        item.stock = i64::try_from(free).unwrap_or(i64::MAX);
    }
    Ok(())
}

/// Locks up to `count` free units, the first ones from a random place on.
///
/// From a random one, because the index keeps the entries of sold units until it is vacuumed: from
/// its beginning on, each order would pass those of all earlier orders. From a random place on it
/// passes as many as are sold between two free ones, one or two until most are sold; ln(n) on
/// average over a sale of n units. Nor do the orders meet at the same rows. An order that finds
/// none passes all entries: 25 ms for the first one after 100,000 sales without vacuum, which marks
/// them as dead, and 0.7 ms for each later one.
///
/// Each part reads a range of the index of free units in its order, for any limit: no other index
/// has that order, and a plan that sorts would have to read all units of the item.
async fn lock_free(
    db: &mut PgConnection,
    sku: &Sku,
    count: i64,
) -> sqlx::Result<Vec<UnitSnapshot>> {
    let rows = sqlx::query!(
        r#"with start as materialized (select random() as place),
           behind as materialized (
               select unit, version from item_units
                where sku = $1 and order_id is null and place >= (select place from start)
                order by sku, place limit $2 for update skip locked),
           before as materialized (
               select unit, version from item_units
                where sku = $1 and order_id is null and place < (select place from start)
                order by sku, place limit $2 - (select count(*) from behind)
                  for update skip locked)
           select unit as "unit!", version as "version!" from behind
            union all select unit, version from before"#,
        sku.as_str(),
        count,
    )
    .fetch_all(db)
    .await?;

    let units = rows.into_iter().map(|row| UnitSnapshot {
        unit: row.unit,
        version: row.version,
        order: None,
    });
    Ok(units.collect())
}

/// Locks the units that orders have. Their rows are locked already, so no other command returns
/// them.
async fn lock_sold(
    db: &mut PgConnection,
    orders: &[OrderId],
) -> sqlx::Result<BTreeMap<Sku, Vec<UnitSnapshot>>> {
    let rows = sqlx::query!(
        r#"select u.sku as "sku: Sku", u.unit, u.version, e.order_id as "order!: OrderId"
             from unit_ledger e
             join item_units u on u.sku = e.sku and u.unit = e.unit and u.order_id = e.order_id
            where e.order_id = any($1) and e.reason = 'order'
            order by u.sku, u.unit for update of u"#,
        orders as &[OrderId],
    )
    .fetch_all(db)
    .await?;

    let mut found: BTreeMap<Sku, Vec<UnitSnapshot>> = BTreeMap::new();
    for row in rows {
        let unit = UnitSnapshot { unit: row.unit, version: row.version, order: Some(row.order) };
        found.entry(row.sku).or_default().push(unit);
    }
    Ok(found)
}

/// Writes the changes of one command, in the transaction that has locked its units.
///
/// # Errors
/// Those of [`crate::store::place::place`] and [`transition`]; [`Error::Bug`] if an order lacks its
/// units.
pub async fn write(db: &mut PgConnection, batch: &BatchWrite) -> Result<WriteResult, Failure> {
    for change in batch.commands.iter().flat_map(|write| &write.changes.stock) {
        let units = change.units.as_ref().map_or(0, Vec::len);
        if u64::try_from(units) != Ok(change.delta.unsigned_abs()) {
            let why = format!("{} of {} units of {} are there", units, change.delta, change.key);
            return Err(Error::Bug(why).into());
        }
    }

    if batch.places_orders() {
        return Ok(sell(db, batch).await?);
    }
    match transition(db, &[batch]).await? {
        // A payment gives nothing back.
        WriteResult::Done if unit_changes(batch).next().is_none() => Ok(WriteResult::Done),
        WriteResult::Done => Ok(give_back(db, batch).await?),
        changed @ WriteResult::RowChanged => Ok(changed),
    }
}

/// Writes an order with its lines, units, ledger entries and key record, in one statement.
async fn sell(db: &mut PgConnection, batch: &BatchWrite) -> Result<WriteResult, Error> {
    let mut orders =
        batch.commands.iter().filter_map(|write| Some((write, write.changes.order.as_ref()?)));
    let (Some((write, new)), None) = (orders.next(), orders.next()) else {
        return Err(Error::Bug("not one order in units".to_owned()));
    };
    let units: Vec<UnitChange<'_>> = unit_changes(batch).collect();
    let lines = &new.order.lines;

    let holds = sqlx::query_scalar!(
        r#"with sold as (
             update item_units u
                set order_id = $1, version = nextval('item_unit_versions')
               from unnest($2::text[], $3::bigint[], $4::bigint[]) as c (sku, unit, version)
              where u.sku = c.sku and u.unit = c.unit and u.version = c.version
                and u.order_id is null
             returning u.sku, u.unit, c.version),
         guard as materialized (select count(*) = cardinality($2) as holds from sold),

         entries as materialized (
             select nextval('stock_ledger_seq_seq') as seq, sold.* from guard, sold
              where guard.holds order by sku, unit),
         inserted_entries as (
             insert into unit_ledger
                 (seq, sku, unit, before, delta, after, version, reason, order_id, request_id)
             select seq, sku, unit, 1, -1, 0, version, 'order', $1, $5 from entries),
         inserted_order as (
             insert into orders (id, user_id, status, total_cents, token, created_at, expires_at)
             select $1, $6, 'pending', $7::bigint, $8, $9, $10 from guard where guard.holds),
         inserted_lines as (
             insert into order_lines (order_id, sku, quantity, unit_price_cents, name, name_zh,
                                      counts_for, entry_seq)
             select $1, l.sku, l.quantity, l.price, l.name, l.name_zh, $6, e.seq
               from unnest($11::text[], $12::bigint[], $13::bigint[], $18::text[], $19::text[])
                    as l (sku, quantity, price, name, name_zh)
               join (select sku, min(seq) as seq from entries group by sku) e on e.sku = l.sku),
         inserted_key as (
             insert into idempotency
                 (id, user_id, method, path, key, fingerprint, status, body, order_id)
             select $14, $6, 'POST', $15, $8::text, $16, 201, $17, $1
               from guard where guard.holds)

         select holds as "holds!" from guard"#,
        new.order.id.0,
        &column(&units, |unit| unit.change.key.as_str()) as &[&str],
        &column(&units, |unit| unit.unit.unit),
        &column(&units, |unit| unit.unit.version),
        write.request_id,
        new.user.0,
        new.order.total_cents,
        write.idempotency.key.as_str(),
        new.order.created_at,
        new.order.expires_at,
        &column(lines, |line| line.sku.as_str()) as &[&str],
        &column(lines, |line| line.quantity),
        &column(lines, |line| line.unit_price_cents),
        write.idempotency.id,
        ORDERS_PATH,
        write.idempotency.fingerprint.as_slice(),
        write.response.body,
        &column(lines, |line| line.names.name.as_str()) as &[&str],
        &column(lines, |line| line.names.name_zh.as_deref()) as &[Option<&str>],
    )
    .fetch_one(db)
    .await
    .map_err(duplicate_key_conflict)?;

    Ok(WriteResult::from_guard(holds))
}

/// Writes units that orders return, with their ledger entries.
async fn give_back(db: &mut PgConnection, batch: &BatchWrite) -> Result<WriteResult, Error> {
    let units: Vec<UnitChange<'_>> = unit_changes(batch).collect();

    let holds = sqlx::query_scalar!(
        r#"with changes as materialized (
             select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[],
                                  $6::uuid[])
                    as c (sku, unit, version, order_id, reason, request_id)),
         freed as (
             update item_units u
                set order_id = null, version = nextval('item_unit_versions')
               from changes c
              where u.sku = c.sku and u.unit = c.unit and u.version = c.version
                and u.order_id = c.order_id
             returning c.*),
         guard as materialized (select count(*) = cardinality($1) as holds from freed),
         inserted_entries as (
             insert into unit_ledger
                 (seq, sku, unit, before, delta, after, version, reason, order_id, request_id)
             select nextval('stock_ledger_seq_seq'), sku, unit, 0, 1, 1, version, reason, order_id,
                    request_id
               from guard, freed where guard.holds order by sku, unit)
         select holds as "holds!" from guard"#,
        &column(&units, |unit| unit.change.key.as_str()) as &[&str],
        &column(&units, |unit| unit.unit.unit),
        &column(&units, |unit| unit.unit.version),
        &column(&units, |unit| unit.unit.order.map(|order| order.0)) as &[Option<Uuid>],
        &column(&units, |unit| unit.change.reason.as_ref()) as &[&str],
        &column(&units, |unit| unit.request_id),
    )
    .fetch_one(db)
    .await?;

    Ok(WriteResult::from_guard(holds))
}

/// Keeps a write that arrives later from matching its rows, and waits for one that has locked them:
/// [`ChangedRows::invalidate`](crate::store::changed_rows::ChangedRows::invalidate).
pub(super) async fn invalidate(db: &mut PgConnection, batch: &BatchWrite) -> Result<(), Error> {
    let Some(change) = unit_changes(batch).next() else { return batch.rows.invalidate(db).await };

    // The statement of the read has locked it, in the transaction of the write.
    sqlx::query!(
        "select from item_units where sku = $1 and unit = $2 for update",
        change.change.key.as_str(),
        change.unit.unit,
    )
    .execute(db)
    .await?;
    Ok(())
}

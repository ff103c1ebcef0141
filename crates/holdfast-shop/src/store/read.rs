//! Reads the data from which changes are computed: rows with their versions, existing key records,
//! customers' purchases of limited items, and the clock.
//!
//! Without a transaction the rows may be read at different times; the guard of the write compares
//! each of them. The purchases are read in the statement that reads the item's version, so they are
//! exact if that version still holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::command::ReadSet;
use crate::command::state::{
    BalanceSnapshot, NextLedgerEntry, OrderSnapshot, ShopState, StockSnapshot,
};
use crate::model::{ItemNames, OrderStatus};
use crate::{OrderId, Sku, UserId};

#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    pub reads: ReadSet,
    /// The customers whose purchases of limited items are counted with the read.
    pub buyers: Vec<UserId>,
    pub keys: Vec<Uuid>,
    pub lock_orders: bool,
    pub lock_items: bool,
    pub lock_account: bool,
}

#[derive(Debug, Clone)]
pub struct ReadSnapshot {
    pub state: ShopState,
    pub known_keys: Vec<usize>,
}

/// Reads the data. Waits for rows that other transactions have locked only if it locks them itself.
pub async fn read(db: &mut PgConnection, request: &ReadRequest) -> sqlx::Result<ReadSnapshot> {
    let reads = &request.reads;
    let state = ShopState::at(OffsetDateTime::UNIX_EPOCH);
    let mut snapshot = ReadSnapshot { state, known_keys: Vec::new() };

    // Orders, items, the account: a read that locks rows takes them as a write does.
    if !reads.orders.is_empty() {
        snapshot.state.orders = orders(db, request).await?;
    }
    if !reads.items.is_empty() {
        items(db, request, &mut snapshot).await?;
    }
    if reads.descriptions {
        // After the version: if they have changed since, the guard of the write says so.
        snapshot.state.descriptions = descriptions(db, &reads.items).await?;
    }
    if let Some(user) = reads.account {
        // The statement of the items has looked for the keys already.
        let keys = if reads.items.is_empty() { request.keys.as_slice() } else { &[] };
        account(db, user, keys, request, &mut snapshot).await?;
    }
    Ok(snapshot)
}

impl ReadSnapshot {
    /// Sets the clock, the positions of keys that have a record, and the ledger's next number.
    fn set_header(&mut self, now: OffsetDateTime, known: &[i64], seq: Option<i64>) {
        self.state.now = now;
        self.known_keys.extend(known.iter().filter_map(|place| usize::try_from(place - 1).ok()));
        if let Some(seq) = seq {
            // The batch adds the fence of its lock and the id of its request.
            let next = NextLedgerEntry { seq, fence: None, request_id: Uuid::nil() };
            self.state.next_entry = Some(next);
        }
    }

    /// Removes the keys of commands that are not executed, and adjusts the positions of the others.
    pub fn retain_keys(&mut self, retained: &[bool]) {
        self.known_keys.retain(|at| retained[*at]);
        for at in &mut self.known_keys {
            *at = retained[..*at].iter().filter(|retained| **retained).count();
        }
    }
}

async fn orders(
    db: &mut PgConnection,
    request: &ReadRequest,
) -> sqlx::Result<HashMap<OrderId, OrderSnapshot>> {
    let mut ids: Vec<OrderId> = request.reads.orders.clone();
    if request.reads.skip_locked_orders {
        // A command that has locked an order is about to settle it, and the others must not wait.
        let free = sqlx::query_scalar!(
            r#"select id as "id: OrderId" from orders where id = any($1)
                order by id for no key update skip locked"#,
            &ids as &[OrderId],
        );
        ids = free.fetch_all(&mut *db).await?;
    } else if request.lock_orders {
        let lock = sqlx::query!(
            "select from orders where id = any($1) order by id for no key update",
            &ids as &[OrderId],
        );
        lock.execute(&mut *db).await?;
    }

    // A statement of its own: its snapshot is from after the wait for locks.
    let rows = sqlx::query!(
        r#"select id as "id: OrderId", status as "status: OrderStatus", expires_at, paid_at,
                  status = 'cancelled' and exists (
                      select from stock_ledger e
                       where e.order_id = o.id and e.reason = 'expiry') as "expired!"
             from orders o where id = any($1)"#,
        &ids as &[OrderId],
    )
    .fetch_all(db)
    .await?;

    let mut found = HashMap::new();
    for row in rows {
        let order = OrderSnapshot {
            status: row.status,
            expires_at: row.expires_at,
            paid_at: row.paid_at,
            expired: row.expired,
        };
        found.insert(row.id, order);
    }
    Ok(found)
}

/// Of the buyers' purchases at most 2,001 lines are counted, which have more units than the largest
/// limit and the largest quantity together.
async fn items(
    db: &mut PgConnection,
    request: &ReadRequest,
    snapshot: &mut ReadSnapshot,
) -> sqlx::Result<()> {
    if request.lock_items {
        let lock = sqlx::query!(
            "select from items where sku = any($1) order by sku for no key update",
            &request.reads.items as &[Sku],
        );
        lock.execute(&mut *db).await?;
    }

    // Rows, keys, purchases and clock in one statement: a second one is a round trip under the
    // lock.
    let rows = sqlx::query_file!(
        "src/store/read_items.sql",
        &request.reads.items as &[Sku],
        &request.keys,
        &request.buyers as &[UserId],
        request.reads.next_entry,
    )
    .fetch_all(db)
    .await?;

    // One row at least, of the header alone if none of the items exists.
    let header = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    snapshot.set_header(header.now, &header.known, header.seq);

    for row in rows {
        let (Some(sku), Some(price_cents), Some(stock)) = (row.sku, row.price_cents, row.stock)
        else {
            continue;
        };
        let (Some(version), Some(fence), Some(name)) = (row.version, row.fence, row.name) else {
            continue;
        };

        for (user, purchased) in request.buyers.iter().zip(row.purchased.unwrap_or_default()) {
            snapshot.state.purchased.insert((sku.clone(), *user), purchased);
        }

        let item = StockSnapshot {
            names: Arc::new(ItemNames { name, name_zh: row.name_zh }),
            price_cents,
            stock,
            limit_per_user: row.limit_per_user,
            hidden: row.hidden.unwrap_or_default(),
            version,
            fence,
            is_updated: false,
        };
        snapshot.state.items.insert(sku, item);
    }
    Ok(())
}

/// Reads descriptions, which orders do not need: in a statement of its own, so that theirs stays
/// short.
async fn descriptions(db: &mut PgConnection, skus: &[Sku]) -> sqlx::Result<BTreeMap<Sku, String>> {
    let rows = sqlx::query!(
        r#"select sku as "sku: Sku", description from items where sku = any($1)"#,
        skus as &[Sku],
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.sku, row.description)).collect())
}

async fn account(
    db: &mut PgConnection,
    user: UserId,
    keys: &[Uuid],
    request: &ReadRequest,
    snapshot: &mut ReadSnapshot,
) -> sqlx::Result<()> {
    if request.lock_account {
        let lock =
            sqlx::query!("select from accounts where user_id = $1 for no key update", user.0,);
        lock.execute(&mut *db).await?;
    }

    let row = sqlx::query!(
        r#"select clock_timestamp() as "now!",
                  array(
                      select k.place
                        from unnest($2::uuid[]) with ordinality as k (id, place),
                             lateral (select from idempotency where id = k.id limit 1) as r
                  ) as "known!: Vec<i64>",
                  case when $3 then nextval('balance_ledger_seq_seq') end as seq,
                  a.balance_cents as "balance_cents?", a.version as "version?", a.fence as "fence?"
             from (select) as m left join accounts a on a.user_id = $1"#,
        user.0,
        keys,
        request.reads.next_entry,
    )
    .fetch_one(db)
    .await?;
    snapshot.set_header(row.now, &row.known, row.seq);

    if let (Some(balance_cents), Some(version), Some(fence)) =
        (row.balance_cents, row.version, row.fence)
    {
        let account = BalanceSnapshot { balance_cents, version, fence, is_updated: false };
        snapshot.state.accounts.insert(user, account);
    }
    Ok(())
}

/// Counts each buyer's units of each limited item. As a statement of its own, it sees everything
/// that was committed on rows that are locked by now.
pub async fn count_purchases(
    db: &mut PgConnection,
    limited: &[(Sku, UserId)],
) -> sqlx::Result<HashMap<(Sku, UserId), i64>> {
    let (skus, users): (Vec<&str>, Vec<UserId>) =
        limited.iter().map(|(sku, user)| (sku.as_str(), *user)).unzip();

    // Bounded: a customer who had 100,000 units before the item got its limit costs no more
    // than this.
    let counts = sqlx::query_scalar!(
        r#"select (select coalesce(sum(quantity), 0)::bigint from (
                       select quantity from order_lines
                        where sku = asked.sku and counts_for = asked.user_id limit 2001) counted
                  ) as "purchased!"
             from unnest($1::text[], $2::uuid[]) with ordinality as asked (sku, user_id, place)
            order by place"#,
        &skus as &[&str],
        &users as &[UserId],
    )
    .fetch_all(db)
    .await?;

    Ok(limited.iter().cloned().zip(counts).collect())
}

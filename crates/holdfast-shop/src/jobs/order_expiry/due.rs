//! The queue of unpaid orders: Postgres, of which one worker at a time reads the due ones. The
//! lease on the queue saves work and is no lock: the order's status lets one worker expire it.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Error, OrderId, Shop, Sku};

/// Length of the lease, which each read renews: how long a killed worker delays the next one.
const LEASE_S: f64 = 1.0;
/// Orders per read, written into the statement, so that Postgres plans for no more. Some batches of
/// one item, so that a hot item does not wait for reads.
pub(super) const MAX_DUE: usize = 4_000;

#[derive(Debug, Clone)]
pub(super) struct DueOrder {
    pub(super) id: OrderId,
    pub(super) expires_at: OffsetDateTime,
    /// The same time by this process's clock.
    pub(super) due_at: Instant,
    /// Its items and quantities, sorted by item.
    pub(super) units: Vec<(Sku, i64)>,
}

/// Returns due orders behind `after`, the longest due first, at most [`MAX_DUE`]; without those
/// that are parked or wait for their next attempt. No orders if another worker has the lease;
/// otherwise `holder` has it from now on.
pub(super) async fn read(
    shop: &Shop,
    holder: Uuid,
    after: Option<(OffsetDateTime, OrderId)>,
) -> Result<Vec<DueOrder>, Error> {
    let first = (OffsetDateTime::UNIX_EPOCH, OrderId(Uuid::nil()));
    let (expires_at, id) = after.unwrap_or(first);

    // One statement and no transaction, so that nothing is locked when a worker stops. Outside a
    // transaction `now()` is the start of the statement, and the index can be searched for it.
    // The first read of a database inserts the row of the lease, and the next one takes it.
    let lines = sqlx::query!(
        r#"with missing as (
               insert into expiry_lease (holder, lease_until)
               select $1, clock_timestamp() where not exists (select from expiry_lease)
                   on conflict do nothing),
           lease as (
               update expiry_lease
                  set holder = $1, lease_until = clock_timestamp() + make_interval(secs => $2)
                where holder = $1 or lease_until <= clock_timestamp()
               returning holder),
           due as (
               select o.id, o.expires_at
                 from orders o left join unpaid_failures f on f.order_id = o.id
                where exists (select from lease)
                  and o.status = 'pending' and o.expires_at <= now()
                  and (o.expires_at, o.id) > ($3, $4)
                  and (f.order_id is null or f.next_at <= now())
                order by o.expires_at, o.id limit 4000)
           select d.id as "id: OrderId", d.expires_at, l.sku as "sku: Sku", l.quantity,
                  extract(epoch from clock_timestamp() - d.expires_at)::float8 as "late_s!"
             from due d join order_lines l on l.order_id = d.id
            order by d.expires_at, d.id, l.sku"#,
        holder,
        LEASE_S,
        expires_at,
        id.0,
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;

    let now = Instant::now();
    let mut due: Vec<DueOrder> = Vec::new();
    for line in lines {
        let unit = (line.sku, line.quantity);
        match due.last_mut().filter(|order| order.id == line.id) {
            Some(order) => order.units.push(unit),
            None => due.push(DueOrder {
                id: line.id,
                expires_at: line.expires_at,
                // Negative if Postgres's clock was set back.
                due_at: now
                    .checked_sub(Duration::from_secs_f64(line.late_s.max(0.0)))
                    .unwrap_or(now),
                units: vec![unit],
            }),
        }
    }
    Ok(due)
}

/// Ends the lease of `holder`, if it has it: another worker takes over at its next read.
pub(super) async fn release(shop: &Shop, holder: Uuid) -> Result<(), Error> {
    sqlx::query!("update expiry_lease set lease_until = '-infinity' where holder = $1", holder)
        .execute(&mut *shop.connection().await?)
        .await?;
    Ok(())
}

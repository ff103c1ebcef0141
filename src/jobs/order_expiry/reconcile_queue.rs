//! The sweep: queues unpaid orders again that the delay queue has lost or never received, so that
//! they expire on time and not only when a worker finds them overdue.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use super::queue::DelayQueue;
use super::{OrderExpiry, failures};
use crate::jobs::Job;
use crate::shop::{OrderId, Shop};

/// Orders due within this time are queued; a sweep runs every minute, so a later run queues the
/// rest.
const HORIZON: Duration = Duration::from_mins(5);
/// Orders per query and per call.
const PAGE_SIZE: i64 = 500;
/// Upper bound of the pages of one run: more than fit into the queue.
const MAX_PAGES: usize = 400;
/// Upper bound of the failure records deleted in one run.
const MAX_DELETED_FAILURES: i64 = 1_000;

pub(in crate::jobs) const JOB: Job = Job {
    name: "sweep",
    about: "Puts unpaid orders whose time is nearly over in the queue once more, should Redis have \
            forgotten them.",
    cron: Some("* * * * *"),
    // Two hundred thousand orders, at some milliseconds for five hundred.
    timeout: Duration::from_secs(55),
    min_lock_time: Duration::from_secs(5),
    run_once: |context| {
        Box::pin(async move {
            let result = run_once(&context.shop, &OrderExpiry::new(&context.shop)).await?;
            Ok(serde_json::to_value(result)?)
        })
    },
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReconciliation {
    /// Number of unpaid orders due within five minutes.
    pub due_soon: usize,
    /// Number of those for which the queue had no room.
    pub no_room: usize,
    /// Number of deleted failure records, whose orders are no longer pending.
    pub forgotten: u64,
}

/// Sweeps once, from the order that is due next. Repeating it after an error is harmless.
pub async fn run_once(shop: &Shop, expiry: &OrderExpiry) -> anyhow::Result<QueueReconciliation> {
    let mut result = QueueReconciliation {
        forgotten: failures::delete_obsolete(shop, MAX_DELETED_FAILURES).await?,
        ..QueueReconciliation::default()
    };
    (result.due_soon, result.no_room) =
        enqueue_due_within(shop, expiry.queue(), HORIZON, MAX_PAGES).await?;
    Ok(result)
}

/// Queues the orders due within a time, earliest first, at most `max_pages` [`PAGE_SIZE`]s of them.
/// Returns their number, and the number of those for which there was no room.
pub(super) async fn enqueue_due_within(
    shop: &Shop,
    queue: &DelayQueue,
    within: Duration,
    max_pages: usize,
) -> anyhow::Result<(usize, usize)> {
    let (mut enqueued, mut no_room) = (0, 0);
    let mut after = (OffsetDateTime::UNIX_EPOCH, OrderId(Uuid::nil()));
    for _ in 0..max_pages {
        let page = due_soon(shop, within, after).await?;
        let Some(last) = page.last() else { break };
        after = (last.expires_at, last.order);
        let entries: Vec<(Uuid, Duration)> =
            page.iter().map(|order| (order.order.0, order.due_in)).collect();
        let rejected = queue.add(&entries).await?;
        enqueued += page.len();
        no_room += rejected.len();
        // The rest is due later still; a later sweep finds room for it.
        if rejected.len() == entries.len() || entries.len() < PAGE_SIZE as usize {
            break;
        }
    }
    Ok((enqueued, no_room))
}

struct DueSoon {
    order: OrderId,
    expires_at: OffsetDateTime,
    due_in: Duration,
}

/// Returns a page of the unpaid orders that are due soon, by due time.
async fn due_soon(
    shop: &Shop,
    within: Duration,
    (after_at, after_id): (OffsetDateTime, OrderId),
) -> Result<Vec<DueSoon>, crate::shop::Error> {
    let rows = sqlx::query!(
        r#"select id, expires_at,
                  extract(epoch from expires_at - clock_timestamp())::float8 as "due_in_s!"
             from orders
            where status = 'pending' and expires_at > now()
              and expires_at <= now() + make_interval(secs => $4)
              and (expires_at, id) > ($1, $2)
            order by expires_at, id limit $3"#,
        after_at,
        after_id.0,
        PAGE_SIZE,
        within.as_secs_f64(),
    )
    .fetch_all(&mut *shop.connection().await?)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| DueSoon {
            order: OrderId(row.id),
            expires_at: row.expires_at,
            due_in: Duration::from_secs_f64(row.due_in_s.max(0.0)),
        })
        .collect())
}

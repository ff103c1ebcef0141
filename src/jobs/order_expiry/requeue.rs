//! The job `requeue-orders`: adds unpaid orders to the delay queue that it has lost or never
//! received, so that they expire on time and not only when a worker finds them overdue.

use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use super::failures;
use super::queue::DelayQueue;
use crate::jobs::job::Job;
use crate::shop::Shop;

/// Orders due within this time are queued; the job runs every minute, so a later run queues the
/// rest.
const REQUEUE_WINDOW: Duration = Duration::from_mins(5);
/// Orders per query and per call.
const PAGE_SIZE: i64 = 500;
/// Upper bound of the pages of one run: more than fit into the queue.
const MAX_PAGES: usize = 400;
/// Upper bound of the failure records deleted in one run.
const MAX_DELETED_FAILURES: i64 = 1_000;

pub(in crate::jobs) const JOB: Job = Job {
    name: "requeue-orders",
    about: "Adds unpaid orders that are due soon to the delay queue again, in case Redis has lost them.",
    cron: Some("* * * * *"),
    // Two hundred thousand orders, at some milliseconds for five hundred.
    timeout: Duration::from_secs(55),
    min_lock_time: Duration::from_secs(5),
    work: |context| {
        Box::pin(async move {
            let result = work(&context.shop, &DelayQueue::of_shop(&context.shop)).await?;
            Ok(serde_json::to_value(result)?)
        })
    },
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RequeueResult {
    /// Number of unpaid orders due within five minutes.
    pub due_soon: usize,
    /// Number of those for which the queue had no room.
    pub no_room: usize,
    /// Number of deleted failure records, whose orders are no longer pending.
    pub forgotten: u64,
}

/// Queues the orders that are due next. Repeating it after an error is harmless.
pub async fn work(shop: &Shop, queue: &DelayQueue) -> anyhow::Result<RequeueResult> {
    let forgotten = failures::delete_obsolete(shop, MAX_DELETED_FAILURES).await?;
    let (due_soon, no_room) = enqueue_due_within(shop, queue, REQUEUE_WINDOW, MAX_PAGES).await?;
    Ok(RequeueResult { due_soon, no_room, forgotten })
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
    let mut after = (OffsetDateTime::UNIX_EPOCH, Uuid::nil());
    for _ in 0..max_pages {
        let page = sqlx::query!(
            r#"select id, expires_at,
                      extract(epoch from expires_at - clock_timestamp())::float8 as "due_in_s!"
                 from orders
                where status = 'pending' and expires_at > now()
                  and expires_at <= now() + make_interval(secs => $4)
                  and (expires_at, id) > ($1, $2)
                order by expires_at, id limit $3"#,
            after.0,
            after.1,
            PAGE_SIZE,
            within.as_secs_f64(),
        )
        .fetch_all(&mut *shop.connection().await?)
        .await?;
        let Some(last) = page.last() else { break };
        after = (last.expires_at, last.id);
        let due_in = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let entries: Vec<(Uuid, Duration)> =
            page.iter().map(|order| (order.id, due_in(order.due_in_s))).collect();
        let rejected = queue.add(&entries).await?;
        enqueued += entries.len();
        no_room += rejected.len();
        // Without room the rest, which is due later, is left to a later run.
        if rejected.len() == entries.len() || entries.len() < PAGE_SIZE as usize {
            break;
        }
    }
    Ok((enqueued, no_room))
}

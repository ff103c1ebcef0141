//! Lesson `fence`: the paused holder of lesson `watchdog`, now with fences and a row that stores
//! the highest fence. Then Redis loses its counter. Last, a check of the fence alone loses an
//! update.

use anyhow::Context as _;
use sqlx::PgConnection;

use crate::lab::headers::{PAUSE, TTL_MS, under};
use crate::lab::lesson::{Lesson, LessonResult};
use crate::lab::scenario::Scenario;
use crate::shop::Sku;

pub(super) const LESSON: Lesson = Lesson {
    number: 14,
    name: "fence",
    claim: "The paused holder comes back and Postgres refuses its write; Redis is flushed so that \
            numbers start again, and it still refuses. And a number that only must not be smaller \
            would not have been enough.",
    question: "Every grant of the lock has a number, and the row refuses a write with a smaller one \
               than it has seen. A has 1 and B has 2; both have read 10. A writes, then B writes. \
               How many of the two writes does that check refuse?",
    guesses: &["A's", "B's", "both", "neither: a sale is lost"],
    right: 3,
    load: None,
    shows: &["fenced", "place.rs"],
    takeaway: [
        "The store itself must refuse: whoever was paused can't know it, and whoever asks the lock \
         asks too early.",
        "A fence says that somebody came later; that nobody came in between is said only by \
         equality with something that every write changes, the row's version.",
        "The fence's floor lies in the row, so Redis may forget everything and the numbers still \
         grow.",
    ],
    play: |lab| Box::pin(play(lab)),
};

async fn play(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let paused = paused_holder(lab).await?;
    let flushed = flushed_redis(lab).await?;
    let alone = fence_only_writes(lab).await?;
    let lost = alone.sold - (10 - alone.stock_left);
    lab.fact("lost with “fence <= mine” alone", lost);
    lab.fact("lost with the version too", alone.lost_with_version);
    Ok(LessonResult::new(
        paused && flushed && lost == 1 && alone.lost_with_version == 0,
        format!(
            "the late write was refused, and after a flush of Redis too: 0 forks · with the number \
             alone: {} sold, {} left the shelf",
            alone.sold,
            10 - alone.stock_left,
        ),
    ))
}

/// A is stopped after its read, B sells a unit, A resumes. Returns whether A's write was rejected.
async fn paused_holder(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.item(10).await?;
    lab.say("A has the lock for 300 ms and has read 10; then its whole process is stopped.").await;
    let headers = under("fenced").with(TTL_MS, 300).with(PAUSE, "read");
    let mut first = lab.order_until_held("A, paused", 0, &sku, &headers).await?;
    lab.pause_replica(&mut first).await;
    lab.wait_until_free(&sku).await?;
    let second = lab.place_order("B", 1, &sku, &under("fenced")).await?.require_placed()?;
    lab.say("B had the lock after A, with a higher number, and has sold one.").await;
    lab.resume_replica(&mut first).await;
    let first = lab.finish(first).await?;
    let audit = lab.audit(&sku).await?;
    let rejected = first.problem() == Some("lock-lost");
    let what = first.problem().unwrap_or("nothing");
    lab.say(format!("A comes back and writes: {what}. Nothing of it was kept.")).await;
    lab.fact("the late write was answered with", what);
    let sound = audit.ok && audit.forks.is_empty() && audit.sold == 1 && audit.stock == 9;
    Ok(rejected && second == 10 && sound)
}

/// Redis loses the lock and its counter while A holds the lock. Returns whether the fences still
/// increased and no update was lost.
async fn flushed_redis(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.item(10).await?;
    for number in 1..=3 {
        let one = lab.order(&format!("before, {number}"), number, &sku, &under("fenced"));
        lab.response(one).await?.require_placed()?;
    }
    let before = stored_fence(lab, &sku).await?;
    lab.say(format!("The row has seen number {before}. A takes the lock and reads 7.")).await;
    let headers = under("fenced").with(PAUSE, "read");
    let first = lab.order_until_held("A, forgotten", 0, &sku, &headers).await?;
    let of_a = lab.holder(&sku).await?.as_deref().and_then(parse_fence);
    let of_a = of_a.context("A's lock has no number")?;
    redis::cmd("FLUSHALL").exec_async(&mut lab.redis().await?).await?;
    lab.say("Redis forgets everything: the lock, and how far it had counted.").await;
    let second =
        lab.place_order("B, numbers from 1", 1, &sku, &under("fenced")).await?.require_placed()?;
    let number = stored_fence(lab, &sku).await?;
    lab.say(format!("B got 1, too small for the row, then {number}, and sold one of {second}."))
        .await;
    let first = lab.resume_until_done(first).await?;
    let audit = lab.audit(&sku).await?;
    let sold = 4 + i64::from(first.is_success());
    let result = match first.stock_before() {
        Some(stock) => format!("it read again, {stock}, and wrote {}", stock - 1),
        None => first.problem().unwrap_or("no answer").to_owned(),
    };
    lab.say(format!("A's {of_a} is not too small: the version refuses its write; {result}.")).await;
    lab.fact("A's own number", of_a);
    lab.fact("the row's number before and after the flush", format!("{before}, {number}"));
    let grew = before > 1 && number > before && of_a >= number && second == 7;
    let once = first.stock_before().is_none_or(|stock| stock == 6);
    let sound = audit.ok && audit.forks.is_empty();
    Ok(grew && once && sound && audit.sold == sold && audit.stock == 10 - sold)
}

/// Parses the fence in a lock's value: `OWNER NUMBER@SINCE`.
fn parse_fence(value: &str) -> Option<i64> {
    value.split_once(' ')?.1.split('@').next()?.parse().ok()
}

/// Returns the highest fence that the row has stored.
async fn stored_fence(lab: &Scenario, sku: &Sku) -> anyhow::Result<i64> {
    let mut connection = lab.connection().await?;
    let number = sqlx::query_scalar("select fence from items where sku = $1");
    Ok(number.bind(sku.as_str()).fetch_one(&mut *connection).await?)
}

/// Result of two writes whose fences are in order and whose reads overlap.
struct FenceOnlyWrites {
    sold: i64,
    stock_left: i64,
    lost_with_version: i64,
}

/// Executes read 1, read 2, write 1, write 2 on a temporary table of this connection.
async fn fence_only_writes(lab: &Scenario) -> anyhow::Result<FenceOnlyWrites> {
    lab.say("Last, by hand, with numbers 1 < 2: read 1, read 2, write 1, write 2.").await;
    let mut tx = lab.cluster.pool.begin().await.map_err(|(_, error)| error)?;
    let by_number = "update shelf set stock = 9, fence = $1, version = version + 1
                      where fence <= $1 and $2 > 0";
    let (sold, stock_left) = both_write(&mut tx, by_number).await?;
    let by_version = "update shelf set stock = 9, fence = $1, version = version + 1
                       where fence <= $1 and version = $2";
    let (sold_once, shelf_once) = both_write(&mut tx, by_version).await?;
    tx.rollback().await?;
    lab.say(format!("“fence <= mine”: {sold} writes pass, {stock_left} are left of 10.")).await;
    Ok(FenceOnlyWrites { sold, stock_left, lost_with_version: sold_once - (10 - shelf_once) })
}

/// Executes two writes whose reads both returned 10 at version 1. Returns how many of them succeed,
/// and the remaining stock.
async fn both_write(tx: &mut PgConnection, write: &'static str) -> anyhow::Result<(i64, i64)> {
    sqlx::raw_sql(
        "drop table if exists shelf;
         create temp table shelf as select 10::bigint as stock, 0::bigint as fence, 1::bigint as version",
    )
    .execute(&mut *tx)
    .await?;
    let mut passed = 0;
    for fence in [1_i64, 2] {
        let written = sqlx::query(write).bind(fence).bind(1_i64).execute(&mut *tx).await?;
        passed += i64::try_from(written.rows_affected())?;
    }
    let left = sqlx::query_scalar("select stock from shelf").fetch_one(&mut *tx).await?;
    Ok((passed, left))
}

//! Lesson `fence`: the paused holder of lesson `watchdog`, now with fences. Then Redis loses its
//! counter. Last, a check of the fence alone loses an update.

use anyhow::Context as _;
use sqlx::PgConnection;

use super::{LessonResult, Scenario};
use holdfast_base::messages::{Text, message};
use holdfast_shop::Sku;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let paused = paused_holder(lab).await?;
    let flushed = flushed_redis(lab).await?;
    let ((sold, left), (sold_with_version, left_with_version)) = overlapping_writes(lab).await?;

    let lost = sold - left;
    let lost_with_version = sold_with_version - left_with_version;
    lab.evidence(message!("run-fence-fact-1"), lost, lost == 1);
    lab.evidence(message!("run-fence-fact-2"), lost_with_version, lost_with_version == 0);
    let verdict = message!("run-fence-verdict", sold, left);
    Ok(LessonResult::new(paused && flushed && lost == 1 && lost_with_version == 0, verdict))
}

/// A is stopped after its read, B sells a unit, A resumes. Returns whether A's write was rejected.
async fn paused_holder(lab: &Scenario) -> anyhow::Result<bool> {
    lab.scene("stopped");
    let sku = lab.item(10).await?;
    lab.say(message!("run-fence-step-1"));
    let first = lab.order(message!("run-label-a-paused"), 0, &sku, "fenced").lease_ms(300);
    let mut first = first.pause_at("read").await?;
    lab.pause_replica(&mut first).await;
    lab.watch_lease(&mut first, &sku, None).await?;

    let second = lab.order("B", 1, &sku, "fenced").placed().await?;
    lab.say(message!("run-fence-step-2"));
    lab.resume_replica(&mut first).await;

    let response = lab.finish(first).await?;
    let audit = lab.audit(&sku).await?;
    let rejected = response.problem() == Some("lock-lost");
    let what = response.rejection();
    lab.say(message!("run-fence-step-3", what));
    lab.evidence(message!("run-fence-fact-3"), what, rejected);

    let sound = audit.ok && audit.forks.is_empty() && audit.sold == 1 && audit.stock == 9;
    Ok(rejected && second == 10 && sound)
}

/// Redis loses its counter while A holds the lock. Returns whether the fences still increased and
/// no update was lost.
async fn flushed_redis(lab: &Scenario) -> anyhow::Result<bool> {
    lab.scene("flush");
    let sku = lab.item(10).await?;
    for replica in 1..=3 {
        let before = lab.order("an order", replica, &sku, "fenced").send();
        before.unrecorded_response().await?.require_placed()?;
    }

    let before = stored_fence(lab, &sku).await?;
    lab.say(message!("run-fence-step-4", before));

    let first = lab.order(message!("run-label-a-before-the-flush"), 0, &sku, "fenced");
    let first = first.pause_at("read").await?;
    let of_a = lab.holder(&sku).await?.as_deref().and_then(parse_fence);
    let of_a = of_a.context("A's lock has no fence")?;

    lab.flush().await?;
    lab.say(message!("run-fence-step-5"));
    let second = lab.order(message!("run-label-b-after-the-flush"), 1, &sku, "fenced");
    let second = second.placed().await?;

    let number = stored_fence(lab, &sku).await?;
    lab.say(message!("run-fence-step-6", number, second));

    let response = lab.resume_until_done(first).await?;
    let audit = lab.audit(&sku).await?;
    let sold = 4 + i64::from(response.is_success());
    let result = match response.stock_before() {
        Some(stock) => message!("run-fence-wrote", stock, written = stock - 1).into(),
        None => Text::from(response.rejection()),
    };
    lab.say(message!("run-fence-step-7", of_a, result));

    let numbers = format!("{before}, {number}");
    lab.evidence(message!("run-fence-fact-5"), numbers, number > before);
    let grew = before > 1 && number > before && of_a >= number && second == 7;
    let once = response.stock_before().is_none_or(|stock| stock == 6);
    let sound = audit.ok && audit.forks.is_empty();
    Ok(grew && once && sound && audit.sold == sold && audit.stock == 10 - sold)
}

/// Parses the fence in a lock's value: `OWNER NUMBER@SINCE`.
fn parse_fence(value: &str) -> Option<i64> {
    value.split_once(' ')?.1.split('@').next()?.parse().ok()
}

async fn stored_fence(lab: &Scenario, sku: &Sku) -> anyhow::Result<i64> {
    let fence = sqlx::query_scalar("select fence from items where sku = $1");
    Ok(fence.bind(sku.as_str()).fetch_one(&mut *lab.connection().await?).await?)
}

/// Executes read 1, read 2, write 1, write 2 on a temporary table: with a check of the fence alone,
/// and of the version too. Returns, of each, how many units were sold and how many left the shelf.
async fn overlapping_writes(lab: &Scenario) -> anyhow::Result<((i64, i64), (i64, i64))> {
    lab.say(message!("run-fence-step-8"));
    let mut tx = lab.cluster.pool.begin().await.map_err(|(_, error)| error)?;

    lab.scene("fence-alone");
    let by_fence = write_twice(lab, &mut tx, false).await?;
    lab.scene("fence-and-version");
    let by_version = write_twice(lab, &mut tx, true).await?;
    tx.rollback().await?;
    let (sold, left) = by_fence;
    lab.say(message!("run-fence-step-9", sold, left = 10 - left));
    Ok((by_fence, by_version))
}

/// A and B read, then A and B write, with the fences 1 and 2.
async fn write_twice(
    lab: &Scenario,
    tx: &mut PgConnection,
    checks_version: bool,
) -> anyhow::Result<(i64, i64)> {
    sqlx::raw_sql(
        "drop table if exists shelf;
         create temp table shelf as select 10::bigint as stock, 0::bigint as fence, 1::bigint as version",
    )
    .execute(&mut *tx)
    .await?;

    let mut clients = [(1_i64, lab.actor("A")), (2, lab.actor("B"))];
    let mut reads = Vec::new();
    for (fence, lane) in &mut clients {
        let read = sqlx::query_as("select stock, version from shelf");
        let (stock, version): (i64, i64) = read.fetch_one(&mut *tx).await?;
        lane.happens_with("read", Some(stock), Some(*fence));
        reads.push((stock, version));
    }

    let mut sold = 0;
    for ((fence, mut lane), (stock, version)) in clients.into_iter().zip(reads) {
        let write = sqlx::query(
            "update shelf set stock = $1, fence = $2, version = version + 1
              where fence <= $2 and (version = $3 or not $4)",
        );
        let write = write.bind(stock - 1).bind(fence).bind(version).bind(checks_version);
        let is_written = write.execute(&mut *tx).await?.rows_affected() == 1;

        let event = if is_written { "write" } else { "refused" };
        lane.happens_with(event, Some(stock - 1), Some(fence));
        lab.record_lane(lane);
        sold += i64::from(is_written);
    }

    let left = sqlx::query_scalar("select 10 - stock from shelf").fetch_one(&mut *tx).await?;
    Ok((sold, left))
}

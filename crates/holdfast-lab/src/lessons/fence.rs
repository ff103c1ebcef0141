//! Lesson `fence`: a row that stores the highest fence rejects a late write, and yet a check of the
//! fence alone loses an update. Then the paused holder of lesson `watchdog`, with the shop's own
//! fences. Last, Redis loses its counter.

use anyhow::Context as _;
use redis::aio::MultiplexedConnection;
use sqlx::PgConnection;

use super::{Lane, LessonResult, Scenario, wait_until};
use holdfast_base::messages::{Message, Text, message};
use holdfast_shop::Sku;
use holdfast_story::EventKind;

/// A's lease in the scene of the late write.
const LEASE_MS: i64 = 300;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    lab.require_two_replicas()?;
    let late = late_write(lab).await?;
    let (lost, lost_with_version) = overlapping_writes(lab).await?;
    let paused = paused_holder(lab).await?;
    let flushed = flushed_redis(lab).await?;

    let rejected = usize::from(late.is_some()) + usize::from(paused);
    lab.evidence(message!("run-fence-fact-4"), rejected, rejected == 2);
    lab.evidence(message!("run-fence-fact-1"), lost, lost == 1);
    lab.evidence(message!("run-fence-fact-2"), lost_with_version, lost_with_version == 0);

    let (fence, seen) = late.unwrap_or_default();
    let verdict = message!("run-fence-verdict", fence, seen);
    let is_gap = lost == 1 && lost_with_version == 0;
    Ok(LessonResult::of_scenes(rejected == 2 && is_gap && flushed, verdict))
}

/// A client of the lesson's own, with a lock whose fences count one by one, as the question has
/// them.
struct Client {
    lane: Lane,
    fence: i64,
    stock: i64,
}

/// A does nothing until its lease is over, B sells a unit, A writes. Returns the fences of both if
/// the row rejected that.
async fn late_write(lab: &Scenario) -> anyhow::Result<Option<(i64, i64)>> {
    lab.scene("late-write");
    lab.say(message!("run-fence-step-10"));
    let lock = lab.unique_key("fence");
    let mut redis = lab.redis().await?;
    let mut tx = lab.cluster.pool.begin().await.map_err(|(_, error)| error)?;
    create_shelf(&mut tx).await?;

    let mut a = acquire_and_read(lab, "A", &lock, &mut redis, &mut tx).await?;
    a.lane.happens(EventKind::Paused);
    wait_until("A's lease is over", async || {
        let is_held: bool = redis::cmd("EXISTS").arg(&lock).query_async(&mut redis).await?;
        Ok(!is_held)
    })
    .await?;
    a.lane.happens_with(EventKind::Expired, Some(LEASE_MS), None);

    let mut b = acquire_and_read(lab, "B", &lock, &mut redis, &mut tx).await?;
    let is_sold = write(&mut tx, &mut b, None).await?;
    redis::cmd("DEL").arg(&lock).exec_async(&mut redis).await?;
    b.lane.happens(EventKind::Release);
    lab.say(message!("run-fence-step-11"));

    a.lane.happens(EventKind::Resumed);
    let is_stored = write(&mut tx, &mut a, None).await?;
    tx.rollback().await?;
    lab.say(message!("run-fence-step-12"));

    let fences = (a.fence, b.fence);
    lab.record_lane(a.lane);
    lab.record_lane(b.lane);
    Ok((fences == (1, 2) && is_sold && !is_stored).then_some(fences))
}

/// Acquires the lock `lock`, with the next number as its fence, and reads the shelf.
async fn acquire_and_read(
    lab: &Scenario,
    name: &'static str,
    lock: &str,
    redis: &mut MultiplexedConnection,
    tx: &mut PgConnection,
) -> anyhow::Result<Client> {
    let mut lane = lab.actor(name);
    lane.happens(EventKind::Wait);
    let mut set = redis::cmd("SET");
    set.arg(lock).arg(name).arg("NX").arg("PX").arg(LEASE_MS);
    set.exec_async(redis).await?;
    let fence = redis::cmd("INCR").arg(format!("{lock}:fence")).query_async(redis).await?;
    lane.happens_with(EventKind::Held, None, Some(fence));

    let (stock, _) = read(tx).await?;
    lane.happens_with(EventKind::Read, Some(stock), Some(fence));
    Ok(Client { lane, fence, stock })
}

/// A is stopped after its read, B sells a unit, A resumes. Returns whether A's write was rejected.
async fn paused_holder(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("stopped", 10).await?;
    lab.say(message!("run-fence-step-1"));
    let first = lab.order(message!("run-label-a-paused"), 0, &sku, "fenced").lease_ms(300);
    let mut first = first.pause_at("read").await?;
    lab.pause_replica(&mut first).await;
    lab.watch_lease(&mut first, &sku, None).await?;

    let second = lab.order("B", 1, &sku, "fenced").placed().await?;
    let fence = stored_fence(lab, &sku).await?;
    lab.say(message!("run-fence-step-2", fence));
    lab.resume_replica(&mut first).await;

    let response = lab.finish(first).await?;
    let audit = lab.audit(&sku).await?;
    let rejected = response.problem() == Some("lock-lost");
    let what = response.rejection();
    lab.evidence(message!("run-fence-fact-3"), what, rejected);

    let sound = audit.ok && audit.forks.is_empty() && audit.sold == 1 && audit.stock == 9;
    let is_shown = rejected && second == 10 && sound;
    lab.conclude(is_shown, message!("run-fence-scene-stopped", what));
    Ok(is_shown)
}

/// Redis loses its counter while A holds the lock. Returns whether the fences still increased and
/// no update was lost.
async fn flushed_redis(lab: &Scenario) -> anyhow::Result<bool> {
    let sku = lab.scene_of_item("flush", 10).await?;
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
    lab.say(message!("run-fence-step-6", before, number, second));

    let response = lab.resume_until_done(first).await?;
    let audit = lab.audit(&sku).await?;
    let sold = 4 + i64::from(response.is_success());
    let result = match response.stock_before() {
        Some(stock) => message!("run-fence-wrote", stock, written = stock - 1).into(),
        None => Text::from(response.rejection()),
    };
    lab.say(message!("run-fence-step-7", of_a, number, result));

    let numbers = format!("{before}, {number}");
    lab.evidence(message!("run-fence-fact-5"), numbers, number > before);
    let grew = before > 1 && number > before && of_a >= number && second == 7;
    let once = response.stock_before().is_none_or(|stock| stock == 6);
    let sound = audit.ok && audit.forks.is_empty();
    let is_shown = grew && once && sound && audit.sold == sold && audit.stock == 10 - sold;
    lab.conclude(is_shown, message!("run-fence-scene-flush", before, number));
    Ok(is_shown)
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
/// and of the version too. Returns, of each, how many sales were lost.
async fn overlapping_writes(lab: &Scenario) -> anyhow::Result<(i64, i64)> {
    lab.say(message!("run-fence-step-8"));
    let mut tx = lab.cluster.pool.begin().await.map_err(|(_, error)| error)?;

    lab.scene("fence-alone");
    let names = [message!("run-label-a-fence-alone"), message!("run-label-b-fence-alone")];
    let (sold, left) = write_twice(lab, &mut tx, names, false).await?;
    let lost = sold - left;
    lab.conclude(lost == 1, message!("run-fence-scene-fence-alone", sold, left));

    lab.scene("fence-and-version");
    let names = [message!("run-label-a-with-version"), message!("run-label-b-with-version")];
    let (sold, left) = write_twice(lab, &mut tx, names, true).await?;
    tx.rollback().await?;
    let is_exact = (sold, left) == (1, 1);
    lab.conclude(is_exact, message!("run-fence-scene-fence-and-version", sold, left));
    Ok((lost, sold - left))
}

/// A and B read, then A and B write, with the fences 1 and 2.
async fn write_twice(
    lab: &Scenario,
    tx: &mut PgConnection,
    names: [Message; 2],
    checks_version: bool,
) -> anyhow::Result<(i64, i64)> {
    create_shelf(tx).await?;
    let mut clients = Vec::new();
    for (name, fence) in names.into_iter().zip(1..) {
        let (mut lane, (stock, version)) = (lab.actor(name), read(tx).await?);
        lane.happens_with(EventKind::Read, Some(stock), Some(fence));
        clients.push((Client { lane, fence, stock }, version));
    }

    let mut sold = 0;
    for (mut client, version) in clients {
        let version = checks_version.then_some(version);
        sold += i64::from(write(tx, &mut client, version).await?);
        lab.record_lane(client.lane);
    }
    Ok((sold, 10 - read(tx).await?.0))
}

pub(super) async fn create_shelf(tx: &mut PgConnection) -> anyhow::Result<()> {
    let shelf = "drop table if exists shelf;
        create temp table shelf as
        select 10::bigint as stock, 0::bigint as fence, 1::bigint as version";
    sqlx::raw_sql(shelf).execute(tx).await?;
    Ok(())
}

/// Returns stock and version.
pub(super) async fn read(tx: &mut PgConnection) -> anyhow::Result<(i64, i64)> {
    Ok(sqlx::query_as("select stock, version from shelf").fetch_one(tx).await?)
}

/// Sells the unit that a client has read, unless the row has seen a higher fence, or another
/// version than a given one. Returns whether it was stored.
async fn write(
    tx: &mut PgConnection,
    client: &mut Client,
    version: Option<i64>,
) -> anyhow::Result<bool> {
    let Client { lane, fence, stock } = client;
    let write = sqlx::query(
        "update shelf set stock = $1, fence = $2, version = version + 1
          where fence <= $2 and version = coalesce($3, version)",
    );
    let write = write.bind(*stock - 1).bind(*fence).bind(version);
    let is_stored = write.execute(&mut *tx).await?.rows_affected() == 1;

    let seen: i64 = sqlx::query_scalar("select fence from shelf").fetch_one(tx).await?;
    // One event for one rejection: that the fence is too low says why.
    if !is_stored && seen > *fence {
        lane.happens_with(EventKind::Stale, Some(seen), Some(*fence));
    } else {
        let kind = if is_stored { EventKind::Write } else { EventKind::Refused };
        lane.happens_with(kind, Some(*stock - 1), Some(*fence));
    }
    Ok(is_stored)
}

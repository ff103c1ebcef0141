//! Lesson `two-items`: two callers acquire the same two locks in opposite order: with locks in
//! Redis, with row locks in Postgres, and through the shop, which sorts the keys.

use anyhow::Context as _;
use futures_util::future::join_all;
use holdfast_lock::{LockKey, LockKind, Wait};
use sqlx::PgConnection;
use tokio::time::Instant;

use super::{Lane, LessonResult, Scenario, acquire, lock_client, order_of};
use holdfast_base::messages::{Text, message};
use holdfast_shop::Sku;
use holdfast_story::EventKind;

const PAIRS: usize = 12;
/// Of Postgres, which lock the two rows in opposite order.
const TRANSACTIONS: usize = 2;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let waited_ms = in_redis(lab).await?;
    let one = lab.item(100).await?;
    let other = lab.item(100).await?;
    let ended = in_postgres(lab, &one, &other).await?;
    let placed = through_the_shop(lab, &one, &other).await?;

    let expected = 2 * PAIRS;
    let mut sound = true;
    for sku in [&one, &other] {
        let audit = lab.audit(sku).await?;
        sound &= audit.ok && audit.sold == i64::try_from(expected)?;
    }
    // First what the picture shows, and the question asks.
    let of_both = message!("run-two-items-of", ended, transactions = TRANSACTIONS);
    lab.evidence(message!("run-two-items-fact-2"), of_both, ended == 1);
    let waited = waited_ms.map_or(message!("run-no").into(), |ms| Text::from(format!("{ms} ms")));
    lab.evidence(message!("run-two-items-fact-1"), waited, waited_ms.is_some());
    let verdict = message!(
        "run-two-items-verdict",
        waited_ms = waited_ms.unwrap_or_default(),
        ended,
        transactions = TRANSACTIONS,
        placed,
        expected
    );
    Ok(LessonResult::new(waited_ms.is_some() && ended == 1 && placed == expected && sound, verdict))
}

/// Returns how many milliseconds both callers waited; `None` unless both timed out.
async fn in_redis(lab: &Scenario) -> anyhow::Result<Option<u128>> {
    let prefix = lab.unique_key("two-items:");
    let a = lock_client(&lab.cluster.redis_url, &prefix, "A")?;
    let b = lock_client(&lab.cluster.redis_url, &prefix, "B")?;
    let tea = LockKey::new("{sku:tea}")?;
    let coffee = LockKey::new("{sku:coffee}")?;

    let a_has = acquire(&a, LockKind::Owner, Wait::Try, &tea, None).await?;
    let b_has = acquire(&b, LockKind::Owner, Wait::Try, &coffee, None).await?;
    let (a_has, b_has) = a_has.zip(b_has).context("a lock is busy")?;
    lab.say(message!("run-two-items-step-1"));

    let began = Instant::now();
    let (a_wants, b_wants) = tokio::join!(
        acquire(&a, LockKind::Owner, Wait::Retry, &coffee, None),
        acquire(&b, LockKind::Owner, Wait::Retry, &tea, None),
    );

    let waited = began.elapsed().as_millis();
    let both = a_wants?.is_none() && b_wants?.is_none();
    lab.say(message!("run-two-items-step-2", waited));

    a_has.release().await;
    b_has.release().await;
    Ok(both.then_some(waited))
}

/// Returns how many of the two transactions Postgres aborted as a deadlock.
async fn in_postgres(lab: &Scenario, one: &Sku, other: &Sku) -> anyhow::Result<usize> {
    lab.scene("postgres");
    let pool = &lab.cluster.pool;
    let [mut a_lane, mut b_lane] = ["A", "B"].map(|name| lab.actor(name));
    let mut a = pool.begin().await.map_err(|(_, error)| error)?;
    let mut b = pool.begin().await.map_err(|(_, error)| error)?;
    lock_row(&mut a, one, &mut a_lane).await?;
    lock_row(&mut b, other, &mut b_lane).await?;
    lab.say(message!("run-two-items-step-3"));

    let (a_wants, b_wants) =
        tokio::join!(lock_row(&mut a, other, &mut a_lane), lock_row(&mut b, one, &mut b_lane),);
    lab.record_lane(a_lane);
    lab.record_lane(b_lane);

    let ended = usize::from(is_deadlock(&a_wants)) + usize::from(is_deadlock(&b_wants));
    let went_on = usize::from(a_wants.is_ok()) + usize::from(b_wants.is_ok());
    lab.say(message!("run-two-items-step-4", ended, went_on));

    drop(a.rollback().await);
    drop(b.rollback().await);
    anyhow::ensure!(ended + went_on == TRANSACTIONS, "neither a deadlock nor a success");
    Ok(ended)
}

fn is_deadlock(outcome: &Result<(), sqlx::Error>) -> bool {
    let error = outcome.as_ref().err().and_then(sqlx::Error::as_database_error);
    error.is_some_and(|error| error.code().as_deref() == Some("40P01"))
}

async fn lock_row(tx: &mut PgConnection, sku: &Sku, lane: &mut Lane) -> Result<(), sqlx::Error> {
    let key = sku.lock_key();
    lane.happens_to(&key, EventKind::Wait);
    let row = sqlx::query("select from items where sku = $1 for no key update");
    let locked = row.bind(sku.as_str()).execute(tx).await.map(drop);
    let kind = if locked.is_ok() { EventKind::Held } else { EventKind::Busy };
    lane.happens_to(&key, kind);
    locked
}

/// Returns how many orders were placed; they list the two items in opposite orders.
async fn through_the_shop(lab: &Scenario, one: &Sku, other: &Sku) -> anyhow::Result<usize> {
    lab.say(message!("run-two-items-step-5"));
    let there = order_of(&[(one, 1), (other, 1)]);
    let back = order_of(&[(other, 1), (one, 1)]);

    let mut placed = 0;
    for strategy in ["row-lock", "fenced"] {
        lab.scene(strategy);
        // The first order is paused with both items locked; the others wait for it.
        let first = lab.post("A", 0, "/api/orders", &there, strategy).pause_at("read").await?;
        let second = lab.post("B", 1, "/api/orders", &back, strategy).send();

        let rest = (2..PAIRS).map(|at| {
            let body = if at % 2 == 0 { &there } else { &back };
            lab.post(message!("run-label-one-of-many"), at, "/api/orders", body, strategy)
                .send()
                .unrecorded_response()
        });
        let rest = join_all(rest.collect::<Vec<_>>());
        let (first, second, rest) = tokio::join!(lab.finish(first), lab.response(second), rest);

        placed += usize::from(first?.is_success()) + usize::from(second?.is_success());
        for one in rest {
            placed += usize::from(one.context("one of many")?.is_success());
        }
    }
    Ok(placed)
}

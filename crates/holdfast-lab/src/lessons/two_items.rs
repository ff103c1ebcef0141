//! Lesson `two-items`: two callers acquire the same two locks in opposite order: with locks in
//! Redis, with row locks in Postgres, and through the shop, which sorts the keys.

use anyhow::Context as _;
use futures_util::future::join_all;
use holdfast_lock::{Guards, LockKey, LockKind, Locks, Wait};
use sqlx::PgConnection;
use tokio::time::Instant;

use super::{Lane, LessonResult, Scenario, acquire, lock_client, order_of, whole_ms};
use holdfast_base::messages::{Text, message};
use holdfast_shop::Sku;
use holdfast_story::{EventKind, Value};

/// The keys of the two items, by the names that the question gives them.
const TEA: &str = "{sku:tea}";
const COFFEE: &str = "{sku:coffee}";
const PAIRS: usize = 12;
/// Of Postgres, which lock the two rows in opposite order.
const TRANSACTIONS: usize = 2;

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let waited = in_redis(lab).await?;
    let tea = lab.item(100).await?;
    let coffee = lab.item(100).await?;
    let ended = in_postgres(lab, &tea, &coffee).await?;
    let placed = through_the_shop(lab, &tea, &coffee).await?;
    name_key(lab, &tea, TEA);
    name_key(lab, &coffee, COFFEE);

    let expected = 2 * PAIRS;
    let mut sound = true;
    for sku in [&tea, &coffee] {
        let audit = lab.audit(sku).await?;
        sound &= audit.ok && audit.sold == i64::try_from(expected)?;
    }
    // First what the picture shows, and the question asks.
    let of_both = message!("run-two-items-of", ended, transactions = TRANSACTIONS);
    lab.evidence(message!("run-two-items-fact-2"), of_both, ended == 1);
    let time = waited.map_or(message!("run-no").into(), Text::from);
    lab.evidence(message!("run-two-items-fact-1"), time, waited.is_some());
    let verdict = message!("run-two-items-verdict", ended, transactions = TRANSACTIONS);
    let shown = waited.is_some() && ended == 1 && placed == expected && sound;
    Ok(LessonResult::of_scenes(shown, verdict))
}

/// Names the lock key of an item in all lanes as the question does.
fn name_key(lab: &Scenario, item: &Sku, name: &str) {
    let key = item.lock_key().to_string();
    let mut outcome = lab.outcome.lock();
    let events = outcome.lanes.iter_mut().flat_map(|lane| &mut lane.events);
    for event in events.filter(|event| event.key == key) {
        name.clone_into(&mut event.key);
    }
}

/// Returns how long both callers waited; `None` unless both timed out.
async fn in_redis(lab: &Scenario) -> anyhow::Result<Option<Value>> {
    lab.scene("redis");
    let prefix = lab.unique_key("two-items:");
    let a = lock_client(&lab.cluster.redis_url, &prefix, "A")?;
    let b = lock_client(&lab.cluster.redis_url, &prefix, "B")?;
    let [mut a_lane, mut b_lane] = ["A", "B"].map(|name| lab.actor(name));
    let tea = LockKey::new(TEA)?;
    let coffee = LockKey::new(COFFEE)?;

    let a_has = lock_key(&a, &tea, Wait::Try, &mut a_lane).await?;
    let b_has = lock_key(&b, &coffee, Wait::Try, &mut b_lane).await?;
    let (a_has, b_has) = a_has.zip(b_has).context("a lock is busy")?;
    lab.say(message!("run-two-items-step-1"));

    let began = Instant::now();
    let (a_wants, b_wants) = tokio::join!(
        lock_key(&a, &coffee, Wait::Retry, &mut a_lane),
        lock_key(&b, &tea, Wait::Retry, &mut b_lane),
    );

    let waited = whole_ms(began.elapsed());
    let both = a_wants?.is_none() && b_wants?.is_none();
    lab.conclude(both, message!("run-two-items-scene-redis", waited));

    a_has.release().await;
    b_has.release().await;
    lab.record_lane(a_lane);
    lab.record_lane(b_lane);
    Ok(both.then_some(waited))
}

async fn lock_key(
    locks: &Locks,
    key: &LockKey,
    wait: Wait,
    lane: &mut Lane,
) -> anyhow::Result<Option<Guards>> {
    lane.happens_to(key, EventKind::Wait);
    let guards = acquire(locks, LockKind::Owner, wait, key, None).await?;
    lane.happens_to(key, if guards.is_some() { EventKind::Held } else { EventKind::Busy });
    Ok(guards)
}

/// Returns how many of the two transactions Postgres aborted as a deadlock.
async fn in_postgres(lab: &Scenario, tea: &Sku, coffee: &Sku) -> anyhow::Result<usize> {
    lab.scene("postgres");
    let pool = &lab.cluster.pool;
    let [mut a_lane, mut b_lane] = ["A", "B"].map(|name| lab.actor(name));
    let mut a = pool.begin().await.map_err(|(_, error)| error)?;
    let mut b = pool.begin().await.map_err(|(_, error)| error)?;
    lock_row(&mut a, tea, &mut a_lane).await?;
    lock_row(&mut b, coffee, &mut b_lane).await?;
    lab.say(message!("run-two-items-step-3"));

    let (a_wants, b_wants) =
        tokio::join!(lock_row(&mut a, coffee, &mut a_lane), lock_row(&mut b, tea, &mut b_lane),);
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
    let kind = if is_deadlock(&locked) { EventKind::Deadlock } else { EventKind::Held };
    lane.happens_to(&key, kind);
    locked
}

/// Returns how many orders were placed; they list the two items in opposite orders.
async fn through_the_shop(lab: &Scenario, tea: &Sku, coffee: &Sku) -> anyhow::Result<usize> {
    lab.say(message!("run-two-items-step-5"));
    let there = order_of(&[(tea, 1), (coffee, 1)]);
    let back = order_of(&[(coffee, 1), (tea, 1)]);

    let mut all = 0;
    for strategy in ["row-lock", "fenced"] {
        let mut placed = 0;
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
        let sentence = message!("run-two-items-scene-sorted", strategy, placed, orders = PAIRS);
        lab.conclude(placed == PAIRS, sentence);
        all += placed;
    }
    Ok(all)
}

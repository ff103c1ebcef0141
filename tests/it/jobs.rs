//! Scheduled jobs, by schedulers in this process that share only Postgres, as replicas do: one run
//! per tick, despite failures, timeouts, outages and clock jumps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use holdfast_shop::jobs::runs::{self, JobRun, RunState};
use holdfast_shop::jobs::{Job, JobContext, RunOutcome, Scheduler, Timetable};
use holdfast_shop::probe::Probe;
use holdfast_shop::{Error, Shop};
use holdfast_testkit::proxy::{self, Traffic};
use holdfast_testkit::{TestShop, until};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A tick far from the time of any test run.
pub const DUE: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
/// Its timetable: only a test on New Year's Eve could have two ticks.
const YEARLY: Timetable = Timetable { every_s: 365 * 86_400, offset_s: 14 * 86_400 };

pub const fn job(
    name: &'static str,
    work: fn(JobContext) -> BoxFuture<'static, anyhow::Result<Value>>,
) -> Job {
    Job { name, timetable: Some(YEARLY), timeout: Duration::from_secs(20), work }
}

/// Inserts a row per run, without a constraint that would prevent a second one.
static COUNTS: Job = job("counts", |context| Box::pin(effect(context)));

async fn effect(context: JobContext) -> anyhow::Result<Value> {
    sqlx::query("insert into effects (due_at, replica) values ($1, $2)")
        .bind(context.due_at)
        .bind(&context.replica)
        .execute(&mut *context.shop.connection().await?)
        .await?;
    Ok(json!({ "attempt": context.attempt }))
}

/// A shop without replicas, with a table for effects.
async fn shop_with_effects() -> TestShop {
    let shop = TestShop::without_replicas().await;
    let table = "create table effects (due_at timestamptz, replica text)";
    sqlx::query(table).execute(&shop.pool).await.unwrap();
    shop
}

/// A scheduler as of a replica, with its own pool.
pub fn replica(shop: &TestShop, name: &str, job: &'static Job) -> Scheduler {
    replica_over(shop, name, job, &shop.database_url())
}

pub fn replica_over(
    shop: &TestShop,
    name: &str,
    job: &'static Job,
    database_url: &str,
) -> Scheduler {
    let pool = holdfast_shop::db::pool(database_url, 4).unwrap();
    let domain = Shop { pool, ..shop.in_process("batched") };
    Scheduler::new(&domain, name, &CancellationToken::new(), true, &[job])
}

pub async fn offer(to: &Scheduler, job: &'static Job, due_at: OffsetDateTime) -> RunOutcome {
    to.offer(job, due_at, Probe::Off).await.unwrap()
}

async fn run_of(shop: &TestShop, job: &Job, due_at: OffsetDateTime) -> Option<JobRun> {
    runs::find(&shop.pool.clone().into(), job.name, due_at).await.unwrap()
}

async fn until_is(shop: &TestShop, job: &Job, state: RunState, attempt: i32) -> JobRun {
    until(&format!("{} is {state:?}, attempt {attempt}", job.name), async || {
        let run = run_of(shop, job, DUE).await;
        run.is_some_and(|run| run.state == state && run.attempt == attempt)
    })
    .await;
    run_of(shop, job, DUE).await.unwrap()
}

/// Lets the schedulers poll until the condition holds.
async fn poll_until(replicas: &[&Scheduler], what: &str, mut condition: impl AsyncFnMut() -> bool) {
    until(what, async || {
        for replica in replicas {
            replica.poll().await;
        }
        condition().await
    })
    .await;
}

async fn sql(shop: &TestShop, sql: &'static str) {
    sqlx::query(sql).execute(&shop.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_replicas_run_a_tick_once() {
    const ROUNDS: i32 = 40;
    let shop = shop_with_effects().await;
    let replicas: Vec<Scheduler> =
        (0..4).map(|n| replica(&shop, &format!("r{n}"), &COUNTS)).collect();
    for round in 0..ROUNDS {
        let due_at = DUE + Duration::from_mins(round.unsigned_abs().into());
        let outcomes =
            join_all(replicas.iter().map(|replica| offer(replica, &COUNTS, due_at))).await;
        let of = |labels: &[&str]| {
            outcomes.iter().filter(|outcome| labels.contains(&outcome.into_str())).count()
        };
        let counts = (of(&["done"]), of(&["busy", "already"]));
        assert_eq!(counts, (1, 3), "round {round}: {outcomes:?}");
        // A replica with a late clock.
        for replica in &replicas {
            let late = offer(replica, &COUNTS, due_at).await;
            assert!(matches!(late, RunOutcome::Already), "round {round}: {late:?}");
        }
    }
    let rounds = i64::from(ROUNDS);
    assert_eq!(shop.number("select count(*) from effects").await, rounds);
    assert_eq!(shop.number("select count(distinct due_at) from effects").await, rounds);
    let done = "select count(*) from job_runs where state = 'done' and attempt = 1";
    assert_eq!(shop.number(done).await, rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_ticks_cause_one_run() {
    let shop = shop_with_effects().await;
    sql(
        &shop,
        "insert into job_runs (job, due_at, state, replica, started_at, ended_at, result)
         values ('counts', '2019-01-01', 'done', 'long ago', '2019-01-01', '2019-01-01', '{}')",
    )
    .await;
    let (a, b) = (replica(&shop, "a", &COUNTS), replica(&shop, "b", &COUNTS));
    poll_until(&[&a, &b], "the missed tick is run", async || {
        run_of(&shop, &COUNTS, DUE).await.is_some_and(|run| run.state == RunState::Done)
    })
    .await;
    for _ in 0..5 {
        a.poll().await;
        b.poll().await;
    }
    assert_eq!(shop.number("select count(*) from job_runs").await, 2, "not the ticks in between");
    assert_eq!(shop.number("select count(*) from effects").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn backward_clock_repeats_no_run() {
    let shop = shop_with_effects().await;
    let a = replica(&shop, "a", &COUNTS);
    poll_until(&[&a], "it is run", async || shop.number("select count(*) from effects").await == 1)
        .await;
    until_is(&shop, &COUNTS, RunState::Done, 1).await;
    // The last run is of 2031, as after a clock of Postgres that was wrong for a moment.
    sql(
        &shop,
        "insert into job_runs (job, due_at, state, replica, started_at, ended_at, result)
         values ('counts', '2031-01-01', 'done', 'a', '2031-01-01', '2031-01-01', '{}')",
    )
    .await;
    let b = replica(&shop, "b", &COUNTS);
    for _ in 0..5 {
        a.poll().await;
        b.poll().await;
    }
    assert!(matches!(offer(&b, &COUNTS, DUE).await, RunOutcome::Already));
    assert_eq!(shop.number("select count(*) from effects").await, 1);
    // A tick without a run is run, although one of 2031 was.
    let later = offer(&b, &COUNTS, DUE + Duration::from_hours(1)).await;
    assert!(matches!(later, RunOutcome::Done(_)));
}

static IS_BROKEN: AtomicBool = AtomicBool::new(true);
static FAILS: Job = job("fails", |context| {
    Box::pin(async move {
        anyhow::ensure!(!IS_BROKEN.load(Ordering::SeqCst), "it is broken");
        effect(context).await
    })
});

#[tokio::test(flavor = "multi_thread")]
async fn failing_job_is_retried_with_growing_pauses() {
    let shop = shop_with_effects().await;
    let a = replica(&shop, "a", &FAILS);
    let mut pauses = Vec::new();
    for attempt in 1..=5 {
        poll_until(&[&a], "it is tried", async || {
            let run = run_of(&shop, &FAILS, DUE).await;
            run.is_some_and(|run| run.state == RunState::Failed && run.attempt == attempt)
        })
        .await;
        let run = run_of(&shop, &FAILS, DUE).await.unwrap();
        assert_eq!(run.error.as_deref(), Some("it is broken"));
        pauses.push(run.next_at.unwrap() - run.ended_at.unwrap());
        // Before its time, no poll starts an attempt.
        for _ in 0..3 {
            a.poll().await;
        }
        assert_eq!(run_of(&shop, &FAILS, DUE).await.unwrap().attempt, attempt);
        // A clock that was set back does not prolong the pause.
        let over = match attempt {
            1 => "update job_runs set next_at = clock_timestamp() + interval '5 hours'",
            _ => "update job_runs set next_at = clock_timestamp()",
        };
        sql(&shop, over).await;
    }
    let grow = pauses.windows(2).all(|two| two[0] < two[1]);
    assert!(grow && pauses[0] >= Duration::from_millis(1_500), "{pauses:?}");

    IS_BROKEN.store(false, Ordering::SeqCst);
    poll_until(&[&a], "it is done", async || {
        run_of(&shop, &FAILS, DUE).await.is_some_and(|run| run.state == RunState::Done)
    })
    .await;
    assert_eq!(run_of(&shop, &FAILS, DUE).await.unwrap().attempt, 6);
    assert_eq!(shop.number("select count(*) from job_runs").await, 1, "all attempts are one run");
    assert_eq!(shop.number("select count(*) from effects").await, 1);
}

static PANICS: Job = job("panics", |_| Box::pin(async { panic!("on purpose") }));

#[tokio::test(flavor = "multi_thread")]
async fn panicking_job_does_not_stop_scheduler() {
    let shop = shop_with_effects().await;
    let a = replica(&shop, "a", &PANICS);
    let outcome = offer(&a, &PANICS, DUE).await;
    assert!(
        matches!(&outcome, RunOutcome::Failed(why) if why.contains("on purpose")),
        "{outcome:?}"
    );
    assert_eq!(run_of(&shop, &PANICS, DUE).await.unwrap().state, RunState::Failed);
    sql(&shop, "update job_runs set next_at = clock_timestamp()").await;
    a.poll().await;
    until_is(&shop, &PANICS, RunState::Failed, 2).await;
}

static HANGS: Job = Job {
    timeout: Duration::from_millis(150),
    ..job("hangs", |context| {
        Box::pin(async move {
            let mut tx = context.shop.pool.begin().await.map_err(Error::from)?;
            sqlx::query("insert into effects values (now(), 'half')").execute(&mut *tx).await?;
            std::future::pending().await
        })
    })
};

#[tokio::test(flavor = "multi_thread")]
async fn hanging_job_is_cancelled_and_rolled_back() {
    let shop = shop_with_effects().await;
    let a = replica(&shop, "a", &HANGS);
    let outcome = offer(&a, &HANGS, DUE).await;
    let cause = "it took longer than 150ms, and was cancelled";
    assert!(matches!(&outcome, RunOutcome::Failed(why) if why == cause), "{outcome:?}");
    assert_eq!(shop.number("select count(*) from effects").await, 0);
    let idle = "select count(*) from pg_stat_activity
                 where datname = current_database() and state like 'idle in transaction%'";
    until("its transaction is over", async || shop.number(idle).await == 0).await;
}

static MAY_END: Semaphore = Semaphore::const_new(0);
static RETURNS: Job = job("returns", |_| {
    Box::pin(async {
        MAY_END.acquire().await?.forget();
        Ok(json!({ "words": 3 }))
    })
});

#[tokio::test(flavor = "multi_thread")]
async fn run_result_is_written_after_outage() {
    let shop = shop_with_effects().await;
    let postgres = proxy::to_postgres().await;
    let url = format!("postgres://holdfast@127.0.0.1:{}/{}", postgres.port, shop.database);
    let a = replica_over(&shop, "a", &RETURNS, &url);
    a.poll().await;
    until_is(&shop, &RETURNS, RunState::Running, 1).await;
    postgres.cut().await;
    MAY_END.add_permits(1);
    // The failing poll takes as long as the first attempt to write.
    a.poll().await;
    assert_eq!(run_of(&shop, &RETURNS, DUE).await.unwrap().state, RunState::Running);
    postgres.set(Traffic::Forwarded);
    let done = until_is(&shop, &RETURNS, RunState::Done, 1).await;
    assert_eq!(done.result, Some(json!({ "words": 3 })));
    // The scheduler still works.
    assert!(matches!(offer(&a, &RETURNS, DUE).await, RunOutcome::Already));
}

//! Lesson `database`: an advisory lock is misused, acquired in the statement that reads. Then the
//! same load runs under the five strategies that need no Redis.

use super::{ArmResult, DefaultLoad, Lane, LessonResult, Scenario, Supply, wait_until};
use holdfast_base::messages::message;
use holdfast_shop::Sku;
use holdfast_shop::db::Pool;
use holdfast_story::EventKind;

pub(super) const LOAD: DefaultLoad =
    DefaultLoad { stock: 80, buyers: 10, orders: 100, work_ms: 1, lease: false };

pub(super) async fn run(lab: &Scenario) -> anyhow::Result<LessonResult> {
    let (past, actual) = same_statement(lab).await?;
    let strategies = ["row-lock", "atomic", "version", "serializable", "advisory"];

    lab.say(message!("run-database-step-1"));
    let specs = LOAD.under(lab, &strategies);
    let arms = lab.run_arms(&specs).await?;

    let sound = arms.iter().all(ArmResult::is_sound);
    let fact = message!("run-database-fact-1", actual = actual.0);
    lab.evidence(fact, past.0, past.0 == 10);
    let fact = message!("run-database-fact-2", actual = actual.1);
    lab.evidence(fact, past.1, past.1 == 8);
    let verdict = message!("run-database-verdict", one_statement = past.0, left = actual.0);
    let result = LessonResult::of_scenes(past == (10, 8), verdict);
    Ok(result.and_load(specs[0].hindrance(Supply::Any), sound))
}

/// Reads the stock while an order holds the lock before its commit: while the first of 10 units is
/// sold, in the statement that acquires the lock; while the second is sold, in a later statement.
/// Returns both values, and what the orders had left.
async fn same_statement(lab: &Scenario) -> anyhow::Result<((i64, i64), (i64, i64))> {
    let sku = lab.scene_of_item("same-statement", 10).await?;
    lab.say(message!("run-database-step-2"));
    let first = lab.order("A", 0, &sku, "advisory").pause_at("commit").await?;
    let one_statement = tokio::spawn(locked_read(session(lab), sku.clone(), false));
    wait_until_lock_waited(lab).await?;
    lab.say(message!("run-database-step-3"));
    let first = lab.finish(first).await?.require_stock_after()?;
    let (one_statement, lane) = one_statement.await??;
    lab.record_lane(lane);
    lab.say(message!("run-database-step-4", one_statement));

    lab.scene("two-statements");
    let second = lab.order("B", 0, &sku, "advisory").pause_at("commit").await?;
    let two_statements = tokio::spawn(locked_read(session(lab), sku, true));
    wait_until_lock_waited(lab).await?;
    let second = lab.finish(second).await?.require_stock_after()?;
    let (two_statements, lane) = two_statements.await??;
    lab.record_lane(lane);
    let is_right = two_statements == second;
    lab.conclude(is_right, message!("run-database-scene-two-statements", two_statements));
    Ok(((one_statement, two_statements), (first, second)))
}

/// Another session, which is not the shop's.
fn session(lab: &Scenario) -> (Pool, Lane) {
    let lane = lab.actor(message!("run-label-another-session"));
    (lab.cluster.pool.clone(), lane)
}

/// Returns the stock that it reads under the lock, with its lane.
async fn locked_read(
    (pool, mut lane): (Pool, Lane),
    sku: Sku,
    two_statements: bool,
) -> anyhow::Result<(i64, Lane)> {
    let mut tx = pool.begin().await.map_err(|(_, error)| error)?;
    let key = sku.lock_key().to_string();
    lane.happens(EventKind::Wait);

    let stock = if two_statements {
        let lock = sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))");
        lock.bind(&key).execute(&mut *tx).await?;
        lane.happens(EventKind::Held);
        let read = sqlx::query_scalar("select stock from items where sku = $1");
        read.bind(sku.as_str()).fetch_one(&mut *tx).await?
    } else {
        let both = sqlx::query_as::<_, (i64, String)>(
            "select stock, pg_advisory_xact_lock(hashtextextended($2, 0))::text
               from items where sku = $1",
        );
        let (stock, _) = both.bind(sku.as_str()).bind(&key).fetch_one(&mut *tx).await?;
        lane.happens(EventKind::Held);
        stock
    };
    lane.happens_with(EventKind::Read, Some(stock), None);
    Ok((stock, lane))
}

async fn wait_until_lock_waited(lab: &Scenario) -> anyhow::Result<()> {
    wait_until("a session waits for the lock", async || {
        let waits = sqlx::query_scalar(
            "select exists (select from pg_locks where locktype = 'advisory' and not granted)",
        );
        Ok(waits.fetch_one(&mut *lab.connection().await?).await?)
    })
    .await
}

//! The rows that `purge` deletes and keeps; the amount per run, and where the next run continues;
//! one failing kind does not block the others.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_shop::Sku;
use holdfast_shop::db::Pool;
use holdfast_shop::jobs::purge::{self, PurgeLimits, PurgeResult};
use holdfast_shop::jobs::{Job, RunOutcome};
use holdfast_shop::model::Item;
use holdfast_shop::store::{items, oldest_kept, purge_lab_item};
use holdfast_testkit::{TestShop, User, until};
use uuid::Uuid;

use crate::jobs::{DUE, job, offer, replica};

/// Rows of every kind, old and young.
const OLD_AND_YOUNG: [&str; 4] = [
    "insert into idempotency
         (id, user_id, method, path, key, fingerprint, status, body, created_at)
     select gen_random_uuid(), gen_random_uuid(), 'POST', path, 'a-key-of-16-letters-' || n, '', 201, 'x',
            now() - age
       from generate_series(1, 1200) n,
            unnest(array['/api/orders', '/api/me/top-ups', '/api/orders/1/pay']) path,
            unnest(array[interval '25 hours', interval '23 hours']) age",
    "insert into sessions (token_hash, user_id, csrf, expires_at)
     select convert_to(n::text, 'UTF8'), (select id from users where name = 'alice'), '',
            now() + case when n <= 1500 then interval '-1 minute' else interval '1 minute' end
       from generate_series(1, 1600) n",
    "insert into job_runs (job, due_at, state, replica, started_at, ended_at, result)
     select job, now() - n * interval '1 day', 'done', 'x', now() - n * interval '1 day', now(),
            '{}'::jsonb
       from generate_series(60, 1, -1) n, unnest(array['often']) job
      union all
     select 'once', now() - interval '90 days', 'done', 'x', now() - interval '90 days', now(),
            '{}'::jsonb",
    "insert into lab_marks (due_at, replica, at)
     select now(), 'x', now() - n * interval '20 hours' from generate_series(0, 2) n",
];

/// Key records of orders that were placed more than a day ago, without their responses.
const OLD_ORDERS: &str = "
    insert into idempotency (id, user_id, method, path, key, fingerprint, created_at)
    select gen_random_uuid(), gen_random_uuid(), 'POST', '/api/orders', gen_random_uuid(),
           sha256(''), now() - interval '30 hours'
      from generate_series(1, 50000)";

const RESPONSES: &str = "select count(*) from idempotency where body is not null";
const BLOCKS: &str = "select pg_relation_size('idempotency') / 8192";
const KEYS_WALKED: &str = "select next_block from purge_walk";

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_only_old_rows() {
    let shop = TestShop::without_replicas().await;
    for sql in OLD_AND_YOUNG {
        shop.execute(sql).await;
    }
    let pool = shop.pool.clone().into();
    let purged = purge::purge(&pool, &PurgeLimits::default()).await;
    let expected =
        [("keys", 2_400), ("marks", 1), ("responses", 1_200), ("runs", 31), ("sessions", 1_500)];
    assert_eq!(purged.purged, BTreeMap::from(expected));
    assert!(purged.all && purged.failed.is_empty(), "{purged:?}");
    let counts = [
        ("select count(*) from idempotency where created_at > now() - interval '1 day'", 3_600),
        (RESPONSES, 3_600),
        ("select count(*) from idempotency where body is null and status is null", 1_200),
        ("select count(*) from sessions where expires_at > now()", 100),
        ("select count(*) from sessions where expires_at <= now()", 0),
        ("select count(*) from job_runs where job = 'often'", 29),
        ("select count(*) from job_runs where job = 'once'", 1),
        ("select count(*) from lab_marks", 2),
    ];
    for (sql, count) in counts {
        assert_eq!(shop.number(sql).await, count, "{sql}");
    }
    let again = purge::purge(&pool, &PurgeLimits::default()).await;
    let nothing = PurgeResult { all: true, blocks: again.blocks, ..PurgeResult::default() };
    assert_eq!(again, nothing);
}

async fn lab_item_of_age(shop: &TestShop, days: u64) -> String {
    let sku = format!("{}{}", oldest_kept(Duration::from_hours(24 * days)), "7".repeat(20));
    let item = Item {
        sku: Sku::try_from(sku.clone()).unwrap(),
        ..Item::throw_away("An old one", 100, 10)
    };
    let domain = shop.in_process("batched");
    items::create_in_lab(&domain, item, Uuid::now_v7()).await.unwrap();
    sku
}

/// Places an order of one unit each, and takes these actions with it.
pub async fn order_and(alice: &User, skus: &[&str], actions: &[&str]) {
    let lines: Vec<_> = skus.iter().map(|sku| (*sku, 1)).collect();
    let order = alice.orders_all(&lines).ok().await;
    for action in actions {
        alice.acts(&order, action).ok().await;
    }
}

/// Items with orders of any final status, but not with a pending order, or one that has a young
/// item.
#[tokio::test(flavor = "multi_thread")]
async fn old_lab_items_are_purged_with_orders() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let mut old = Vec::new();
    for days in 31..39 {
        old.push(lab_item_of_age(&shop, days).await);
    }
    let young = lab_item_of_age(&shop, 29).await;
    let [cancelled, paid, refunded, one, other, pending, beside_young, unused] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|at| old[at].as_str());
    order_and(&alice, &[cancelled], &["cancel"]).await;
    order_and(&alice, &[paid], &["pay"]).await;
    order_and(&alice, &[refunded], &["pay", "refund"]).await;
    order_and(&alice, &[one, other], &["cancel"]).await;
    order_and(&alice, &[pending], &[]).await;
    order_and(&alice, &[beside_young, &young], &["cancel"]).await;

    let purged = purge::purge(&shop.pool.clone().into(), &PurgeLimits::default()).await;
    assert_eq!((purged.purged["lab_items"], purged.failed), (6, Vec::new()));
    let left =
        "select coalesce(string_agg(sku, ' ' order by sku), '') from items where kind = 'lab'";
    let left: String = sqlx::query_scalar(left).fetch_one(&shop.pool).await.unwrap();
    let mut expected = [pending, beside_young, young.as_str()];
    expected.sort_unstable();
    assert_eq!(left, expected.join(" "), "{unused}");
    assert_eq!(shop.number("select count(*) from orders").await, 2);
    assert_eq!(shop.number("select count(*) from idempotency where path = '/api/orders'").await, 2);
    shop.assert_sound().await;
}

/// With a time limit of zero, each run executes one statement per kind.
#[tokio::test(flavor = "multi_thread")]
async fn purge_stops_in_time_and_resumes() {
    let shop = TestShop::without_replicas().await;
    for sql in OLD_AND_YOUNG {
        shop.execute(sql).await;
    }
    let pool = shop.pool.clone().into();
    let pace = PurgeLimits {
        rows_per_statement: 600,
        blocks_per_statement: 20,
        time_per_kind: Duration::ZERO,
        ..PurgeLimits::default()
    };
    let (mut sessions, mut keys) = (Vec::new(), Vec::new());
    for run in 1.. {
        // Before the run, because the new versions of its updated rows may need new blocks.
        let blocks = shop.number(BLOCKS).await;
        let purged = purge::purge(&pool, &pace).await;
        assert!(purged.failed.is_empty() && purged.blocks <= 20, "{purged:?}");
        sessions.push(purged.purged.get("sessions").copied().unwrap_or(0));
        keys.push(purged.purged.get("keys").copied().unwrap_or(0));
        let walked = shop.number(KEYS_WALKED).await;
        assert_eq!(walked, (run * 20).min(blocks), "it continues where it stopped");
        if walked == blocks {
            break;
        }
        assert!(!purged.all, "{purged:?}");
    }
    assert!(keys.len() > 3, "{keys:?}");
    assert_eq!(keys.iter().sum::<u64>(), 2_400, "{keys:?}");
    assert_eq!(sessions[..4], [600, 600, 300, 0]);
}

/// Runs `work` on its own connection, and returns when Postgres has counted its reads.
async fn on_own_connection(shop: &TestShop, work: impl AsyncFnOnce(&Pool)) {
    let pool = holdfast_shop::db::pool(&shop.database_url(), 1).unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *pool.acquire().await.unwrap())
        .await
        .unwrap();
    work(&pool).await;
    pool.close().await;
    until("its session has ended", async || {
        let there = sqlx::query_scalar::<_, bool>(
            "select exists (select from pg_stat_activity where pid = $1)",
        );
        !there.bind(pid).fetch_one(&shop.pool).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_purge_reads_only_its_part() {
    const READ: &str = "select heap_blks_read + heap_blks_hit from pg_statio_user_tables
                         where relname = 'idempotency'";
    const PART: u64 = 64;
    let shop = TestShop::without_replicas().await;
    // Autovacuum would read, too.
    shop.execute("alter table idempotency set (autovacuum_enabled = off)").await;
    on_own_connection(&shop, async |pool| {
        for sql in [OLD_ORDERS, "analyze idempotency"] {
            sqlx::query(sql).execute(&mut *pool.acquire().await.unwrap()).await.unwrap();
        }
    })
    .await;
    let blocks = shop.number(BLOCKS).await;
    assert!(blocks > 8 * 64, "{blocks}");
    let before = shop.number(READ).await;
    // Enough statements for Postgres to choose the plan that it keeps.
    let pace =
        PurgeLimits { blocks_per_statement: 4, min_blocks_per_run: 64, ..PurgeLimits::default() };
    on_own_connection(&shop, async |pool| {
        let purged = purge::purge(pool, &pace).await;
        let nothing = PurgeResult { blocks: PART, all: true, ..PurgeResult::default() };
        assert_eq!(purged, nothing);
    })
    .await;
    let read = (shop.number(READ).await - before).unsigned_abs();
    assert!((2 * PART..=2 * PART + 16).contains(&read), "{read} of {blocks} blocks");
}

static PURGES: Job = job("purges", |context| Box::pin(purge::work(context)));

#[tokio::test(flavor = "multi_thread")]
async fn failing_kind_does_not_block_others() {
    let shop = TestShop::without_replicas().await;
    for sql in OLD_AND_YOUNG {
        shop.execute(sql).await;
    }
    shop.execute(
        "create function no() returns trigger language plpgsql as
         $$ begin raise 'not these'; end $$",
    )
    .await;
    let triggers = [
        "create trigger no before delete on lab_marks execute function no()",
        "create trigger no before delete on sessions execute function no()",
        "create trigger no before update on idempotency execute function no()",
    ];
    for sql in triggers {
        shop.execute(sql).await;
    }
    let outcome = offer(&replica(&shop, "a", &PURGES), &PURGES, DUE).await;
    let RunOutcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    for word in
        ["marks: ", "sessions: ", "responses: ", "not these", "\"keys\":2400", "\"runs\":31"]
    {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert!(!why.contains("runs: ") && !why.contains("keys: "), "{why}");
    let kept = "select error from job_runs where job = 'purges' and state = 'failed'";
    let kept: String = sqlx::query_scalar(kept).fetch_one(&shop.pool).await.unwrap();
    assert_eq!(kept, why);
    assert_eq!(shop.number(KEYS_WALKED).await, shop.number(BLOCKS).await);
    assert_eq!(
        shop.number("select count(*) from idempotency where path <> '/api/orders'").await,
        2_400
    );

    shop.execute("drop function no cascade").await;
    let purged = purge::purge(&shop.pool.clone().into(), &PurgeLimits::default()).await;
    let rest = BTreeMap::from([("marks", 1), ("responses", 1_200), ("sessions", 1_500)]);
    assert_eq!(purged.purged, rest, "what failed is found again");
    assert!(purged.all);
}

/// The purge of a lab item waits for an order in flight, and keeps its item.
#[tokio::test]
async fn lab_item_of_order_in_flight_is_kept() {
    let shop = TestShop::start(1).await;
    let (alice, admin) = (shop.sign_in("alice").await, shop.sign_in("admin").await);
    let sku = shop.lab_item(5).await;
    let sent = alice.orders(&sku, 1).lock("row-lock").pause("commit").send();
    shop.until_one_is_paused(&admin, "commit").await;
    let committed = async {
        until("the purge waits", async || shop.waiting_sessions().await == 1).await;
        let request = shop.paused_requests(&admin, 0).await.swap_remove(0).request;
        assert!(shop.resume_request(&admin, 0, &request).await);
    };
    let (pool, sku) = (shop.pool.clone().into(), Sku::try_from(sku).unwrap());
    let (purged, ()) = futures_util::join!(purge_lab_item(&pool, &sku, sku.as_str()), committed);
    assert!(!purged.unwrap());
    sent.ok().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_used_after_purge() {
    let shop = TestShop::start(1).await;
    let alice = shop.sign_in("alice").await;
    let keys: [String; 3] = std::array::from_fn(|_| Uuid::new_v4().to_string());
    let order = alice.orders("deadbolt", 1).key(&keys[0]).ok().await;
    alice.pays(&order).key(&keys[1]).ok().await;
    alice.tops_up(100).key(&keys[2]).ok().await;

    let old = "update idempotency set created_at = created_at - interval '25 hours'";
    shop.execute(old).await;
    let purged = purge::purge(&shop.pool.clone().into(), &PurgeLimits::default()).await;
    assert_eq!((purged.purged["keys"], purged.purged["responses"]), (2, 1));
    // Also if the clock was set back since: a purged response is not reproduced.
    let young = "update idempotency set created_at = now()";
    shop.execute(young).await;
    shop.until_no_locks_are_held(0).await;
    alice.orders("deadbolt", 1).key(&keys[0]).fails(409, "idempotency-key-used").await;
    // The key record of a payment is purged: its order has the status paid.
    alice.pays(&order).key(&keys[1]).fails(409, "order-state").await;
    alice.tops_up(100).key(&keys[2]).fails(409, "idempotency-key-used").await;
    assert_eq!(shop.number("select count(*) from balance_ledger where delta < 0").await, 1);
    shop.assert_sound().await;
}

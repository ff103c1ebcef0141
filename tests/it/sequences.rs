//! Sequences behind their tables, as after a switch by logical replication before Postgres 19:
//! `serve` refuses to start, the audit is not sound, and the printed statement mends them.

use std::process::Output;

use holdfast_testkit::{TestShop, run_program};
use sqlx::AssertSqlSafe;

use crate::audit::shop_with_history;

/// What logical replication leaves of a sequence.
const NEVER_CALLED: &str = "select setval($1::regclass, 1, false)";

async fn execute(shop: &TestShop, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&shop.pool).await.unwrap();
}

fn audit(shop: &TestShop) -> Output {
    run_program(&["audit", "--json"], &[("DATABASE_URL", &shop.database_url())])
}

/// Returns the statements that an error advises, by line.
fn advised_statements(error: &str) -> Vec<&str> {
    error.lines().filter_map(|line| line.split_once("Execute: ")).map(|(_, sql)| sql).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_sequence_is_refused_and_mended() {
    let mut shop = shop_with_history().await;
    shop.replicas.clear();
    for (sequence, column) in [
        ("stock_ledger_seq_seq", "stock_ledger.seq"),
        ("balance_ledger_seq_seq", "balance_ledger.seq"),
    ] {
        sqlx::query(NEVER_CALLED).bind(sequence).execute(&shop.pool).await.unwrap();

        let error = shop.try_add_replica(&[], &[]).expect_err("it starts");
        for part in [sequence, column, "its next number is 1", "Stop all replicas"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let audited = audit(&shop);
        assert_eq!(audited.status.code(), Some(1), "{audited:?}");
        assert_eq!(shop.failing_checks().await, ["sequences"]);

        let statements = advised_statements(&error);
        assert_eq!(statements.len(), 1, "{error}");
        execute(&shop, statements[0]).await;
        shop.assert_sound().await;
    }

    shop.add_replica(&[]);
    shop.sign_in("alice").await.orders("deadbolt", 1).ok().await;
    shop.assert_sound().await;
}

/// All sequences come from the catalogue: none is forgotten, also of tables that are added later.
#[tokio::test]
async fn every_numbered_table_is_compared() {
    let shop = TestShop::without_replicas().await;
    execute(
        &shop,
        "insert into admin_log (admin, action, subject, request_id)
         select id, 'edit-item', 'key-ring', gen_random_uuid() from users where name = 'admin';
         insert into job_runs (job, due_at, state, replica, next_at)
         values ('audit', now(), 'running', 'r', now());
         insert into lab_marks (due_at, replica) values (now(), 'r');
         insert into item_units (sku, unit) values ('lab-x', 1);
         create table \"Other's\" (number bigserial, text text not null, unique (text, number));
         insert into \"Other's\" (text) values ('a'), ('b'), ('a')",
    )
    .await;
    shop.assert_sound().await;

    let sequences: Vec<String> = sqlx::query_scalar(
        "select oid::regclass::text from pg_class where relkind = 'S' order by 1",
    )
    .fetch_all(&shop.pool)
    .await
    .unwrap();
    assert_eq!(sequences.len(), 7, "{sequences:?}");
    for sequence in &sequences {
        sqlx::query(NEVER_CALLED).bind(sequence).execute(&shop.pool).await.unwrap();
    }

    let checked = holdfast_shop::db::check_sequences(&shop.database_url()).await;
    let error = checked.expect_err("all are behind").to_string();
    for sequence in &sequences {
        assert!(error.contains(&format!("the sequence {sequence} is behind")), "{error}");
    }
    // The statements need no changes, whatever the names are.
    for statement in advised_statements(&error) {
        execute(&shop, statement).await;
    }
    holdfast_shop::db::check_sequences(&shop.database_url()).await.unwrap();
}

/// The next number decides, and not the last one.
#[tokio::test]
async fn next_number_decides() {
    let shop = TestShop::without_replicas().await;
    for (set, is_right) in [
        ("setval('stock_ledger_seq_seq', max(seq) + 1, false)", true),
        ("setval('stock_ledger_seq_seq', max(seq), false)", false),
        ("setval('stock_ledger_seq_seq', max(seq), true)", true),
        ("setval('stock_ledger_seq_seq', max(seq) - 1, true)", false),
        ("setval('stock_ledger_seq_seq', max(seq) + 1000, true)", true),
    ] {
        execute(&shop, &format!("select {set} from stock_ledger")).await;
        let failing = shop.failing_checks().await;
        assert_eq!(failing.is_empty(), is_right, "{set}: {failing:?}");
    }
}

/// The audit of a shop under load: a sequence is always past what its snapshot has.
#[tokio::test(flavor = "multi_thread")]
async fn running_orders_are_no_violation() {
    let shop = TestShop::start(2).await;
    let admin = shop.sign_in("admin").await;
    admin.restocks("key-ring", 1_000).ok().await;
    let buyers = async {
        let users = [shop.sign_in_at(0, "alice").await, shop.sign_in_at(1, "bob").await];
        for _ in 0..60 {
            let orders = users.iter().map(|user| user.orders("key-ring", 1).ok());
            futures_util::future::join_all(orders).await;
        }
    };
    let audits = async {
        loop {
            shop.assert_sound().await;
            let checked = holdfast_shop::db::check_sequences(&shop.database_url()).await;
            checked.unwrap();
        }
    };
    tokio::select! {
        () = buyers => {}
        () = audits => {}
    }
}

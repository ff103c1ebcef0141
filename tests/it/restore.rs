//! Dumps of the data alone, restored as `docs/OPERATING.md` says.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use holdfast_testkit::TestShop;
use sqlx::AssertSqlSafe;

use crate::audit::shop_with_history;

const OPERATING: &str = include_str!("../../docs/OPERATING.md");

/// Returns the lines of the documented block of commands that begins with this line.
fn documented(first: &str) -> String {
    let blocks = OPERATING.split("```sh\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split_once("```").map(|(lines, _)| lines));
    blocks.find(|lines| lines.starts_with(first)).expect("it is documented").to_owned()
}

/// Executes a script in a folder, where `holdfast` is the program that is tested.
fn run(script: &str, folder: &Path, variables: &[(&str, &str)]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_holdfast")).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    shell.envs(variables.iter().copied()).output().unwrap()
}

/// A shop with rows in the tables of jobs and the lab, too.
async fn shop_to_dump() -> TestShop {
    let mut shop = shop_with_history().await;
    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    holdfast_testkit::until("a worker has the queue of expiry", async || {
        shop.number("select count(*) from expiry_lease").await == 1
    })
    .await;
    let sku = shop.lab_item(5).await;
    shop.sign_in("alice").await.orders(&sku, 1).ok().await;
    shop
}

/// A database without tables.
async fn empty_database() -> TestShop {
    let shop = TestShop::without_replicas().await;
    let empty = "drop schema public cascade; create schema public";
    sqlx::raw_sql(empty).execute(&shop.pool).await.unwrap();
    shop
}

async fn assert_restored(shop: &mut TestShop, orders: i64) {
    assert_eq!(shop.number("select count(*) from orders").await, orders);
    shop.assert_sound().await;

    shop.add_replica(&[("HOLDFAST_JOBS", "on")]);
    let alice = shop.sign_in("alice").await;
    let order = alice.orders("deadbolt", 1).ok().await;
    alice.acts(&order, "pay").ok().await;
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_of_data_is_restored_as_documented() {
    let mut shop = shop_to_dump().await;
    let orders = shop.number("select count(*) from orders").await;
    shop.replicas.clear();
    let mut restored = empty_database().await;

    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (shop.database_url(), restored.database_url());
    let output = run(
        &documented("pg_dump --data-only"),
        folder.path(),
        &[("OLD", &old), ("DATABASE_URL", &new)],
    );
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("The books balance"), "{output:?}");
    assert_restored(&mut restored, orders).await;
}

/// What a migration inserts would stand in the way of the rows of a dump.
#[tokio::test]
async fn migrated_database_has_no_rows() {
    let empty = empty_database().await;
    holdfast_shop::db::migrate(&empty.database_url()).await.unwrap();

    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
          where relkind = 'r' and relnamespace = 'public'::regnamespace
            and relname <> '_sqlx_migrations'",
    )
    .fetch_all(&empty.pool)
    .await
    .unwrap();
    for table in tables {
        let count = AssertSqlSafe(format!("select count(*) from {table}"));
        let rows: i64 = sqlx::query_scalar(count).fetch_one(&empty.pool).await.unwrap();
        assert_eq!(rows, 0, "{table}");
    }
}

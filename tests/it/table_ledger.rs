//! `holdfast ledger audit`: what is a fork and what is none, breaks, drift.

use std::process::Output;

use holdfast_testkit::{TestShop, options, run_program, until};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

pub const PRODUCTS: &str = "
    create table products (id text primary key, version int not null default 0, stock int not null);
    create table sales (product text references products);
    insert into products values ('tea', 0, 10)";
pub const OF_PRODUCTS: &[&str] = &["--table", "products", "--key", "id", "--value", "stock"];

pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// What `holdfast ledger` prints.
pub fn sql(options: &[&str]) -> String {
    let printed = run_program(&[&["ledger"], options].concat(), &[]);
    assert!(printed.status.success(), "{}", text(printed.stderr));
    text(printed.stdout)
}

async fn session(shop: &TestShop) -> PgConnection {
    PgConnection::connect_with(&options().database(&shop.database)).await.unwrap()
}

/// Executes statements in a session of their own: an error leaves a transaction open.
pub async fn try_execute(shop: &TestShop, sql: &str) -> sqlx::Result<()> {
    let mut session = session(shop).await;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut session).await?;
    session.close().await
}

pub async fn execute(shop: &TestShop, sql: &str) {
    try_execute(shop, sql).await.unwrap();
}

/// A database with tables of a stranger, and the ledger of one.
pub async fn with_ledger(tables: &str, options: &[&str]) -> TestShop {
    let shop = TestShop::without_replicas().await;
    execute(&shop, tables).await;
    execute(&shop, &sql(options)).await;
    shop
}

/// The entries: key, before, after, and what is known of an overlap.
pub async fn entries(shop: &TestShop, ledger: &str) -> Vec<String> {
    let sql = format!(
        "select concat_ws(' ', key, coalesce(before::text, '-'), coalesce(after::text, '-'),
                          overlap, guard) from {ledger} order by seq"
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&shop.pool).await.unwrap()
}

pub fn audit(shop: &TestShop, options: &[&str]) -> Output {
    let arguments = [&["ledger", "audit"], options].concat();
    run_program(&arguments, &[("DATABASE_URL", &shop.database_url())])
}

/// The checks that fail, and their details.
fn failing(shop: &TestShop) -> Vec<(String, String)> {
    let audited = audit(shop, &["--json"]);
    let report: Value = serde_json::from_slice(&audited.stdout).unwrap();
    assert_eq!(audited.status.code(), Some(i32::from(report["ok"] == false)), "{report:#}");
    let checks = report["checks"].as_array().unwrap().iter();
    let failing = checks.filter(|check| check["ok"] == false);
    let word = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    failing.map(|check| (word(check, "name"), word(check, "detail"))).collect()
}

pub fn assert_sound(shop: &TestShop) {
    let failing = failing(shop);
    assert!(failing.is_empty(), "{failing:?}");
}

/// A statement, or the word for one.
pub fn statement(word: &str) -> &str {
    match word {
        "read" => "select stock from products where id = 'tea'",
        "lock" => "select stock from products where id = 'tea' for no key update",
        "= 9" => "update products set stock = 9 where id = 'tea'",
        "= 8" => "update products set stock = 8 where id = 'tea'",
        "- 1" => "update products set stock = stock - 1 where id = 'tea'",
        "advisory" => "select pg_advisory_lock(7)",
        "unlock" => "select pg_advisory_unlock(7)",
        "table" => "lock table products in exclusive mode",
        other => other,
    }
}

/// Executes `A read | B read | …` in two sessions, in this order; one that waits for a lock of the
/// other session ends later. Returns how many statements Postgres refused.
async fn interleave(shop: &TestShop, steps: &str) -> usize {
    let sessions = [session(shop).await, session(shop).await];
    let mut sessions = sessions.map(|session| tokio::spawn(async move { (session, 0_usize) }));
    for step in steps.split(" | ") {
        let (who, word) = step.split_at(2);
        let sql = AssertSqlSafe(statement(word).to_owned());
        let current = &mut sessions[usize::from(who == "B ")];
        let (mut session, refused) = (&mut *current).await.unwrap();
        *current = tokio::spawn(async move {
            let executed = sqlx::raw_sql(sql).execute(&mut session).await;
            (session, refused + usize::from(executed.is_err()))
        });
        until(step, async || current.is_finished() || shop.waiting_sessions().await > 0).await;
    }

    let mut all_refused = 0;
    for session in sessions {
        let (session, refused) = session.await.unwrap();
        session.close().await.unwrap();
        all_refused += refused;
    }
    all_refused
}

/// What happens, in which steps, and the second entry of it; the first is `tea 10 9`.
type Case = (&'static str, &'static str, &'static str);

const FORKS: [Case; 7] = [
    (
        "both read, then both write",
        "A begin | B begin | A read | B read | A = 9 | A commit | B = 9 | B commit",
        "tea 9 9 began before",
    ),
    (
        "the second write waits for the first one",
        "A begin | A = 9 | B = 9 | A commit",
        "tea 9 9 unseen",
    ),
    (
        "the second transaction begins before the commit, and writes after it",
        "A begin | A = 9 | B begin | B read | A commit | B = 9 | B commit",
        "tea 9 9 began before",
    ),
    (
        "the check of a foreign key is no lock",
        "A begin | B begin | B insert into sales values ('tea') | B read | A = 9 | A commit | B = 9 \
         | B commit",
        "tea 9 9 began before",
    ),
    (
        "a subquery does not wait",
        "A begin | A - 1 | B update products set stock = (select min(stock) from products) - 1 | \
         A commit",
        "tea 9 9 unseen",
    ),
    (
        "an advisory lock is released before the commit",
        "A begin | B begin | A advisory | A = 9 | B advisory | A unlock | B read | A commit | B = 9 | \
         B unlock | B commit",
        "tea 9 9 began before",
    ),
    (
        "the other writer does not count the version",
        "A begin | A = 9 | \
         B update products set stock = 9, version = 1 where id = 'tea' and version = 0 | A commit",
        "tea 9 9 unseen",
    ),
];

const NO_FORKS: [Case; 9] = [
    (
        "one after the other",
        "A begin | A read | A = 9 | A commit | B begin | B read | B = 8 | B commit",
        "tea 9 8",
    ),
    (
        "the row is locked from the read to the commit",
        "A begin | B begin | A lock | B lock | A = 9 | A commit | B = 8 | B commit",
        "tea 9 8 began before row lock",
    ),
    (
        "the statement computes the value",
        "A begin | A - 1 | B - 1 | A commit",
        "tea 9 8 unseen computed",
    ),
    (
        "a function computes the value",
        "A create function sell() returns void language plpgsql as $$ begin
             update products set stock = stock - 1 where id = 'tea'; end $$ | \
         A begin | A select sell() | B select sell() | A commit",
        "tea 9 8 unseen computed",
    ),
    (
        "the version is compared",
        "A begin | B begin | \
         A update products set stock = 9, version = 1 where id = 'tea' and version = 0 | \
         B update products set stock = 9, version = 1 where id = 'tea' and version = 0 | A commit | \
         B update products set stock = 8, version = 2 where id = 'tea' and version = 1 | B commit",
        "tea 9 8 began before compared",
    ),
    (
        "an advisory lock is held until the commit",
        "A begin | B begin | A advisory | B advisory | A = 9 | A commit | A unlock | B read | B = 8 | \
         B commit",
        "tea 9 8 began before advisory lock",
    ),
    (
        "the table is locked",
        "A begin | B begin | A table | B table | A = 9 | A commit | B = 8 | B commit",
        "tea 9 8 began before table lock",
    ),
    (
        "serializable: Postgres has refused the fork",
        "A begin isolation level serializable | B begin isolation level serializable | A read | \
         B read | A = 9 | B = 9 | A commit | B rollback | B begin isolation level serializable | \
         B read | B = 8 | B commit",
        "tea 9 8",
    ),
    ("one transaction writes twice", "A begin | A = 9 | A = 8 | A commit", "tea 9 8"),
];

/// Executes a case on a table that is as at first, and returns the checks that fail.
async fn failing_after(shop: &TestShop, (what, steps, second): Case) -> Vec<String> {
    let reset = "truncate products, sales, products_stock_ledger;
                 insert into products values ('tea', 0, 10)";
    execute(shop, reset).await;
    assert_eq!(interleave(shop, steps).await, usize::from(what.contains("refused")), "{what}");

    let entries = entries(shop, "products_stock_ledger").await;
    assert_eq!(entries, ["tea - 10", "tea 10 9", second], "{what}");
    failing(shop).into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn write_from_an_older_row_is_a_fork() {
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    for case in FORKS {
        let failing = failing_after(&shop, case).await;
        assert_eq!(failing, ["public.products_stock_ledger forks"], "{}", case.0);
    }
}

#[tokio::test]
async fn guarded_write_is_no_fork() {
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    for case in NO_FORKS {
        let failing = failing_after(&shop, case).await;
        assert!(failing.is_empty(), "{}: {failing:?}", case.0);
    }
}

/// As the `num_allocated` of django-oscar, which is null until the first order.
#[tokio::test]
async fn null_is_a_value_that_can_be_lost() {
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    execute(&shop, "alter table products alter stock drop not null").await;
    for (what, first, steps, expected, is_fork) in [
        (
            "the previous entry is from null",
            "null",
            "A begin | B begin | A read | B read | A = 9 | A commit | B = 9 | B commit",
            ["tea - 9", "tea 9 9 began before"].as_slice(),
            true,
        ),
        (
            "the previous entry is to null",
            "10",
            "A begin | B begin | B read | A update products set stock = null | A commit | B = 9 | \
             B commit",
            &["tea 10 -", "tea - 9 began before"],
            true,
        ),
        (
            "a write of null waits",
            "10",
            "A begin | A = 9 | B update products set stock = null | A commit",
            &["tea 10 9", "tea 9 - unseen"],
            true,
        ),
        (
            "null is compared",
            "10",
            "A begin | B begin | B read | A update products set stock = null | A commit | \
             B update products set stock = 9 where id = 'tea' and stock is null | B commit",
            &["tea 10 -", "tea - 9 began before compared"],
            false,
        ),
        (
            "null is computed with",
            "null",
            "A begin | B begin | A = 9 | A commit | \
             B update products set stock = coalesce(products.stock, 0) - 1 | B commit",
            &["tea - 9", "tea 9 8 began before computed"],
            false,
        ),
        (
            "nobody has read a row before it was inserted",
            "null",
            "A begin | B begin | A delete from products | \
             A insert into products values ('tea', 0, 9) | A commit | B = 8 | B commit",
            &["tea - -", "tea - 9", "tea 9 8"],
            false,
        ),
    ] {
        let reset = "truncate products, sales, products_stock_ledger;
                     insert into products values ('tea', 0, ";
        execute(&shop, &format!("{reset}{first})")).await;
        assert_eq!(interleave(&shop, steps).await, 0, "{what}");

        let entries = entries(&shop, "products_stock_ledger").await;
        assert_eq!(&entries[1..], expected, "{what}");
        assert_eq!(!failing(&shop).is_empty(), is_fork, "{what}");
    }

    execute(&shop, "truncate products, sales, products_stock_ledger").await;
    execute(&shop, "insert into products values ('tea', 0, null)").await;
    interleave(&shop, FORKS[0].1).await;
    let (_, detail) = &failing(&shop)[0];
    assert!(detail.contains(" (null → 9, "), "{detail}");

    let without_triggers = "set session_replication_role = replica;
        update products set stock = null;
        insert into products values ('mate', 0, null)";
    execute(&shop, without_triggers).await;
    let (_, drift) = failing(&shop).pop().unwrap();
    assert!(drift.starts_with("mate has no entry, the table has null; tea entry "), "{drift}");
    assert!(drift.ends_with(" ended at 9, the table has null"), "{drift}");
}

#[tokio::test]
async fn audit_reports_by_exit_code_table_and_json() {
    let shop = TestShop::without_replicas().await;
    let none = audit(&shop, &[]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(none.stderr).contains("has no ledger"));

    execute(&shop, PRODUCTS).await;
    execute(&shop, &sql(OF_PRODUCTS)).await;
    let sound = audit(&shop, &[]);
    let table = text(sound.stdout);
    assert_eq!(sound.status.code(), Some(0), "{table}");
    for words in [
        "ok    public.products_stock_ledger breaks    each entry begins with the value",
        "      public.products_stock_ledger: entries: 1, keys: 1,",
        "\nThe books balance: all checks hold. They do not say that no more was sold ",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }

    interleave(&shop, FORKS[0].1).await;
    let forked = audit(&shop, &["--last", "1 hour"]);
    let table = text(forked.stdout);
    assert_eq!(forked.status.code(), Some(1), "{table}");
    let detail = "FAIL  public.products_stock_ledger forks     tea entry 3 (9 → 9, ";
    assert!(table.contains(detail), "{table}");
    assert!(table.contains(") began before the end of entry 2 (10 → 9, "), "{table}");
    assert!(table.contains("\nThe books do NOT balance.\n"), "{table}");

    // Nothing is as young as that.
    assert_eq!(audit(&shop, &["--last=-1 hour"]).status.code(), Some(0));
    let wrong = audit(&shop, &["--last", "o'clock"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(wrong.stderr).contains("o'clock"));
}

#[tokio::test]
async fn change_without_an_entry_is_a_break_or_drift() {
    let without_triggers = "set session_replication_role = replica;
        update products set stock = stock + 1 where id in ('tea', 'mate');
        delete from products where id = 'cocoa';
        insert into products values ('coffee', 0, 3)";
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    execute(&shop, "insert into products values ('mate', 0, 5), ('cocoa', 0, 7)").await;
    assert_sound(&shop);

    execute(&shop, without_triggers).await;
    execute(&shop, statement("- 1")).await;
    execute(&shop, "alter table products disable trigger products_stock_ledger_rows").await;
    let failing = failing(&shop);
    let names: Vec<_> = failing.iter().filter_map(|(name, _)| name.split(' ').nth(1)).collect();
    assert_eq!(names, ["breaks", "drift", "triggers"]);
    let (breaks, drift) = (&failing[0].1, &failing[1].1);
    assert_eq!(breaks, "tea entry 4: entry 1 ended at 10, this one begins at 11");
    assert_eq!(
        drift,
        "cocoa entry 3 ended at 7, the table has no row; coffee has no entry, the table has 3; \
         mate entry 2 ended at 5, the table has 6"
    );
}

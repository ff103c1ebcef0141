//! `holdfast ledger`: tables of many kinds, names, and rights.

use holdfast_testkit::{TestShop, run_program};

use crate::table_ledger::{
    OF_PRODUCTS, PRODUCTS, assert_sound, audit, entries, execute, sql, statement, text,
    try_execute, with_ledger,
};

const OF_T: &[&str] = &["--table", "t", "--key", "a", "--value", "n"];

#[tokio::test]
async fn table_of_any_kind_has_a_ledger() {
    for (tables, options, writes, expected) in [
        (
            "create table t (a uuid primary key, n numeric(10, 2));
             insert into t values ('6b1f3b0e-0000-4000-8000-000000000001', 1.50)",
            OF_T,
            "update t set n = n - 0.25",
            &[
                "6b1f3b0e-0000-4000-8000-000000000001 - 1.50",
                "6b1f3b0e-0000-4000-8000-000000000001 1.50 1.25",
            ][..],
        ),
        (
            "create table t (a int primary key, n bigint, other int); insert into t values (1, 5)",
            OF_T,
            "update t set n = 4; update t set other = 3; update t set n = 4, other = 2;
             insert into t values (2, null); delete from t where a = 1",
            &["1 - 5", "1 5 4", "1 4 4", "2 - -", "1 4 -"],
        ),
        (
            "create table t (a int, b text, n int, primary key (a, b));
             insert into t values (1, 'x', 5)",
            &["--table", "t", "--key", "a", "--key", "b", "--value", "n"],
            "update t set n = 4; update t set b = 'y'; insert into t values (2, 'z', 1);
             delete from t where a = 2",
            &[
                r#"[1, "x"] - 5"#,
                r#"[1, "x"] 5 4"#,
                r#"[1, "x"] 4 -"#,
                r#"[1, "y"] - 4"#,
                r#"[2, "z"] - 1"#,
                r#"[2, "z"] 1 -"#,
            ],
        ),
        (
            "create table t (a int primary key, n int) partition by range (a);
             create table t1 partition of t for values from (0) to (10);
             create table t2 (n int, a int not null); insert into t values (1, 5);
             alter table t attach partition t2 for values from (10) to (20)",
            OF_T,
            "update t set n = n - 1; update t set a = 11; update t2 set n = 7",
            &["1 - 5", "1 5 4", "1 4 -", "11 - 4", "11 4 7"],
        ),
        (
            "create table t (a int primary key, n int); insert into t values (1, 5);
             create function less() returns trigger language plpgsql as
                 $$ begin new.n := new.n - 1; return new; end $$;
             create trigger less before update on t for each row execute function less()",
            OF_T,
            "update t set n = 9; update t set a = a",
            &["1 - 5", "1 5 8", "1 8 7"],
        ),
        (
            "create table t (a int primary key, n int); insert into t values (1, 5)",
            OF_T,
            "alter table t rename n to m; alter table t rename a to b; update t set m = m - 1",
            &["1 - 5", "1 5 4"],
        ),
    ] {
        let shop = with_ledger(tables, options).await;
        execute(&shop, writes).await;
        assert_eq!(entries(&shop, "t_n_ledger").await, expected, "{tables}");
        assert_sound(&shop);
    }
}

#[tokio::test]
async fn names_that_need_quotes_and_schemas_are_kept() {
    let tables = r#"create schema "My shop"; 
                    create table "My shop"."It's ""tea""" ("Id" text primary key, "N" int);
                    insert into "My shop"."It's ""tea""" values ('a', 5)"#;
    let options =
        ["--table", "My shop.It's \"tea\"", "--key", "Id", "--value", "N", "--name", "Le'dger"];
    let shop = with_ledger(tables, &options).await;
    execute(&shop, r#"update "My shop"."It's ""tea""" set "N" = "N" - 1"#).await;
    assert_eq!(entries(&shop, r#""My shop"."Le'dger""#).await, ["a - 5", "a 5 4"]);

    // The ledger stays where it is.
    execute(&shop, r#"alter table "My shop"."It's ""tea""" rename to tea"#).await;
    execute(&shop, r#"alter table "My shop".tea set schema public; update tea set "N" = "N" - 1"#)
        .await;
    assert_sound(&shop);
}

#[tokio::test]
async fn unusable_table_is_refused_and_unchanged() {
    let view = "create table u (a int primary key, n int); create view t as select * from u";
    for (tables, words) in [
        ("create table t (a int, n int)", "{a} is not the primary key"),
        ("create table t (a int unique, n int)", "{a} is not the primary key"),
        ("create table t (a int, b int, n int, primary key (a, b))", "{a} is not the primary key"),
        ("create table t (b int primary key, n int)", "{a} is not the primary key"),
        ("create table t (a int primary key, n text)", "no column of numbers with the name n"),
        ("create table t (a int primary key, m int)", "no column of numbers with the name n"),
        ("create table \"T\" (a int primary key, n int)", "\"public.t\" does not exist"),
        (view, "{a} is not the primary key"),
    ] {
        let shop = TestShop::without_replicas().await;
        execute(&shop, tables).await;
        let refused = try_execute(&shop, &sql(OF_T)).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{tables}: {refused}");
        assert_eq!(audit(&shop, &[]).status.code(), Some(2), "{tables}");
    }

    let long = "t".repeat(60);
    let printed = run_program(&["ledger", "--table", &long, "--key", "a", "--value", "n"], &[]);
    assert_eq!(printed.status.code(), Some(2));
    assert!(text(printed.stderr).contains("--name"));
    assert!(printed.stdout.is_empty());
}

/// The writer needs no rights on the ledger, and gets none.
#[tokio::test]
async fn role_without_rights_writes_entries_and_cannot_forge_them() {
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    // Roles are those of the server, which other tests share.
    let role = &shop.database;
    execute(&shop, &format!("create role {role}; grant select, update on products to {role}"))
        .await;
    execute(&shop, &format!("set role {role}; {}", statement("- 1"))).await;
    assert_eq!(entries(&shop, "products_stock_ledger").await, ["tea - 10", "tea 10 9"]);

    for forgery in [
        "update products_stock_ledger set after = 10",
        "select products_stock_ledger_write('tea', 9, 10, true, pg_current_snapshot(), 0, '{}')",
        "create temp table t (id text, stock int);
         create trigger t after update on t for each row
             execute function products_stock_ledger_keep('id')",
    ] {
        let denied = try_execute(&shop, &format!("set role {role}; {forgery}")).await.unwrap_err();
        assert!(denied.to_string().contains("permission denied"), "{forgery}: {denied}");
    }

    // Nor may it install a ledger.
    let install = sql(&[OF_PRODUCTS, &["--name", "own"]].concat());
    assert!(try_execute(&shop, &format!("set role {role}; {install}")).await.is_err());
    execute(&shop, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn removal_leaves_nothing() {
    let shop = with_ledger(PRODUCTS, OF_PRODUCTS).await;
    let again = try_execute(&shop, &sql(OF_PRODUCTS)).await.unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");

    execute(&shop, "alter table products rename to goods").await;
    execute(&shop, &sql(&[OF_PRODUCTS, &["--drop"]].concat())).await;
    execute(&shop, "update goods set stock = 3").await;
    let left = "select (select count(*) from pg_proc where proname like 'products_stock%')
                     + (select count(*) from pg_class where relname like 'products_stock%')
                     + (select count(*) from pg_trigger where tgname like 'products_stock%')";
    assert_eq!(shop.number(left).await, 0);
    assert_eq!(audit(&shop, &[]).status.code(), Some(2));
}

//! `holdfast migrate`: databases that it rejects, and what it inserts.

use holdfast_shop::db::Error;
use holdfast_testkit::{TestShop, run_program, services};
use sqlx::{AssertSqlSafe, PgPool};

/// The part of an old build's schema that the test needs: its migrations and one table.
const OLD_BUILD: &str = "
    drop schema public cascade;
    create schema public;
    create table _sqlx_migrations (
        version bigint primary key, description text not null,
        installed_on timestamptz not null default now(), success boolean not null,
        checksum bytea not null, execution_time bigint not null);
    insert into _sqlx_migrations (version, description, success, checksum, execution_time)
    select n, 'old', true, '', 0 from generate_series(1, 16) n;
    create table items (sku text primary key, stock bigint not null);
    insert into items values ('lock', 7)";

/// Every table of the schema `public` with its columns, and the contents of two of them.
async fn contents(pool: &PgPool) -> String {
    sqlx::query_scalar(
        "select concat(
             (select string_agg(concat_ws(' ', table_name, column_name, data_type), '; '
                                order by table_name, ordinal_position)
                from information_schema.columns where table_schema = 'public'),
             (select json_agg(m order by version) from _sqlx_migrations m),
             (select json_agg(i order by sku) from items i))",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

fn run_migrate(shop: &TestShop, flags: &[&str]) -> (bool, String) {
    let arguments = [&["migrate"], flags].concat();
    let output = run_program(&arguments, &[("DATABASE_URL", &shop.database_url())]);
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// There is no release yet: what an older or newer build wrote is rejected, and not changed.
#[tokio::test]
async fn database_of_another_build_is_rejected() {
    let text = "update _sqlx_migrations set checksum = '' where version = 2";
    let newer = "update _sqlx_migrations set version = 114 where version = 3";
    for other in [OLD_BUILD, text, newer] {
        let shop = TestShop::without_replicas().await;
        sqlx::raw_sql(AssertSqlSafe(other)).execute(&shop.pool).await.unwrap();
        let before = contents(&shop.pool).await;

        let (success, stderr) = run_migrate(&shop, &["--seed"]);
        assert!(!success);
        assert_eq!(stderr.trim_end(), format!("holdfast: {}", Error::OtherBuild));
        assert!(stderr.contains("use an empty database"), "{stderr}");

        let pool = holdfast_shop::db::pool(&shop.database_url(), 1).unwrap();
        let checked = holdfast_shop::db::check_server(&pool).await;
        assert!(matches!(checked, Err(Error::OtherBuild)), "{checked:?}");
        assert_eq!(contents(&shop.pool).await, before);
    }
}

#[tokio::test]
async fn database_of_another_encoding_is_rejected() {
    let shop = TestShop::without_replicas().await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("{}_{}", shop.database, encoding.to_lowercase());
        let create =
            format!("create database {name} encoding '{encoding}' locale 'C' template template0");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&shop.pool).await.unwrap();
        let url = shop.database_url().replace(&shop.database, &name);
        for command in ["migrate", "serve", "audit"] {
            let output = run_program(
                &[command],
                &[
                    ("DATABASE_URL", &url),
                    ("REDIS_URL", &services().running.redis_url),
                    ("HOLDFAST_LISTEN", "127.0.0.1:0"),
                ],
            );
            let stderr = String::from_utf8(output.stderr).unwrap();
            let named = format!("{name} has the encoding {encoding}, and Holdfast requires UTF8");
            assert!(!output.status.success() && stderr.contains(&named), "{command}: {stderr}");
        }
    }
}

#[tokio::test]
async fn demo_users_are_inserted_only_on_request() {
    for (flags, items, users) in [
        (&[][..], 0, 0),
        (&["--seed"], 8, 0),
        (&["--demo-users"], 0, 4),
        (&["--seed", "--demo-users"], 8, 4),
    ] {
        let shop = TestShop::without_replicas().await;
        let empty = "drop schema public cascade; create schema public";
        sqlx::raw_sql(empty).execute(&shop.pool).await.unwrap();
        // A second time changes nothing.
        for _ in 0..2 {
            let (success, stderr) = run_migrate(&shop, flags);
            assert!(success, "{stderr}");
            assert_eq!(shop.number("select count(*) from items").await, items, "{flags:?}");
            assert_eq!(shop.number("select count(*) from users").await, users, "{flags:?}");
            shop.assert_sound().await;
        }
    }
}

/// A dump, or a statement by hand, brings nicknames that this build takes for one: the two stay,
/// and are named.
#[tokio::test]
async fn nicknames_that_are_one_are_listed() {
    let shop = TestShop::without_replicas().await;
    shop.execute(
        "insert into users (id, name, password_hash, nickname, folded_nickname)
         values (gen_random_uuid(), 'class-1', '', 'Émile', 'Émile'),
                (gen_random_uuid(), 'class-2', '', 'émile', 'émile'),
                (gen_random_uuid(), 'class-3', '', 'Ömer', 'Ömer'),
                (gen_random_uuid(), 'class-4', '', 'Mia', 'mia')",
    )
    .await;

    let (success, stderr) = run_migrate(&shop, &[]);
    assert!(success, "{stderr}");
    let both = "the students Émile and émile have the same nickname";
    let other = "the nickname Ömer is stored as Ömer, and compared as ömer";
    assert!(stderr.contains(both) && stderr.contains(other), "{stderr}");
    assert!(stderr.contains("/lab/class") && !stderr.contains("Mia"), "{stderr}");

    assert_eq!(shop.failing_checks().await, ["nicknames"]);
    let nicknames = "select count(*) from users where nickname in ('Émile', 'émile', 'Ömer')";
    assert_eq!(shop.number(nicknames).await, 3);

    // As the advice says.
    shop.execute(
        "update users set nickname = null, folded_nickname = null
          where nickname in ('Émile', 'Ömer')",
    )
    .await;
    shop.assert_sound().await;
    assert_eq!(run_migrate(&shop, &[]), (true, String::new()));
}

//! PgBouncer between the replicas and Postgres, and a database with settings of its own.

use std::process::Command;

use futures_util::future::join_all;
use holdfast_shop::db::{self, Error};
use holdfast_testkit::pooler::Pooler;
use holdfast_testkit::{TestShop, options, services};
use sqlx::{AssertSqlSafe, Executor as _};

/// Settings for compatibility with more clients; with `options`, settings are dropped silently.
const LENIENT: &str = "ignore_startup_parameters = extra_float_digits, options";

/// Returns PgBouncer in front of the services' Postgres.
fn start_pooler(settings: &str) -> Option<Pooler> {
    let postgres = options();
    let target = format!("port={} user={}", postgres.get_port(), postgres.get_username());
    Pooler::start(postgres.get_socket().unwrap(), &target, settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn session_pooler_keeps_all_settings() {
    let mut shop = TestShop::without_replicas().await;
    for settings in ["pool_mode = session", &format!("pool_mode = session\n{LENIENT}")] {
        let Some(pooler) = start_pooler(settings) else { return };
        let url = pooler.url(&shop.database);
        let pool = db::pool(&url, 1).unwrap();
        for (name, value) in [
            ("statement_timeout", "4s"),
            ("lock_timeout", "3s"),
            ("idle_in_transaction_session_timeout", "3s"),
            ("plan_cache_mode", "force_generic_plan"),
        ] {
            let mut connection = pool.acquire().await.unwrap();
            let query = sqlx::query_scalar("select current_setting($1)").bind(name);
            let current: String = query.fetch_one(&mut *connection).await.unwrap();
            assert_eq!(current, value, "{name}, {settings}");
        }
        shop.add_replica(&[("DATABASE_URL", &url)]);
        let alice = shop.sign_in("alice").await;
        let sku = shop.lab_item(10).await;
        let orders = (0..10).map(|_| alice.orders(&sku, 1).send());
        for response in join_all(orders).await {
            assert_eq!(response.status, 201, "{settings}");
        }
        shop.replicas.clear();
    }
    shop.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreset_pooler_session_is_usable() {
    let shop = TestShop::without_replicas().await;
    let settings = "pool_mode = session\ndefault_pool_size = 1\nserver_reset_query =";
    let Some(pooler) = start_pooler(settings) else { return };
    for _ in 0..2 {
        let pool = db::pool(&pooler.url(&shop.database), 1).unwrap();
        let mut connection = pool.acquire().await.unwrap();
        // A prepared statement, whose name the next client chooses again.
        let one: i32 = sqlx::query_scalar("select 1").fetch_one(&mut *connection).await.unwrap();
        assert_eq!(one, 1);
        drop(connection);
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_pooler_is_rejected_at_start() {
    let shop = TestShop::without_replicas().await;
    for mode in ["transaction", "statement"] {
        let Some(pooler) = start_pooler(&format!("pool_mode = {mode}\n{LENIENT}")) else { return };
        let url = pooler.url(&shop.database);
        let migrated = db::migrate(&url).await;
        assert!(matches!(migrated, Err(Error::SharedSession)), "{migrated:?}");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
        serve.args(["--redis-url", &services().running.redis_url]);
        let output = tokio::task::spawn_blocking(move || serve.output()).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("pool_mode = session"), "{error}");
    }
}

/// Under a stricter level, a row that another order has changed would be a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn isolation_of_the_database_changes_no_strategy() {
    let mut shop = TestShop::without_replicas().await;
    let alter = "alter database {} set default_transaction_isolation = 'serializable'"
        .replace("{}", &shop.database);
    shop.pool.execute(AssertSqlSafe(alter)).await.unwrap();
    shop.add_replica(&[]);
    let alice = shop.sign_in("alice").await;
    for strategy in ["row-lock", "atomic", "advisory", "batched"] {
        let sku = shop.lab_item(40).await;
        let order = || alice.orders(&sku, 1).lock(strategy).send();
        for response in join_all((0..40).map(|_| order())).await {
            assert_eq!(response.status, 201, "{strategy}: {response}");
        }
    }
    shop.assert_sound().await;
}
